//! Tracks of queues: their lives, and counters from their samples.

use super::known::{KnownQueue, begun};
use super::lives::Timeline;
use super::packets::TrackKind;
use super::proto::Kind;
use super::tracks::QueueTracks;
use super::words::short;
use crate::model::event::Event;
use crate::model::pointers::Pointers;
use crate::recording::Replay;
use crate::state::{Change, Queue, Sample};
use serde_json::Value;
use std::io::{self, Write};

impl<W: Write> Timeline<W> {
    /// Also where a failed destroy leaves it.
    pub(super) fn queue_begins(
        &mut self,
        replay: &Replay,
        event: &Event,
        change: &Change,
        about: &Value,
    ) -> io::Result<()> {
        let (Some(key), Some(id)) = (change.process, begun(&event.body)) else {
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
        self.not_shown.forget(&mut self.known, key, id, event.mono_ns);
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
        let process = self.process(replay, key, at_ns)?.known;
        let known = self.known.add_queue(process, KnownQueue::new(Some(own), queue, at_ns));
        let tracks = QueueTracks { own, gpu_id, alive: true, known, counters };
        self.process(replay, key, at_ns)?.queues.insert(id, tracks);
        self.gpus.count(&mut self.packets, replay, gpu_id, at_ns, 1)
    }

    pub(super) fn queue_ends(
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
            self.known.queue_is(tracks.known, Some(queue));
            self.known.queue_ends(tracks.known, at_ns);
            let (own, gpu_id) = (tracks.own, tracks.gpu_id);
            self.packets.event(Kind::SliceEnd, own, at_ns, None, Some(about))?;
            return self.gpus.count(&mut self.packets, replay, gpu_id, at_ns, -1);
        }
        for key in [change.process, change.released].into_iter().flatten() {
            self.not_shown.queue_ends(&mut self.known, key, queue, at_ns);
        }
        Ok(())
    }

    pub(super) fn sample(&mut self, sample: &Sample, replay: &Replay) -> io::Result<()> {
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
