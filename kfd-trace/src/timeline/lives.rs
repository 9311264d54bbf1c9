//! Which track an event is on, and what begins and ends there.

use super::gpus::Gpus;
use super::known::{Known, KnownProcess};
use super::not_shown::NotShown;
use super::packets::{Packets, Track, TrackKind};
use super::proto::Kind;
use super::tracks::ProcessTracks;
use super::words::{about, short};
use crate::model::event::{Body, Event, IoctlCall, Outcome};
use crate::recording::{Item, Line, Replay, STEP_NS};
use crate::state::{Change, Input, ProcessKey, State};
use serde_json::Value;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io::{self, Write};

/// A recording as a trace.
pub struct Timeline<W> {
    pub(super) packets: Packets<W>,
    pub(super) processes: BTreeMap<ProcessKey, ProcessTracks>,
    pub(super) gpus: Gpus,
    /// Of callers that are no KFD processes.
    others: Option<Track>,
    /// The last snapshot of the clocks: the offsets to CLOCK_MONOTONIC.
    offsets: Option<(i64, i64)>,
    pub(super) known: Known,
    pub(super) not_shown: NotShown,
    filter: Option<Box<Filter>>,
    /// There is no recording: logs are shown as they are.
    pub(super) alone: bool,
}

/// What is shown of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    All,
    /// That a process or a queue begins or ends with it.
    Lives,
    Nothing,
}

/// Chooses by an event, what it changed, and the state after it.
pub type Filter = dyn Fn(&Event, &Change, &State) -> Shown;

impl<W: Write> Timeline<W> {
    /// # Errors
    /// Those of `out`, as of all below.
    pub fn new(out: W) -> io::Result<Self> {
        Timeline::with(out, false)
    }

    /// A trace of logs only, without a recording.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn alone(out: W) -> io::Result<Self> {
        Timeline::with(out, true)
    }

    fn with(out: W, alone: bool) -> io::Result<Self> {
        let (processes, gpus) = (BTreeMap::new(), Gpus::default());
        let (packets, known) = (Packets::new(out, !alone)?, Known::default());
        let (not_shown, filter) = (NotShown::default(), None);
        Ok(Timeline {
            packets,
            processes,
            gpus,
            others: None,
            offsets: None,
            known,
            not_shown,
            filter,
            alone,
        })
    }

    /// Shows only what the filter chooses. To be called before the first item.
    pub fn choose(&mut self, filter: Box<Filter>) {
        self.filter = Some(filter);
    }

    /// Takes the next item.
    pub fn take(&mut self, item: Item, replay: &mut Replay) -> io::Result<()> {
        let starts_anew = matches!(item, Item::Input(Input::Anew));
        self.known.covers(replay.now_ns);
        let samples = match &item {
            Item::Input(Input::Sampled(samples)) => samples.clone(),
            _ => Vec::new(),
        };
        let offsets = match &item {
            Item::Clock { wall_ns, boot_ns } => Some((*wall_ns, *boot_ns)),
            _ => None,
        };
        replay.take(item, &mut |replay, line| self.line(replay, line))?;
        if starts_anew {
            self.all_ends(replay.now_ns, false)?;
        }
        if let Some(offsets) = offsets {
            self.clocks(offsets, replay.now_ns)?;
        }
        samples.iter().try_for_each(|sample| self.sample(sample, replay))
    }

    /// To be called after the last item, and before logs are placed.
    pub fn settle(&mut self, replay: &mut Replay) -> io::Result<()> {
        replay.settle(&mut |replay, line| self.line(replay, line))?;
        self.known.covers(replay.now_ns);
        for (key, process) in &self.processes {
            let row = replay.state.process(*key);
            self.known.process_is(process.known, row);
            for (id, queue) in &process.queues {
                let row = row.and_then(|row| row.queues.get(id)).filter(|_| queue.alive);
                self.known.queue_is(queue.known, row);
            }
        }
        self.not_shown.settle(&mut self.known, &replay.state);
        self.known.index();
        Ok(())
    }

    /// To be called last; returns how many packets were written.
    pub fn finish(mut self) -> io::Result<u64> {
        self.packets.finish()?;
        Ok(self.packets.written)
    }

    fn clocks(&mut self, offsets: (i64, i64), mono_ns: u64) -> io::Result<()> {
        let apart = |one: i64, other: i64| one.abs_diff(other) >= STEP_NS;
        let differs = |(wall, boot): (i64, i64)| apart(wall, offsets.0) || apart(boot, offsets.1);
        if self.offsets.is_none_or(differs) {
            self.offsets = Some(offsets);
            self.known.boot(mono_ns, offsets.1);
            let at = |offset| mono_ns.saturating_add_signed(offset);
            self.packets.clocks(mono_ns, at(offsets.0), at(offsets.1))?;
        }
        Ok(())
    }

    fn line(&mut self, replay: &Replay, line: Line<'_>) -> io::Result<()> {
        match line {
            Line::Event(event, change) => self.event(replay, event, change),
            Line::Loads { loaded, at_ns, .. } => {
                let track = self.others()?;
                let name = if loaded { "driver loaded" } else { "driver unloaded" };
                if !loaded {
                    self.all_ends(at_ns, true)?;
                }
                self.packets.event(Kind::Instant, track, at_ns, Some(("driver", name)), None)
            }
            // When they ended is not known.
            Line::Gap { at_ns, .. } => {
                let track = self.others()?;
                self.all_ends(at_ns, false)?;
                self.packets.event(Kind::Instant, track, at_ns, Some(("recording", "gap")), None)
            }
        }
    }

    fn event(&mut self, replay: &Replay, event: &Event, change: &Change) -> io::Result<()> {
        let shown = self.filter.as_ref().map_or(Shown::All, |filter| filter(event, change, &replay.state));
        let about = about(replay, event, change);
        let at_ns = event.mono_ns;
        match change.process {
            Some(key) if shown == Shown::Nothing => self.not_shown.renumber(&replay.state, key),
            Some(key) => drop(self.process(replay, key, at_ns)?),
            None => {}
        }
        // First: the queue that ends may be one whose id is given to the queue that begins, as its own end was not seen.
        for queue in &change.ended {
            self.queue_ends(replay, change, queue, at_ns, &about)?;
        }
        match &event.body {
            _ if shown == Shown::Nothing => {
                self.not_shown.event(&mut self.known, &replay.state, event, change);
            }
            Body::QueueCreate(_) | Body::QueueDestroyFailed { .. } => {
                self.queue_begins(replay, event, change, &about)?;
            }
            _ if shown == Shown::Lives => {}
            Body::Ioctl(call) => self.ioctl(replay, event, change, call, &about)?,
            Body::Evict(_) | Body::Restore(_) => self.evicted(replay, event, change, &about)?,
            Body::Preempt(_) | Body::MesQueue(_) | Body::Runlist(_) => {
                self.gpus.scheduled(&mut self.packets, replay, event, &about)?;
            }
            Body::GpuResetBegin { .. } | Body::GpuResetEnd { .. } | Body::HwsHang { .. } => {
                self.gpus.happened(&mut self.packets, replay, event, &about)?;
            }
            Body::QueueUpdate(update) => {
                let queue = update.now.queue_id.and_then(|id| self.live_queue(change, id));
                self.instant(replay, event, change, &about, queue)?;
            }
            Body::MqdWrite { queue_id, .. } => {
                self.instant(replay, event, change, &about, self.live_queue(change, *queue_id))?;
            }
            Body::VmFault(_) => {
                self.gpus.happened(&mut self.packets, replay, event, &about)?;
                self.instant(replay, event, change, &about, None)?;
            }
            Body::ProcessSeen(_)
            | Body::Open { .. }
            | Body::Close
            | Body::MmRelease
            | Body::ProcessRelease
            | Body::QueueDestroy { .. }
            | Body::UserQueue(_)
            | Body::EvictFailed(_)
            | Body::QueuesSuspended(_)
            | Body::QueuesResumed(_) => self.instant(replay, event, change, &about, None)?,
        }
        // Where the driver was unloaded, the release is reported after the ends.
        let own = change.process.filter(|_| matches!(event.body, Body::ProcessRelease));
        change.released.into_iter().chain(own).try_for_each(|key| self.process_ends(key, at_ns))
    }

    /// The track of a process, whose life begins where it is met first.
    pub(super) fn process(
        &mut self,
        replay: &Replay,
        key: ProcessKey,
        at_ns: u64,
    ) -> io::Result<&mut ProcessTracks> {
        if !self.processes.contains_key(&key)
            && let Some(before) = self.known_as(replay, key)
            && let Some(tracks) = self.processes.remove(&before)
        {
            self.processes.insert(key, tracks);
        }
        let place = match self.processes.entry(key) {
            Entry::Occupied(known) => return Ok(known.into_mut()),
            Entry::Vacant(place) => place,
        };
        let row = replay.state.process(key);
        let comm = row.and_then(|row| row.comm.clone()).unwrap_or_else(|| "?".to_owned());
        let pid = row.and_then(|row| row.tgid);
        let start_ns = row.and_then(|row| row.start_boottime_ns);
        let own = self.packets.track(comm.clone(), None, &TrackKind::Process { pid, start_ns })?;
        self.packets.event(Kind::SliceBegin, own, at_ns, Some(("process", &comm)), None)?;
        let known =
            self.known.add_process(KnownProcess { track: Some(own), pid, ns_pid: None, ended_ns: None });
        self.known.process_is(known, row);
        let (queues, evicted, threads) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Ok(place.insert(ProcessTracks { own, pid, alive: true, known, queues, evicted, threads }))
    }

    /// The key under which a process was known that has got its number since, as `State` gives it one.
    fn known_as(&self, replay: &Replay, key: ProcessKey) -> Option<ProcessKey> {
        let pid = replay.state.process(key)?.tgid;
        let before = self.processes.iter().find(|(before, tracks)| {
            matches!(before, ProcessKey::Adopted(_))
                && tracks.alive
                && tracks.pid == pid
                && replay.state.process(**before).is_none()
        });
        before.map(|(before, _)| *before)
    }

    pub(super) fn owner(&mut self, replay: &Replay, change: &Change, at_ns: u64) -> io::Result<Track> {
        match change.process {
            Some(key) => Ok(self.process(replay, key, at_ns)?.own),
            None => self.others(),
        }
    }

    /// The track of a queue of the event's process, while it lives.
    fn live_queue(&self, change: &Change, id: u32) -> Option<Track> {
        let queue = self.processes.get(&change.process?)?.queues.get(&id)?;
        queue.alive.then_some(queue.own)
    }

    /// A moment on the track of its queue, else of its process.
    fn instant(
        &mut self,
        replay: &Replay,
        event: &Event,
        change: &Change,
        about: &Value,
        queue: Option<Track>,
    ) -> io::Result<()> {
        let track = match queue {
            Some(track) => track,
            None => self.owner(replay, change, event.mono_ns)?,
        };
        let name = Some(("process", event.body.kind().name()));
        self.packets.event(Kind::Instant, track, event.mono_ns, name, Some(about))
    }

    fn others(&mut self) -> io::Result<Track> {
        let track = match self.others {
            Some(track) => track,
            None => self.packets.track("others".to_owned(), None, &TrackKind::Slices)?,
        };
        self.others = Some(track);
        Ok(track)
    }

    fn ioctl(
        &mut self,
        replay: &Replay,
        event: &Event,
        change: &Change,
        call: &IoctlCall,
        about: &Value,
    ) -> io::Result<()> {
        let Some(key) = change.process else {
            let track = self.others()?;
            return self.packets.event(
                Kind::Instant,
                track,
                event.mono_ns,
                Some(("ioctl", "ioctl")),
                Some(about),
            );
        };
        let process = self.process(replay, key, call.entered_ns)?;
        let (parent, known) = (process.own, process.threads.get(&event.tid).copied());
        let track = match known {
            Some(track) => track,
            None => {
                let name = format!("ioctls of thread {}", event.tid);
                let track = self.packets.track(name, Some(parent), &TrackKind::Slices)?;
                self.process(replay, key, call.entered_ns)?.threads.insert(event.tid, track);
                track
            }
        };
        let name = replay.named.name(call.cmd);
        let name = Some(("ioctl", name.as_str()));
        match call.outcome {
            Outcome::Returned { latency_ns, .. } => {
                self.packets.event(Kind::SliceBegin, track, call.entered_ns, name, Some(about))?;
                let end_ns = call.entered_ns.saturating_add(latency_ns);
                self.packets.event(Kind::SliceEnd, track, end_ns, None, None)
            }
            Outcome::Refused { .. } | Outcome::NotMeasured | Outcome::NoReturnSeen => {
                self.packets.event(Kind::Instant, track, call.entered_ns, name, Some(about))
            }
        }
    }

    /// Evicted or restored.
    fn evicted(&mut self, replay: &Replay, event: &Event, change: &Change, about: &Value) -> io::Result<()> {
        let (at_ns, gpu_id, Some(key)) = (event.mono_ns, event.body.gpu_id(), change.process) else {
            return Ok(());
        };
        let process = self.process(replay, key, at_ns)?;
        let (parent, known) = (process.own, process.evicted.get(&gpu_id).copied());
        let (track, is_evicted) = match known {
            Some(known) => known,
            None => {
                let name = format!("evicted from {}", short(replay, gpu_id));
                (self.packets.track(name, Some(parent), &TrackKind::Slices)?, false)
            }
        };
        let begins = matches!(event.body, Body::Evict(_));
        self.process(replay, key, at_ns)?.evicted.insert(gpu_id, (track, begins));
        let name = if begins { about["trigger"].as_str().unwrap_or("evicted") } else { "restored" };
        let (kind, name) = match (is_evicted, begins) {
            (false, true) => (Kind::SliceBegin, Some(("eviction", name))),
            (true, false) => (Kind::SliceEnd, None),
            // It was evicted already, or its begin was not seen.
            (true, true) | (false, false) => (Kind::Instant, Some(("eviction", name))),
        };
        self.packets.event(kind, track, at_ns, name, Some(about))
    }

    fn process_ends(&mut self, key: ProcessKey, at_ns: u64) -> io::Result<()> {
        self.not_shown.process_ends(&mut self.known, key, at_ns);
        let Some(process) = self.processes.get_mut(&key).filter(|process| process.alive) else {
            return Ok(());
        };
        process.alive = false;
        self.known.process_ends(process.known, at_ns);
        for (track, is_evicted) in process.evicted.values_mut().filter(|(_, is_evicted)| *is_evicted) {
            *is_evicted = false;
            self.packets.event(Kind::SliceEnd, *track, at_ns, None, None)?;
        }
        self.packets.event(Kind::SliceEnd, process.own, at_ns, None, None)
    }

    /// The driver was unloaded, or, without `seen`, the recording has a gap, or all that was known was wrong.
    fn all_ends(&mut self, at_ns: u64, seen: bool) -> io::Result<()> {
        self.not_shown.all_end(&mut self.known, at_ns, seen);
        for queue in self.processes.values_mut().flat_map(|process| process.queues.values_mut()) {
            if std::mem::take(&mut queue.alive) {
                if seen {
                    self.known.queue_ends(queue.known, at_ns);
                } else {
                    self.known.queue_lost(queue.known, at_ns);
                }
                self.packets.event(Kind::SliceEnd, queue.own, at_ns, None, None)?;
            }
        }
        let keys: Vec<ProcessKey> = self.processes.keys().copied().collect();
        keys.into_iter().try_for_each(|key| self.process_ends(key, at_ns))?;
        self.processes.clear();
        self.gpus.all_ends(&mut self.packets, at_ns)
    }
}
