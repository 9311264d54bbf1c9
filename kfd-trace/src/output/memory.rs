//! Memory that processes hold, for JSON and text.

use crate::attribute::Topology;
use crate::model::memory::Domain;
use crate::state::{self, Held, MemorySum, Process};
use bytesize::ByteSize;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// Of one process.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Memory {
    /// All that it allocated was seen: the sums by ioctls are all that it holds. `null` where none of its calls was seen.
    complete: Option<bool>,
    gpus: Vec<OnGpu>,
}

#[derive(Clone, Debug, Serialize)]
struct OnGpu {
    gpu_id: u32,
    /// As the driver counts it; `null` where it does not.
    vram_bytes: Option<u64>,
    /// By ioctls: bytes and allocations by domain; an import has no `bytes`.
    domains: BTreeMap<&'static str, Sum>,
}

#[derive(Clone, Debug, Serialize)]
struct Sum {
    bytes: Option<u64>,
    allocations: u64,
    /// Of these, what is mapped on each GPU, its own included; `null` where that is not known of one of them.
    mapped: Option<Vec<MappedOn>>,
}

/// Allocations that a GPU can access.
#[derive(Clone, Debug, Serialize)]
struct MappedOn {
    gpu_id: u32,
    bytes: Option<u64>,
    allocations: u64,
}

pub(crate) fn of(process: &Process, topology: &Topology) -> Memory {
    let memory = &process.memory;
    let by_ioctls = memory.sums().keys().map(|(gpu_id, _)| *gpu_id);
    let counted = memory.vram().iter().filter(|(_, bytes)| **bytes > 0).map(|(gpu_id, _)| *gpu_id);
    let queues = process.queues.values().filter_map(|queue| queue.facts.gpu_id);
    let gpus: BTreeSet<u32> = by_ioctls.chain(counted).chain(queues).collect();
    let gpus = topology.ordered(gpus);
    let mapped = mapped(memory);
    let on_gpu = |gpu_id| OnGpu {
        gpu_id,
        vram_bytes: memory.vram().get(&gpu_id).copied(),
        domains: memory
            .sums()
            .iter()
            .filter(|((gpu, _), _)| *gpu == gpu_id)
            .map(|((_, domain), sum)| {
                let bytes = |sum: &MemorySum| domain.has_bytes().then_some(sum.bytes);
                let on = |(gpu_id, sum): (&u32, &MemorySum)| MappedOn {
                    gpu_id: *gpu_id,
                    bytes: bytes(sum),
                    allocations: sum.allocations,
                };
                let mapped = mapped.get(&(gpu_id, *domain)).and_then(Option::as_ref);
                let mapped = mapped.map(|gpus| topology.in_order(gpus).into_iter().map(on).collect());
                (domain.name(), Sum { bytes: bytes(sum), allocations: sum.allocations, mapped })
            })
            .collect(),
    };
    Memory { complete: process.memory_is_whole(), gpus: gpus.into_iter().map(on_gpu).collect() }
}

/// What is mapped on which GPUs, by gpu_id.
type ByGpu = BTreeMap<u32, MemorySum>;

/// By where it lies; `None` where it is not known of one of the allocations.
fn mapped(memory: &state::Memory) -> BTreeMap<(u32, Domain), Option<ByGpu>> {
    // There may be a million allocations.
    let mut alike: BTreeMap<_, MemorySum> = BTreeMap::new();
    for (_, held) in memory.held() {
        alike.entry((held.gpu_id, held.domain, memory.mapping(held))).or_default().add(held);
    }
    let mut all: BTreeMap<_, Option<ByGpu>> = BTreeMap::new();
    for ((gpu_id, domain, on), sum) in alike {
        let sums = all.entry((gpu_id, domain)).or_insert_with(|| Some(ByGpu::new()));
        match (sums.as_mut(), on) {
            (Some(sums), Some(on)) => {
                memory.gpus(on).into_iter().for_each(|gpu_id| sums.entry(gpu_id).or_default().merge(sum));
            }
            _ => *sums = None,
        }
    }
    all
}

/// VRAM of all GPUs, as the driver counts it; `None` where it does not.
#[must_use]
pub(crate) fn vram(process: &Process) -> Option<u64> {
    total(process.memory.vram())
}

/// The same of counts by gpu_id.
pub(crate) fn total(counted: &BTreeMap<u32, u64>) -> Option<u64> {
    (!counted.is_empty()).then(|| counted.values().fold(0_u64, |sum, bytes| sum.saturating_add(*bytes)))
}

/// `64.0M`: of 1024.
pub(crate) fn size(bytes: u64) -> String {
    ByteSize(bytes).display().iec_short().to_string()
}

/// An allocation that was not freed.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct HeldRow {
    handle: String,
    gpu_id: u32,
    domain: &'static str,
    /// `null` for an import.
    bytes: Option<u64>,
    address: String,
    age_ns: u64,
    /// The GPUs that can access it, by gpu_id; `null` where that is not known.
    mapped: Option<Vec<u32>>,
}

impl HeldRow {
    pub(crate) fn new(
        process: &Process,
        (handle, held): (u64, &Held),
        now_ns: u64,
        topology: &Topology,
    ) -> Self {
        HeldRow {
            handle: format!("{handle:#x}"),
            gpu_id: held.gpu_id,
            domain: held.domain.name(),
            bytes: held.domain.has_bytes().then_some(held.bytes),
            address: format!("{:#x}", held.va),
            age_ns: now_ns.saturating_sub(held.since_ns),
            mapped: process.memory.mapping(held).map(|on| topology.ordered(process.memory.gpus(on))),
        }
    }
}
