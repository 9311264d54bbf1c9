//! Memory that a process holds by KFD: what its ioctls allocated, imported, mapped and freed, and what the driver
//! counts.

use super::pairs;
use crate::model::event::IoctlCall;
use crate::model::memory::{Allocation, Domain, Mapping, MemoryCall, of_call};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Allocations of a process that are followed one by one, and of all processes together; of more, only that there are
/// more is known.
pub(super) const MOST: usize = 1 << 16;
pub(super) const MOST_OF_ALL: usize = 1 << 20;

/// What one process holds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Memory {
    /// `None`: nothing is known. Shared with the snapshots.
    #[serde(serialize_with = "shared", deserialize_with = "unshared")]
    known: Option<Arc<Known>>,
}

fn shared<S: Serializer>(known: &Option<Arc<Known>>, serializer: S) -> Result<S::Ok, S::Error> {
    known.as_deref().serialize(serializer)
}

fn unshared<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Arc<Known>>, D::Error> {
    Ok(Option::<Known>::deserialize(deserializer)?.map(Arc::new))
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct Known {
    /// By handle.
    held: BTreeMap<u64, Held>,
    /// By gpu_id and where it lies, none of them 0.
    #[serde(with = "pairs")]
    sums: BTreeMap<(u32, Domain), MemorySum>,
    /// Bytes of VRAM by gpu_id, as the driver counts them (sysfs, `vram_<gpu_id>`): with SVM on some drivers, without
    /// what was imported.
    vram: BTreeMap<u32, u64>,
    /// A call that allocates, imports or frees was seen.
    seen: bool,
    /// Something was allocated or freed, and it was not seen what.
    unseen: bool,
    /// GPUs on which something was mapped, each the bit of its place in [`Held::mapped`].
    gpus: Vec<u32>,
    /// Until then calls that map may have been missed: it is not known of older allocations on which GPUs they are.
    maps_missed_ns: Option<u64>,
}

/// An allocation that was not freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    pub gpu_id: u32,
    pub domain: Domain,
    /// As the driver counts them; 0 for an import, whose size is not known.
    pub bytes: u64,
    /// Address in the process.
    pub va: u64,
    /// When the call was made, CLOCK_MONOTONIC nanoseconds.
    pub since_ns: u64,
    /// On which of [`Known::gpus`] it is mapped; `None` where that is not known.
    #[serde(default)]
    mapped: Option<u64>,
}

/// GPUs of one process's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct GpuSet(u64);

/// Of one GPU and domain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemorySum {
    pub bytes: u64,
    pub allocations: u64,
}

impl MemorySum {
    /// One more allocation.
    pub fn add(&mut self, held: &Held) {
        self.merge(MemorySum { bytes: held.bytes, allocations: 1 });
    }

    pub fn merge(&mut self, more: MemorySum) {
        self.bytes = self.bytes.saturating_add(more.bytes);
        self.allocations += more.allocations;
    }
}

static NO_SUMS: BTreeMap<(u32, Domain), MemorySum> = BTreeMap::new();
static NO_COUNTS: BTreeMap<u32, u64> = BTreeMap::new();

impl Memory {
    /// Nothing is known of it, which is so of most processes of a machine without allocations.
    #[must_use]
    pub fn is_unknown(&self) -> bool {
        self.known.is_none()
    }

    /// Its allocations with their handles, as far as they were seen.
    pub fn held(&self) -> impl Iterator<Item = (u64, &Held)> {
        self.known.iter().flat_map(|known| known.held.iter().map(|(handle, held)| (*handle, held)))
    }

    /// On which GPUs one of its allocations is mapped; `None` where that is not known. Few allocations differ in it.
    #[must_use]
    pub fn mapping(&self, held: &Held) -> Option<GpuSet> {
        let after = |missed_ns| held.since_ns > missed_ns;
        let known = self.known.as_ref()?;
        held.mapped.filter(|_| known.maps_missed_ns.is_none_or(after)).map(GpuSet)
    }

    /// By gpu_id, in order.
    #[must_use]
    pub fn gpus(&self, set: GpuSet) -> Vec<u32> {
        let places = self.known.iter().flat_map(|known| known.gpus.iter().enumerate());
        let mut gpus: Vec<u32> =
            places.filter(|(at, _)| set.0 >> at & 1 != 0).map(|(_, gpu_id)| *gpu_id).collect();
        gpus.sort_unstable();
        gpus
    }

    /// By gpu_id and where it lies.
    #[must_use]
    pub fn sums(&self) -> &BTreeMap<(u32, Domain), MemorySum> {
        self.known.as_ref().map_or(&NO_SUMS, |known| &known.sums)
    }

    /// As the driver counts it, bytes by gpu_id; empty where that is not known.
    #[must_use]
    pub fn vram(&self) -> &BTreeMap<u32, u64> {
        self.known.as_ref().map_or(&NO_COUNTS, |known| &known.vram)
    }

    /// Whether all calls were seen; `None` where none was, and none is known to be missing.
    pub(super) fn sees_all(&self) -> Option<bool> {
        let known = self.known.as_ref()?;
        (known.seen || known.unseen).then_some(!known.unseen)
    }

    /// GPUs on which something was mapped.
    pub(super) fn count_gpus(&self) -> usize {
        self.known.as_ref().map_or(0, |known| known.gpus.len())
    }

    pub(super) fn count_held(&self) -> usize {
        self.known.as_ref().map_or(0, |known| known.held.len())
    }

    fn known(&mut self) -> &mut Known {
        Arc::make_mut(self.known.get_or_insert_default())
    }

    /// `vram`: empty where the source does not have it.
    pub(super) fn counted(&mut self, vram: &BTreeMap<u32, u64>) {
        if !vram.is_empty() {
            self.count(vram.clone());
        }
    }

    pub(super) fn count(&mut self, vram: BTreeMap<u32, u64>) {
        self.known().vram = vram;
    }

    /// A record was lost by then, and may have been one of its calls.
    pub(super) fn misses(&mut self, at_ns: u64) {
        self.known().misses(at_ns);
    }

    /// A call whose record was made at `at_ns`. `all`: allocations of all processes.
    pub(super) fn call(&mut self, call: &IoctlCall, at_ns: u64, all: &mut usize) {
        let Some(of_call) = of_call(call) else { return };
        let known = self.known();
        known.seen = true;
        match of_call {
            MemoryCall::Holds(allocation) => known.hold(allocation, call.entered_ns, all),
            MemoryCall::Frees { handle } => known.free(handle, call.entered_ns, all),
            MemoryCall::Maps(mapping) => known.map(&mapping, call.entered_ns),
            MemoryCall::MapsNotSeen => known.misses_maps(at_ns),
            MemoryCall::NotSeen => known.misses(at_ns),
        }
    }

    /// The driver has freed it.
    pub(super) fn end(&mut self, all: &mut usize) {
        if let Some(known) = self.known.take() {
            *all = all.saturating_sub(known.held.len());
        }
    }
}

impl Known {
    fn hold(&mut self, allocation: Allocation, since_ns: u64, all: &mut usize) {
        let Allocation { handle, gpu_id, domain, bytes, va } = allocation;
        // Its end was not seen, or comes after this.
        if self.held.contains_key(&handle) {
            self.unseen = true;
            self.remove(handle, all);
        }
        if self.held.len() >= MOST || *all >= MOST_OF_ALL {
            self.unseen = true;
            return;
        }
        let held = Held { gpu_id, domain, bytes, va, since_ns, mapped: Some(0) };
        self.sums.entry((gpu_id, domain)).or_default().add(&held);
        self.held.insert(handle, held);
        *all += 1;
    }

    fn free(&mut self, handle: u64, entered_ns: u64, all: &mut usize) {
        match self.held.get(&handle) {
            // Another thread got the same handle before this one had returned.
            Some(held) if held.since_ns > entered_ns => {}
            Some(_) => self.remove(handle, all),
            None => self.unseen = true,
        }
    }

    fn map(&mut self, mapping: &Mapping, entered_ns: u64) {
        let Some(held) = self.held.get_mut(&mapping.handle) else {
            self.unseen = true;
            return;
        };
        // As in `free`: of what had this handle before.
        if held.since_ns > entered_ns {
            return;
        }
        let gpus = &mut self.gpus;
        let bits = mapping
            .gpus
            .as_ref()
            .and_then(|on| on.iter().try_fold(0, |bits, gpu_id| Some(bits | 1 << place_of(gpus, *gpu_id)?)));
        held.mapped = held.mapped.zip(bits).map(
            |(mapped, bits)| {
                if mapping.mapped { mapped | bits } else { mapped & !bits }
            },
        );
    }

    fn misses(&mut self, at_ns: u64) {
        self.unseen = true;
        self.misses_maps(at_ns);
    }

    fn misses_maps(&mut self, at_ns: u64) {
        self.maps_missed_ns = self.maps_missed_ns.max(Some(at_ns));
    }

    fn remove(&mut self, handle: u64, all: &mut usize) {
        let Some(Held { gpu_id, domain, bytes, .. }) = self.held.remove(&handle) else { return };
        *all = all.saturating_sub(1);
        if let Some(sum) = self.sums.get_mut(&(gpu_id, domain)) {
            sum.bytes = sum.bytes.saturating_sub(bytes);
            sum.allocations -= 1;
            if sum.allocations == 0 {
                self.sums.remove(&(gpu_id, domain));
            }
        }
    }
}

/// The place of a GPU, which it gets where it has none; `None` where there is no room.
fn place_of(gpus: &mut Vec<u32>, gpu_id: u32) -> Option<usize> {
    let at = gpus.iter().position(|gpu| *gpu == gpu_id);
    at.or_else(|| {
        let room = gpus.len() < u64::BITS as usize;
        room.then(|| {
            gpus.push(gpu_id);
            gpus.len() - 1
        })
    })
}
