//! BPF arrays that are mapped into this process: read without a system call.
//!
//! A bpf(2) lookup keeps kprobe programs from running on its CPU (`bpf_disable_instrumentation`, kernel/bpf/syscall.c), and
//! where the kernel preempts it half-way, whatever runs there meanwhile goes unseen.

use super::load::{LoadError, chain};
use aya::maps::{Array, Map};
use aya::{Ebpf, Pod};
use kfd_trace_common::counter::{COUNTERS, STRIDE};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};

/// The words of an array made with `BPF_F_MMAPABLE`, as they are now; programs go on writing.
pub(super) struct Mapped {
    start: NonNull<AtomicU64>,
    words: usize,
}

// SAFETY: it owns its mapping, which any thread may read and unmap.
unsafe impl Send for Mapped {}
// SAFETY: shared it gives out atomics only.
unsafe impl Sync for Mapped {}

impl Mapped {
    /// Maps an array of `T` whole; the kernel keeps each at a multiple of 8 bytes. The mapping outlives the object: it
    /// holds the array.
    pub(super) fn new<T: Pod>(ebpf: &Ebpf, name: &'static str) -> Result<Self, LoadError> {
        let Some(map @ Map::Array(data)) = ebpf.map(name) else { return Err(LoadError::NoMap(name)) };
        let array: Array<_, T> =
            map.try_into().map_err(|why| LoadError::Map { map: name, why: chain(&why) })?;
        let words = array.len() as usize * size_of::<T>().div_ceil(size_of::<u64>());
        let len = words * size_of::<u64>();
        let fd = data.fd().as_fd().as_raw_fd();
        // SAFETY: a new mapping, at a place that the kernel chooses.
        let start = unsafe { libc::mmap(ptr::null_mut(), len, libc::PROT_READ, libc::MAP_SHARED, fd, 0) };
        let mapped = if start == libc::MAP_FAILED { None } else { NonNull::new(start.cast()) };
        let why = || format!("mmap: {}", io::Error::last_os_error());
        mapped.map(|start| Mapped { start, words }).ok_or_else(|| LoadError::Map { map: name, why: why() })
    }

    fn words(&self) -> &[AtomicU64] {
        // SAFETY: mapped for reading until this is dropped, page-aligned, and only ever loaded from: the kernel writes whole
        // words of 8 bytes.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.words) }
    }

    /// All words.
    pub(super) fn load(&self) -> impl Iterator<Item = u64> + '_ {
        self.words().iter().map(|word| word.load(Ordering::Relaxed))
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        let len = self.words * size_of::<u64>();
        // SAFETY: the mapping that `new` made; no reference into it outlives this.
        let _ = unsafe { libc::munmap(self.start.as_ptr().cast(), len) };
    }
}

/// Words of the counters of this many CPUs.
pub(super) fn counters_len(cpu_ids: u32) -> u32 {
    cpu_ids.max(1).saturating_mul(STRIDE)
}

/// Each counter summed up over the CPUs.
pub(super) fn sums(words: impl Iterator<Item = u64>) -> Vec<u64> {
    let mut sums = vec![0u64; COUNTERS as usize];
    for (at, word) in words.enumerate() {
        // What pads a CPU's part has no counter.
        if let Some(sum) = sums.get_mut(at % STRIDE as usize) {
            *sum += word;
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;
    use kfd_trace_common::counter;
    use kfd_trace_common::kind::Kind;

    #[test]
    fn each_cpu_has_its_part_and_its_padding_is_not_counted() {
        let mut words = vec![0; counters_len(3) as usize];
        let last = *Kind::ALL.last().unwrap();
        for (cpu, part) in words.chunks_mut(STRIDE as usize).enumerate() {
            part[counter::lost(last) as usize] = 10u64.pow(u32::try_from(cpu).unwrap());
            part[COUNTERS as usize..].fill(77);
        }
        let sums = sums(words.into_iter());
        assert_eq!((sums.len(), sums.iter().sum::<u64>()), (COUNTERS as usize, 111));
        assert_eq!(sums[counter::lost(last) as usize], 111);
    }
}
