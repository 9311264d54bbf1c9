//! Recent changes of who holds what, and recent incidents. Kept for a while, also after the processes have
//! ended. In memory only; a daemon's recordings give it back after a restart.
//!
//! In: events with the [`Change`] they made. Out: [`Entry`]s. Each class of events has its own bounds, in
//! number and in bytes, so that a storm in one class evicts nothing from another. Within a class each process
//! has a maximum share. The oldest entry is dropped first.

use super::change::Change;
use super::process::ProcessKey;
use super::queue::Queue;
use super::rows::State;
use crate::model::event::{Body, Event, ProcessId};
use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;

mod ended;
mod entry;
mod log;
mod owner;

pub use ended::{Ended, QueueIdentity};
pub use entry::{Entry, Gap, What};
pub use kfd_trace_common::kind::Class;
pub use log::Kept;
pub use owner::Owner;

use log::{ClassLimits, Log};
use owner::OwnerKey;

/// The bounds of a class; 2.9 MB in total.
const fn limits(class: Class) -> ClassLimits {
    let (entries, kib) = match class {
        Class::Gpus => (512, 128),
        Class::Faults => (512, 128),
        Class::Evictions => (2_048, 384),
        Class::Queues => (8_192, 1_536),
        Class::Processes => (2_048, 640),
    };
    ClassLimits { entries, bytes: kib << 10 }
}

/// Which entries to return. Times are nanoseconds since the Unix epoch, both ends included.
#[derive(Clone, Debug, PartialEq)]
pub struct Filter {
    pub since_ns: Option<i64>,
    pub until_ns: Option<i64>,
    /// tgid of the owner, or of a process affected by a GPU-wide event.
    pub pid: Option<u32>,
    pub gpu_id: Option<u32>,
    /// Event names ([`Entry::name`]); empty for all.
    pub events: BTreeSet<&'static str>,
    /// Return the newest `limit` entries.
    pub limit: usize,
}

impl Filter {
    #[must_use]
    pub fn newest(limit: usize) -> Self {
        Filter { since_ns: None, until_ns: None, pid: None, gpu_id: None, events: BTreeSet::new(), limit }
    }

    fn takes(&self, entry: &Entry) -> bool {
        // In a gap anything may have happened.
        let is_gap = matches!(entry.what, What::Gap(_));
        let pid = |pid| is_gap || entry.pid() == Some(pid) || entry.what.hit().contains(&pid);
        let gpu = |gpu_id| is_gap || entry.what.gpu_id() == Some(gpu_id);
        self.since_ns.is_none_or(|since| entry.wall_ns >= since)
            && self.until_ns.is_none_or(|until| entry.wall_ns <= until)
            && self.pid.is_none_or(pid)
            && self.gpu_id.is_none_or(gpu)
            && (self.events.is_empty() || self.events.contains(entry.name()))
    }
}

/// The result of a query.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Matches {
    /// The newest matching entries, oldest first.
    pub entries: Vec<Arc<Entry>>,
    /// How many entries match, ignoring the limit.
    pub matched: usize,
}

/// What is new, for who takes it.
#[derive(Clone, Debug)]
pub enum New {
    Entry(Arc<Entry>),
    /// An event that the history does not keep.
    Event(Box<Passed>),
}

/// An event that the history does not keep.
#[derive(Clone, Debug)]
pub struct Passed {
    pub event: Event,
    pub change: Change,
    pub owner: Option<Arc<Owner>>,
    /// Nanoseconds since the Unix epoch.
    pub wall_ns: i64,
}

#[derive(Debug)]
struct Outlet {
    /// Also what the history does not keep.
    all: bool,
    new: Vec<New>,
}

/// Number of remembered tracing periods; each reload of the driver starts a new one.
const TRACED: usize = 64;

/// The recent past.
#[derive(Debug)]
pub struct History {
    logs: [Log; Class::ALL.len()],
    /// Number of the last entry, in order of arrival.
    next: u64,
    /// Periods with probes attached, oldest first, in nanoseconds since the Unix epoch.
    traced: VecDeque<Range<i64>>,
    /// What is new, for who takes it; `None`: nobody does.
    outlet: Option<Outlet>,
    /// The begin of what an earlier tracer knew, nanoseconds since the Unix epoch; `None` where it begins with this one.
    earlier_since_ns: Option<i64>,
}

impl Default for History {
    fn default() -> Self {
        Self::bounded(limits)
    }
}

impl History {
    fn bounded(limits: impl Fn(Class) -> ClassLimits) -> Self {
        let logs = Class::ALL.map(|class| Log::new(limits(class)));
        History { logs, next: 0, traced: VecDeque::new(), outlet: None, earlier_since_ns: None }
    }

    /// From here on, what is new is also kept for [`History::take_new`]; `all`: events that the history does not keep, too.
    pub fn start_outlet(&mut self, all: bool) {
        self.outlet = Some(Outlet { all, new: Vec::new() });
    }

    /// What came since the last call, in its order, also where the history has dropped it since.
    pub fn take_new(&mut self) -> Vec<New> {
        self.outlet.as_mut().map(|outlet| std::mem::take(&mut outlet.new)).unwrap_or_default()
    }

    /// Records an event and its change. `state`: after the event was applied. `mono_to_wall_ns`: current
    /// offset from CLOCK_MONOTONIC to wall-clock time.
    pub fn record(&mut self, event: &Event, change: &Change, state: &State, mono_to_wall_ns: i64) {
        let mut recording = Recording { history: self, state, mono_to_wall_ns };
        recording.implied_ends(event, change);
        let ended = |queue_id| change.ended.iter().find(|queue| queue.queue_id == queue_id);
        let since_ns = |queue_id| {
            let row = change.process.and_then(|key| state.process(key))?;
            row.queues.get(&queue_id).and_then(Queue::known_since_ns)
        };
        match What::of(event, change, ended, since_ns) {
            Some(what) => recording.push(event, change.process, what),
            None => recording.pass(event, change),
        }
    }

    /// The driver was unloaded, or another loading is traced. `loads`: traced loadings, this one included.
    pub fn driver(&mut self, loaded: bool, loads: u64, mono_ns: u64, mono_to_wall_ns: i64) {
        let what = What::Driver { loaded, loads };
        let wall_ns = wall(mono_ns, mono_to_wall_ns);
        self.put(Entry { mono_ns, wall_ns, owner: None, tid: 0, task_tgid: 0, what });
    }

    /// Takes over what an earlier tracer of this boot knew. It is not new to who takes what is new. To be called before
    /// anything is added. `since_ns`: from when on that is, nanoseconds since the Unix epoch.
    pub fn take_over(&mut self, earlier: History, since_ns: i64) {
        if self.next == 0 {
            let outlet = self.outlet.take();
            *self = History { outlet, earlier_since_ns: Some(since_ns), ..earlier };
        }
    }

    /// From when on the entries of an earlier tracer are known, if there are any: nanoseconds since the Unix epoch.
    #[must_use]
    pub fn earlier_since_ns(&self) -> Option<i64> {
        self.earlier_since_ns
    }

    /// One tracer ended, and the next one has found what exists: `later` gets the begins of queues that `earlier` knew,
    /// and what ended meanwhile is added. None of it is new to who takes what is new: it is of the tracer before.
    pub fn continues(
        &mut self,
        earlier: &mut State,
        later: &mut State,
        gap: Gap,
        at_ns: u64,
        mono_to_wall_ns: i64,
    ) {
        let outlet = self.outlet.take();
        let (wall_ns, what) = (wall(at_ns, mono_to_wall_ns), What::Gap(gap));
        self.put(Entry { mono_ns: at_ns, wall_ns, owner: None, tid: 0, task_tgid: 0, what });
        later.inherit(earlier);
        for (event, change) in earlier.end_unfound(later, at_ns) {
            self.record(&event, &change, earlier, mono_to_wall_ns);
        }
        self.outlet = outlet;
    }

    /// Probes are attached from now on, and existing processes and queues are known.
    pub fn begin(&mut self, mono_ns: u64, mono_to_wall_ns: i64) {
        if self.traced.len() == TRACED {
            self.traced.pop_front();
        }
        self.traced.push_back(wall(mono_ns, mono_to_wall_ns)..i64::MAX);
    }

    /// Probes are no longer attached.
    pub fn end(&mut self, mono_ns: u64, mono_to_wall_ns: i64) {
        if let Some(last) = self.traced.back_mut() {
            last.end = wall(mono_ns, mono_to_wall_ns).min(last.end);
        }
    }

    /// Whether probes were attached at this time (nanoseconds since the Unix epoch); only the last [`TRACED`]
    /// periods count.
    #[must_use]
    pub fn was_traced(&self, wall_ns: i64) -> bool {
        self.traced.iter().any(|traced| traced.contains(&wall_ns))
    }

    fn put(&mut self, entry: Entry) {
        self.next += 1;
        let entry = Arc::new(entry);
        if let Some(outlet) = &mut self.outlet {
            outlet.new.push(New::Entry(Arc::clone(&entry)));
        }
        self.logs[entry.what.class() as usize].push(self.next, entry);
    }

    #[must_use]
    pub fn find(&self, filter: &Filter) -> Matches {
        let mut found: Vec<(u64, &Arc<Entry>)> =
            self.logs.iter().flat_map(Log::iter).filter(|(_, entry)| filter.takes(entry)).collect();
        found.sort_unstable_by_key(|(number, _)| *number);
        let matched = found.len();
        let left_out = matched.saturating_sub(filter.limit);
        Matches { entries: found.drain(left_out..).map(|(_, entry)| Arc::clone(entry)).collect(), matched }
    }

    /// Later ends of queues that existed at `wall_ns` (nanoseconds since the Unix epoch). If the end of a
    /// queue was reported twice (a failed destroy lets it live on), the last one.
    #[must_use]
    pub fn ended_after(&self, wall_ns: i64) -> Vec<Arc<Entry>> {
        let mut ends: Vec<&Arc<Entry>> = Vec::new();
        let mut met = BTreeSet::new();
        for (_, entry) in self.log(Class::Queues).iter().rev() {
            let What::QueueDestroy(queue) = &entry.what else { continue };
            let stood = queue.stood_from_ns().map(|from_ns| wall(from_ns, entry.mono_to_wall_ns()));
            let identity = queue.identity(entry.owner.as_deref());
            if entry.wall_ns > wall_ns && stood.is_some_and(|from| from <= wall_ns) && met.insert(identity) {
                ends.push(entry);
            }
        }
        ends.into_iter().rev().map(Arc::clone).collect()
    }

    /// What is kept of a class, and what was dropped.
    #[must_use]
    pub fn kept(&self, class: Class) -> Kept {
        self.log(class).kept()
    }

    fn log(&self, class: Class) -> &Log {
        &self.logs[class as usize]
    }
}

/// CLOCK_MONOTONIC to nanoseconds since the Unix epoch.
fn wall(mono_ns: u64, mono_to_wall_ns: i64) -> i64 {
    i64::try_from(mono_ns).unwrap_or(i64::MAX).saturating_add(mono_to_wall_ns)
}

/// One event being recorded.
struct Recording<'a> {
    history: &'a mut History,
    state: &'a State,
    mono_to_wall_ns: i64,
}

impl Recording<'_> {
    fn owner(
        &self,
        event: &Event,
        key: Option<ProcessKey>,
        class: Class,
        comm: Option<&str>,
    ) -> Option<Arc<Owner>> {
        let row = key.and_then(|key| self.state.process(key));
        let number = event.process.map(ProcessId::into).or(key);
        let key: OwnerKey = (number, event.tgid.or(row.and_then(|row| row.tgid)));
        (key != (None, None)).then(|| self.history.log(class).owner(key, row, comm))
    }

    /// An event that is not kept, for who takes it.
    #[inline]
    fn pass(&mut self, event: &Event, change: &Change) {
        // Arguments of ioctls leave no daemon.
        let all = self.history.outlet.as_ref().is_some_and(|outlet| outlet.all);
        if all && !matches!(event.body, Body::Ioctl(_)) {
            self.pass_on(event, change);
        }
    }

    /// Apart: usually nobody does.
    #[cold]
    #[inline(never)]
    fn pass_on(&mut self, event: &Event, change: &Change) {
        let owner = self.owner(event, change.process, Class::Processes, event.body.comm());
        let wall_ns = wall(event.mono_ns, self.mono_to_wall_ns);
        let passed = Passed { event: event.clone(), change: change.clone(), owner, wall_ns };
        if let Some(outlet) = &mut self.history.outlet {
            outlet.new.push(New::Event(Box::new(passed)));
        }
    }

    fn push(&mut self, event: &Event, key: Option<ProcessKey>, what: What) {
        let owner = self.owner(event, key, what.class(), what.comm());
        self.history.put(Entry {
            mono_ns: event.mono_ns,
            wall_ns: wall(event.mono_ns, self.mono_to_wall_ns),
            owner,
            tid: event.tid,
            task_tgid: event.task_tgid,
            what,
        });
    }

    /// Records the ends of queues and of a process that the event caused but does not name: no record
    /// reported them.
    fn implied_ends(&mut self, event: &Event, change: &Change) {
        if change.ended.is_empty() && change.released.is_none() {
            return;
        }
        let own = |queue: &Queue| matches!(event.body, Body::QueueDestroy { queue_id, .. } if queue_id == queue.queue_id);
        let key = change.released.or(change.process);
        let row = key.and_then(|key| self.state.process(key));
        let id = match key {
            Some(ProcessKey::Traced(id)) => Some(id),
            _ => None,
        };
        let tgid = row.and_then(|row| row.tgid).or(event.tgid);
        let end = |at_ns, body| Event::of_standing(at_ns, id, tgid, body);
        for queue in change.ended.iter().filter(|queue| !own(queue)) {
            let at_ns = queue.end.map_or(event.mono_ns, |end| end.at_ns);
            let body =
                Body::QueueDestroy { queue_id: queue.queue_id, gpu_id: queue.facts.gpu_id, last: None };
            self.push(&end(at_ns, body), key, What::QueueDestroy(queue.into()));
        }
        let named = matches!(event.body, Body::ProcessRelease) && change.released == change.process;
        if change.released.is_some() && !named {
            self.push(&end(event.mono_ns, Body::ProcessRelease), key, What::ProcessRelease);
        }
    }
}

#[cfg(test)]
mod tests;
