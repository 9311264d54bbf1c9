//! Reads of kernel memory at offsets that the daemon took from BTF, and of the running process's own memory.
//! The only place that calls `bpf_probe_read_kernel` and `bpf_probe_read_user`; a field missing in this
//! kernel reads as `None`, and its code is dropped at load.

use aya_ebpf::Global;
use aya_ebpf::cty::c_void;
use aya_ebpf::helpers::generated::{self, bpf_get_current_comm};
use aya_ebpf::helpers::{
    bpf_probe_read_kernel, bpf_probe_read_kernel_buf, bpf_probe_read_kernel_str_bytes,
    bpf_probe_read_user_buf,
};
use core::mem::MaybeUninit;
use kfd_trace_common::limits::COMM_LEN;
use kfd_trace_common::offset::ABSENT;

macro_rules! globals {
    ($($name:ident: $object:ident $(($structure:literal, $path:literal))+;)*) => {
        $(#[unsafe(no_mangle)] pub(crate) static $name: Global<u32> = Global::new(ABSENT);)*
    };
}

kfd_trace_common::kernel_fields!(globals);

/// Offset of a field, if this kernel has it.
#[inline(always)]
pub(crate) fn offset(field: &Global<u32>) -> Option<u64> {
    let offset = field.load();
    (offset != ABSENT).then_some(u64::from(offset))
}

/// The field of the structure at `base`.
#[inline(always)]
pub(crate) fn read<T: Copy>(base: u64, field: &Global<u32>) -> Option<T> {
    read_at(base, offset(field)?)
}

/// The value at `base + offset`; `None` for an address that faults. A null base faults, too: a check of it
/// here would only add another path through each program for the verifier.
#[inline(always)]
pub(crate) fn read_at<T: Copy>(base: u64, offset: u64) -> Option<T> {
    // SAFETY: the helper itself refuses addresses that cannot be read.
    unsafe { bpf_probe_read_kernel((base + offset) as *const T) }.ok()
}

/// Bytes from one field of a structure to a later one, if this kernel has both in this order. What lies close
/// together is read at once: a read costs as much as copying a hundred bytes.
#[inline(always)]
pub(crate) fn distance(from: &Global<u32>, to: &Global<u32>) -> Option<u64> {
    offset(to)?.checked_sub(offset(from)?)
}

/// Two fields of 8 bytes: by one read where the second one follows the first.
#[inline(always)]
pub(crate) fn read_both(base: u64, first: &Global<u32>, second: &Global<u32>) -> (Option<u64>, Option<u64>) {
    if distance(first, second) == Some(8) {
        let both = read::<[u64; 2]>(base, first);
        return (both.map(|[first, _]| first), both.map(|[_, second]| second));
    }
    (read(base, first), read(base, second))
}

/// The field of the structure at `base`, 0 where it cannot be read: without a branch, so that the verifier
/// has one path to follow.
#[inline(always)]
pub(crate) fn read_or_zero<T: Integer>(base: u64, field: &Global<u32>) -> T {
    offset(field).map_or(T::default(), |offset| read_at_or_zero(base, offset))
}

/// The same of the value at `base + offset`.
#[inline(always)]
pub(crate) fn read_at_or_zero<T: Integer>(base: u64, offset: u64) -> T {
    let mut value = MaybeUninit::<T>::uninit();
    let from = (base + offset) as *const c_void;
    // SAFETY: the helper itself refuses addresses that cannot be read, and fills `value` with zeros then
    // (bpf_probe_read_kernel_common, kernel/trace/bpf_trace.c).
    let _ =
        unsafe { generated::bpf_probe_read_kernel(value.as_mut_ptr().cast(), size_of::<T>() as u32, from) };
    // SAFETY: filled by the helper either way, and any bytes are an integer.
    unsafe { value.assume_init() }
}

/// Types for which any bytes are a valid value, and zeros the default one.
pub(crate) trait Integer: Copy + Default {}
impl Integer for u8 {}
impl Integer for u16 {}
impl Integer for u32 {}
impl Integer for u64 {}

/// Fills `out` from the field of the structure at `base`; with zeros, or not at all, where that cannot be
/// read.
#[inline(always)]
pub(crate) fn read_field(base: u64, field: &Global<u32>, out: &mut [u8]) -> Option<()> {
    read_bytes(base + offset(field)?, out)
}

/// The running thread's name; zeros if the kernel does not provide it.
#[inline(always)]
pub(crate) fn current_comm(out: &mut [u8; COMM_LEN]) {
    // SAFETY: the helper writes as many bytes as requested, which are `out`'s. It fails only without a
    // thread.
    let _ = unsafe { bpf_get_current_comm(out.as_mut_ptr().cast(), COMM_LEN as u32) };
}

/// Fills `out` from `address`.
#[inline(always)]
pub(crate) fn read_bytes(address: u64, out: &mut [u8]) -> Option<()> {
    // SAFETY: as above.
    unsafe { bpf_probe_read_kernel_buf(address as *const u8, out) }.ok()
}

/// Fills `out` from an address of the running process; `None` also for a page that is not in memory.
#[inline(always)]
pub(crate) fn read_user(address: u64, out: &mut [u8]) -> Option<()> {
    // SAFETY: as above.
    unsafe { bpf_probe_read_user_buf(address as *const u8, out) }.ok()
}

/// Copies a NUL-terminated text, truncated to `out`, and returns its length.
#[inline(always)]
pub(crate) fn read_text(address: u64, out: &mut [u8]) -> Option<usize> {
    // SAFETY: as above.
    unsafe { bpf_probe_read_kernel_str_bytes(address as *const u8, out) }.ok().map(<[u8]>::len)
}
