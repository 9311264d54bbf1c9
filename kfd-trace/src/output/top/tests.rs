//! Screens of a synthetic node, compared with kfd-trace/tests/golden, and what keys do.

use super::pane::{Cell, PaneId};
use super::{Moment, Played, Silence, Trends, Ui, View, Watched, render};
use crate::attribute::{Belongs, Gpu, PodNames, Topology, belongs};
use crate::model::event::{Body, ProcessSeen, QueueFacts, QueueType};
use crate::model::incident::{Eviction, Trigger, VmFault};
use crate::model::pointers::{Counts, Unmeasured};
use crate::model::verdict::{EVICTIONS, ProbeStatus, QUEUES, Sight, Verdict};
use crate::output::golden::check;
use crate::output::samples::{clock, probe, sampled, topology};
use crate::output::status;
use crate::state::samples::{event, facts, seen};
use crate::state::{Filter, History, ProcessDetails, State, StateLimits};
use crossterm::event::{Event, KeyCode, KeyEvent, KeyModifiers};
use kfd_trace_common::counter::ProbeId;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::layout::Size;
use std::collections::BTreeMap;
use std::time::Duration;

mod keys;
mod load;
mod screens;

const S: u64 = 1_000_000_000;
const GPU: u32 = 58270;
const MINIMUM: (u16, u16) = (80, 24);

/// Takes events as the tracer does.
struct Node {
    state: State,
    history: History,
    topology: Topology,
}

impl Node {
    fn new(gpus: u32) -> Self {
        let sample = topology().gpus.remove(0);
        let gpu = |index| Gpu {
            index,
            gpu_id: GPU + index,
            pci: Some(format!("0000:{:02x}:00.0", 0xc1 + index)),
            ..sample.clone()
        };
        let topology = Topology { gpus: (0..gpus).map(gpu).collect(), errors: vec![] };
        Node { state: State::new(StateLimits::default()), history: History::default(), topology }
    }

    fn take(&mut self, at_ns: u64, process: u64, tgid: u32, body: Body) {
        let event = event(at_ns, process, tgid, body);
        let change = self.state.apply(&event);
        self.history.record(&event, &change, &self.state, 1_790_000_000_000_000_000);
    }

    fn process(&mut self, process: u64, tgid: u32, comm: &str, details: ProcessDetails) {
        let Body::ProcessSeen(sample) = seen(false) else { panic!("it was made so") };
        let seen = ProcessSeen { comm: Some(comm.to_owned()), cgroup_leaf: None, ..sample };
        self.take(process * 1_000, process, tgid, Body::ProcessSeen(seen));
        self.state.enrich(crate::model::event::ProcessId(process).into(), details);
    }

    fn queue(&mut self, process: u64, tgid: u32, queue_id: u32, gpu: u32, kind: QueueType) {
        let facts = QueueFacts { gpu_id: Some(GPU + gpu), queue_type: Some(kind), ..facts(queue_id) };
        self.take(process * 1_000 + u64::from(queue_id), process, tgid, Body::QueueCreate(facts));
    }

    /// The counts at these seconds.
    fn counts(&mut self, queue_id: u32, readings: &[(u64, u64, u64)]) {
        for (at, submitted, retired) in readings {
            sampled(
                &mut self.state,
                queue_id,
                Ok(Counts { submitted: *submitted, retired: *retired }),
                at * S,
            );
        }
    }

    fn moment(&self, now: u64) -> Moment {
        Moment {
            snapshot: self.state.snapshot(),
            topology: self.topology.clone(),
            clock: clock(),
            now_ns: now * S,
            boot_ns: now * S + 3 * S,
            recent: self
                .history
                .find(&Filter::newest(super::RECENT))
                .entries
                .into_iter()
                .map(Into::into)
                .collect(),
            sight: status::sight(&attached(), false),
            lost: Some(BTreeMap::new()),
            why_not: None,
            sample: Some(Duration::from_secs(1)),
            played: None,
            watched: None,
        }
    }
}

pub(crate) fn attached() -> Vec<ProbeStatus> {
    EVICTIONS.into_iter().chain(QUEUES).map(|id| probe(id, Verdict::Attached)).collect()
}

fn of_cgroup(path: &str) -> ProcessDetails {
    ProcessDetails { belongs: belongs([path]), ..ProcessDetails::default() }
}

/// Each kind of process: at 30 s.
fn node() -> Node {
    let mut node = Node::new(2);
    let pod = PodNames {
        namespace: "ml".to_owned(),
        pod: "train-0".to_owned(),
        container: Some("trainer".to_owned()),
    };
    let in_pod = ProcessDetails { pod: Some(pod), belongs: Belongs::default(), ..ProcessDetails::default() };
    node.process(1, 4321, "train", in_pod);
    node.queue(1, 4321, 1, 0, QueueType::ComputeAql);
    node.queue(1, 4321, 2, 0, QueueType::ComputeAql);
    node.queue(1, 4321, 3, 1, QueueType::Sdma);
    node.process(2, 4400, "serve", of_cgroup("/slurm/uid_5/job_7/step_0"));
    node.queue(2, 4400, 4, 1, QueueType::ComputeAql);
    node.process(3, 5000, "steers\u{1b}[2J", ProcessDetails::default());
    node.queue(3, 5000, 5, 0, QueueType::Compute);
    node.process(4, 5100, "hangs", of_cgroup("/system.slice/hangs.service"));
    node.queue(4, 5100, 6, 1, QueueType::ComputeAql);
    node.process(5, 5200, "rocminfo", ProcessDetails::default());
    node.process(6, 5300, "rests", of_cgroup(&format!("/docker/{}", "ab".repeat(32))));
    node.queue(6, 5300, 7, 0, QueueType::ComputeAql);
    node.counts(1, &[(28, 1_000, 1_000), (29, 2_428, 2_418)]);
    node.counts(2, &[(28, 0, 0), (29, 300, 298)]);
    node.counts(3, &[(28, 0, 0), (29, 3_000_000, 2_990_000)]);
    node.counts(4, &[(28, 70, 70), (29, 70, 70)]);
    node.counts(6, &[(10, 9, 4), (29, 9, 4)]);
    node.counts(7, &[(9, 5, 5), (29, 5, 5)]);
    drop(node.state.sought());
    let evicted =
        Eviction { gpu_id: Some(GPU + 1), trigger: Some(Trigger::Ttm), errno: 0, latency_ns: 5_000 };
    node.take(27 * S, 2, 4400, Body::Evict(evicted));
    node.take(28 * S, 3, 5000, Body::VmFault(VmFault { gpu_id: Some(GPU), access: None }));
    node
}

/// A node on which something happens each second, for viewing.
pub(crate) fn moments() -> impl Iterator<Item = Moment> {
    let (mut node, mut done) = (node(), 10_000);
    (30..).map(move |now: u64| {
        let wave = [3, 5, 8, 13, 21, 13, 8, 5][usize::try_from(now % 8).unwrap_or(0)];
        done += wave * 1_000;
        node.counts(1, &[(now, done + wave, done)]);
        node.counts(2, &[(now, 400 * now, 400 * now)]);
        let evicted =
            Eviction { gpu_id: Some(GPU), trigger: Some(Trigger::Svm), errno: 0, latency_ns: 5_000 };
        let body = if now.is_multiple_of(3) { Body::Evict(evicted) } else { Body::Restore(evicted) };
        node.take(now * S, 1, 4321, body);
        node.moment(now)
    })
}

/// Trends of a minute, the last point of this moment.
fn trends(moment: &Moment) -> Trends {
    let mut trends = Trends::default();
    let mut before = moment.clone();
    for process in &mut before.snapshot.processes {
        process.queues.clear();
    }
    before.snapshot.totals.evictions.clear();
    for _ in 0..3 {
        trends.add(&before);
    }
    trends.add(moment);
    trends
}

fn view(moment: &Moment, ui: &Ui, (width, height): (u16, u16)) -> View {
    View::new(moment, &trends(moment), ui, Size { width, height })
}

fn drawn(view: &View, (width, height): (u16, u16), colour: bool) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("memory");
    terminal.draw(|frame| render(view, frame, colour)).expect("memory");
    terminal.backend().buffer().clone()
}

fn lines(buffer: &Buffer) -> Vec<String> {
    let width = usize::from(buffer.area.width).max(1);
    let line = |cells: &[ratatui::buffer::Cell]| {
        let line: String = cells.iter().map(ratatui::buffer::Cell::symbol).collect();
        line.trim_end().to_owned()
    };
    buffer.content.chunks(width).map(line).collect()
}

pub(crate) fn screen(moment: &Moment, ui: &Ui, size: (u16, u16)) -> String {
    lines(&drawn(&view(moment, ui, size), size, true)).join("\n") + "\n"
}

fn key(code: KeyCode) -> Event {
    Event::Key(KeyEvent::new(code, KeyModifiers::NONE))
}

/// After keys, each on the screen that the one before made.
fn after(moment: &Moment, ui: Ui, events: &[Event], size: (u16, u16)) -> Option<Ui> {
    events.iter().try_fold(ui, |ui, event| {
        let shown = view(moment, &ui, size);
        let ui = ui.settled(&shown).after(event, &shown)?;
        let shown = view(moment, &ui, size);
        Some(ui.settled(&shown))
    })
}

/// The same of characters.
fn typed(moment: &Moment, keys: &str) -> Ui {
    let events: Vec<Event> = keys.chars().map(|c| key(KeyCode::Char(c))).collect();
    after(moment, Ui::default(), &events, MINIMUM).expect("it goes on")
}

/// The first cells of a table's visible rows.
fn first_cells(view: &View, id: PaneId) -> Vec<String> {
    let pane = view.pane(id).expect("it is shown");
    let first = |row: &Vec<Cell>| match row.first() {
        Some(Cell::Text(text, _)) => text.clone(),
        other => panic!("{other:?}"),
    };
    pane.rows.iter().map(first).collect()
}
