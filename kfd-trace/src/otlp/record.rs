//! Events as records of OTLP. In: entries of the history, and what the daemon adds, in their order. Out: their bytes, each with
//! the next number of this run: what is missing or came twice behind a collector can be counted by that.
//!
//! Names are those of OpenTelemetry's semantic conventions where they have one (process, thread, container, k8s, hw), else begin
//! with `kfd.` or `slurm.`; docs/otlp.md lists them.

use super::attributes::{
    Place, Scalar, any_text, bytes, fixed64, foreign, int, own as own_name, put, text, truth, unsigned,
    varint,
};
use super::fields::attributes;
use crate::attribute::{Gpu, Runtime, Topology};
use crate::model::event::{Body, Event};
use crate::output::event::context::Context;
use crate::output::event::json::own;
use crate::state::{Change, New, Owner, Passed, Queue, What};
use crate::text::clock::Clock;
use jiff::tz::TimeZone;
use std::collections::BTreeMap;
use std::sync::Arc;

/// `ScopeLogs.log_records`
const LOG_RECORDS: u8 = 2;

/// Fields of `LogRecord`, but for its attributes.
const TIME_UNIX_NANO: u8 = 1;
const SEVERITY_NUMBER: u8 = 2;
const SEVERITY_TEXT: u8 = 3;
const BODY: u8 = 5;
const OBSERVED_TIME_UNIX_NANO: u8 = 11;
const EVENT_NAME: u8 = 12;

/// Owners whose attributes are kept, some 500 bytes each: more processes than nodes have.
const OWNERS: usize = 1024;

/// What becomes records, or changes those that follow.
#[derive(Clone, Debug)]
pub enum Item {
    /// An event.
    New(New),
    /// The GPUs that are meant from here on, and when this was read.
    Gpus(At, Topology),
    /// Probes are attached; what exists comes next.
    Begin(At),
    /// They are not any more.
    End(At),
    /// They still are: where nothing else happens, a reader knows by this that nothing did.
    Alive(At),
    /// What the tracer itself has lost until now, by name.
    Lost(At, BTreeMap<String, u64>),
    /// So many were dropped before they came here.
    Dropped(u64),
}

/// A time: CLOCK_MONOTONIC, and nanoseconds of the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct At {
    pub mono_ns: u64,
    pub unix_ns: i64,
}

/// As OTLP numbers them.
#[derive(Clone, Copy)]
enum Severity {
    Info = 9,
    Warn = 13,
    Error = 17,
}

impl Severity {
    const fn text(self) -> &'static str {
        match self {
            Severity::Info => "INFO",
            Severity::Warn => "WARN",
            Severity::Error => "ERROR",
        }
    }

    fn of(body: &Body) -> Self {
        match body {
            Body::VmFault(_)
            | Body::GpuResetBegin { .. }
            | Body::GpuResetEnd { .. }
            | Body::HwsHang { .. } => Severity::Error,
            Body::Evict(_) | Body::EvictFailed(_) | Body::QueueDestroyFailed { .. } => Severity::Warn,
            _ if body.errno().is_some() => Severity::Warn,
            _ => Severity::Info,
        }
    }
}

/// An event of the history.
#[derive(Clone, Copy)]
struct Made<'m> {
    event: &'m Event,
    change: &'m Change,
    /// From when its queue is known, where that is in neither.
    since_ns: Option<u64>,
}

/// What a record begins with.
#[derive(Clone, Copy)]
struct Head<'h> {
    name: &'h str,
    severity: Severity,
    at: At,
    body: &'h str,
}

impl<'h> Head<'h> {
    fn new(name: &'h str, at: At) -> Self {
        Head { name, severity: Severity::Info, at, body: name }
    }
}

/// By address, which is no other's as long as the owner is kept beside it.
type Owners = BTreeMap<usize, (Arc<Owner>, Vec<u8>)>;

/// Makes records.
#[derive(Debug, Default)]
pub struct Encoder {
    /// Number of the last record.
    last: u64,
    gpus: Topology,
    /// Attributes of each GPU that an event names, by `gpu_id`.
    of_gpus: BTreeMap<u32, Vec<u8>>,
    /// Attributes of owners.
    owners: Owners,
    /// The record that is being made.
    record: Vec<u8>,
}

impl Encoder {
    /// Adds records to `out`, each as a field of `ScopeLogs`; returns how many. `now_ns`: nanoseconds of the Unix epoch.
    pub fn encode(&mut self, item: &Item, now_ns: i64, out: &mut Vec<u8>) -> u64 {
        let before = self.last;
        match item {
            Item::New(New::Entry(entry)) => match (entry.event(), &entry.what) {
                (Some((event, change)), what) => {
                    let since_ns = match what {
                        What::QueueDestroyFailed { since_ns, .. } => *since_ns,
                        _ => None,
                    };
                    let event = Made { event: &event, change: &change, since_ns };
                    self.event(event, entry.owner.as_ref(), entry.wall_ns, now_ns, out);
                }
                (None, What::Driver { loads, .. }) => {
                    let at = At { mono_ns: entry.mono_ns, unix_ns: entry.wall_ns };
                    self.begin(Head::new(entry.name(), at), now_ns);
                    unsigned("kfd.driver_loads", *loads, &mut self.record);
                    self.put(out);
                }
                (None, _) => {}
            },
            Item::New(New::Event(passed)) => {
                let Passed { event, change, owner, wall_ns } = &**passed;
                let event = Made { event, change, since_ns: None };
                self.event(event, owner.as_ref(), *wall_ns, now_ns, out);
            }
            Item::Begin(at) => self.add("trace_begin", *at, now_ns, out),
            Item::Alive(at) => self.add("trace_alive", *at, now_ns, out),
            Item::End(at) => self.add("trace_end", *at, now_ns, out),
            Item::Lost(at, lost) => {
                let names: Vec<String> =
                    lost.iter().map(|(name, count)| format!("{name}: {count}")).collect();
                let (severity, body) = (Severity::Warn, names.join("; "));
                self.begin(Head { severity, body: &body, ..Head::new("lost", *at) }, now_ns);
                unsigned("kfd.lost", lost.values().sum(), &mut self.record);
                self.put(out);
            }
            Item::Gpus(at, gpus) => {
                self.gpus = gpus.clone();
                self.of_gpus = gpus.gpus.iter().map(|gpu| (gpu.gpu_id, of_gpu(gpu))).collect();
                for gpu in &gpus.gpus {
                    self.begin(Head::new("gpu", *at), now_ns);
                    describe(gpu, &mut self.record);
                    self.put(out);
                }
            }
            Item::Dropped(count) => {
                self.last += count;
                return 0;
            }
        }
        self.last - before
    }

    fn event(
        &mut self,
        made: Made<'_>,
        owner: Option<&Arc<Owner>>,
        unix_ns: i64,
        now_ns: i64,
        out: &mut Vec<u8>,
    ) {
        let Made { event, change, since_ns } = made;
        let at = At { mono_ns: event.mono_ns, unix_ns };
        let head = Head { severity: Severity::of(&event.body), ..Head::new(event.body.kind().name(), at) };
        self.begin(head, now_ns);
        let record = &mut self.record;
        let clock =
            Clock { mono_to_wall_ns: i128::from(unix_ns) - i128::from(event.mono_ns), zone: TimeZone::UTC };
        let context = Context::of_history(change, None, &clock, &self.gpus);
        match &event.body {
            // The rest is its owner's.
            Body::ProcessSeen(seen) => {
                truth("kfd.standing", seen.standing, record);
                if let Some(ns) = seen.start_boottime_ns {
                    unsigned("kfd.start_boottime_ns", ns, record);
                }
                if let Some(path) = owner.and_then(|owner| owner.details.cgroup.as_deref()) {
                    foreign("process.linux.cgroup", path, record);
                }
            }
            _ => attributes(&own(event, &context), record),
        }
        let ended = match event.body {
            Body::QueueDestroy { queue_id, .. } => context.ended(queue_id),
            _ => None,
        };
        // For how long it is known: since the time of its `queue_create`, of an existing one when it was found.
        if let Some(since_ns) = since_ns.or(ended.and_then(Queue::known_since_ns)) {
            unsigned("kfd.known_ns", event.mono_ns.saturating_sub(since_ns), record);
        }
        let gpu_id = event.body.gpu_id().or(ended.and_then(|queue| queue.facts.gpu_id));
        if let Some(of_gpu) = gpu_id.and_then(|id| self.of_gpus.get(&id)) {
            record.extend_from_slice(of_gpu);
        }
        if event.tid != 0 {
            int("thread.id", event.tid, record);
            int("kfd.task_pid", event.task_tgid, record);
        }
        if let Some(owner) = owner {
            record.extend_from_slice(kept(&mut self.owners, owner));
        }
        self.put(out);
    }

    /// Adds a record that has no attributes of its own.
    fn add(&mut self, name: &str, at: At, now_ns: i64, out: &mut Vec<u8>) {
        self.begin(Head::new(name, at), now_ns);
        self.put(out);
    }

    /// Begins a record; its other attributes can be added.
    fn begin(&mut self, head: Head<'_>, now_ns: i64) {
        let Head { name, severity, at, body } = head;
        self.last += 1;
        let out = &mut self.record;
        out.clear();
        fixed64(TIME_UNIX_NANO, u64::try_from(at.unix_ns).unwrap_or(0), out);
        fixed64(OBSERVED_TIME_UNIX_NANO, u64::try_from(now_ns).unwrap_or(0), out);
        varint(SEVERITY_NUMBER, severity as u64, out);
        bytes(SEVERITY_TEXT, severity.text().as_bytes(), out);
        any_text(BODY, body, out);
        own_name(EVENT_NAME, name, out);
        put(Place::Attribute("otel.event.name"), Scalar::Own(name), out);
        unsigned("kfd.seq", self.last, out);
        unsigned("kfd.mono_ns", at.mono_ns, out);
    }

    fn put(&self, out: &mut Vec<u8>) {
        bytes(LOG_RECORDS, &self.record, out);
    }
}

/// What else is known of the GPU that an event names.
fn of_gpu(gpu: &Gpu) -> Vec<u8> {
    let mut out = Vec::new();
    int("kfd.gpu", gpu.index, &mut out);
    if let Some(pci) = &gpu.pci {
        let place = gpu.partition.map_or_else(|| pci.clone(), |partition| format!("{pci}/{partition}"));
        text("hw.id", &place, &mut out);
    }
    out
}

/// All of a GPU, so that an unused one is known, too.
fn describe(gpu: &Gpu, out: &mut Vec<u8>) {
    let words = [
        ("hw.model", gpu.gfx_name()),
        ("hw.name", gpu.product_name.clone().or_else(|| gpu.name.clone())),
        ("hw.serial_number", gpu.serial_number.clone()),
    ];
    int("kfd.gpu_id", gpu.gpu_id, out);
    text("hw.type", "gpu", out);
    for (name, word) in words {
        if let Some(word) = word {
            foreign(name, &word, out);
        }
    }
    out.extend(of_gpu(gpu));
}

/// Attributes of an owner.
fn kept<'k>(owners: &'k mut Owners, owner: &Arc<Owner>) -> &'k [u8] {
    let address = Arc::as_ptr(owner) as usize;
    if owners.len() >= OWNERS && !owners.contains_key(&address) {
        owners.clear();
    }
    &owners.entry(address).or_insert_with(|| (Arc::clone(owner), of_owner(owner))).1
}

/// Whose it is. Its arguments are not among it: they may hold secrets.
fn of_owner(owner: &Owner) -> Vec<u8> {
    let details = &owner.details;
    let (belongs, names) = (&details.belongs, details.pod.as_ref());
    let container = belongs.container.as_ref();
    let slurm = belongs.slurm.as_ref();
    let numbers = [
        ("process.pid", owner.pid()),
        ("process.vpid", owner.ns_pid),
        ("process.user.id", owner.uid),
        ("kfd.context_id", owner.context_id),
        ("slurm.job.id", slurm.map(|slurm| slurm.job)),
        ("slurm.user.id", slurm.and_then(|slurm| slurm.uid)),
    ];
    let words = [
        ("process.executable.name", owner.comm.as_deref()),
        ("container.id", container.map(|container| container.id.as_str())),
        ("container.runtime.name", container.and_then(|found| found.runtime).map(Runtime::name)),
        ("container.name", details.container_name.as_deref()),
        ("k8s.pod.uid", belongs.pod_uid.as_deref()),
        ("k8s.namespace.name", names.map(|names| names.namespace.as_str())),
        ("k8s.pod.name", names.map(|names| names.pod.as_str())),
        ("k8s.container.name", names.and_then(|names| names.container.as_deref())),
        ("slurm.step.id", slurm.and_then(|slurm| slurm.step.as_deref())),
        ("kfd.unit", belongs.unit.as_deref()),
    ];
    let mut out = Vec::with_capacity(512);
    if let Some(id) = owner.id() {
        unsigned("kfd.process", id.0, &mut out);
    }
    for (name, number) in numbers {
        if let Some(number) = number {
            int(name, number, &mut out);
        }
    }
    for (name, word) in words {
        if let Some(word) = word {
            foreign(name, word, &mut out);
        }
    }
    out
}

#[cfg(test)]
mod tests;
