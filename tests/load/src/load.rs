//! Instructions and time: records and scrapes with 10 to 100,000 live queues.

use crate::export::export;
use crate::recording::{recording, write_recording};
use crate::records::Tape;
use crate::region::{region, value};
use crate::serve;
use crate::world::{self, Daemon, NODE, QueueAt, START_BOOTTIME_NS, Size};
use anyhow::{Context as _, Result, ensure};
use flate2::Compression;
use flate2::write::GzEncoder;
use kfd_trace::attribute::Topology;
use kfd_trace::events::tables::Tables;
use kfd_trace::kernel::Roots;
use kfd_trace::model::verdict::ProbeStatus;
use kfd_trace::output::metrics::{
    self, BPF_MAPS, Build, Collected, Detail, Format, Newcomers, STATE, Scrape,
};
use kfd_trace::state::{History, IoctlTotals, Shown, Snapshot, Source};
use kfd_trace_common::kind::Kind;
use kfd_trace_common::record::mqd_op;
use std::fs::File;
use std::io::Write as _;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Ten times as much as [`NODE`]: nothing may take more than eleven times as long.
const LARGE: Size = Size { processes: 5_000, queues: 100_000, ..NODE };

/// Nodes in KFD's sense: 8 GPUs in 8 partitions each.
const PARTITIONED: Size = Size { gpus: 64, ..NODE };

/// Mixes after which the history is full.
pub(crate) const FULL: usize = 12;

/// More than the state's limit of ended processes (`StateLimits`), so that each new one makes it forget one.
const ENDED: u64 = 1_100;

pub(crate) fn run() -> Result<()> {
    for queues in [10, 1_000, NODE.queues] {
        on(Size { queues, ..NODE }, |world, daemon| {
            world.processes(daemon);
            world.births(daemon);
            world.each_kind(daemon);
            world.mix(daemon);
            world.mix_with_history(daemon);
            world.samples(daemon);
            world.compare(daemon);
            world.gzip(&world.scrape(daemon));
            world.lives_of_processes(daemon);
        })?;
    }
    on(Size { queues: 1_000, ..NODE }, |world, daemon| {
        daemon.follow(&world.starts());
        world.births(daemon);
        export(world, daemon);
        recording(world, daemon);
    })?;
    serve::api()?;
    for size in [LARGE, PARTITIONED] {
        on(size, |world, daemon| {
            world.processes(daemon);
            world.births(daemon);
            world.mix(daemon);
            world.samples(daemon);
            world.compare(daemon);
            world.scrape(daemon);
        })?;
    }
    Ok(())
}

/// Writes a recording of at least so many events.
pub(crate) fn write() -> Result<()> {
    let (file, events) = (std::env::args().nth(2), std::env::args().nth(3));
    let file = File::create_new(file.context("which file?")?).context("cannot write the recording")?;
    let events: usize = events.context("how many events?")?.parse()?;
    on(Size { queues: 1_000, ..NODE }, |world, daemon| {
        daemon.state.start_tape();
        daemon.follow(&world.starts());
        world.births(daemon);
        let times = events.div_ceil(world.lives_of_queues().len());
        write_recording(file, &world.lives_one_after_another(times), daemon)
    })?
}

fn on<T>(size: Size, act: impl FnOnce(World, &mut Daemon) -> T) -> Result<T> {
    let host = world::host(size)?;
    let mut daemon = Daemon::new(&Roots::under(host.path()));
    let done = act(World { size }, &mut daemon);
    let faults = daemon.faults();
    ensure!(faults == 0, "{faults} records were refused: the generated ones are wrong");
    Ok(done)
}

/// The measured parts, in a world of this size.
#[derive(Clone, Copy)]
pub(crate) struct World {
    size: Size,
}

impl World {
    pub(crate) fn case(self, part: &str) -> String {
        let Size { queues, gpus, .. } = self.size;
        if gpus == NODE.gpus {
            format!("{part}.{queues}_queues")
        } else {
            format!("{part}.{queues}_queues_{gpus}_gpus")
        }
    }

    fn follow(self, case: &str, daemon: &mut Daemon, tape: &Tape) {
        let case = self.case(&format!("record.{case}"));
        region(&case, tape.len(), "record", || daemon.follow(tape));
    }

    /// All processes start: each is read in /proc.
    fn processes(self, daemon: &mut Daemon) {
        self.follow("process_seen", daemon, &self.starts());
    }

    fn starts(self) -> Tape {
        let mut tape = Tape::default();
        (1..=self.size.processes as u64).for_each(|process| tape.process_seen(process));
        tape
    }

    /// The live queues are created.
    fn births(self, daemon: &mut Daemon) {
        let mut tape = Tape::default();
        for queue in (0..self.size.queues).map(|number| world::queue(self.size, number)) {
            tape.mqd_write(queue, mqd_op::INIT);
            tape.queue_create(queue);
        }
        daemon.follow(&tape);
    }

    /// Queues above the ids of the live ones.
    fn more(self) -> impl Iterator<Item = QueueAt> {
        (0..self.size.processes)
            .map(move |number| QueueAt { queue_id: 1_000, ..world::queue(self.size, number) })
    }

    /// Lives of queues, one kind of record after the other.
    fn each_kind(self, daemon: &mut Daemon) {
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
            self.more().for_each(|queue| write(&mut tape, queue));
            self.follow(name, daemon, &tape);
        }
    }

    /// Lives of queues in the order of a workload; as many queues live after it as before.
    pub(crate) fn lives_of_queues(self) -> Tape {
        self.lives_one_after_another(1)
    }

    /// The same, this often, one time after the other.
    pub(crate) fn lives_one_after_another(self, times: usize) -> Tape {
        let mut tape = Tape::default();
        for queue in (0..times).flat_map(|_| self.more()) {
            tape.mqd_write(queue, mqd_op::INIT);
            tape.queue_create(queue);
            tape.mqd_write(queue, mqd_op::UPDATE);
            tape.queue_update(queue);
            tape.evict(queue);
            tape.restore(queue);
            tape.queue_destroy(queue);
        }
        tape
    }

    fn mix(self, daemon: &mut Daemon) {
        self.follow("mix", daemon, &self.lives_of_queues());
    }

    /// The same with the history, as the daemon has it: while it fills, and when it is full and forgets.
    fn mix_with_history(self, daemon: &mut Daemon) {
        let (tape, mut history) = (self.lives_of_queues(), History::default());
        for (case, before) in [("mix_with_history", 0), ("mix_with_full_history", FULL)] {
            (0..before).for_each(|_| daemon.follow_with_history(&tape, &mut history));
            let case = self.case(&format!("record.{case}"));
            region(&case, tape.len(), "record", || daemon.follow_with_history(&tape, &mut history));
        }
    }

    /// Short processes, which are no longer in /proc, in addition to the live ones.
    fn lives_of_processes(self, daemon: &mut Daemon) {
        let first = self.size.processes as u64 + 1;
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
        self.follow("process_life", daemon, &lives(first + ENDED, first + ENDED + 500));
    }

    /// All queues are sampled, a second after they were sampled before.
    fn samples(self, daemon: &mut Daemon) {
        let first = START_BOOTTIME_NS * 2;
        daemon.sample(first);
        let case = self.case("sample");
        region(&case, self.size.queues, "queue", || daemon.sample(first + 1_000_000_000));
    }

    /// A comparison with what the driver lists, which is what the state has: of the queues, and of the processes that
    /// have ended.
    fn compare(self, daemon: &Daemon) {
        for (name, source) in [("sysfs", Source::Sysfs), ("kernel", Source::Kernel)] {
            let list = daemon.listed(source);
            let case = |part: &str| self.case(&format!("{part}.{name}"));
            region(&case("compare"), 1, "comparison", || daemon.state.compare(&list));
            region(&case("ends"), 1, "comparison", || {
                daemon.state.live().filter(|row| daemon.state.shown(&list, row) != Shown::Itself).count()
            });
        }
    }

    /// The work of `/metrics`, except for reading the BPF maps, in two steps: of the first scrape, which makes the
    /// label texts of the processes, and of a later one.
    fn scrape(self, daemon: &Daemon) -> String {
        let case = |part: &str| self.case(&format!("scrape.{part}"));
        let world = Scraped::new(self.size);
        region(&case("first"), 1, "first scrape", || {
            world.text(daemon, &daemon.state.snapshot(), Format::Text)
        })
        .unwrap_or_default();
        // While this is made, the ring buffer is not read.
        let snapshot = region(&case("copy"), 1, "scrape", || daemon.state.snapshot());
        let text = region(&case("text"), 1, "scrape", || world.text(daemon, &snapshot, Format::Text))
            .unwrap_or_default();
        value(&case("size"), text.len() as u64, "bytes");
        text
    }

    /// What a client that accepts it gets (serve/negotiate.rs).
    fn gzip(self, text: &str) {
        let pack = || {
            let mut out = GzEncoder::new(Vec::new(), Compression::new(1));
            out.write_all(text.as_bytes()).and_then(|()| out.finish()).unwrap_or_default()
        };
        let packed = region(&self.case("scrape.gzip"), 1, "body", pack);
        value(&self.case("scrape.gzip_size"), packed.len() as u64, "bytes");
    }
}

/// The parts of a scrape besides the state.
pub(crate) struct Scraped {
    size: Size,
    tables: Tables,
    probes: Vec<ProbeStatus>,
    topology: Topology,
    newcomers: Mutex<Newcomers>,
    linger: Duration,
}

impl Scraped {
    pub(crate) fn new(size: Size) -> Self {
        let (tables, topology) = (world::tables(size), world::topology(size));
        let newcomers = Mutex::new(Newcomers::new(1 << 20));
        let linger = Duration::from_secs(300);
        Scraped { size, tables, probes: world::probes(), topology, newcomers, linger }
    }

    /// `--metrics.linger`
    pub(crate) fn lingering(self, linger: Duration) -> Self {
        Scraped { linger, ..self }
    }

    /// No call fails, and no thread sleeps in one: the age of the oldest would be the only series of a node that comes
    /// and goes with its processes.
    pub(crate) fn quiet(mut self) -> Self {
        self.tables.waits.clear();
        self.tables.errors.clear();
        self
    }

    /// Every process has series of its own.
    pub(crate) fn text(&self, daemon: &Daemon, snapshot: &Snapshot, format: Format) -> Result<String> {
        let mut scrape = Scrape {
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
            recording: None,
            exported: None,
            driver_loaded: true,
            driver_loads: 1,
            build: Build::OWN,
            types: &kfd_trace::kernel::types::TypesReport::default(),
            admitted: None,
            detail: Detail {
                processes: Some(self.size.processes),
                new_processes: u64::MAX,
                queues: None,
                linger: self.linger,
            },
            now_ns: START_BOOTTIME_NS * 2,
            wall_minus_mono_ns: 0,
            start_time_seconds: 1.79e9,
            duration_seconds: 0.002,
        };
        let mut newcomers = self.newcomers.lock().unwrap_or_else(PoisonError::into_inner);
        let admitted = newcomers.admit(&scrape.candidates(), self.size.processes, scrape.now_ns);
        scrape.admitted = Some(&admitted);
        let text = metrics::exposition(&scrape, format);
        text.context("a family that is malformed")
    }
}
