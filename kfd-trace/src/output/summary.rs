//! The summary at the end of a stream: ioctls as in `strace -c`, queues, and losses.

use super::activity::{WorkFields, works};
use super::preemptions;
use crate::attribute::Topology;
use crate::model::ioctl::{self, Named};
use crate::state::{IoctlSum, IoctlTotals, Snapshot};
use crate::text::clock::{latency, span};
use crate::text::count::counted;
use crate::text::{errno, escape, table};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::{self, Write};

mod input;

pub use input::SummaryInput;

/// Version of the JSON format.
pub const SCHEMA: u32 = 1;

/// The finished summary; serialises to one JSON object.
#[derive(Debug, Serialize)]
pub struct Summary {
    schema: u32,
    event: &'static str,
    duration_ns: u64,
    ioctls: Vec<Calls>,
    /// Present if more than one process was seen.
    processes: Vec<ProcessCalls>,
    queues: QueueTotals,
    /// Processes whose queues were active, by GPU.
    activity: Vec<Did>,
    /// Preemptions, where these were requested.
    preemptions: Vec<preemptions::Preempted>,
    preempted: Vec<preemptions::Waited>,
    /// Records that reached the ring buffer, by kind, none of them 0: the cost of the trace in user space.
    records: BTreeMap<&'static str, u64>,
    /// Counts by name, none of them 0; empty when nothing was lost.
    lost: BTreeMap<String, u64>,
    /// Calls whose end is not probed, by ioctl.
    not_measured: BTreeMap<String, u64>,
    /// Threads that still slept in WAIT_EVENTS at the end; `null` where its end is not probed.
    event_waits: Option<usize>,
    /// Causes of misses ([`crate::model::missed::Cause`]) that this kernel does not count: none of them is in
    /// `lost`.
    misses_not_measured: Vec<&'static str>,
}

/// One ioctl.
#[derive(Debug, Serialize)]
struct Calls {
    ioctl: String,
    calls: u64,
    /// Calls whose result is known.
    measured: u64,
    /// Results are missing because none is probed, or all were missed; not because all of the calls still sleep.
    #[serde(skip)]
    unknown: bool,
    errors: BTreeMap<String, u64>,
    mean_ns: Option<u64>,
    /// Upper edges of histogram buckets, each twice the one below: the value itself is lower.
    p50_below_ns: Option<u64>,
    p99_below_ns: Option<u64>,
}

#[derive(Debug, Serialize)]
struct ProcessCalls {
    pid: Option<u32>,
    comm: Option<String>,
    ioctls: Vec<Calls>,
}

/// Activity of the queues of a process on one GPU.
#[derive(Debug, Serialize)]
struct Did {
    pid: Option<u32>,
    comm: Option<String>,
    #[serde(flatten)]
    work: WorkFields,
}

#[derive(Debug, Serialize)]
struct QueueTotals {
    /// Existed before the trace.
    standing: u64,
    created: u64,
    /// By cause.
    destroyed: BTreeMap<&'static str, u64>,
    /// Destroys counted above that the driver failed.
    destroys_failed: u64,
    alive: u64,
}

impl Summary {
    #[must_use]
    pub fn new(input: &SummaryInput<'_>) -> Self {
        let tables = input.tables;
        let all = input.retired.with(tables);
        let by_process = IoctlTotals::by_process(tables);
        let several = by_process.len() > 1;
        let processes = by_process.iter().filter(|_| several).map(|(id, sums)| {
            let row = input.snapshot.processes.iter().find(|row| row.id() == Some(*id));
            ProcessCalls {
                pid: row.and_then(|row| row.tgid),
                comm: row.and_then(|row| row.comm.clone()),
                ioctls: calls(&input.named, sums),
            }
        });
        Summary {
            schema: SCHEMA,
            event: "summary",
            duration_ns: input.duration_ns,
            ioctls: calls(&input.named, &all),
            processes: processes.collect(),
            queues: queues(input.snapshot),
            activity: if input.sampled { activity(input.snapshot, input.topology) } else { Vec::new() },
            preemptions: preemptions::by_reason(input.snapshot, input.topology),
            preempted: preemptions::by_process(input.snapshot, input.topology),
            records: input.sent(),
            lost: input.lost(&all),
            not_measured: input::not_measured(&all),
            event_waits: input.event_waits(),
            misses_not_measured: input.not_counted(),
        }
    }

    /// Writes the summary as text.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn text(&self, out: &mut impl Write) -> io::Result<()> {
        writeln!(out, "--- summary of {} ---", span(self.duration_ns))?;
        calls_table(out, &self.ioctls)?;
        for process in &self.processes {
            let pid = process.pid.map_or_else(|| "?".to_owned(), |pid| pid.to_string());
            let comm = process.comm.as_deref().map_or_else(|| "?".to_owned(), escape::terminal);
            writeln!(out, "\nprocess {pid} {comm}")?;
            calls_table(out, &process.ioctls)?;
        }
        self.queues_text(out)?;
        for Did { pid, comm, work } in &self.activity {
            let pid = pid.map_or_else(|| "?".to_owned(), |pid| pid.to_string());
            let comm = comm.as_deref().map_or_else(|| "?".to_owned(), escape::terminal);
            let gpu = work.gpu_id.map_or_else(|| "?".to_owned(), |id| id.to_string());
            writeln!(out, "process {pid} {comm} on gpu_id={gpu}: {}", work.words())?;
        }
        preemptions::text(out, &self.preemptions, &self.preempted)?;
        for (name, count) in &self.not_measured {
            writeln!(out, "not measured by design: results and latencies of {count} {name}")?;
        }
        if let Some(waits) = self.event_waits.filter(|waits| *waits > 0) {
            writeln!(out, "still asleep in WAIT_EVENTS: {}", counted(waits, "thread", "threads"))?;
        }
        if !self.misses_not_measured.is_empty() {
            writeln!(out, "not measured on this kernel: {}", self.misses_not_measured.join(", "))?;
        }
        if self.lost.is_empty() {
            return writeln!(out, "nothing was lost");
        }
        writeln!(out, "lost:")?;
        self.lost.iter().try_for_each(|(name, count)| writeln!(out, "  {name}: {count}"))
    }

    fn queues_text(&self, out: &mut impl Write) -> io::Result<()> {
        let queues = &self.queues;
        let destroyed: u64 = queues.destroyed.values().sum();
        let causes: Vec<_> =
            queues.destroyed.iter().map(|(cause, count)| format!("{cause} {count}")).collect();
        let causes = if causes.is_empty() { String::new() } else { format!(" ({})", causes.join(", ")) };
        write!(
            out,
            "\nqueues: {} existing, {} created, {destroyed} destroyed{causes}, {} alive",
            queues.standing, queues.created, queues.alive
        )?;
        if queues.destroys_failed > 0 {
            write!(out, "; {} of the destroyed still exist: their destroy failed", queues.destroys_failed)?;
        }
        writeln!(out)
    }

    /// Writes the summary as one line of JSON.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn json(&self, out: &mut impl Write) -> io::Result<()> {
        escape::json(&mut *out, self)?;
        writeln!(out)
    }
}

fn calls(named: &Named, sums: &IoctlTotals) -> Vec<Calls> {
    let mut all: Vec<_> = sums.iter().map(|(nr, sum)| one(named, sums, nr, sum)).collect();
    all.sort_by(|one, other| other.calls.cmp(&one.calls).then_with(|| one.ioctl.cmp(&other.ioctl)));
    all
}

fn one(named: &Named, sums: &IoctlTotals, nr: u8, sum: &IoctlSum) -> Calls {
    let measured = sum.stat.returned + sum.stat.refused;
    let probed_waits = nr == ioctl::WAIT_EVENTS && sums.not_measured() == 0;
    Calls {
        ioctl: named.name(u32::from(nr)),
        calls: sum.stat.entered,
        measured,
        unknown: measured == 0 && !probed_waits,
        errors: sum.errors.iter().map(|(number, count)| (errno::name(*number), *count)).collect(),
        mean_ns: sum.mean_ns(),
        p50_below_ns: sum.below_ns(50),
        p99_below_ns: sum.below_ns(99),
    }
}

fn calls_table(out: &mut impl Write, all: &[Calls]) -> io::Result<()> {
    if all.is_empty() {
        return writeln!(out, "no ioctl was seen");
    }
    let shown = |ns: Option<u64>| ns.map_or_else(|| "-".to_owned(), latency);
    let rows = all.iter().map(|calls| {
        let errors: Vec<_> = calls.errors.iter().map(|(name, count)| format!("{name} {count}")).collect();
        let errors = match (errors.is_empty(), calls.unknown) {
            (true, true) => "not measured".to_owned(),
            (true, false) => "-".to_owned(),
            (false, _) => errors.join(", "),
        };
        vec![
            calls.ioctl.clone(),
            calls.calls.to_string(),
            shown(calls.mean_ns),
            shown(calls.p50_below_ns),
            shown(calls.p99_below_ns),
            errors,
        ]
    });
    let header = ["IOCTL", "CALLS", "MEAN", "P50 BELOW", "P99 BELOW", "ERRORS"];
    writeln!(out, "{}", table::plain(&header, rows.collect(), &[1, 2, 3, 4]))
}

fn activity(snapshot: &Snapshot, topology: &Topology) -> Vec<Did> {
    let all = snapshot.processes.iter().flat_map(|row| {
        let did = works(row, topology).into_iter().filter(|work| !work.is_nothing());
        did.map(|work| Did { pid: row.tgid, comm: row.comm.clone(), work })
    });
    all.collect()
}

fn queues(snapshot: &Snapshot) -> QueueTotals {
    let totals = &snapshot.totals;
    let mut destroyed = BTreeMap::new();
    for ((_, cause), count) in &totals.queues_destroyed {
        *destroyed.entry(cause.name()).or_default() += count;
    }
    QueueTotals {
        standing: totals.queues_adopted.saturating_sub(totals.queues_born_later),
        created: totals.created(),
        destroyed,
        destroys_failed: totals.revived(),
        alive: u64::try_from(snapshot.queues().count()).unwrap_or(u64::MAX),
    }
}

#[cfg(test)]
mod tests;
