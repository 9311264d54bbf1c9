//! What a probe on a function's entry learns from registers besides the arguments, on each architecture.

#[cfg(not(bpf_target_arch = "aarch64"))]
use crate::kernel::read_at;
use aya_ebpf::programs::ProbeContext;

/// The stack pointer, and the address of the function.
#[cfg(not(bpf_target_arch = "aarch64"))]
#[inline(always)]
pub(super) fn stack_and_function(ctx: &ProbeContext) -> (u64, u64) {
    // SAFETY: the context of a kprobe.
    unsafe { ((*ctx.regs).rsp, (*ctx.regs).rip) }
}

/// The stack pointer, and the address of the function.
#[cfg(bpf_target_arch = "aarch64")]
#[inline(always)]
pub(super) fn stack_and_function(ctx: &ProbeContext) -> (u64, u64) {
    // SAFETY: the context of a kprobe.
    unsafe { ((*ctx.regs).sp, (*ctx.regs).pc) }
}

/// Where the function returns to; 0 where that cannot be read. Not where a kretprobe is on it, too.
#[cfg(not(bpf_target_arch = "aarch64"))]
#[inline(always)]
pub(super) fn return_address(ctx: &ProbeContext) -> u64 {
    // SAFETY: the context of a kprobe.
    read_at(unsafe { (*ctx.regs).rsp }, 0).unwrap_or(0)
}

/// Where the function returns to. Not where a kretprobe is on it, too.
#[cfg(bpf_target_arch = "aarch64")]
#[inline(always)]
pub(super) fn return_address(ctx: &ProbeContext) -> u64 {
    // SAFETY: the context of a kprobe. x30 is the link register.
    unsafe { (*ctx.regs).regs[30] }
}
