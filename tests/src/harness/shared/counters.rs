//! The counters of a running tracer, read from its BPF map: what it sends, loses, and cannot do is told by the daemon's
//! metrics, but by a stream only in its summary. The map is read as memory: a bpf(2) lookup would keep the tracer's programs
//! from running on its CPU.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result};
use aya::maps::MapData;
use kfd_trace_common::counter::{self, STRIDE, Trouble};
use kfd_trace_common::kind::Kind;
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};

use crate::harness::bpf_maps;

/// kfd-trace-ebpf/src/counters.rs
const NAME: &str = "COUNTERS";

/// The array, mapped: a part of [`STRIDE`] words for each CPU.
pub(super) struct Counters {
    start: NonNull<AtomicU64>,
    words: usize,
}

// SAFETY: it owns its mapping, which any thread may read and unmap.
unsafe impl Send for Counters {}

/// Since the tracer started, by the names of the metrics; none of them 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Records that reached the ring buffer, by kind.
    pub(super) sent: BTreeMap<&'static str, u64>,
    /// Records that found it full, by kind, and what the programs could not do.
    pub(super) missing: BTreeMap<&'static str, u64>,
}

impl Counters {
    /// Those of this process.
    pub(super) fn of(pid: u32) -> Result<Self> {
        let (map, entries) = bpf_maps::find(pid, NAME)?;
        Self::map(&map, entries)
    }

    fn map(map: &MapData, words: usize) -> Result<Self> {
        let len = NonZeroUsize::new(words * size_of::<u64>()).context("a map without entries")?;
        // SAFETY: a new mapping, at a place that the kernel chooses.
        let start =
            unsafe { mmap(None, len, ProtFlags::PROT_READ, MapFlags::MAP_SHARED, map.fd().as_fd(), 0) };
        Ok(Self { start: start.context("map the counters")?.cast(), words })
    }

    fn sum(&self, index: u32) -> u64 {
        // SAFETY: mapped for reading until this is dropped, and only ever loaded from.
        let words = unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.words) };
        let of_cpus = words.iter().skip(index as usize).step_by(STRIDE as usize);
        of_cpus.map(|word| word.load(Ordering::Relaxed)).sum()
    }

    pub(super) fn read(&self) -> Counts {
        let mut counts = Counts::default();
        for kind in Kind::ALL {
            counts.sent.insert(kind.name(), self.sum(counter::sent(*kind)));
            counts.missing.insert(kind.name(), self.sum(counter::lost(*kind)));
        }
        for trouble in Trouble::ALL {
            counts.missing.insert(trouble.name(), self.sum(counter::trouble(*trouble)));
        }
        counts.since(&Counts::default())
    }
}

impl Drop for Counters {
    fn drop(&mut self) {
        // SAFETY: the mapping that `map` made; no reference into it outlives this.
        let _ = unsafe { munmap(self.start.cast(), self.words * size_of::<u64>()) };
    }
}

impl Counts {
    /// What has come after `before`.
    pub(super) fn since(&self, before: &Counts) -> Counts {
        let since = |now: &BTreeMap<&'static str, u64>, then: &BTreeMap<&'static str, u64>| {
            let more = now.iter().map(|(name, count)| (*name, count - then.get(name).unwrap_or(&0)));
            more.filter(|(_, count)| *count > 0).collect()
        };
        Counts { sent: since(&self.sent, &before.sent), missing: since(&self.missing, &before.missing) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_came_after_is_left() {
        let counts = |sent, missing| Counts {
            sent: BTreeMap::from([("ioctl", sent), ("open", 1)]),
            missing: BTreeMap::from([("ioctl", missing)]),
        };
        let since = counts(5, 2).since(&counts(3, 2));
        assert_eq!(since.sent, BTreeMap::from([("ioctl", 2)]));
        assert_eq!(since.missing, BTreeMap::new());
    }
}
