//! Tracks of GPUs: their live queues, what their schedulers do, and what befalls them.

use super::packets::{Packets, Track, TrackKind};
use super::proto::Kind;
use super::words::label;
use crate::model::event::{Body, Event};
use crate::recording::Replay;
use serde_json::Value;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io::{self, Write};

/// By gpu_id; `None` where it is not known.
#[derive(Debug, Default)]
pub(super) struct Gpus(BTreeMap<Option<u32>, GpuTracks>);

#[derive(Debug)]
struct GpuTracks {
    own: Track,
    scheduler: Option<Track>,
    /// A reset is under way.
    resets: bool,
    queues: Track,
    live: i32,
}

impl Gpus {
    fn tracks_of<W: Write>(
        &mut self,
        packets: &mut Packets<W>,
        replay: &Replay,
        gpu_id: Option<u32>,
    ) -> io::Result<&mut GpuTracks> {
        match self.0.entry(gpu_id) {
            Entry::Occupied(known) => Ok(known.into_mut()),
            Entry::Vacant(place) => {
                let own = packets.track(label(replay, gpu_id), None, &TrackKind::Slices)?;
                let queues =
                    packets.track("queues".to_owned(), Some(own), &TrackKind::Counter { unit: "queues" })?;
                Ok(place.insert(GpuTracks { own, scheduler: None, resets: false, queues, live: 0 }))
            }
        }
    }

    /// A queue more, or one less.
    ///
    /// # Errors
    /// Those of the packets, as of all below.
    pub(super) fn count<W: Write>(
        &mut self,
        packets: &mut Packets<W>,
        replay: &Replay,
        gpu_id: Option<u32>,
        at_ns: u64,
        more: i32,
    ) -> io::Result<()> {
        let gpu = self.tracks_of(packets, replay, gpu_id)?;
        gpu.live += more;
        packets.count(gpu.queues, at_ns, f64::from(gpu.live))
    }

    /// No queue lives, and no reset goes on.
    pub(super) fn all_ends<W: Write>(&mut self, packets: &mut Packets<W>, at_ns: u64) -> io::Result<()> {
        for gpu in self.0.values_mut() {
            if std::mem::take(&mut gpu.resets) {
                packets.event(Kind::SliceEnd, gpu.own, at_ns, None, None)?;
            }
            if std::mem::take(&mut gpu.live) != 0 {
                packets.count(gpu.queues, at_ns, 0.0)?;
            }
        }
        Ok(())
    }

    /// What its scheduler did: a preemption and a request to MES last from their begin to the event.
    pub(super) fn scheduled<W: Write>(
        &mut self,
        packets: &mut Packets<W>,
        replay: &Replay,
        event: &Event,
        about: &Value,
    ) -> io::Result<()> {
        let gpu = self.tracks_of(packets, replay, event.body.gpu_id())?;
        let track = match gpu.scheduler {
            Some(track) => track,
            None => packets.track("scheduler".to_owned(), Some(gpu.own), &TrackKind::Slices)?,
        };
        gpu.scheduler = Some(track);
        let kind = event.body.kind().name();
        let name = about["reason"].as_str().map_or_else(|| kind.to_owned(), |why| format!("{kind}: {why}"));
        let name = Some(("scheduler", name.as_str()));
        let latency_ns = match &event.body {
            Body::Preempt(preemption) => preemption.latency_ns,
            Body::MesQueue(change) => change.latency_ns,
            _ => return packets.event(Kind::Instant, track, event.mono_ns, name, Some(about)),
        };
        let begin_ns = event.mono_ns.saturating_sub(latency_ns);
        packets.event(Kind::SliceBegin, track, begin_ns, name, Some(about))?;
        packets.event(Kind::SliceEnd, track, event.mono_ns, None, None)
    }

    /// A reset, a hang, a fault.
    pub(super) fn happened<W: Write>(
        &mut self,
        packets: &mut Packets<W>,
        replay: &Replay,
        event: &Event,
        about: &Value,
    ) -> io::Result<()> {
        let gpu = self.tracks_of(packets, replay, event.body.gpu_id())?;
        let kind = match (&event.body, gpu.resets) {
            (Body::GpuResetBegin { .. }, false) => Kind::SliceBegin,
            (Body::GpuResetEnd { .. }, true) => Kind::SliceEnd,
            _ => Kind::Instant,
        };
        match kind {
            Kind::SliceBegin => gpu.resets = true,
            Kind::SliceEnd => gpu.resets = false,
            _ => {}
        }
        let name = Some(("gpu", event.body.kind().name())).filter(|_| kind != Kind::SliceEnd);
        packets.event(kind, gpu.own, event.mono_ns, name, Some(about))
    }
}
