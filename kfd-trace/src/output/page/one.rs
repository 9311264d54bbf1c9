//! The pages of one process, and of one queue.

use super::cells::{dash, label, seconds, show, since, text};
use super::events::EventsPart;
use super::processes::{self, StateCells};
use super::queues::{self, QueuesPart, Room};
use super::sections::Section;
use super::top::{Sections, top};
use super::trends::{Line, Rates, Spark};
use super::view::{PageView, Part, ROWS, Seen};
use crate::attribute::Topology;
use crate::model::incident::Trigger;
use crate::output::activity;
use crate::output::api::ApiView;
use crate::output::belongs::BelongsFields;
use crate::output::controls::{self, Controls};
use crate::output::memory;
use crate::output::names;
use crate::output::standing::Working;
use crate::state::{Entry, Held, Memory, Process, Queue};
use crate::text::count::counted;
use askama::Template;
use std::sync::Arc;

/// Queues of one process: all of a sane one.
const ROOM: Room = Room { queues: 1_000, of_process: 1_000, groups: 1_000, shared: false };

/// A line of what is known: its name and its value.
struct Fact {
    name: &'static str,
    value: String,
    /// The value is HTML of the tracer itself.
    html: bool,
}

impl Fact {
    fn new(name: &'static str, value: impl Into<String>) -> Self {
        Fact { name, value: value.into(), html: false }
    }

    fn html(name: &'static str, value: String) -> Self {
        Fact { name, value, html: true }
    }
}

/// What is known of the processes that had a PID: a further one for each further context (7.2), and for those that had
/// the number before.
#[derive(Template)]
#[template(path = "page/process.html")]
struct ProcessPart {
    pid: u32,
    processes: Vec<OneProcess>,
}

struct OneProcess {
    state: StateCells,
    alive: bool,
    facts: Vec<Fact>,
    spark: Option<Spark>,
}

/// What it allocated and did not free.
#[derive(Template)]
#[template(path = "page/memory.html")]
struct MemoryPart {
    pid: u32,
    lives: bool,
    /// `None`: none of its calls was seen.
    complete: Option<bool>,
    count: String,
    rows: Part<HeldCells>,
}

struct HeldCells {
    gpu: String,
    domain: &'static str,
    size: String,
    address: String,
    /// GPUs that can access it.
    mapped: String,
    /// HTML.
    age: String,
}

/// What is known of the live queues with this id: each context of a PID (7.2) may have one.
#[derive(Template)]
#[template(path = "page/queue.html")]
struct QueuePart {
    pid: u32,
    queue_id: u32,
    queues: Vec<Vec<Fact>>,
}

/// The rows of a PID, the live ones first.
fn of_pid<'v>(view: &ApiView<'v>, pid: u32) -> Vec<&'v Process> {
    let mut found: Vec<_> =
        view.snapshot.processes.iter().filter(|process| process.tgid == Some(pid)).collect();
    found.sort_by_key(|process| !process.alive());
    found
}

impl ProcessPart {
    fn new(pid: u32, found: &[&Process], seen: Seen, rates: &Rates, view: &ApiView<'_>) -> Self {
        let one = |process: &&Process| {
            let working = Working::new(process, seen.queues);
            OneProcess {
                state: StateCells::new(working.standing, view),
                alive: process.alive(),
                spark: rates.spark(Line::Process(process.key), view.now_ns),
                facts: process_facts(&working, seen, view),
            }
        };
        ProcessPart { pid, processes: found.iter().map(one).collect() }
    }
}

fn process_facts(working: &Working<'_>, seen: Seen, view: &ApiView<'_>) -> Vec<Fact> {
    let Working { process, load, .. } = working;
    let ended = process.released_ns.filter(|_| !process.alive());
    let utc = |at_ns: u64| view.clock.rfc3339(at_ns).as_deref().map_or_else(dash, seconds);
    let gpu = |gpu_id: &u32| names::gpu(*gpu_id, view.topology);
    let evictions = view.topology.in_order(&process.evictions).into_iter().map(|(gpu_id, evictions)| {
        let trigger = evictions.trigger.map_or("not seen", Trigger::name);
        format!("{}: {}, last trigger {trigger}", gpu(gpu_id), processes::evictions(evictions, view.now_ns))
    });
    let faults = view.topology.in_order(&process.vm_faults).into_iter().map(|(gpu_id, count)| {
        format!("{}: {count}", gpu_id.as_ref().map_or_else(|| "GPU unknown".to_owned(), gpu))
    });
    // Nothing is none only where it would have been seen.
    let joined = |parts: Vec<String>, seen: bool| match parts.is_empty() {
        true if seen => "none".to_owned(),
        true => dash(),
        false => parts.join("; "),
    };
    let vram = view.topology.in_order(process.memory.vram()).into_iter();
    let vram = vram.map(|(id, bytes)| format!("{}: {}", gpu(id), memory::size(*bytes)));
    let vram: Vec<String> = vram.collect();
    let works = activity::works(process, view.topology);
    let work = works.iter().filter(|work| !work.is_nothing()).map(|work| {
        let on = work.gpu_id.as_ref().map_or_else(|| "GPU unknown".to_owned(), gpu);
        format!("{on}: {}", work.words())
    });
    let mut facts = vec![
        Fact::new("Name", processes::comm(process)),
        Fact::new("Owner", BelongsFields::from(&process.details).owner().as_deref().map_or_else(dash, text)),
        Fact::new("cgroup", process.cgroup().map_or_else(dash, text)),
        Fact::new("UID", show(process.uid)),
        Fact::new("PID inside its namespace", show(process.ns_tgid)),
    ];
    if let Some(context) = process.context_id {
        facts.push(Fact::new("Context", context.to_string()));
    }
    facts.push(match (ended, process.created_ns) {
        (Some(ended), _) => Fact::new("Ended", format!("{} UTC", utc(ended))),
        (None, Some(created)) => Fact::html("Uses KFD for", since(Some(created), view)),
        (None, None) => Fact::new("Uses KFD for", "not known: it was there before the tracer"),
    });
    facts.extend([
        Fact::new("Queues", show(Some(process.queues.len()).filter(|count| *count > 0 || seen.queues))),
        Fact::new("Rate", show(load.rate())),
        Fact::new("Backlog", show(load.backlog())),
        Fact::new("Work since it is traced", joined(work.collect(), load.idle_ns().is_some())),
        Fact::new("VRAM", if vram.is_empty() { dash() } else { vram.join("; ") }),
        Fact::new("Evictions", joined(evictions.collect(), seen.evictions)),
        Fact::new("VM faults", joined(faults.collect(), seen.faults)),
        Fact::new("/dev/kfd since it is traced", if seen.opens { device(process) } else { dash() }),
    ]);
    facts
}

/// `1 open, 0 failed, 0 closes`
fn device(process: &Process) -> String {
    let count = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
    let (opens, closes) = (count(process.opens), count(process.closes));
    let (opens, closes) = (counted(opens, "open", "opens"), counted(closes, "close", "closes"));
    format!("{opens}, {} failed, {closes}", process.failed_opens)
}

/// Its live queues.
fn live_queues(found: &[&Process], seen: Seen, view: &ApiView<'_>) -> QueuesPart {
    let live = found.iter().copied().filter(|process| process.alive());
    let nothing =
        if seen.queues { "It has no queue now." } else { "No queue of it is known. Not all can be seen." };
    QueuesPart { on_gpus: queues::by_gpu(live, ROOM, (seen, view)), nothing, of_process: true }
}

impl MemoryPart {
    fn new<'v>(pid: u32, found: &[&'v Process], view: &ApiView<'_>) -> Self {
        let live: Vec<&'v Process> = found.iter().copied().filter(|process| process.alive()).collect();
        let of = |process: &'v Process| {
            process.memory.held().map(|(handle, held)| (handle, held, &process.memory))
        };
        let mut held: Vec<_> = live.iter().copied().flat_map(of).collect();
        held.sort_by_key(|(handle, held, _)| (held.since_ns, *handle));
        let count = counted(held.len(), "allocation", "allocations");
        let row = |(_, held, memory): (u64, &Held, &Memory)| HeldCells {
            mapped: memory.mapping(held).map_or_else(dash, |on| mapped(memory.gpus(on), view)),
            gpu: names::gpu(held.gpu_id, view.topology),
            domain: held.domain.name(),
            size: if held.domain.has_bytes() { memory::size(held.bytes) } else { dash() },
            address: names::hex(held.va),
            age: since(Some(held.since_ns), view),
        };
        // Of those whose calls were seen.
        let complete =
            live.iter().filter_map(|process| process.memory_is_whole()).reduce(|one, other| one && other);
        let Part { rows, more } = Part::new(held, ROWS);
        let rows = Part { rows: rows.into_iter().map(row).collect(), more };
        MemoryPart { pid, lives: !live.is_empty(), complete, count, rows }
    }
}

/// `none`, or the GPUs.
fn mapped(gpus: Vec<u32>, view: &ApiView<'_>) -> String {
    match &*view.topology.ordered(gpus) {
        [] => "none".to_owned(),
        some => some.iter().map(|id| names::gpu(*id, view.topology)).collect::<Vec<_>>().join(", "),
    }
}

impl QueuePart {
    fn new(pid: u32, queue_id: u32, found: &[&Process], seen: Seen, view: &ApiView<'_>) -> Self {
        let queues = with_id(found, queue_id).map(|(process, queue)| queue_facts(process, queue, seen, view));
        QueuePart { pid, queue_id, queues: queues.collect() }
    }
}

fn with_id<'v>(found: &[&'v Process], queue_id: u32) -> impl Iterator<Item = (&'v Process, &'v Queue)> {
    let live = found.iter().copied().filter(|process| process.alive());
    live.filter_map(move |process| Some((process, process.queues.get(&queue_id)?)))
}

/// GPU of the live queue with this id, if there is only one.
fn gpu_of(found: &[&Process], queue_id: u32) -> Option<u32> {
    let mut queues = with_id(found, queue_id);
    let (_, only) = queues.next()?;
    only.facts.gpu_id.filter(|_| queues.next().is_none())
}

fn queue_facts(process: &Process, queue: &Queue, seen: Seen, view: &ApiView<'_>) -> Vec<Fact> {
    let (facts, cells) = (&queue.facts, queues::row(process, queue, seen, view));
    let controls = Controls::of(queue, view.now_ns);
    let gpu = facts.gpu_id.map_or_else(|| "unknown".to_owned(), |id| label(id, view.topology));
    let suspended = queue.suspended();
    let by = suspended.by.as_ref();
    let mask = queue.cu_mask.as_ref().map(|mask| controls::mask(mask, facts, view.topology));
    let debugger = by.map(|by| format!("by PID {} {}", by.pid, by.comm.as_deref().map_or_else(dash, text)));
    let mut all = vec![Fact::new("Process", processes::comm(process))];
    if let Some(context) = process.context_id {
        all.push(Fact::new("Context", context.to_string()));
    }
    all.extend([
        Fact::new("GPU", gpu),
        Fact::new("Type", cells.queue_type),
        Fact::new("State", cells.state),
        match queue.born_ns {
            Some(born) => Fact::html("Age", since(Some(born), view)),
            None => Fact::new("Age", "not known: it was there before the tracer"),
        },
        Fact::new("Rate", cells.rate),
        Fact::new("Backlog", cells.backlog),
        Fact::new("Work", show(activity::whole(facts, &queue.activity))),
        Fact::new("Evictions", cells.evictions),
        Fact::new("Priority", show(controls.priority(facts))),
        Fact::new("CU mask", show(mask)),
        Fact::new("Ring", format!("{} ({})", cells.ring, cells.size)),
        Fact::new("Write pointer", show(facts.write_pointer_address.map(names::hex))),
        Fact::new("Read pointer", show(facts.read_pointer_address.map(names::hex))),
        Fact::new("Doorbell offset", show(facts.doorbell_offset.map(|offset| format!("{offset:#x}")))),
    ]);
    if let Some(debugger) = debugger {
        all.push(Fact::new("Suspended", debugger));
    }
    if !cells.remark.is_empty() {
        all.push(Fact::new("Remark", cells.remark));
    }
    all
}

pub(super) fn process(view: &PageView<'_>, pid: u32) -> Result<Sections, String> {
    let events = history(view, pid, None);
    let Some(now) = view.now else {
        return Ok((top(view, vec![("events", "Events")]), vec![Section::new("events", &events)?]));
    };
    let found: Vec<&Process> = of_pid(now, pid);
    let seen = view.seen();
    let links =
        vec![("process", "Process"), ("queues", "Queues"), ("memory", "Memory"), ("events", "Events")];
    let sections = vec![
        Section::new("process", &ProcessPart::new(pid, &found, seen, view.rates, now))?,
        Section::new("queues", &live_queues(&found, seen, now))?,
        Section::new("memory", &MemoryPart::new(pid, &found, now))?,
        Section::new("events", &events)?,
    ];
    Ok((top(view, links), sections))
}

pub(super) fn queue(view: &PageView<'_>, pid: u32, queue_id: u32) -> Result<Sections, String> {
    let Some(now) = view.now else {
        let events = history(view, pid, None);
        return Ok((top(view, vec![("events", "Events")]), vec![Section::new("events", &events)?]));
    };
    let found = of_pid(now, pid);
    let events = history(view, pid, gpu_of(&found, queue_id));
    let sections = vec![
        Section::new("queue", &QueuePart::new(pid, queue_id, &found, view.seen(), now))?,
        Section::new("events", &events)?,
    ];
    Ok((top(view, vec![("queue", "Queue"), ("events", "Events")]), sections))
}

/// What is remembered of a process; `gpu_id`: only what happened on that GPU, or on no certain one.
fn history(view: &PageView<'_>, pid: u32, gpu_id: Option<u32>) -> EventsPart {
    let nothing = Topology::default();
    let topology = view.now.map_or(&nothing, |now| now.topology);
    let here =
        |entry: &&Arc<Entry>| gpu_id.zip(entry.what.gpu_id()).is_none_or(|(gpu_id, other)| gpu_id == other);
    let entries: Vec<_> = view.past.recent.iter().filter(here).cloned().collect();
    let newest = &entries[entries.len().saturating_sub(ROWS)..];
    EventsPart::new(newest, topology, "History", "What is remembered, the newest first (UTC)").of_pid(pid)
}
