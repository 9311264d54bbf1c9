//! Events as records of OTLP. In: entries of the history, and what the daemon adds, in their order. Out: their bytes, each with
//! the next number of this run: what is missing or came twice behind a collector can be counted by that.
//!
//! Names are those of OpenTelemetry's semantic conventions where they have one (process, thread, container, k8s, hw), else begin
//! with `kfd.` or `slurm.`; docs/otlp.md lists them.

use super::fields::attributes;
use super::message::{Message, put_message};
use crate::attribute::{Gpu, Runtime, Topology};
use crate::model::event::{Body, Event};
use crate::output::event::context::Context;
use crate::output::event::json::own;
use crate::state::{Change, New, Owner, Passed, Queue, What};
use crate::text::clock::Clock;
use jiff::tz::TimeZone;
use kfd_trace_common::kind;
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

/// There are so many places for attributes of owners, as a power of two, of some 500 bytes each: few owners of a node share one.
const OWNERS_BITS: u32 = 10;

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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
        match body.kind().severity() {
            kind::Severity::Failure => Severity::Error,
            kind::Severity::Stopped => Severity::Warn,
            kind::Severity::Requested
            | kind::Severity::Detail
            | kind::Severity::Info
            | kind::Severity::Created
            | kind::Severity::Ended => match body.errno() {
                Some(_) => Severity::Warn,
                None => Severity::Info,
            },
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

/// What records of a kind and a severity have in common, made once for each.
#[derive(Debug, Default)]
struct Kinds {
    all: Vec<KindFields>,
}

#[derive(Debug)]
struct KindFields {
    name: &'static str,
    severity: Severity,
    /// Its name is its body.
    has_body: bool,
    fields: Message,
}

impl Kinds {
    fn of(&mut self, name: &'static str, severity: Severity, has_body: bool) -> &[u8] {
        let same = |kind: &KindFields| {
            // The same constant is nearly always at the same address; a further copy of it is found by its text.
            let named = std::ptr::eq(kind.name, name) || kind.name == name;
            named && kind.severity == severity && kind.has_body == has_body
        };
        let place = self.all.iter().position(same).unwrap_or_else(|| {
            let (full, mut fields) = (format!("kfd.{name}"), Message::default());
            fields.small_field(SEVERITY_NUMBER, severity as u8);
            fields.field(SEVERITY_TEXT, severity.text());
            if has_body {
                fields.value_field(BODY, name);
            }
            fields.field(EVENT_NAME, &full);
            fields.text("otel.event.name", &full);
            self.all.push(KindFields { name, severity, has_body, fields });
            self.all.len() - 1
        });
        self.all[place].fields.written()
    }
}

/// What a record begins with.
#[derive(Clone, Copy)]
struct Head<'h> {
    name: &'static str,
    severity: Severity,
    at: At,
    /// `None`: its name.
    body: Option<&'h str>,
}

impl Head<'_> {
    fn new(name: &'static str, at: At) -> Self {
        Head { name, severity: Severity::Info, at, body: None }
    }
}

/// Attributes of owners, each at a place by its address, which is no other's as long as the owner is kept beside it. Who has the
/// same place as another one takes it, and theirs are made anew each time.
#[derive(Debug, Default)]
struct Owners {
    places: Vec<Option<(Arc<Owner>, Message)>>,
}

impl Owners {
    fn of(&mut self, owner: &Arc<Owner>) -> &[u8] {
        if self.places.is_empty() {
            self.places.resize_with(1 << OWNERS_BITS, || None);
        }
        let place = &mut self.places[Self::place(owner)];
        if !place.as_ref().is_some_and(|(kept, _)| Arc::ptr_eq(kept, owner)) {
            *place = None;
        }
        place.get_or_insert_with(|| (Arc::clone(owner), of_owner(owner))).1.written()
    }

    /// Fibonacci hashing: addresses differ in their middle bits.
    fn place(owner: &Arc<Owner>) -> usize {
        let spread = (Arc::as_ptr(owner) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        usize::try_from(spread >> (u64::BITS - OWNERS_BITS)).unwrap_or(0)
    }
}

/// Makes records.
#[derive(Debug, Default)]
pub struct Encoder {
    /// Number of the last record.
    last: u64,
    gpus: Topology,
    /// Attributes of each GPU that an event names, by `gpu_id`.
    of_gpus: BTreeMap<u32, Message>,
    owners: Owners,
    kinds: Kinds,
    /// The record that is being made.
    record: Message,
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
                    self.record.unsigned("kfd.driver_loads", *loads);
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
                self.begin(Head { severity, body: Some(&body), ..Head::new("lost", *at) }, now_ns);
                self.record.unsigned("kfd.lost", lost.values().sum());
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
                record.truth("kfd.standing", seen.standing);
                if let Some(ns) = seen.start_boottime_ns {
                    record.unsigned("kfd.start_boottime_ns", ns);
                }
                if let Some(path) = owner.and_then(|owner| owner.details.cgroup.as_deref()) {
                    record.foreign("process.linux.cgroup", path);
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
            record.unsigned("kfd.known_ns", event.mono_ns.saturating_sub(since_ns));
        }
        let gpu_id = event.body.gpu_id().or(ended.and_then(|queue| queue.facts.gpu_id));
        if let Some(of_gpu) = gpu_id.and_then(|id| self.of_gpus.get(&id)) {
            record.add(of_gpu.written());
        }
        if event.tid != 0 {
            record.int("thread.id", event.tid);
            record.int("kfd.task_pid", event.task_tgid);
        }
        if let Some(owner) = owner {
            record.add(self.owners.of(owner));
        }
        self.put(out);
    }

    /// Adds a record that has no attributes of its own.
    fn add(&mut self, name: &'static str, at: At, now_ns: i64, out: &mut Vec<u8>) {
        self.begin(Head::new(name, at), now_ns);
        self.put(out);
    }

    /// Begins a record; its other attributes can be added.
    fn begin(&mut self, head: Head<'_>, now_ns: i64) {
        let Head { name, severity, at, body } = head;
        self.last += 1;
        let record = &mut self.record;
        record.clear();
        record.fixed64_field(TIME_UNIX_NANO, u64::try_from(at.unix_ns).unwrap_or(0));
        record.fixed64_field(OBSERVED_TIME_UNIX_NANO, u64::try_from(now_ns).unwrap_or(0));
        record.unsigned("kfd.seq", self.last);
        record.unsigned("kfd.mono_ns", at.mono_ns);
        if let Some(body) = body {
            record.value_field(BODY, body);
        }
        record.add(self.kinds.of(name, severity, body.is_none()));
    }

    fn put(&self, out: &mut Vec<u8>) {
        put_message(LOG_RECORDS, &self.record, out);
    }
}

/// What else is known of the GPU that an event names.
fn of_gpu(gpu: &Gpu) -> Message {
    let mut out = Message::default();
    out.int("kfd.gpu", gpu.index);
    if let Some(pci) = &gpu.pci {
        let place = gpu.partition.map_or_else(|| pci.clone(), |partition| format!("{pci}/{partition}"));
        out.text("hw.id", &place);
    }
    out
}

/// All of a GPU, so that an unused one is known, too.
fn describe(gpu: &Gpu, out: &mut Message) {
    let words = [
        ("hw.model", gpu.gfx_name()),
        ("hw.name", gpu.product_name.clone().or_else(|| gpu.name.clone())),
        ("hw.serial_number", gpu.serial_number.clone()),
    ];
    out.int("kfd.gpu_id", gpu.gpu_id);
    out.text("hw.type", "gpu");
    for (name, word) in words {
        if let Some(word) = word {
            out.foreign(name, &word);
        }
    }
    out.add(of_gpu(gpu).written());
}

/// Whose it is. Its arguments are not among it: they may hold secrets.
fn of_owner(owner: &Owner) -> Message {
    let details = &owner.details;
    let (belongs, names) = (&details.belongs, details.pod.as_ref());
    let container = belongs.container.as_ref();
    let (slurm, job) = (belongs.slurm.as_ref(), details.job.as_ref());
    let mut out = Message::default();
    let mut number = |name: &str, value: Option<u32>| {
        if let Some(value) = value {
            out.int(name, value);
        }
    };
    number("process.pid", owner.pid());
    number("process.vpid", owner.ns_pid);
    number("process.user.id", owner.uid);
    number("kfd.context_id", owner.context_id);
    number("slurm.job.id", slurm.map(|slurm| slurm.job));
    number("slurm.user.id", slurm.and_then(|slurm| slurm.uid));
    if let Some(id) = owner.id() {
        out.unsigned("kfd.process", id.0);
    }
    // As in metrics.
    let mut word = |name: &str, value: Option<&str>| {
        if let Some(value) = value {
            out.foreign(name, value);
        }
    };
    word("process.executable.name", owner.comm.as_deref());
    word("container.id", container.map(|container| container.id.as_str()));
    word("container.runtime.name", container.and_then(|found| found.runtime).map(Runtime::name));
    word("container.name", details.container_name.as_deref());
    word("k8s.pod.uid", belongs.pod_uid.as_deref());
    word("k8s.namespace.name", names.map(|names| names.namespace.as_str()));
    word("k8s.pod.name", names.map(|names| names.pod.as_str()));
    word("k8s.container.name", names.and_then(|names| names.container.as_deref()));
    word("slurm.step.id", slurm.and_then(|slurm| slurm.step.as_deref()));
    word("slurm.account", job.and_then(|job| job.account.as_deref()));
    word("slurm.partition", job.and_then(|job| job.partition.as_deref()));
    word("kfd.unit", belongs.unit.as_deref());
    out
}

#[cfg(test)]
mod tests;
