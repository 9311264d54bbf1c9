//! `kfd-trace runlist`: what each GPU runs now, who preempted it in an interval, and who waited.
//!
//! In: a snapshot whose counts are those of the interval. Out: a table or a line of JSON.

use super::preemptions::{self, Preempted, Waited};
use crate::attribute::Topology;
use crate::state::{LastList, Snapshot};
use crate::text::clock::span;
use crate::text::table;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

/// Version of the JSON format.
pub const SCHEMA: u32 = 1;

/// One interval.
#[derive(Debug, Serialize)]
pub struct RunlistView {
    schema: u32,
    /// Its end, RFC 3339.
    ts: Option<String>,
    /// Length of the interval, nanoseconds.
    interval_ns: u64,
    gpus: Vec<GpuList>,
    preemptions: Vec<Preempted>,
    /// Processes that preempted or waited.
    processes: Vec<Waited>,
    /// What is missing from all this, by name, none of it 0.
    lost: BTreeMap<String, u64>,
}

/// What an interval is made from.
#[derive(Debug)]
pub struct Counted<'a> {
    /// Of [`Snapshot::scheduled_since`].
    pub snapshot: &'a Snapshot,
    pub topology: &'a Topology,
    pub ts: Option<String>,
    pub interval_ns: u64,
    pub missing: BTreeMap<String, u64>,
}

/// What a GPU runs; `None` where no list was seen yet.
#[derive(Debug, Serialize)]
struct GpuList {
    gpu_id: u32,
    #[serde(skip)]
    label: String,
    processes: Option<u32>,
    queues: Option<u32>,
    cp_queues: Option<u32>,
    oversubscribed: Option<bool>,
}

impl RunlistView {
    #[must_use]
    pub fn new(counted: Counted<'_>) -> Self {
        let Counted { snapshot, topology, ts, interval_ns, missing } = counted;
        let listed = topology.gpus.iter().map(|gpu| gpu.gpu_id);
        let seen = snapshot.scheduled.keys().copied().filter(|id| topology.gpu(*id).is_none());
        let ids: Vec<u32> = listed.chain(BTreeSet::from_iter(seen)).collect();
        let gpus = ids.into_iter().map(|gpu_id| {
            let last = snapshot.scheduled.get(&gpu_id).and_then(|scheduled| scheduled.last);
            let of = |value: fn(&LastList) -> Option<u32>| last.as_ref().and_then(value);
            GpuList {
                gpu_id,
                label: topology.label(gpu_id).unwrap_or_else(|| "?".to_owned()),
                processes: of(|last| last.processes),
                queues: of(|last| last.queues),
                cp_queues: of(|last| last.cp_queues),
                oversubscribed: last.and_then(|last| last.oversubscribed),
            }
        });
        RunlistView {
            schema: SCHEMA,
            ts,
            interval_ns,
            gpus: gpus.collect(),
            preemptions: preemptions::by_reason(snapshot, topology),
            processes: preemptions::by_process(snapshot, topology),
            lost: missing,
        }
    }

    /// One line.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn json(&self, out: &mut impl Write) -> io::Result<()> {
        serde_json::to_writer(&mut *out, self)?;
        writeln!(out)
    }

    /// # Errors
    /// Those of `out`.
    pub fn text(&self, out: &mut impl Write) -> io::Result<()> {
        let ts = self.ts.as_deref().unwrap_or("?");
        writeln!(out, "{ts}, the last {}", span(self.interval_ns))?;
        let shown = |value: Option<u32>| value.map_or_else(|| "?".to_owned(), |value| value.to_string());
        let row = |gpu: &GpuList| {
            vec![
                gpu.gpu_id.to_string(),
                gpu.label.clone(),
                shown(gpu.processes),
                shown(gpu.queues),
                shown(gpu.cp_queues),
                gpu.oversubscribed.map_or("?", |yes| if yes { "yes" } else { "no" }).to_owned(),
            ]
        };
        let header = ["GPU_ID", "GPU", "PROCESSES", "QUEUES", "COMPUTE", "OVERSUBSCRIBED"];
        writeln!(out, "{}", table::plain(&header, self.gpus.iter().map(row).collect(), &[2, 3, 4]))?;
        if self.preemptions.is_empty() {
            writeln!(out, "\nno preemption")?;
        }
        preemptions::text(out, &self.preemptions, &self.processes)?;
        for (what, count) in &self.lost {
            writeln!(out, "lost: {count} {what}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attribute::Gpu;
    use crate::model::event::Body;
    use crate::model::runlist::{Preemption, Reason, Runlist, samples};
    use crate::state::State;
    use crate::state::samples::{create, event, seen, state};

    const GPU: u32 = 58270;

    fn preempted(state: &mut State, ns: u64, process: u64, pid: u32, latency_ns: u64) {
        let preemption = Preemption { reason: Some(Reason::Create), latency_ns, ..samples::preemption() };
        state.apply(&event(ns, process, pid, Body::Preempt(preemption)));
        let list = Runlist {
            reason: Some(Reason::Create),
            processes: Some(2),
            queues: Some(3),
            unmapped_ns: Some(0),
            ..samples::list()
        };
        state.apply(&event(ns, process, pid, Body::Runlist(list)));
    }

    /// Two processes with a queue each; the first preempts once before the interval and twice in it, the second
    /// before it alone.
    fn interval() -> RunlistView {
        let mut state = state();
        for (id, pid) in [(1, 700), (2, 800)] {
            state.apply(&event(1, id, pid, seen(false)));
            state.apply(&event(2, id, pid, create(3)));
        }
        preempted(&mut state, 3, 1, 700, 1_000);
        preempted(&mut state, 4, 2, 800, 1_000);
        let before = state.snapshot();
        preempted(&mut state, 5, 1, 700, 3_000);
        preempted(&mut state, 6, 1, 700, 5_000);
        let counted = state.snapshot().scheduled_since(&before);
        let gpu = |gpu_id, index| Gpu { gpu_id, index, ..Gpu::default() };
        let topology = Topology { gpus: vec![gpu(GPU, 0), gpu(7, 1)], ..Topology::default() };
        RunlistView::new(Counted {
            snapshot: &counted,
            topology: &topology,
            ts: Some("2026-01-02T03:04:05Z".to_owned()),
            interval_ns: 2_000_000_000,
            missing: [("records lost, preempt, preempt_end".to_owned(), 3)].into(),
        })
    }

    #[test]
    fn only_what_the_interval_saw_is_counted() {
        let mut out = Vec::new();
        interval().json(&mut out).unwrap();
        let line: serde_json::Value = serde_json::from_slice(&out).unwrap();
        let [reason] = line["preemptions"].as_array().unwrap().as_slice() else { panic!("{line}") };
        assert_eq!((&reason["preemptions"], &reason["mean_ns"]), (&2.into(), &4_000.into()), "{line}");
        assert_eq!(reason["runlists"], 2);
        let of = |at: usize, name: &str| line["processes"][at][name].clone();
        assert_eq!(
            (of(0, "pid"), of(0, "own_preemptions"), of(0, "own_ns")),
            (700.into(), 2.into(), 8_000.into())
        );
        assert_eq!(of(0, "others_preemptions"), 0);
        assert_eq!((of(1, "pid"), of(1, "own_preemptions")), (800.into(), 0.into()));
        assert_eq!((of(1, "others_preemptions"), of(1, "others_ns")), (2.into(), 8_000.into()));
    }

    #[test]
    fn reasons_come_in_the_order_of_the_gpus_numbers() {
        let mut state = state();
        state.apply(&event(1, 1, 700, seen(false)));
        for gpu_id in [GPU, 7] {
            let preemption = Preemption { gpu_id: Some(gpu_id), ..samples::preemption() };
            state.apply(&event(2, 1, 700, Body::Preempt(preemption)));
        }
        let gpu = |gpu_id, index| Gpu { gpu_id, index, ..Gpu::default() };
        let topology = Topology { gpus: vec![gpu(GPU, 0), gpu(7, 1)], ..Topology::default() };
        let snapshot = state.snapshot();
        let reasons = serde_json::to_value(preemptions::by_reason(&snapshot, &topology)).unwrap();
        assert_eq!((&reasons[0]["gpu_id"], &reasons[1]["gpu_id"]), (&GPU.into(), &7.into()));
        let waited = serde_json::to_value(preemptions::by_process(&snapshot, &topology)).unwrap();
        assert_eq!((&waited[0]["gpu_id"], &waited[1]["gpu_id"]), (&GPU.into(), &7.into()));
    }

    #[test]
    fn a_gpu_whose_list_was_not_seen_is_unknown() {
        let mut out = Vec::new();
        let view = interval();
        view.text(&mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let rows: Vec<Vec<&str>> =
            text.lines().skip(2).take(2).map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows[0][..], ["58270", "gpu", "0", "2", "3", "24", "yes"], "{text}");
        assert_eq!(rows[1][..], ["7", "gpu", "1", "?", "?", "?", "?"], "{text}");
        assert!(text.starts_with("2026-01-02T03:04:05Z, the last 2"), "{text}");
        assert!(text.ends_with("\nlost: 3 records lost, preempt, preempt_end\n"), "{text}");
    }

    #[test]
    fn an_interval_without_a_preemption_says_so() {
        let counted = Snapshot::default();
        let view = RunlistView::new(Counted {
            snapshot: &counted,
            topology: &Topology::default(),
            ts: None,
            interval_ns: 1,
            missing: BTreeMap::new(),
        });
        let mut out = Vec::new();
        view.text(&mut out).unwrap();
        assert!(String::from_utf8(out).unwrap().ends_with("\nno preemption\n"));
    }
}
