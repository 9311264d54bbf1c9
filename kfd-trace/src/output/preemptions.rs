//! Preemptions as tables: by GPU and reason, and who let whom wait.

use crate::attribute::Topology;
use crate::model::runlist::Reason;
use crate::state::Snapshot;
use crate::text::clock::{latency, span};
use crate::text::{escape, table};
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::io::{self, Write};

/// Preemptions of one GPU for one reason.
#[derive(Debug, Serialize)]
pub(super) struct Preempted {
    gpu_id: u32,
    reason: Option<&'static str>,
    preemptions: u64,
    failed: u64,
    /// Of those that did not fail.
    mean_ns: Option<u64>,
    /// Upper edge of its histogram bucket, as in `Calls`.
    p99_below_ns: Option<u64>,
    /// Lists that were submitted, and those that could not be.
    runlists: u64,
    runlists_failed: u64,
}

/// Preemptions of one GPU that concern one process.
#[derive(Debug, Serialize)]
pub(super) struct Waited {
    pid: Option<u32>,
    comm: Option<String>,
    gpu_id: u32,
    own_preemptions: u64,
    own_ns: u64,
    /// While it had active queues there.
    others_preemptions: u64,
    others_ns: u64,
}

pub(super) fn by_reason(snapshot: &Snapshot, topology: &Topology) -> Vec<Preempted> {
    let gpus = topology.in_order(&snapshot.scheduled).into_iter();
    let all = gpus.flat_map(|(gpu_id, scheduled)| {
        let reasons: BTreeSet<Option<Reason>> =
            scheduled.preempted.keys().chain(scheduled.lists.keys()).copied().collect();
        reasons.into_iter().map(move |reason| {
            let sum = scheduled.preempted.get(&reason).cloned().unwrap_or_default();
            let lists = scheduled.lists.get(&reason).cloned().unwrap_or_default();
            Preempted {
                gpu_id: *gpu_id,
                reason: reason.map(Reason::name),
                preemptions: sum.stat.returned,
                failed: sum.failed(),
                mean_ns: sum.mean_ns(),
                p99_below_ns: sum.below_ns(99),
                runlists: lists.sent,
                runlists_failed: lists.failed.values().sum(),
            }
        })
    });
    all.collect()
}

/// Who took most of others' time comes first.
pub(super) fn by_process(snapshot: &Snapshot, topology: &Topology) -> Vec<Waited> {
    let all = snapshot.processes.iter().flat_map(|row| {
        row.preempts.iter().map(|(gpu_id, preempts)| Waited {
            pid: row.tgid,
            comm: row.comm.clone(),
            gpu_id: *gpu_id,
            own_preemptions: preempts.own.count,
            own_ns: preempts.own.ns,
            others_preemptions: preempts.others.count,
            others_ns: preempts.others.ns,
        })
    });
    let mut all: Vec<Waited> = all.collect();
    all.sort_by_key(|waited| (Reverse(waited.own_ns), waited.pid, topology.order(waited.gpu_id)));
    all
}

/// Nothing where nothing was preempted.
pub(super) fn text(out: &mut impl Write, reasons: &[Preempted], processes: &[Waited]) -> io::Result<()> {
    if !reasons.is_empty() {
        let shown = |ns: Option<u64>| ns.map_or_else(|| "-".to_owned(), latency);
        let row = |all: &Preempted| {
            vec![
                all.gpu_id.to_string(),
                all.reason.unwrap_or("?").to_owned(),
                all.preemptions.to_string(),
                all.failed.to_string(),
                shown(all.mean_ns),
                shown(all.p99_below_ns),
                all.runlists.to_string(),
                all.runlists_failed.to_string(),
            ]
        };
        let header = ["GPU_ID", "REASON", "PREEMPTIONS", "FAILED", "MEAN", "P99 BELOW", "RUNLISTS", "FAILED"];
        let rows = reasons.iter().map(row).collect();
        writeln!(out, "\n{}", table::plain(&header, rows, &[2, 3, 4, 5, 6, 7]))?;
    }
    if !processes.is_empty() {
        let row = |all: &Waited| {
            vec![
                all.pid.map_or_else(|| "?".to_owned(), |pid| pid.to_string()),
                all.comm.as_deref().map_or_else(|| "?".to_owned(), escape::terminal),
                all.gpu_id.to_string(),
                all.own_preemptions.to_string(),
                span(all.own_ns),
                all.others_preemptions.to_string(),
                span(all.others_ns),
            ]
        };
        let header = ["PID", "COMM", "GPU_ID", "PREEMPTS", "TOOK", "WAITED FOR", "WAITED"];
        let rows = processes.iter().map(row).collect();
        writeln!(out, "\n{}", table::plain(&header, rows, &[0, 3, 4, 5, 6]))?;
    }
    Ok(())
}
