//! Memory that processes hold by KFD.

use super::driver::gpu_label;
use super::identity::{Groups, Shown, own_gpus};
use super::sample::TextFamily;
use super::scrape::Scrape;
use super::series::{Ranked, Series};
use super::table as t;
use kfd_trace_common::counter::ProbeId;

pub(super) fn families(
    scrape: &Scrape<'_>,
    groups: &Groups<'_>,
    gpus: &Ranked<Option<u32>>,
) -> Vec<TextFamily> {
    let known = |shown: &Shown<'_>| !shown.process.memory.is_unknown();
    if !groups.iter().flat_map(|group| &group.items).any(known) {
        return Vec::new();
    }
    let mut all = vec![vram(groups, gpus)];
    if scrape.sees(&[ProbeId::MemoryCall]) {
        all.extend(by_ioctls(groups));
    }
    all
}

/// Of the GPUs on which a process has any, or a queue.
fn vram(groups: &Groups<'_>, gpus: &Ranked<Option<u32>>) -> TextFamily {
    let mut series = Series::new(&t::PROCESS_VRAM, gpus);
    for group in groups {
        for Shown { process, queues } in group.items.iter().filter(|shown| shown.process.alive()) {
            let own: Vec<_> = own_gpus(queues, gpus).collect();
            for (gpu_id, bytes) in process.memory.vram() {
                let gpu = (*bytes > 0).then(|| gpus.rank(&Some(*gpu_id)));
                let gpu = gpu.or_else(|| gpus.known(&Some(*gpu_id)).filter(|gpu| own.contains(gpu)));
                gpu.into_iter().for_each(|gpu| series.add(gpu, *bytes));
            }
        }
        series.end(group.labels.identity());
    }
    series.family()
}

fn by_ioctls(groups: &Groups<'_>) -> [TextFamily; 2] {
    let sums = || groups.iter().flat_map(|group| &group.items).map(|shown| shown.process.memory.sums());
    let labels =
        Ranked::new(["gpu_id", "domain"], sums().flat_map(|sums| sums.keys().copied()), |(gpu, domain)| {
            [gpu_label(Some(*gpu)), domain.name().to_owned()]
        });
    let mut bytes = Series::new(&t::PROCESS_MEMORY, &labels);
    let mut count = Series::new(&t::PROCESS_ALLOCATIONS, &labels);
    for group in groups {
        for (key, sum) in group.items.iter().flat_map(|shown| shown.process.memory.sums()) {
            let rank = labels.rank(key);
            // The size of an import is not known.
            if key.1.has_bytes() {
                bytes.add(rank, sum.bytes);
            }
            count.add(rank, sum.allocations);
        }
        [&mut bytes, &mut count].into_iter().for_each(|series| series.end(group.labels.identity()));
    }
    [bytes, count].map(Series::family)
}
