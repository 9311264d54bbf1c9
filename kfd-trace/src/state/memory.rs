//! Memory that a process holds by KFD: what its ioctls allocated, imported and freed, and what the driver counts.

use crate::model::event::IoctlCall;
use crate::model::memory::{Allocation, Domain, MemoryCall, of_call};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Allocations of a process that are followed one by one; of more, only that there are more is known.
pub(super) const MOST: usize = 1 << 16;

/// What one process holds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Memory {
    /// By handle. Shared with the snapshots.
    held: Arc<BTreeMap<u64, Held>>,
    /// By gpu_id and where it lies, none of them 0.
    sums: BTreeMap<(u32, Domain), MemorySum>,
    /// Bytes of VRAM by gpu_id, as the driver counts them (sysfs, `vram_<gpu_id>`): with SVM on some drivers, without
    /// what was imported.
    pub(super) vram: BTreeMap<u32, u64>,
    /// A call that allocates, imports or frees was seen.
    pub(super) seen: bool,
    /// Something was allocated or freed, and it was not seen what.
    pub(super) unseen: bool,
}

/// An allocation that was not freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    pub gpu_id: u32,
    pub domain: Domain,
    /// As the driver counts them; 0 for an import, whose size is not known.
    pub bytes: u64,
    /// Address in the process.
    pub va: u64,
    /// When the call was made, CLOCK_MONOTONIC nanoseconds.
    pub since_ns: u64,
}

/// Of one GPU and domain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemorySum {
    pub bytes: u64,
    pub allocations: u64,
}

impl Memory {
    /// Its allocations with their handles, as far as they were seen.
    pub fn held(&self) -> impl Iterator<Item = (u64, &Held)> {
        self.held.iter().map(|(handle, held)| (*handle, held))
    }

    /// By gpu_id and where it lies.
    #[must_use]
    pub fn sums(&self) -> &BTreeMap<(u32, Domain), MemorySum> {
        &self.sums
    }

    /// As the driver counts it, bytes by gpu_id; empty where that is not known.
    #[must_use]
    pub fn vram(&self) -> &BTreeMap<u32, u64> {
        &self.vram
    }

    /// `vram`: empty where the source does not have it.
    pub(super) fn counted(&mut self, vram: &BTreeMap<u32, u64>) {
        if !vram.is_empty() {
            self.vram.clone_from(vram);
        }
    }

    pub(super) fn call(&mut self, call: &IoctlCall) {
        let call_of = of_call(call);
        self.seen |= call_of.is_some();
        match call_of {
            Some(MemoryCall::Holds(allocation)) => self.hold(allocation, call.entered_ns),
            Some(MemoryCall::Frees { handle }) => self.free(handle),
            Some(MemoryCall::NotSeen) => self.unseen = true,
            None => {}
        }
    }

    fn hold(&mut self, allocation: Allocation, since_ns: u64) {
        let Allocation { handle, gpu_id, domain, bytes, va } = allocation;
        // Its end was not seen.
        if self.held.contains_key(&handle) {
            self.unseen = true;
            self.free(handle);
        }
        if self.held.len() == MOST {
            self.unseen = true;
            return;
        }
        Arc::make_mut(&mut self.held).insert(handle, Held { gpu_id, domain, bytes, va, since_ns });
        let sum = self.sums.entry((gpu_id, domain)).or_default();
        sum.bytes += bytes;
        sum.allocations += 1;
    }

    fn free(&mut self, handle: u64) {
        let Some(Held { gpu_id, domain, bytes, .. }) = Arc::make_mut(&mut self.held).remove(&handle) else {
            self.unseen = true;
            return;
        };
        if let Some(sum) = self.sums.get_mut(&(gpu_id, domain)) {
            sum.bytes -= bytes;
            sum.allocations -= 1;
            if sum.allocations == 0 {
                self.sums.remove(&(gpu_id, domain));
            }
        }
    }

    /// The driver has freed it.
    pub(super) fn end(&mut self) {
        *self = Memory::default();
    }
}
