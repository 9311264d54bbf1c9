//! A BPF map of a running tracer as memory, read-only: a bpf(2) lookup would keep the tracer's programs from
//! running on its CPU.

use anyhow::{Context, Result};
use aya::maps::MapData;
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use std::num::NonZeroUsize;
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// Its current words; programs keep writing them.
pub(super) struct Mapped {
    start: NonNull<AtomicU64>,
    words: usize,
}

// SAFETY: it owns its mapping, which any thread may read and unmap.
unsafe impl Send for Mapped {}

impl Mapped {
    /// Maps this many words of 8 bytes from its start.
    pub(super) fn new(map: &MapData, words: usize) -> Result<Self> {
        let len = NonZeroUsize::new(words * size_of::<u64>()).context("a map without entries")?;
        // SAFETY: a new mapping, at a place that the kernel chooses.
        let start =
            unsafe { mmap(None, len, ProtFlags::PROT_READ, MapFlags::MAP_SHARED, map.fd().as_fd(), 0) };
        Ok(Self { start: start.context("map a BPF map")?.cast(), words })
    }

    fn words(&self) -> &[AtomicU64] {
        // SAFETY: mapped for reading until this is dropped, and only ever read by atomic loads.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.words) }
    }

    /// The word at this index.
    pub(super) fn word(&self, index: usize) -> Result<u64> {
        self.words().get(index).map(|word| word.load(Ordering::Acquire)).context("beyond the map")
    }

    /// Sums every `step`-th word, starting at `from`.
    pub(super) fn sum(&self, from: u32, step: u32) -> u64 {
        let words = self.words().iter().skip(from as usize).step_by(step as usize);
        words.map(|word| word.load(Ordering::Relaxed)).sum()
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: the mapping that `new` made; no reference into it outlives this.
        let _ = unsafe { munmap(self.start.cast(), self.words * size_of::<u64>()) };
    }
}
