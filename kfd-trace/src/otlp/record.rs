//! Events as records of OTLP. In: entries of the history, and what the daemon adds, in their order. Out: their bytes, each with
//! the next number of this run: what is missing or came twice behind a collector can be counted by that.
//!
//! Names are those of OpenTelemetry's semantic conventions where they have one (process, thread, container, k8s, hw), else begin
//! with `kfd.` or `slurm.`; docs/otlp.md lists them.

use super::fields::attributes;
use super::proto::{AnyValue, KeyValue, LogRecord, Value, int, pair, text};
use crate::attribute::{Gpu, Runtime, Topology};
use crate::model::event::{Body, Event};
use crate::output::event::context::Context;
use crate::output::event::json::own;
use crate::state::{Change, New, Owner, Passed, Queue, What};
use crate::text::clock::Clock;
use crate::text::escape;
use jiff::tz::TimeZone;
use prost::Message as _;
use prost::encoding::{WireType, encode_key, encode_varint};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// `ScopeLogs.log_records`
const LOG_RECORDS: u32 = 2;

/// Owners whose attributes are kept; there are a few records of each at a time.
const OWNERS: usize = 256;

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

/// A record before it has its number and its owner.
struct Draft<'d> {
    name: &'d str,
    severity: Severity,
    at: At,
    /// `None`: the name.
    body: Option<String>,
    attributes: Vec<KeyValue>,
}

impl<'d> Draft<'d> {
    fn new(name: &'d str, at: At) -> Self {
        Draft { name, severity: Severity::Info, at, body: None, attributes: Vec::new() }
    }
}

/// By address, which is no other's as long as the owner is kept beside it.
type Owners = HashMap<usize, (Arc<Owner>, Vec<u8>)>;

/// Makes records.
#[derive(Debug, Default)]
pub struct Encoder {
    /// Number of the last record.
    last: u64,
    gpus: Topology,
    /// Attributes of owners, as bytes of a record that has nothing else.
    owners: Owners,
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
                    let attributes = vec![pair("kfd.driver_loads", unsigned(*loads))];
                    self.add(Draft { attributes, ..Draft::new(entry.name(), at) }, now_ns, out);
                }
                (None, _) => {}
            },
            Item::New(New::Event(passed)) => {
                let Passed { event, change, owner, wall_ns } = &**passed;
                let event = Made { event, change, since_ns: None };
                self.event(event, owner.as_ref(), *wall_ns, now_ns, out);
            }
            Item::Begin(at) => self.add(Draft::new("trace_begin", *at), now_ns, out),
            Item::Alive(at) => self.add(Draft::new("trace_alive", *at), now_ns, out),
            Item::End(at) => self.add(Draft::new("trace_end", *at), now_ns, out),
            Item::Lost(at, lost) => {
                let sum = lost.values().sum();
                let names: Vec<String> =
                    lost.iter().map(|(name, count)| format!("{name}: {count}")).collect();
                let attributes = vec![pair("kfd.lost", unsigned(sum))];
                let (severity, body) = (Severity::Warn, Some(names.join("; ")));
                self.add(Draft { severity, body, attributes, ..Draft::new("lost", *at) }, now_ns, out);
            }
            Item::Gpus(at, gpus) => {
                self.gpus = gpus.clone();
                for gpu in &gpus.gpus {
                    self.add(Draft { attributes: described(gpu), ..Draft::new("gpu", *at) }, now_ns, out);
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
        let clock =
            Clock { mono_to_wall_ns: i128::from(unix_ns) - i128::from(event.mono_ns), zone: TimeZone::UTC };
        let context = Context::of_history(change, None, &clock, &self.gpus);
        let mut own = match &event.body {
            // The rest is its owner's.
            Body::ProcessSeen(seen) => {
                let since = seen.start_boottime_ns.map(|ns| pair("kfd.start_boottime_ns", unsigned(ns)));
                let path = owner.and_then(|owner| owner.details.cgroup.as_deref());
                let path = path.map(|path| text("process.linux.cgroup", escape::terminal(path)));
                let standing = pair("kfd.standing", Value::Bool(seen.standing));
                [Some(standing), since, path].into_iter().flatten().collect()
            }
            _ => attributes(&own(event, &context)),
        };
        if let Body::QueueDestroy { queue_id, .. } = event.body {
            let queue = context.ended(queue_id);
            own.extend(known_ns(queue.and_then(Queue::known_since_ns), event.mono_ns));
        }
        own.extend(known_ns(since_ns, event.mono_ns));
        own.extend(self.gpu(&own));
        if event.tid != 0 {
            own.extend([int("thread.id", event.tid), int("kfd.task_pid", event.task_tgid)]);
        }
        let at = At { mono_ns: event.mono_ns, unix_ns };
        let (name, severity) = (event.body.kind().name(), Severity::of(&event.body));
        self.begin(Draft { severity, attributes: own, ..Draft::new(name, at) }, now_ns);
        if let Some(owner) = owner {
            let bytes = kept(&mut self.owners, owner);
            self.record.extend_from_slice(bytes);
        }
        self.put(out);
    }

    /// Adds a record that belongs to no process.
    fn add(&mut self, draft: Draft<'_>, now_ns: i64, out: &mut Vec<u8>) {
        self.begin(draft, now_ns);
        self.put(out);
    }

    /// Begins a record with all but what its owner has.
    fn begin(&mut self, draft: Draft<'_>, now_ns: i64) {
        let Draft { name, severity, at, body, mut attributes } = draft;
        self.last += 1;
        let event_name = format!("kfd.{name}");
        attributes.push(text("otel.event.name", event_name.as_str()));
        attributes.push(pair("kfd.seq", unsigned(self.last)));
        attributes.push(pair("kfd.mono_ns", unsigned(at.mono_ns)));
        let body = Value::Text(body.unwrap_or_else(|| name.to_owned()));
        let record = LogRecord {
            time_unix_nano: u64::try_from(at.unix_ns).unwrap_or(0),
            observed_time_unix_nano: u64::try_from(now_ns).unwrap_or(0),
            severity_number: severity as i32,
            severity_text: severity.text().to_owned(),
            body: Some(AnyValue { value: Some(body) }),
            attributes,
            event_name,
        };
        self.record.clear();
        // A vector has room for all.
        let _ = record.encode(&mut self.record);
    }

    fn put(&mut self, out: &mut Vec<u8>) {
        encode_key(LOG_RECORDS, WireType::LengthDelimited, out);
        encode_varint(self.record.len() as u64, out);
        out.extend_from_slice(&self.record);
    }

    /// What else is known of the GPU that an event names.
    fn gpu(&self, own: &[KeyValue]) -> Vec<KeyValue> {
        let id = own.iter().find(|pair| pair.key == "kfd.gpu_id").and_then(|pair| pair.value.as_ref());
        let Some(Value::Int(id)) = id.and_then(|value| value.value.as_ref()) else { return Vec::new() };
        let gpu = u32::try_from(*id).ok().and_then(|id| self.gpus.gpu(id));
        gpu.map(of_gpu).unwrap_or_default()
    }
}

fn unsigned(value: u64) -> Value {
    i64::try_from(value).map_or_else(|_| Value::Text(value.to_string()), Value::Int)
}

fn of_gpu(gpu: &Gpu) -> Vec<KeyValue> {
    let place = gpu.pci.as_ref().map(|pci| match gpu.partition {
        Some(partition) => text("hw.id", format!("{pci}/{partition}")),
        None => text("hw.id", pci.as_str()),
    });
    [Some(int("kfd.gpu", gpu.index)), place].into_iter().flatten().collect()
}

/// All of a GPU, so that an unused one is known, too.
fn described(gpu: &Gpu) -> Vec<KeyValue> {
    let word = |key: &str, value: Option<String>| value.map(|value| text(key, escape::terminal(&value)));
    let more = [
        Some(int("kfd.gpu_id", gpu.gpu_id)),
        Some(text("hw.type", "gpu")),
        word("hw.model", gpu.gfx_name()),
        word("hw.name", gpu.product_name.clone().or_else(|| gpu.name.clone())),
        word("hw.serial_number", gpu.serial_number.clone()),
    ];
    more.into_iter().flatten().chain(of_gpu(gpu)).collect()
}

/// For how long a queue is known: since the time of its `queue_create`, of an existing one when it was found.
fn known_ns(since_ns: Option<u64>, at_ns: u64) -> Option<KeyValue> {
    Some(pair("kfd.known_ns", unsigned(at_ns.saturating_sub(since_ns?))))
}

fn kept<'k>(owners: &'k mut Owners, owner: &Arc<Owner>) -> &'k [u8] {
    let address = Arc::as_ptr(owner) as usize;
    if owners.len() >= OWNERS && !owners.contains_key(&address) {
        owners.clear();
    }
    let made = || {
        let record = LogRecord { attributes: of_owner(owner), ..LogRecord::default() };
        (Arc::clone(owner), record.encode_to_vec())
    };
    &owners.entry(address).or_insert_with(made).1
}

/// Whose it is. Its arguments are not among it: they may hold secrets.
fn of_owner(owner: &Owner) -> Vec<KeyValue> {
    let details = &owner.details;
    let (belongs, names) = (&details.belongs, details.pod.as_ref());
    let container = belongs.container.as_ref();
    let (slurm, job) = (belongs.slurm.as_ref(), details.job.as_ref());
    let number = |key: &str, value: Option<u32>| value.map(|value| int(key, value));
    // As in metrics.
    let word = |key: &str, value: Option<&str>| value.map(|value| text(key, escape::terminal(value)));
    [
        number("process.pid", owner.pid()),
        number("process.vpid", owner.ns_pid),
        word("process.executable.name", owner.comm.as_deref()),
        number("process.user.id", owner.uid),
        owner.id().map(|id| pair("kfd.process", unsigned(id.0))),
        number("kfd.context_id", owner.context_id),
        word("container.id", container.map(|container| container.id.as_str())),
        word("container.runtime.name", container.and_then(|found| found.runtime).map(Runtime::name)),
        word("container.name", details.container_name.as_deref()),
        word("k8s.pod.uid", belongs.pod_uid.as_deref()),
        word("k8s.namespace.name", names.map(|names| names.namespace.as_str())),
        word("k8s.pod.name", names.map(|names| names.pod.as_str())),
        word("k8s.container.name", names.and_then(|names| names.container.as_deref())),
        number("slurm.job.id", slurm.map(|slurm| slurm.job)),
        word("slurm.step.id", slurm.and_then(|slurm| slurm.step.as_deref())),
        number("slurm.user.id", slurm.and_then(|slurm| slurm.uid)),
        word("slurm.account", job.and_then(|job| job.account.as_deref())),
        word("slurm.partition", job.and_then(|job| job.partition.as_deref())),
        word("kfd.unit", belongs.unit.as_deref()),
    ]
    .into_iter()
    .flatten()
    .collect()
}

#[cfg(test)]
mod tests;
