//! Processes and queues now: rows of every source at hand, merged, as a table or as JSON.

use std::io::{self, Write};

use bytesize::ByteSize;
use serde::Serialize;

use super::clock::age;
use super::{escape, names, table};
use crate::attribute::Topology;
use crate::events::event::{ProcessId, QueueType};
use crate::state::{Process, Queue, Snapshot, Sources};

mod merge;
pub use merge::merge;

/// Version of the JSON format.
pub const SCHEMA: u32 = 1;

/// One queue, or one process without queues. `None` is "not told".
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PsRow {
    /// In the initial PID namespace.
    pub pid: Option<u32>,
    /// Number that the tracer gave to the `kfd_process`.
    pub process: Option<ProcessId>,
    pub ns_pid: Option<u32>,
    pub uid: Option<u32>,
    pub comm: Option<String>,
    pub cmdline: Option<String>,
    pub cgroup: Option<String>,
    /// `None`: the process has no queue.
    pub queue_id: Option<u32>,
    pub gpu_id: Option<u32>,
    pub queue_type: Option<QueueType>,
    pub ring_address: Option<u64>,
    /// Bytes.
    pub ring_size: Option<u64>,
    pub write_pointer_address: Option<u64>,
    pub read_pointer_address: Option<u64>,
    /// Nanoseconds; `None` when the birth of the queue was not seen.
    pub age_ns: Option<u64>,
    pub sources: Sources,
}

impl PsRow {
    /// Rows of the live processes of a snapshot.
    #[must_use]
    pub fn from_snapshot(snapshot: &Snapshot, now_ns: u64) -> Vec<PsRow> {
        let rows = |process: &Process| {
            let own = PsRow::of_process(process);
            if process.queues.is_empty() {
                return vec![own];
            }
            process.queues.values().map(|queue| own.clone().with_queue(queue, now_ns)).collect()
        };
        snapshot.live().flat_map(rows).collect()
    }

    fn of_process(process: &Process) -> PsRow {
        PsRow {
            pid: process.tgid,
            process: process.id(),
            ns_pid: process.ns_tgid,
            uid: process.uid,
            comm: process.comm.clone(),
            cmdline: process.details.cmdline.clone(),
            cgroup: process.details.cgroup.clone().or_else(|| process.cgroup_leaf.clone()),
            sources: process.sources,
            ..PsRow::default()
        }
    }

    fn with_queue(self, queue: &Queue, now_ns: u64) -> PsRow {
        let facts = &queue.facts;
        PsRow {
            queue_id: Some(queue.queue_id),
            gpu_id: facts.gpu_id,
            queue_type: facts.queue_type,
            ring_address: facts.ring_address,
            ring_size: facts.ring_size,
            write_pointer_address: facts.write_pointer_address,
            read_pointer_address: facts.read_pointer_address,
            age_ns: queue.age_ns(now_ns),
            sources: queue.sources,
            ..self
        }
    }

    /// `probe+sysfs`, or `sysfs only` where `asked` names other sources that do not have it.
    #[must_use]
    pub fn source(&self, asked: Sources) -> String {
        let silent = asked.iter().any(|source| !self.sources.has(source));
        let one = self.sources.iter().count() == 1;
        if silent && one { format!("{} only", self.sources) } else { self.sources.to_string() }
    }
}

/// Names of the columns of [`cells`].
pub const HEADER: [&str; 14] = [
    "PID",
    "PID INSIDE",
    "COMM",
    "NODE",
    "PCI",
    "GPU_ID",
    "QUEUE",
    "TYPE",
    "RING",
    "SIZE",
    "WPTR",
    "RPTR",
    "AGE",
    "SOURCE",
];

/// The columns with numbers.
const RIGHT: [usize; 7] = [0, 1, 3, 5, 6, 9, 12];

/// One list of cells a row, safe for a terminal; `-` is "not told". `asked`: the sources that could be asked.
#[must_use]
pub fn cells(rows: &[PsRow], asked: Sources, topology: &Topology) -> Vec<Vec<String>> {
    let of = |row: &PsRow| {
        let gpu = row.gpu_id.and_then(|id| topology.gpu(id));
        vec![
            show(row.pid),
            show(row.ns_pid),
            row.comm.as_deref().map_or_else(dash, escape::terminal),
            show(gpu.map(|gpu| gpu.node)),
            gpu.and_then(|gpu| gpu.pci.clone()).unwrap_or_else(dash),
            show(row.gpu_id),
            show(row.queue_id),
            row.queue_type.map_or_else(dash, |kind| kind.name().to_owned()),
            hex(row.ring_address).unwrap_or_else(dash),
            row.ring_size.map_or_else(dash, |size| ByteSize(size).display().iec_short().to_string()),
            hex(row.write_pointer_address).unwrap_or_else(dash),
            hex(row.read_pointer_address).unwrap_or_else(dash),
            row.age_ns.map_or_else(dash, age),
            row.source(asked),
        ]
    };
    rows.iter().map(of).collect()
}

/// Writes the table.
///
/// # Errors
/// What `out` gives.
pub fn text(out: &mut impl Write, rows: &[PsRow], asked: Sources, topology: &Topology) -> io::Result<()> {
    writeln!(out, "{}", table::plain(&HEADER, cells(rows, asked, topology), &RIGHT))
}

fn dash() -> String {
    "-".to_owned()
}

fn show(value: Option<u32>) -> String {
    value.map_or_else(dash, |value| value.to_string())
}

fn hex(value: Option<u64>) -> Option<String> {
    value.map(names::hex)
}

/// One row in JSON; every field is always there, `null` is "not told".
#[derive(Debug, Serialize)]
struct JsonRow<'a> {
    pid: Option<u32>,
    ns_pid: Option<u32>,
    uid: Option<u32>,
    comm: Option<&'a str>,
    cmdline: Option<&'a str>,
    cgroup: Option<&'a str>,
    kfd_process: Option<String>,
    node: Option<u32>,
    pci: Option<String>,
    gpu_id: Option<u32>,
    queue_id: Option<u32>,
    queue_type: Option<&'static str>,
    ring_address: Option<String>,
    ring_size: Option<u64>,
    write_pointer_address: Option<String>,
    read_pointer_address: Option<String>,
    age_ns: Option<u64>,
    #[serde(serialize_with = "names::sources")]
    sources: Sources,
}

#[derive(Debug, Serialize)]
struct Document<'a> {
    schema: u32,
    ts: Option<String>,
    /// The sources that could be asked.
    #[serde(serialize_with = "names::sources")]
    asked: Sources,
    queues: Vec<JsonRow<'a>>,
    /// Processes without queues.
    processes: Vec<JsonRow<'a>>,
}

/// Writes one object: `queues`, and the `processes` that have none.
///
/// # Errors
/// What `out` gives.
pub fn json(
    out: &mut impl Write,
    rows: &[PsRow],
    asked: Sources,
    topology: &Topology,
    ts: Option<String>,
) -> io::Result<()> {
    let (queues, processes) =
        rows.iter().map(|row| json_row(row, topology)).partition(|row| row.queue_id.is_some());
    serde_json::to_writer(&mut *out, &Document { schema: SCHEMA, ts, asked, queues, processes })?;
    writeln!(out)
}

fn json_row<'a>(row: &'a PsRow, topology: &Topology) -> JsonRow<'a> {
    let gpu = row.gpu_id.and_then(|id| topology.gpu(id));
    JsonRow {
        pid: row.pid,
        ns_pid: row.ns_pid,
        uid: row.uid,
        comm: row.comm.as_deref(),
        cmdline: row.cmdline.as_deref(),
        cgroup: row.cgroup.as_deref(),
        kfd_process: row.process.map(|id| id.0.to_string()),
        node: gpu.map(|gpu| gpu.node),
        pci: gpu.and_then(|gpu| gpu.pci.clone()),
        gpu_id: row.gpu_id,
        queue_id: row.queue_id,
        queue_type: row.queue_type.map(QueueType::name),
        ring_address: hex(row.ring_address),
        ring_size: row.ring_size,
        write_pointer_address: hex(row.write_pointer_address),
        read_pointer_address: hex(row.read_pointer_address),
        age_ns: row.age_ns,
        sources: row.sources,
    }
}

#[cfg(test)]
mod tests;
