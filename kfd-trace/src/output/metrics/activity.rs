//! Queue activity: sampled counts by process and GPU, and metrics of the sampling itself.

use super::driver::gpu_label;
use super::driver::identity;
use super::family::{Family, number};
use super::scrape::Scrape;
use super::table as t;
use crate::model::pointers::{Counts, Unit, Unmeasured};
use crate::output::activity::unit;
use crate::state::{Process, Queue, Work};
use std::collections::{BTreeMap, BTreeSet};

/// Families of processes. Empty if sampling is off or queues are not seen: 0 would mean that nothing
/// happened.
pub(super) fn of_processes(scrape: &Scrape<'_>, shown: &[&Process]) -> Vec<Family> {
    if scrape.samples.interval_ns == 0 || !scrape.sees_queues() {
        return Vec::new();
    }
    let mut packets =
        Three::new(&t::PROCESS_PACKETS_SUBMITTED, &t::PROCESS_PACKETS_RETIRED, &t::PROCESS_PACKETS_BACKLOG);
    let mut bytes =
        Three::new(&t::PROCESS_SDMA_SUBMITTED, &t::PROCESS_SDMA_RETIRED, &t::PROCESS_SDMA_BACKLOG);
    let mut incomplete = Family::new(&t::PROCESS_INCOMPLETE);
    let (mut stalled, mut idle) = (Family::new(&t::PROCESS_STALLED), Family::new(&t::PROCESS_IDLE));
    let mut unmeasured = Family::new(&t::PROCESS_NOT_MEASURED);
    for process in shown {
        let [pid, id, comm] = identity(process);
        for (gpu_id, on_gpu) in by_gpu(process) {
            let gpu = gpu_label(gpu_id);
            let labels = [&*pid, &id, &comm, &gpu];
            let ActivityOnGpu { work, live } = on_gpu;
            packets.add(&labels, work.packets, live.as_ref().and_then(|live| live.packets));
            bytes.add(&labels, work.ring_bytes, live.as_ref().and_then(|live| live.ring_bytes));
            incomplete.add(&labels, work.incomplete);
            let Some(live) = live else { continue };
            stalled.add(&labels, live.stalled);
            unmeasured.add(&labels, live.unmeasured);
            if let Some(idle_ns) = live.idle_ns.filter(|_| live.unmeasured == 0) {
                idle.add_ns(&labels, idle_ns);
            }
        }
    }
    let mut all = vec![incomplete, stalled, idle, unmeasured];
    all.extend(packets.families());
    all.extend(bytes.families());
    all
}

/// Families for submitted, retired, backlog.
struct Three([Family; 3]);

impl Three {
    fn new(submitted: &'static t::Metric, retired: &'static t::Metric, backlog: &'static t::Metric) -> Self {
        Three([submitted, retired, backlog].map(Family::new))
    }

    /// Adds the counts of a process on a GPU. `backlog`: that of its live queues that are, or may be,
    /// measured; `None` without such queues: then 0 may mean that nothing was measured.
    fn add(&mut self, labels: &[&str], counts: Counts, backlog: Option<u64>) {
        if backlog.is_some() || counts != Counts::default() {
            self.count(labels, counts);
        }
        if let Some(backlog) = backlog {
            self.backlog(labels, backlog);
        }
    }

    fn count(&mut self, labels: &[&str], counts: Counts) {
        let Three([submitted, retired, _]) = self;
        submitted.add(labels, counts.submitted);
        retired.add(labels, counts.retired);
    }

    fn backlog(&mut self, labels: &[&str], waits: u64) {
        let Three([_, _, backlog]) = self;
        backlog.add(labels, waits);
    }

    fn families(self) -> [Family; 3] {
        self.0
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

fn by_gpu(process: &Process) -> BTreeMap<Option<u32>, ActivityOnGpu> {
    let done =
        process.works.iter().map(|(gpu_id, work)| (*gpu_id, ActivityOnGpu { work: *work, live: None }));
    let mut all: BTreeMap<Option<u32>, ActivityOnGpu> = done.collect();
    for queue in process.queues.values() {
        let ActivityOnGpu { work, live } = all.entry(queue.facts.gpu_id).or_default();
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
pub(super) struct OfQueues {
    packets: Three,
    bytes: Three,
    stalled: Family,
    idle: Family,
}

impl OfQueues {
    pub(super) fn new() -> Self {
        OfQueues {
            packets: Three::new(
                &t::QUEUE_PACKETS_SUBMITTED,
                &t::QUEUE_PACKETS_RETIRED,
                &t::QUEUE_PACKETS_BACKLOG,
            ),
            bytes: Three::new(&t::QUEUE_SDMA_SUBMITTED, &t::QUEUE_SDMA_RETIRED, &t::QUEUE_SDMA_BACKLOG),
            stalled: Family::new(&t::QUEUE_STALLED),
            idle: Family::new(&t::QUEUE_IDLE),
        }
    }

    /// If nothing is measured now, counters are still exported, gauges are not.
    pub(super) fn queue(&mut self, labels: &[&str], queue: &Queue) {
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

    pub(super) fn families(self) -> Vec<Family> {
        let OfQueues { packets, bytes, stalled, idle } = self;
        let mut all = vec![stalled, idle];
        all.extend(packets.families());
        all.extend(bytes.families());
        all
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
    ];
    if let Some(last_ns) = samples.last_ns {
        all.push(seconds(&t::SAMPLE_AGE, scrape.now_ns.saturating_sub(last_ns)));
    }
    all
}
