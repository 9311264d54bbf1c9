//! Instructions and time: records and scrapes with 10, 1,000 and 10,000 live queues.

use crate::records::Tape;
use crate::region::{region, value};
use crate::world::{self, Daemon, PROCESSES, QueueAt, START_BOOTTIME_NS};
use anyhow::{Result, ensure};
use kfd_trace::attribute::Topology;
use kfd_trace::events::tables::Tables;
use kfd_trace::kernel::Roots;
use kfd_trace::model::verdict::ProbeStatus;
use kfd_trace::output::metrics::{self, BPF_MAPS, Collected, Detail, STATE, Scrape};
use kfd_trace::state::{IoctlTotals, Shown, Snapshot, Source};
use kfd_trace_common::kind::Kind;
use kfd_trace_common::record::mqd_op;
use prometheus::proto::MetricFamily;
use std::time::Duration;

const QUEUES: [usize; 3] = [10, 1_000, 10_000];

/// Queues whose whole life is followed in addition to the live ones: one per process.
const LIVES: usize = PROCESSES;

/// More than the state's limit of ended processes (`StateLimits`), so that each new one makes it forget one.
const ENDED: u64 = 1_100;

pub(crate) fn run() -> Result<()> {
    let host = world::host()?;
    let roots = Roots::under(host.path());
    for queues in QUEUES {
        let mut daemon = Daemon::new(&roots);
        at(queues, &mut daemon);
        ensure!(
            daemon.faults() == 0,
            "{} records were refused: the generated ones are wrong",
            daemon.faults()
        );
    }
    Ok(())
}

fn at(queues: usize, daemon: &mut Daemon) {
    processes(queues, daemon);
    births(queues, daemon);
    each_kind(queues, daemon);
    mix(queues, daemon);
    samples(queues, daemon);
    compare(queues, daemon);
    scrape(queues, daemon);
    lives_of_processes(queues, daemon);
}

fn follow(case: &str, queues: usize, daemon: &mut Daemon, tape: &Tape) {
    let case = format!("record.{case}.{queues}_queues");
    region(&case, tape.len(), "record", || daemon.follow(tape));
}

/// All processes start: each is read in /proc.
fn processes(queues: usize, daemon: &mut Daemon) {
    let mut tape = Tape::default();
    (1..=PROCESSES as u64).for_each(|process| tape.process_seen(process));
    follow("process_seen", queues, daemon, &tape);
}

/// The live queues are created.
fn births(queues: usize, daemon: &mut Daemon) {
    let mut tape = Tape::default();
    for queue in (0..queues).map(world::queue) {
        tape.mqd_write(queue, mqd_op::INIT);
        tape.queue_create(queue);
    }
    daemon.follow(&tape);
}

/// Queues above the ids of the live ones.
fn more() -> impl Iterator<Item = QueueAt> {
    (0..LIVES).map(|number| QueueAt { queue_id: 1_000, ..world::queue(number) })
}

/// Lives of queues, one kind of record after the other.
fn each_kind(queues: usize, daemon: &mut Daemon) {
    type Write = fn(&mut Tape, QueueAt);
    let kinds: [(&str, Write); 8] = [
        ("mqd_init", |tape, queue| tape.mqd_write(queue, mqd_op::INIT)),
        ("queue_create", Tape::queue_create),
        ("mqd_update", |tape, queue| tape.mqd_write(queue, mqd_op::UPDATE)),
        ("queue_update", Tape::queue_update),
        ("evict", Tape::evict),
        ("restore", Tape::restore),
        ("queue_destroy", Tape::queue_destroy),
        ("ioctl", |tape, queue| tape.ioctl(queue.process)),
    ];
    for (name, write) in kinds {
        let mut tape = Tape::default();
        more().for_each(|queue| write(&mut tape, queue));
        follow(name, queues, daemon, &tape);
    }
}

/// Lives of queues in the order of a workload; as many queues live after it as before.
fn mix(queues: usize, daemon: &mut Daemon) {
    let mut tape = Tape::default();
    for queue in more() {
        tape.mqd_write(queue, mqd_op::INIT);
        tape.queue_create(queue);
        tape.mqd_write(queue, mqd_op::UPDATE);
        tape.queue_update(queue);
        tape.evict(queue);
        tape.restore(queue);
        tape.queue_destroy(queue);
    }
    follow("mix", queues, daemon, &tape);
}

/// Short processes, which are no longer in /proc, in addition to the live ones.
fn lives_of_processes(queues: usize, daemon: &mut Daemon) {
    let first = PROCESSES as u64 + 1;
    let lives = |from: u64, to: u64| {
        let mut tape = Tape::default();
        for process in from..to {
            tape.process_seen(process);
            tape.open(process);
            for kind in [Kind::Close, Kind::MmRelease, Kind::ProcessRelease] {
                tape.bare(kind, process);
            }
        }
        tape
    };
    daemon.follow(&lives(first, first + ENDED));
    follow("process_life", queues, daemon, &lives(first + ENDED, first + ENDED + 500));
}

/// All queues are sampled, a second after they were sampled before.
fn samples(queues: usize, daemon: &mut Daemon) {
    let first = START_BOOTTIME_NS * 2;
    daemon.sample(first);
    let case = format!("sample.{queues}_queues");
    region(&case, queues, "queue", || daemon.sample(first + 1_000_000_000));
}

/// A comparison with what the driver lists, which is what the state has: of the queues, and of the processes that
/// have ended.
fn compare(queues: usize, daemon: &Daemon) {
    for (name, source) in [("sysfs", Source::Sysfs), ("kernel", Source::Kernel)] {
        let list = daemon.listed(source);
        let case = |part: &str| format!("{part}.{name}.{queues}_queues");
        region(&case("compare"), 1, "comparison", || daemon.state.compare(&list));
        region(&case("ends"), 1, "comparison", || {
            daemon.state.live().filter(|row| daemon.state.shown(&list, row) != Shown::Itself).count()
        });
    }
}

/// The work of `/metrics`, except for reading the BPF maps, in three steps.
fn scrape(queues: usize, daemon: &Daemon) {
    let case = |part: &str| format!("scrape.{part}.{queues}_queues");
    let world = Scraped::new();
    // While this is made, the ring buffer is not read.
    let snapshot = region(&case("copy"), 1, "scrape", || daemon.state.snapshot());
    let families = region(&case("families"), 1, "scrape", || world.families(daemon, &snapshot));
    let text = region(&case("text"), 1, "scrape", || metrics::encode(&families)).unwrap_or_default();
    value(&case("size"), text.len() as u64, "bytes");
}

/// The parts of a scrape besides the state.
pub(crate) struct Scraped {
    tables: Tables,
    probes: Vec<ProbeStatus>,
    topology: Topology,
}

impl Scraped {
    pub(crate) fn new() -> Self {
        Scraped { tables: world::tables(), probes: world::probes(), topology: world::topology() }
    }

    /// Every process has series of its own.
    pub(crate) fn families(&self, daemon: &Daemon, snapshot: &Snapshot) -> Vec<MetricFamily> {
        metrics::families(&Scrape {
            named: kfd_trace::model::ioctl::Named::default(),
            snapshot,
            queues_by_ioctl: false,
            sysfs: None,
            tables: Some(&self.tables),
            collectors: &[BPF_MAPS, STATE].map(|collector| Collected {
                collector,
                took_ns: 1_000,
                failed: None,
            }),
            retired: &IoctlTotals::default(),
            samples: &daemon.samples,
            probes: &self.probes,
            topology: &self.topology,
            undecoded: &daemon.undecoded,
            capacities: &[
                ("ioctl_stats", 16_384),
                ("ioctl_errors", 4_096),
                ("in_flight", 16_384),
                ("seats", 2_048),
            ],
            driver_loaded: true,
            driver_loads: 1,
            types: &kfd_trace::kernel::types::TypesReport::default(),
            detail: Detail { processes: Some(PROCESSES), queues: None, linger: Duration::from_secs(300) },
            now_ns: START_BOOTTIME_NS * 2,
            wall_minus_mono_ns: 0,
            start_time_seconds: 1.79e9,
            duration_seconds: 0.002,
        })
    }
}
