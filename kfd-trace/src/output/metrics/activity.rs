//! Queue activity: sampled counts by process and GPU, and metrics of the sampling itself.

use super::family::{Family, number};
use super::identity::Groups;
use super::sample::TextFamily;
use super::scrape::Scrape;
use super::series::{Rank, Ranked, Series};
use super::table as t;
use crate::model::pointers::{Counts, Unit, Unmeasured};
use crate::output::activity::unit;
use crate::state::{Process, Queue, Work};
use std::collections::BTreeSet;

/// Families of processes. Empty if sampling is off or queues are not seen: 0 would mean that nothing
/// happened.
pub(super) fn of_processes(
    scrape: &Scrape<'_>,
    groups: &Groups<'_>,
    gpus: &Ranked<Option<u32>>,
) -> Vec<TextFamily> {
    if scrape.samples.interval_ns == 0 || !scrape.sees_queues() {
        return Vec::new();
    }
    let new = |metric| Series::new(metric, gpus);
    let mut packets = Three(
        [&t::PROCESS_PACKETS_SUBMITTED, &t::PROCESS_PACKETS_RETIRED, &t::PROCESS_PACKETS_BACKLOG].map(new),
    );
    let mut bytes =
        Three([&t::PROCESS_SDMA_SUBMITTED, &t::PROCESS_SDMA_RETIRED, &t::PROCESS_SDMA_BACKLOG].map(new));
    let mut incomplete = new(&t::PROCESS_INCOMPLETE);
    let (mut stalled, mut idle) = (new(&t::PROCESS_STALLED), new(&t::PROCESS_IDLE));
    let mut unmeasured = new(&t::PROCESS_NOT_MEASURED);
    for group in groups {
        for (gpu_id, ActivityOnGpu { work, live }) in
            group.items.iter().flat_map(|shown| by_gpu(shown.process))
        {
            let gpu = gpus.rank(&gpu_id);
            packets.add(gpu, work.packets, live.as_ref().and_then(|live| live.packets));
            bytes.add(gpu, work.ring_bytes, live.as_ref().and_then(|live| live.ring_bytes));
            incomplete.add(gpu, work.incomplete);
            let Some(live) = live else { continue };
            stalled.add(gpu, live.stalled);
            unmeasured.add(gpu, live.unmeasured);
            if let Some(idle_ns) = live.idle_ns.filter(|_| live.unmeasured == 0) {
                idle.add_ns(gpu, idle_ns);
            }
        }
        let others = [&mut incomplete, &mut stalled, &mut idle, &mut unmeasured];
        for series in packets.0.iter_mut().chain(&mut bytes.0).chain(others) {
            series.end(group.labels.identity());
        }
    }
    let others = [incomplete, stalled, idle, unmeasured];
    packets.0.into_iter().chain(bytes.0).chain(others).map(Series::family).collect()
}

/// Submitted, retired, backlog.
struct Three<'a>([Series<'a>; 3]);

impl Three<'_> {
    /// Adds the counts of a process on a GPU. `backlog`: that of its live queues that are, or may be,
    /// measured; `None` without such queues: then 0 may mean that nothing was measured.
    fn add(&mut self, labels: Rank, counts: Counts, backlog: Option<u64>) {
        if backlog.is_some() || counts != Counts::default() {
            self.count(labels, counts);
        }
        if let Some(backlog) = backlog {
            self.backlog(labels, backlog);
        }
    }

    fn count(&mut self, labels: Rank, counts: Counts) {
        let Three([submitted, retired, _]) = self;
        submitted.add(labels, counts.submitted);
        retired.add(labels, counts.retired);
    }

    fn backlog(&mut self, labels: Rank, waits: u64) {
        let Three([_, _, backlog]) = self;
        backlog.add(labels, waits);
    }
}

/// Activity of a process on one GPU, and that of its live queues there as of the last sample.
#[derive(Default)]
struct ActivityOnGpu {
    work: Work,
    live: Option<LiveQueues>,
}

#[derive(Default)]
struct LiveQueues {
    /// Backlogs; `None` without queues that are, or may be, measured.
    packets: Option<u64>,
    ring_bytes: Option<u64>,
    stalled: u64,
    unmeasured: u64,
    /// Time of the queue that was idle for the shortest time, including ended queues.
    idle_ns: Option<u64>,
}

/// By GPU, of which a process uses few.
fn by_gpu(process: &Process) -> Vec<(Option<u32>, ActivityOnGpu)> {
    let mut all: Vec<(Option<u32>, ActivityOnGpu)> = process
        .works
        .iter()
        .map(|(gpu_id, work)| (*gpu_id, ActivityOnGpu { work: *work, live: None }))
        .collect();
    for queue in process.queues.values() {
        let gpu_id = queue.facts.gpu_id;
        let at = all.iter().position(|(other, _)| *other == gpu_id).unwrap_or_else(|| {
            all.push((gpu_id, ActivityOnGpu::default()));
            all.len() - 1
        });
        let ActivityOnGpu { work, live } = &mut all[at].1;
        let live = live.get_or_insert_default();
        let measured = queue.activity.now();
        if let Some(unit) = unit(&queue.facts).filter(|_| queue.activity.problem().is_none()) {
            let sum = match unit {
                Unit::Packets => &mut live.packets,
                Unit::RingBytes => &mut live.ring_bytes,
            };
            let sum = sum.get_or_insert(0);
            *sum = sum.saturating_add(measured.map_or(0, |measured| measured.counts.backlog()));
        }
        live.unmeasured += u64::from(queue.activity.problem().is_some());
        if let Some(measured) = measured {
            live.stalled += u64::from(measured.stalled());
            let idle_ns = work.idle_ns(measured);
            live.idle_ns = Some(live.idle_ns.map_or(idle_ns, |least| least.min(idle_ns)));
        }
    }
    all
}

/// Families of single queues.
pub(super) struct OfQueues<'a> {
    packets: Three<'a>,
    bytes: Three<'a>,
    stalled: Series<'a>,
    idle: Series<'a>,
}

impl<'a> OfQueues<'a> {
    pub(super) fn new<K>(labels: &'a Ranked<K>) -> Self {
        let new = |metric| Series::new(metric, labels);
        OfQueues {
            packets: Three(
                [&t::QUEUE_PACKETS_SUBMITTED, &t::QUEUE_PACKETS_RETIRED, &t::QUEUE_PACKETS_BACKLOG].map(new),
            ),
            bytes: Three([&t::QUEUE_SDMA_SUBMITTED, &t::QUEUE_SDMA_RETIRED, &t::QUEUE_SDMA_BACKLOG].map(new)),
            stalled: new(&t::QUEUE_STALLED),
            idle: new(&t::QUEUE_IDLE),
        }
    }

    /// If nothing is measured now, counters are still exported, gauges are not.
    pub(super) fn queue(&mut self, labels: Rank, queue: &Queue) {
        let (Some(unit), Some(last)) = (unit(&queue.facts), queue.activity.last()) else { return };
        let three = match unit {
            Unit::Packets => &mut self.packets,
            Unit::RingBytes => &mut self.bytes,
        };
        three.count(labels, last.counts);
        if let Some(now) = queue.activity.now() {
            three.backlog(labels, now.counts.backlog());
            self.stalled.set(labels, number(now.stalled().into()));
            self.idle.add_ns(labels, now.idle_ns());
        }
    }

    pub(super) fn all(&mut self) -> impl Iterator<Item = &mut Series<'a>> {
        let OfQueues { packets, bytes, stalled, idle } = self;
        packets.0.iter_mut().chain(&mut bytes.0).chain([stalled, idle])
    }

    pub(super) fn families(self) -> impl Iterator<Item = TextFamily> {
        let OfQueues { packets, bytes, stalled, idle } = self;
        packets.0.into_iter().chain(bytes.0).chain([stalled, idle]).map(Series::family)
    }
}

/// Families of the sampling itself.
pub(super) fn of_sampling(scrape: &Scrape<'_>) -> Vec<Family> {
    let samples = scrape.samples;
    let seconds = |metric, ns| {
        let mut family = Family::new(metric);
        family.add_ns(&[], ns);
        family
    };
    let mut errors = Family::new(&t::SAMPLE_ERRORS);
    for reason in Unmeasured::OF_READING {
        errors.add(&[reason.name()], samples.errors.get(reason).copied().unwrap_or(0));
    }
    // Reasons known without a reading are not counted as errors of a reading.
    debug_assert!(
        samples.errors.keys().collect::<BTreeSet<_>>().is_subset(&Unmeasured::OF_READING.iter().collect())
    );
    let mut all = vec![
        Family::single(&t::SAMPLES, number(samples.successes)),
        errors,
        seconds(&t::SAMPLE_INTERVAL, samples.interval_ns),
        seconds(&t::SAMPLE_CPU, samples.cpu_ns),
        Family::single(
            &t::SAMPLE_READERS_WAITING,
            number(u64::try_from(samples.waiting.count()).unwrap_or(u64::MAX)),
        ),
    ];
    if let Some(last_ns) = samples.last_ns {
        all.push(seconds(&t::SAMPLE_AGE, scrape.now_ns.saturating_sub(last_ns)));
    }
    all
}
