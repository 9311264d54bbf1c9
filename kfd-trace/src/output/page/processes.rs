//! One row per live process, and one per process that is evicted now.

use super::cells::{dash, label, show, since, text};
use super::query::Sort;
use super::trends::{Line, Rates, Spark};
use super::view::Seen;
use crate::model::incident::Trigger;
use crate::output::api::ApiView;
use crate::output::memory;
use crate::output::standing::{Standing, Working};
use crate::state::{Evictions, Process};
use crate::text::clock::age;
use crate::text::escape;
use std::cmp::{Ordering, Reverse};

pub(super) struct ProcessCells {
    pub(super) pid: String,
    /// For its own page.
    pub(super) tgid: Option<u32>,
    pub(super) comm: String,
    pub(super) owner: String,
    pub(super) state: StateCells,
    pub(super) queues: String,
    pub(super) rate: String,
    pub(super) spark: Option<Spark>,
    pub(super) backlog: String,
    pub(super) stalled: bool,
    pub(super) vram: String,
    /// Their number and, if there are any, how long they lasted.
    pub(super) evictions: String,
    pub(super) faults: String,
    pub(super) since: String,
}

/// What a process does.
pub(super) struct StateCells {
    pub(super) name: String,
    /// HTML.
    pub(super) since: Option<String>,
    /// Of a mark.
    pub(super) class: Option<&'static str>,
}

impl StateCells {
    pub(super) fn new(standing: Standing, view: &ApiView<'_>) -> Self {
        let class = match standing {
            Standing::Evicted(_) | Standing::Suspended => Some("warn"),
            Standing::Stalled(_) => Some("bad"),
            _ => None,
        };
        let (name, since_ns) = standing.label().unwrap_or_else(|| (dash(), None));
        StateCells { name, since: since_ns.map(|since_ns| since(Some(since_ns), view)), class }
    }
}

pub(super) struct EvictedRow {
    pub(super) pid: String,
    pub(super) tgid: Option<u32>,
    pub(super) comm: String,
    pub(super) gpu: String,
    /// HTML.
    pub(super) since: String,
    pub(super) trigger: &'static str,
    pub(super) evictions: u64,
}

/// The rows of a node's page.
impl Working<'_> {
    /// `filter`: in lower case; a part of its PID, name, owner or cgroup, or of the name of a GPU that it has a queue on.
    pub(super) fn passes(&self, filter: &str, view: &ApiView<'_>) -> bool {
        let has = |text: Option<&str>| {
            text.is_some_and(|text| escape::terminal(text).to_lowercase().contains(filter))
        };
        let process = self.process;
        let on = |gpu_id| has(Some(&label(gpu_id, view.topology))) || has(Some(&gpu_id.to_string()));
        filter.is_empty()
            || has(Some(&pid(process)))
            || has(process.comm.as_deref())
            || has(self.owner.as_deref())
            || has(process.cgroup())
            || process.queues.values().filter_map(|queue| queue.facts.gpu_id).any(on)
    }

    fn compare(&self, other: &Self, sort: Sort) -> Ordering {
        // What is not known comes last.
        fn least<T: PartialOrd>(one: Option<T>, other: Option<T>) -> Ordering {
            match (one, other) {
                (Some(one), Some(other)) => one.partial_cmp(&other).unwrap_or(Ordering::Equal),
                (one, other) => other.is_some().cmp(&one.is_some()),
            }
        }
        fn most<T: PartialOrd>(one: Option<T>, other: Option<T>) -> Ordering {
            least(one.map(Reverse), other.map(Reverse))
        }
        let (one, two) = (self.process, other.process);
        let evicted = |process: &Process| !process.evicted.evicted;
        let faults = |process: &Process| process.vm_faults.values().sum::<u64>();
        let by_queues = || two.queues.len().cmp(&one.queues.len());
        let order = match sort {
            Sort::State => {
                let rank = |working: &Self| working.standing.rank().filter(|rank| *rank < 2.0);
                least(rank(self), rank(other)).then_with(|| evicted(one).cmp(&evicted(two)))
            }
            Sort::Pid => least(one.tgid, two.tgid),
            Sort::Name => least(one.comm.as_deref(), two.comm.as_deref()),
            Sort::Owner => least(self.owner.as_deref(), other.owner.as_deref()),
            Sort::Queues => by_queues(),
            Sort::Rate => most(self.load.rates(), other.load.rates()),
            Sort::Backlog => most(self.load.backlogs(), other.load.backlogs()),
            Sort::Vram => most(memory::vram(one), memory::vram(two)),
            Sort::Evictions => most(Some(one.evicted.count), Some(two.evicted.count)),
            Sort::Faults => most(Some(faults(one)), Some(faults(two))),
            Sort::Age => most(one.created_ns, two.created_ns),
        };
        order.then_with(by_queues).then_with(|| (one.tgid, one.key).cmp(&(two.tgid, two.key)))
    }
}

/// The processes that pass the filter, in this order.
pub(super) fn sorted<'a>(
    processes: impl Iterator<Item = &'a Process>,
    (filter, sort): (&str, Sort),
    queues_are_seen: bool,
    view: &ApiView<'_>,
) -> Vec<Working<'a>> {
    let all = processes.map(|process| Working::new(process, queues_are_seen));
    let mut passing: Vec<Working<'a>> = all.filter(|working| working.passes(filter, view)).collect();
    passing.sort_by(|one, other| one.compare(other, sort));
    passing
}

pub(super) fn row(working: &Working<'_>, rates: &Rates, seen: Seen, view: &ApiView<'_>) -> ProcessCells {
    let Working { process, load, owner, standing } = working;
    let evicted = &process.evicted;
    ProcessCells {
        pid: pid(process),
        tgid: process.tgid,
        comm: comm(process),
        owner: owner.as_deref().map_or_else(dash, text),
        state: StateCells::new(*standing, view),
        queues: show(Some(process.queues.len()).filter(|count| *count > 0 || seen.queues)),
        rate: show(load.rate()),
        spark: rates.spark(Line::Process(process.key), view.now_ns),
        backlog: show(load.backlog()),
        stalled: load.stalled > 0,
        vram: memory::vram(process).map_or_else(dash, memory::size),
        evictions: if seen.evictions { evictions(evicted, view.now_ns) } else { dash() },
        faults: show(seen.faults.then(|| process.vm_faults.values().sum::<u64>())),
        since: since(process.created_ns, view),
    }
}

/// `3 (12s)`: of which all together lasted so long.
pub(super) fn evictions(evictions: &Evictions, now_ns: u64) -> String {
    match evictions.count {
        0 => "0".to_owned(),
        count => format!("{count} ({})", age(evictions.evicted_ns(now_ns))),
    }
}

/// The PID, with the number of a further context (7.2).
pub(super) fn pid(process: &Process) -> String {
    match (process.tgid, process.context_id) {
        (Some(pid), Some(context)) => format!("{pid} context {context}"),
        (pid, _) => show(pid),
    }
}

pub(super) fn comm(process: &Process) -> String {
    process.comm.as_deref().map_or_else(dash, text)
}

/// Longest first; those of unknown duration before them.
pub(super) fn evicted(processes: &[Working<'_>], view: &ApiView<'_>) -> Vec<EvictedRow> {
    let all = processes.iter().flat_map(|Working { process, .. }| {
        let now = process.evictions.iter().filter(|(_, evictions)| evictions.evicted);
        now.map(|(gpu_id, evictions)| (*process, *gpu_id, evictions))
    });
    let mut sorted: Vec<(&Process, u32, &Evictions)> = all.collect();
    sorted.sort_by_key(|(process, gpu_id, evictions)| {
        (evictions.since_ns, process.tgid, view.topology.order(*gpu_id))
    });
    let row = |(process, gpu_id, evictions): (&Process, u32, &Evictions)| EvictedRow {
        pid: pid(process),
        tgid: process.tgid,
        comm: comm(process),
        gpu: label(gpu_id, view.topology),
        since: since(evictions.since_ns, view),
        trigger: evictions.trigger.map_or("not seen", Trigger::name),
        evictions: evictions.count,
    };
    sorted.into_iter().map(row).collect()
}
