//! Queues by GPU and process. Counts cover all queues; rows are limited by the room on the page.

use super::cells::{dash, label, show, since};
use super::processes::{comm, evictions, pid};
use super::view::Seen;
use crate::attribute::GpuOrder;
use crate::output::api::ApiView;
use crate::output::load::Load;
use crate::output::ps::queue_type;
use crate::output::{activity, names};
use crate::state::{Measured, Process, ProcessKey, Queue};
use crate::text::count::counted;
use askama::Template;
use bytesize::ByteSize;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// How much of it has rows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    pub(super) queues: usize,
    /// Queues of one process on one GPU.
    pub(super) of_process: usize,
    /// A process on a GPU has one line.
    pub(super) groups: usize,
    /// No GPU takes the room of the next one.
    pub(super) shared: bool,
}

/// A section of queues.
#[derive(Template)]
#[template(path = "page/queues.html")]
pub(super) struct QueuesPart {
    pub(super) on_gpus: Vec<QueuesOnGpu>,
    /// In place of tables.
    pub(super) nothing: &'static str,
    /// The page is that of the process.
    pub(super) of_process: bool,
}

/// The queues of one GPU.
pub(super) struct QueuesOnGpu {
    /// Anchor for links within the page.
    pub(super) id: String,
    pub(super) label: String,
    pub(super) count: String,
    pub(super) groups: Vec<Group>,
    pub(super) more_processes: usize,
    pub(super) more_queues: usize,
}

/// The queues of one process on it.
pub(super) struct Group {
    pub(super) pid: String,
    pub(super) comm: String,
    /// For its own page.
    pub(super) tgid: Option<u32>,
    pub(super) count: String,
    pub(super) rate: Option<String>,
    pub(super) evicted: usize,
    pub(super) stalled: usize,
    pub(super) rows: Vec<QueueCells>,
    pub(super) more: usize,
}

pub(super) struct QueueCells {
    pub(super) queue_id: u32,
    pub(super) queue_type: String,
    pub(super) state: String,
    pub(super) evicted: bool,
    pub(super) priority: String,
    pub(super) ring: String,
    pub(super) size: String,
    pub(super) rate: String,
    pub(super) backlog: String,
    pub(super) stalled: bool,
    pub(super) evictions: String,
    /// HTML.
    pub(super) age: String,
    pub(super) remark: &'static str,
}

type Of<'a> = BTreeMap<ProcessKey, (&'a Process, Vec<&'a Queue>)>;

/// GPUs in topology order, then others, each with the processes that have the most queues first.
pub(super) fn by_gpu<'v>(
    processes: impl Iterator<Item = &'v Process>,
    mut room: Room,
    (seen, view): (Seen, &ApiView<'_>),
) -> Vec<QueuesOnGpu> {
    let queues = processes.flat_map(|process| process.queues.values().map(move |queue| (process, queue)));
    let mut found: BTreeMap<GpuOrder, (Option<u32>, Of<'_>)> = BTreeMap::new();
    for (process, queue) in queues {
        let gpu_id = queue.facts.gpu_id;
        let (_, of) = found.entry(view.topology.order(gpu_id)).or_insert((gpu_id, Of::new()));
        of.entry(process.key).or_insert_with(|| (process, Vec::new())).1.push(queue);
    }
    let gpus = found.len().max(1);
    let share = Room { queues: room.queues / gpus, groups: (room.groups / gpus).max(1), ..room };
    let each = |(gpu_id, of)| match room.shared {
        true => on_gpu(gpu_id, of, &mut { share }, (seen, view)),
        false => on_gpu(gpu_id, of, &mut room, (seen, view)),
    };
    found.into_values().map(each).collect()
}

fn on_gpu(
    gpu_id: Option<u32>,
    of: Of<'_>,
    room: &mut Room,
    (seen, view): (Seen, &ApiView<'_>),
) -> QueuesOnGpu {
    let mut of: Vec<_> = of.into_values().collect();
    of.sort_by_key(|(process, queues)| (Reverse(queues.len()), process.tgid, process.key));
    let queues: usize = of.iter().map(|(_, queues)| queues.len()).sum();
    let count =
        format!("{} of {}", counted(queues, "queue", "queues"), counted(of.len(), "process", "processes"));
    let rest = of.split_off(of.len().min(room.groups));
    let label = gpu_id.map_or_else(|| "GPU unknown".to_owned(), |id| label(id, view.topology));
    let mut group = |(process, queues): (&Process, Vec<&Queue>)| {
        let shown = queues.len().min(room.of_process).min(room.queues);
        room.queues -= shown;
        let load = Load::of(queues.iter().copied());
        Group {
            tgid: process.tgid,
            rate: load.rate(),
            stalled: load.stalled,
            pid: pid(process),
            comm: comm(process),
            count: types(&queues),
            evicted: queues.iter().filter(|queue| queue.facts.evicted == Some(true)).count(),
            more: queues.len() - shown,
            rows: queues.into_iter().take(shown).map(|queue| row(process, queue, seen, view)).collect(),
        }
    };
    QueuesOnGpu {
        id: gpu_id.map_or_else(|| "unknown".to_owned(), |id| id.to_string()),
        label,
        count,
        groups: of.into_iter().map(&mut group).collect(),
        more_processes: rest.len(),
        more_queues: rest.iter().map(|(_, queues)| queues.len()).sum(),
    }
}

/// For example `24 queues: 16 compute_aql, 8 sdma`.
fn types(queues: &[&Queue]) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for queue in queues {
        *counts.entry(queue.label().type_name()).or_default() += 1;
    }
    let each: Vec<_> = counts.iter().map(|(name, count)| format!("{count} {name}")).collect();
    format!("{}: {}", counted(queues.len(), "queue", "queues"), each.join(", "))
}

pub(super) fn row(process: &Process, queue: &Queue, seen: Seen, view: &ApiView<'_>) -> QueueCells {
    let facts = &queue.facts;
    let size = facts.ring_size.map(|size| ByteSize(size).display().iec_short().to_string());
    QueueCells {
        queue_id: queue.queue_id,
        queue_type: show(facts.queue_type.map(|kind| queue_type(kind, process.is_of_runtime(queue)))),
        state: crate::output::ps::state(facts),
        evicted: facts.evicted == Some(true),
        priority: show(facts.priority.map(names::priority)),
        ring: show(facts.ring_address.map(names::hex)),
        size: show(size),
        rate: show(activity::rate(facts, &queue.activity)),
        backlog: show(activity::backlog(facts, &queue.activity)),
        stalled: queue.activity.now().is_some_and(Measured::stalled),
        evictions: if seen.evictions { evictions(&queue.evictions, view.now_ns) } else { dash() },
        age: since(queue.born_ns, view),
        remark: match (queue.resynced_ns, queue.unlisted) {
            (Some(_), _) => "resynced",
            (None, true) => "unlisted",
            (None, false) => "",
        },
    }
}
