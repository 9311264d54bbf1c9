//! The BPF programs of kfd-trace.
//!
//! Each probe has a thin entry function in `probes/` that counts its hit and calls a body; a body that cannot
//! continue counts a named trouble of its probe and stops. Each map is a private static of the file that owns
//! it.
#![no_std]
#![no_main]
#![feature(core_intrinsics)]
#![expect(
    clippy::cast_possible_truncation,
    reason = "helpers pack two u32 in a u64 and return int in u64 registers; try_from would only add branches"
)]
#![expect(
    internal_features,
    reason = "no target without compare-and-exchange has an atomic addition of its own"
)]
#![expect(clippy::needless_pass_by_value, reason = "the program macros pass contexts by value")]

/// A line for developers of the programs, in debug builds only: aya-log drops lines without a count, so
/// nothing may depend on them. No kernel address is logged.
macro_rules! note {
    ($ctx:expr, $($arg:tt)*) => {
        #[cfg(feature = "bpf-log")]
        aya_log_ebpf::debug!($ctx, $($arg)*);
    };
}

mod atomic;
mod counters;
mod emit;
mod filter;
mod in_flight;
mod kernel;
mod lookup;
mod losses;
mod nested;
mod peek;
mod probes;
mod processes;
mod refusal;
mod stats;
mod words;

// Read by the kernel: helpers such as bpf_probe_read_kernel are for GPL-compatible programs.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";

#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    // The verifier rejects a program that could get here, so nothing can be reported from here.
    loop {}
}
