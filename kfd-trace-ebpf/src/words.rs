//! Zeroes and copies by whole words. For other code the compiler calls `memset` or `memcpy`, which are loops
//! over bytes in BPF: a program pays for each byte, and the verifier follows each iteration on each path that
//! leads there.

/// Fills a structure with zeros.
///
/// # Safety
/// `to` is valid for writes and aligned, and all zeros is a value of `T`.
#[inline(always)]
pub(crate) unsafe fn zero<T>(to: *mut T) {
    for at in 0..const { words::<T>() } {
        // SAFETY: one of the words of `T`.
        let word = unsafe { to.cast::<u64>().add(at) };
        // SAFETY: as the caller promises. Volatile, so that no `memset` is made of them.
        unsafe { word.write_volatile(0) };
    }
}

/// Fills what follows a structure's first field with zeros.
///
/// # Safety
/// As for [`zero`], and `T` begins with an `H`.
#[inline(always)]
pub(crate) unsafe fn zero_after<H, T>(to: *mut T) {
    for at in const { words::<H>() }..const { words::<T>() } {
        // SAFETY: as in `zero`.
        let word = unsafe { to.cast::<u64>().add(at) };
        // SAFETY: as in `zero`.
        unsafe { word.write_volatile(0) };
    }
}

/// Copies a structure that may be written concurrently: each of its words is whole.
///
/// # Safety
/// `from` is valid for reads, `to` for writes, and both are aligned.
#[inline(always)]
pub(crate) unsafe fn copy<T: Copy>(from: *const T, to: *mut T) {
    for at in 0..const { words::<T>() } {
        // SAFETY: one of the words of `T`.
        let (from, to) = unsafe { (from.cast::<u64>().add(at), to.cast::<u64>().add(at)) };
        // SAFETY: as the caller promises. Volatile, so that no `memcpy` is made of them.
        unsafe { to.write_volatile(from.read_volatile()) };
    }
}

/// Number of words of a structure, which must make up its whole size.
const fn words<T>() -> usize {
    assert!(align_of::<T>() == size_of::<u64>() && size_of::<T>().is_multiple_of(size_of::<u64>()));
    size_of::<T>() / size_of::<u64>()
}
