//! Which track an event is on, and what begins and ends there.

use super::gpus::Gpus;
use super::packets::{Packets, Track, TrackKind};
use super::proto::Kind;
use super::words::{about, short};
use crate::model::event::{Body, Event, IoctlCall, Outcome};
use crate::model::pointers::Pointers;
use crate::recording::{Item, Line, Replay, STEP_NS};
use crate::state::{Change, Input, ProcessKey, Queue, Sample};
use serde_json::Value;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io::{self, Write};

/// A recording as a trace.
pub struct Timeline<W> {
    packets: Packets<W>,
    processes: BTreeMap<ProcessKey, ProcessTracks>,
    gpus: Gpus,
    /// Of callers that are no KFD processes.
    others: Option<Track>,
    /// The last snapshot of the clocks: the offsets to CLOCK_MONOTONIC.
    offsets: Option<(i64, i64)>,
}

/// Tracks of a process; each is made when something is on it.
struct ProcessTracks {
    own: Track,
    pid: Option<u32>,
    alive: bool,
    queues: BTreeMap<u32, QueueTracks>,
    /// By gpu_id: the track, and whether it is evicted now.
    evicted: BTreeMap<Option<u32>, (Track, bool)>,
    /// By tid.
    threads: BTreeMap<u32, Track>,
}

struct QueueTracks {
    own: Track,
    gpu_id: Option<u32>,
    alive: bool,
    /// Retired per second, and the backlog.
    counters: Option<(Track, Track)>,
}

impl<W: Write> Timeline<W> {
    /// # Errors
    /// Those of `out`, as of all below.
    pub fn new(out: W) -> io::Result<Self> {
        let (processes, gpus) = (BTreeMap::new(), Gpus::default());
        Ok(Timeline { packets: Packets::new(out)?, processes, gpus, others: None, offsets: None })
    }

    /// Takes the next item.
    pub fn take(&mut self, item: Item, replay: &mut Replay) -> io::Result<()> {
        let starts_anew = matches!(item, Item::Input(Input::Anew));
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
            self.all_ends(replay.now_ns)?;
        }
        if let Some(offsets) = offsets {
            self.clocks(offsets, replay.now_ns)?;
        }
        samples.iter().try_for_each(|sample| self.sample(sample, replay))
    }

    /// To be called after the last item; returns how many packets were written.
    pub fn finish(mut self, replay: &mut Replay) -> io::Result<u64> {
        replay.settle(&mut |replay, line| self.line(replay, line))?;
        self.packets.finish()?;
        Ok(self.packets.written)
    }

    fn clocks(&mut self, offsets: (i64, i64), mono_ns: u64) -> io::Result<()> {
        let apart = |one: i64, other: i64| one.abs_diff(other) >= STEP_NS;
        let differs = |(wall, boot): (i64, i64)| apart(wall, offsets.0) || apart(boot, offsets.1);
        if self.offsets.is_none_or(differs) {
            self.offsets = Some(offsets);
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
                    self.all_ends(at_ns)?;
                }
                self.packets.event(Kind::Instant, track, at_ns, Some(("driver", name)), None)
            }
            // When they ended is not known.
            Line::Gap { at_ns, .. } => {
                let track = self.others()?;
                self.all_ends(at_ns)?;
                self.packets.event(Kind::Instant, track, at_ns, Some(("recording", "gap")), None)
            }
        }
    }

    fn event(&mut self, replay: &Replay, event: &Event, change: &Change) -> io::Result<()> {
        let about = about(replay, event, change);
        let (at_ns, kind) = (event.mono_ns, event.body.kind().name());
        if let Some(key) = change.process {
            self.process(replay, key, at_ns)?;
        }
        // First: the queue that ends may be one whose id is given to the queue that begins, as its own end was not seen.
        for queue in &change.ended {
            self.queue_ends(replay, change, queue, at_ns, &about)?;
        }
        match &event.body {
            Body::Ioctl(call) => self.ioctl(replay, event, change, call, &about)?,
            Body::QueueCreate(_) | Body::QueueDestroyFailed { .. } => {
                self.queue_begins(replay, event, change, &about)?;
            }
            Body::Evict(_) | Body::Restore(_) => self.evicted(replay, event, change, &about)?,
            Body::Preempt(_) | Body::MesQueue(_) | Body::Runlist(_) => {
                self.gpus.scheduled(&mut self.packets, replay, event, &about)?;
            }
            Body::GpuResetBegin { .. } | Body::GpuResetEnd { .. } | Body::HwsHang { .. } => {
                self.gpus.happened(&mut self.packets, replay, event, &about)?;
            }
            _ => {
                let track = self.owner(replay, change, at_ns)?;
                if matches!(event.body, Body::VmFault(_)) {
                    self.gpus.happened(&mut self.packets, replay, event, &about)?;
                }
                self.packets.event(Kind::Instant, track, at_ns, Some(("process", kind)), Some(&about))?;
            }
        }
        // Where the driver was unloaded, the release is reported after the ends.
        let own = change.process.filter(|_| matches!(event.body, Body::ProcessRelease));
        change.released.into_iter().chain(own).try_for_each(|key| self.process_ends(key, at_ns))
    }

    /// The track of a process, whose life begins where it is met first.
    fn process(&mut self, replay: &Replay, key: ProcessKey, at_ns: u64) -> io::Result<&mut ProcessTracks> {
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
        let (queues, evicted, threads) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Ok(place.insert(ProcessTracks { own, pid, alive: true, queues, evicted, threads }))
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

    fn owner(&mut self, replay: &Replay, change: &Change, at_ns: u64) -> io::Result<Track> {
        match change.process {
            Some(key) => Ok(self.process(replay, key, at_ns)?.own),
            None => self.others(),
        }
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

    /// Also where a failed destroy leaves it.
    fn queue_begins(
        &mut self,
        replay: &Replay,
        event: &Event,
        change: &Change,
        about: &Value,
    ) -> io::Result<()> {
        let id = match &event.body {
            Body::QueueCreate(facts) => facts.queue_id,
            Body::QueueDestroyFailed { queue_id, .. } => Some(*queue_id),
            _ => None,
        };
        let (Some(key), Some(id)) = (change.process, id) else {
            let track = self.owner(replay, change, event.mono_ns)?;
            let name = event.body.kind().name();
            return self.packets.event(
                Kind::Instant,
                track,
                event.mono_ns,
                Some(("queue", name)),
                Some(about),
            );
        };
        let (at_ns, process) = (event.mono_ns, self.process(replay, key, event.mono_ns)?);
        let (parent, known) = (process.own, process.queues.get(&id).map(|queue| (queue.own, queue.alive)));
        let (own, alive) = match known {
            Some(known) => known,
            None => (self.packets.track(format!("queue {id}"), Some(parent), &TrackKind::Slices)?, false),
        };
        if alive {
            return self.packets.event(
                Kind::Instant,
                own,
                at_ns,
                Some(("queue", event.body.kind().name())),
                Some(about),
            );
        }
        let queue = replay.state.process(key).and_then(|row| row.queues.get(&id));
        let gpu_id = queue.and_then(|queue| queue.facts.gpu_id).or(event.body.gpu_id());
        let kind = queue.map_or("queue", |queue| queue.label().type_name());
        let name = format!("{} {kind}", short(replay, gpu_id));
        self.packets.event(Kind::SliceBegin, own, at_ns, Some(("queue", &name)), Some(about))?;
        let counters = self.process(replay, key, at_ns)?.queues.remove(&id).and_then(|queue| queue.counters);
        let tracks = QueueTracks { own, gpu_id, alive: true, counters };
        self.process(replay, key, at_ns)?.queues.insert(id, tracks);
        self.gpus.count(&mut self.packets, replay, gpu_id, at_ns, 1)
    }

    fn queue_ends(
        &mut self,
        replay: &Replay,
        change: &Change,
        queue: &Queue,
        at_ns: u64,
        about: &Value,
    ) -> io::Result<()> {
        // An event that ends a process ends its queues; it may be another process than the event's own.
        for key in [change.process, change.released].into_iter().flatten() {
            let tracks =
                self.processes.get_mut(&key).and_then(|process| process.queues.get_mut(&queue.queue_id));
            let Some(tracks) = tracks.filter(|tracks| tracks.alive) else { continue };
            tracks.alive = false;
            let (own, gpu_id) = (tracks.own, tracks.gpu_id);
            self.packets.event(Kind::SliceEnd, own, at_ns, None, Some(about))?;
            return self.gpus.count(&mut self.packets, replay, gpu_id, at_ns, -1);
        }
        Ok(())
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
        let Some(process) = self.processes.get_mut(&key).filter(|process| process.alive) else {
            return Ok(());
        };
        process.alive = false;
        for (track, is_evicted) in process.evicted.values_mut().filter(|(_, is_evicted)| *is_evicted) {
            *is_evicted = false;
            self.packets.event(Kind::SliceEnd, *track, at_ns, None, None)?;
        }
        self.packets.event(Kind::SliceEnd, process.own, at_ns, None, None)
    }

    /// The driver was unloaded, or all that was known of it was wrong.
    fn all_ends(&mut self, at_ns: u64) -> io::Result<()> {
        for queue in self.processes.values_mut().flat_map(|process| process.queues.values_mut()) {
            if std::mem::take(&mut queue.alive) {
                self.packets.event(Kind::SliceEnd, queue.own, at_ns, None, None)?;
            }
        }
        let keys: Vec<ProcessKey> = self.processes.keys().copied().collect();
        keys.into_iter().try_for_each(|key| self.process_ends(key, at_ns))?;
        self.processes.clear();
        self.gpus.all_ends(&mut self.packets, at_ns)
    }

    fn sample(&mut self, sample: &Sample, replay: &Replay) -> io::Result<()> {
        let queue = replay.state.process(sample.key).and_then(|row| row.queues.get(&sample.queue_id));
        let measured = queue
            .and_then(|queue| Some((queue.activity.last()?, Pointers::of(&queue.facts).ok()?.unit.name())));
        let Some((measured, unit)) = measured.filter(|_| sample.reading.is_ok()) else { return Ok(()) };
        let tracks = self.processes.get(&sample.key).and_then(|process| process.queues.get(&sample.queue_id));
        let Some(QueueTracks { own, counters, .. }) = tracks else { return Ok(()) };
        let (own, id) = (*own, sample.queue_id);
        let (rate, backlog) = match *counters {
            Some(known) => known,
            None => {
                let mut counter = |name: &str| {
                    self.packets.track(format!("queue {id} {name}"), Some(own), &TrackKind::Counter { unit })
                };
                (counter("per second")?, counter("backlog")?)
            }
        };
        let process = self.processes.get_mut(&sample.key);
        if let Some(queue) = process.and_then(|process| process.queues.get_mut(&id)) {
            queue.counters = Some((rate, backlog));
        }
        if let Some(per_second) = measured.rate {
            self.packets.count(rate, sample.at_ns, per_second.retired)?;
        }
        #[expect(clippy::cast_precision_loss, reason = "a figure to look at")]
        let waiting = measured.counts.backlog() as f64;
        self.packets.count(backlog, sample.at_ns, waiting)
    }
}
