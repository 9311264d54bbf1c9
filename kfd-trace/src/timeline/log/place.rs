//! The second reading of a log: writes its packets and copies on tracks of their queue and process.
//!
//! What has times of the GPU is a slice; what has none is an instant at the time of its line, which is when it was
//! submitted. Slices of one queue may overlap: each track has only such that do not.

use super::offsets::OffsetCursor;
use super::report::LogReport;
use super::survey::{LogPlan, place_of};
use crate::amd_log::Correlator;
use crate::amd_log::lines::LogLine;
use crate::amd_log::packet::{Packet, PacketKind, PacketPointers};
use crate::amd_log::source::LogProcess;
use crate::amd_log::work::{Measured, Task, Work, WorkClock};
use crate::timeline::lives::Timeline;
use crate::timeline::packets::{Track, TrackKind};
use crate::timeline::proto::Kind;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};

/// Queues, and processes with copies, that have tracks; work of further ones is counted.
const PLACES: usize = 8192;

/// Tracks for slices of a queue that run at the same time; further ones are instants.
const LANES: usize = 64;

/// Where work is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Place {
    /// A queue of the recording.
    Queue(usize),
    /// A process of the recording: copies, or a queue (HWq) that the recording does not have.
    Process(usize, Option<u64>),
    /// Not joined: the log's process, and the HWq.
    Apart(LogProcess, Option<u64>),
}

/// Tracks of a place; each is made when something is on it.
struct PlaceTracks {
    parent: Track,
    submitted: Option<Track>,
    /// Each with the end of its last slice.
    lanes: Vec<(Track, u64)>,
}

/// The second reading.
pub struct Placer<'t, W> {
    timeline: &'t mut Timeline<W>,
    plan: LogPlan,
    cursor: OffsetCursor,
    correlator: Correlator,
    works: Vec<Work>,
    places: HashMap<Place, PlaceTracks>,
    /// What is not joined, by the log's process.
    apart: HashMap<LogProcess, Track>,
    /// Why work is not, or not all, joined: of which process, with its count.
    strangers: BTreeMap<(LogProcess, &'static str), [u64; 2]>,
    first_ns: Option<u64>,
    report: LogReport,
}

impl<W: Write> Timeline<W> {
    /// Begins the second reading of a log, whose lines must be those of the first one.
    pub fn place(&mut self, plan: LogPlan) -> Placer<'_, W> {
        Placer {
            timeline: self,
            plan,
            cursor: OffsetCursor::default(),
            correlator: Correlator::default(),
            works: Vec::new(),
            places: HashMap::new(),
            apart: HashMap::new(),
            strangers: BTreeMap::new(),
            first_ns: None,
            report: LogReport::default(),
        }
    }
}

impl<W: Write> Placer<'_, W> {
    /// Takes the next line.
    ///
    /// # Errors
    /// Those of the output, as of all below.
    pub fn line(&mut self, line: LogLine<'_>) -> io::Result<()> {
        self.correlator.line(line, &mut self.works);
        self.take()
    }

    fn take(&mut self) -> io::Result<()> {
        let mut works = std::mem::take(&mut self.works);
        works.drain(..).try_for_each(|work| self.work(&work))?;
        self.works = works;
        Ok(())
    }

    fn work(&mut self, work: &Work) -> io::Result<()> {
        match work.task {
            Task::Packet(_) => self.report.packets += 1,
            Task::Copy { .. } => self.report.copies += 1,
            Task::Command { .. } => {}
            // The recording has that.
            Task::Created { .. } => return Ok(()),
        }
        let at_ns = work.at_us.saturating_mul(1000);
        self.first_ns = Some(self.first_ns.unwrap_or(at_ns).min(at_ns));
        // Also of what has no room: the count of the first reading must be met.
        let slice = work.measured.and_then(|measured| self.slice(work, &measured));
        let Some(place) = self.place(work) else {
            self.report.not_requested += 1;
            return Ok(());
        };
        if !self.places.contains_key(&place) {
            if self.places.len() >= PLACES {
                self.report.left_out += 1;
                return Ok(());
            }
            let parent = self.parent(place)?;
            self.places.insert(place, PlaceTracks { parent, submitted: None, lanes: Vec::new() });
        }
        let mut about = about(work);
        let name = Some(("amd_log", name(work)));
        if let Some(slice) = slice
            && let Some(track) = self.lane(place, &slice)?
        {
            self.report.slices += 1;
            self.report.within_ns = self.report.within_ns.max(slice.within_ns);
            self.report.other_clock += u64::from(!slice.expected);
            about.insert("submitted_mono_us".to_owned(), work.at_us.into());
            about.insert("within_ns".to_owned(), slice.within_ns.into());
            let packets = &mut self.timeline.packets;
            packets.event(Kind::SliceBegin, track, slice.begin_ns, name, Some(&Value::Object(about)))?;
            return packets.event(Kind::SliceEnd, track, slice.end_ns, None, None);
        }
        if let Some(measured) = work.measured {
            self.report.unplaced_times += 1;
            about.insert("ran_ns".to_owned(), (measured.end_ns - measured.begin_ns).into());
        }
        let track = self.submitted(place)?;
        self.timeline.packets.event(Kind::Instant, track, at_ns, name, Some(&Value::Object(about)))
    }

    /// When it ran, CLOCK_MONOTONIC.
    fn slice(&mut self, work: &Work, measured: &Measured) -> Option<Slice> {
        let bounds = self.cursor.next(&self.plan.offsets, work, measured)?;
        let reported_ns = measured.at_us.saturating_mul(1000);
        let boot = self.timeline.known.boot_minus_mono_ns(reported_ns).and_then(i64::checked_neg);
        let expected = boot.filter(|_| measured.clock == WorkClock::Signal);
        let (offset, wrong_ns) = bounds.offset(expected);
        let at = |ns: i64| ns.checked_add(offset).and_then(|ns| u64::try_from(ns).ok());
        // By less than the unit of the lines.
        let begin_ns = at(measured.begin_ns)?.max(work.at_us.saturating_mul(1000));
        let end_ns = at(measured.end_ns)?.min(reported_ns.saturating_add(1000)).max(begin_ns);
        let within_ns = wrong_ns.saturating_add(measured.clock.rounding_ns().unsigned_abs());
        Some(Slice { begin_ns, end_ns, within_ns, expected: expected.is_none_or(|own| own == offset) })
    }

    /// `None`: it is of a process that was not requested.
    fn place(&mut self, work: &Work) -> Option<Place> {
        let packet = work.task.packet();
        let found =
            packet.map(|packet| self.timeline.known.find(place_of(work.process.pid, packet), work.at_us));
        let hwq = packet.map(|packet| packet.hwq);
        if let Some(Ok(queue)) = found {
            if let Some(process) = self.timeline.known.owner(queue)
                && let Some(owner) = self.plan.owners.get_mut(&work.process)
            {
                // A PID may be used again.
                *owner = process;
            }
            return self.timeline.known.shows_queue(queue).then_some(Place::Queue(queue));
        }
        let owner = self.plan.owners.get(&work.process).copied();
        let lives = |process: &usize| {
            let ended_ns = self.timeline.known.process(*process).and_then(|process| process.ended_ns);
            ended_ns.is_none_or(|ended| work.at_us.saturating_mul(1000) <= ended)
        };
        if let Some(process) = owner.filter(lives) {
            if !self.timeline.known.shows(process) {
                return None;
            }
            if let Some(Err(unknown)) = found {
                self.strangers.entry((work.process, unknown.why())).or_default()[1] += 1;
            }
            return Some(Place::Process(process, hwq));
        }
        let why = match found {
            Some(Err(unknown)) => unknown.why(),
            _ => "no queue of that PID is in the recording",
        };
        self.strangers.entry((work.process, why)).or_default()[0] += 1;
        Some(Place::Apart(work.process, hwq))
    }

    /// What the tracks of a place are below.
    fn parent(&mut self, place: Place) -> io::Result<Track> {
        let Timeline { packets, known, alone, .. } = &mut *self.timeline;
        let below = match place {
            Place::Queue(queue) => {
                return known.queue(queue).and_then(|queue| queue.track).ok_or_else(missing);
            }
            Place::Process(process, _) => {
                known.process(process).and_then(|process| process.track).ok_or_else(missing)?
            }
            Place::Apart(process, _) => match self.apart.get(&process) {
                Some(track) => *track,
                None => {
                    let named = self.correlator.sources().process(process);
                    let why = if *alone { "" } else { ": not joined" };
                    let name = format!("AMD log {}, {named}{why}", self.plan.name);
                    let track = packets.track(name, None, &TrackKind::Slices)?;
                    self.apart.insert(process, track);
                    track
                }
            },
        };
        let (Place::Process(_, Some(hwq)) | Place::Apart(_, Some(hwq))) = place else { return Ok(below) };
        packets.track(format!("AMD log: queue HWq {hwq:#x}"), Some(below), &TrackKind::Slices)
    }

    fn submitted(&mut self, place: Place) -> io::Result<Track> {
        let tracks = self.places.get_mut(&place).ok_or_else(missing)?;
        if let Some(track) = tracks.submitted {
            return Ok(track);
        }
        let what = if is_copies(place) { "AMD log: copies, submitted" } else { "AMD log: submitted" };
        let track = self.timeline.packets.track(what.to_owned(), Some(tracks.parent), &TrackKind::Slices)?;
        Ok(*tracks.submitted.insert(track))
    }

    /// The first track on which nothing else runs then; `None` if there are too many.
    fn lane(&mut self, place: Place, slice: &Slice) -> io::Result<Option<Track>> {
        let tracks = self.places.get_mut(&place).ok_or_else(missing)?;
        if let Some((track, end_ns)) = tracks.lanes.iter_mut().find(|(_, end_ns)| *end_ns <= slice.begin_ns) {
            *end_ns = slice.end_ns;
            return Ok(Some(*track));
        }
        if tracks.lanes.len() >= LANES {
            return Ok(None);
        }
        let what = if is_copies(place) { "AMD log: copies, running" } else { "AMD log: running" };
        let track = self.timeline.packets.track(what.to_owned(), Some(tracks.parent), &TrackKind::Slices)?;
        tracks.lanes.push((track, slice.end_ns));
        Ok(Some(track))
    }

    /// To be called after the last line: adds how the log was joined.
    pub fn finish(mut self) -> io::Result<LogReport> {
        self.correlator.finish(&mut self.works);
        self.take()?;
        let agreement = &self.plan.agreement;
        let (mut apart, mut beside) = (BTreeMap::new(), BTreeMap::new());
        let strangers = self.strangers.iter().filter(|_| !self.timeline.alone);
        for ((process, why), [on_own, on_others]) in strangers {
            let named = self.correlator.sources().process(*process);
            for (all, count) in [(&mut apart, on_own), (&mut beside, on_others)] {
                if *count > 0 {
                    *all.entry((named.clone(), *why)).or_default() += count;
                }
            }
        }
        let report = LogReport {
            alone: self.timeline.alone,
            apart,
            beside,
            without_time: self.correlator.without_time,
            gave_up: self.correlator.gave_up,
            nameless: self.correlator.nameless_kernels,
            threads_forgotten: self.correlator.threads_forgotten,
            lives_left_out: self.timeline.known.left_out,
            pids_left_out: self.plan.owners_left_out,
            outside: agreement.outside,
            queues: agreement.queues.len(),
            joined: agreement.lines,
            ahead_ns: agreement.ahead_ns,
            behind_ns: agreement.behind_ns,
            ..self.report
        };
        let about = json!({
            "log": self.plan.name,
            "clock": if report.alone { "CLOCK_MONOTONIC" } else { "CLOCK_MONOTONIC, as the recording; lines are cut to the microsecond" },
            "packets": report.packets,
            "copies": report.copies,
            "lines_within_lives_of_queues": report.joined,
            "lines_outside_lives_of_queues": report.outside,
            "queues": report.queues,
            "log_ahead_at_most_ns": report.ahead_ns,
            "log_behind_at_most_ns": report.behind_ns,
            "slices": report.slices,
            "slices_within_ns": (report.slices > 0).then_some(report.within_ns),
            "slices_of_another_clock": report.other_clock,
            "times_not_joined": report.unplaced_times,
            "not_joined": report.apart.values().sum::<u64>(),
            "on_other_queues_of_their_process": report.beside.values().sum::<u64>(),
            "not_requested": report.not_requested,
            "left_out": report.left_out,
            "lives_left_out": report.lives_left_out,
            "packets_of_pids_left_out": report.pids_left_out,
            "kernel_names_left_out": report.nameless,
            "threads_forgotten": report.threads_forgotten,
        });
        let packets = &mut self.timeline.packets;
        let track = packets.track("AMD logs".to_owned(), None, &TrackKind::Slices)?;
        let name = Some(("amd_log", self.plan.name.as_str()));
        packets.event(Kind::Instant, track, self.first_ns.unwrap_or(0), name, Some(&about))?;
        Ok(report)
    }
}

struct Slice {
    begin_ns: u64,
    end_ns: u64,
    within_ns: u64,
    /// By the clock that is expected, as far as that is known.
    expected: bool,
}

fn missing() -> io::Error {
    io::Error::other("a track is missing")
}

fn is_copies(place: Place) -> bool {
    matches!(place, Place::Process(_, None) | Place::Apart(_, None))
}

fn name(work: &Work) -> &str {
    if let (Some(kernel), Task::Packet(_)) = (&work.kernel, &work.task) {
        return kernel;
    }
    match &work.task {
        Task::Packet(packet) => kind(packet),
        Task::Copy { .. } => "copy",
        Task::Command { .. } | Task::Created { .. } => "command",
    }
}

fn kind(packet: &Packet) -> &'static str {
    match packet.kind {
        PacketKind::Dispatch => "dispatch",
        PacketKind::BarrierAnd => "barrier_and",
        PacketKind::BarrierOr => "barrier_or",
        PacketKind::BarrierValue => "barrier_value",
        PacketKind::Other => "packet",
    }
}

/// What the log has of it, without what its place in the trace shows.
fn about(work: &Work) -> Map<String, Value> {
    let mut about = Map::new();
    let mut put = |name: &str, value: Value| drop(about.insert(name.to_owned(), value));
    put("log_pid", work.process.pid.into());
    put("command", work.command.map(|kind| kind.name()).into());
    match &work.task {
        Task::Copy { engine, bytes } => {
            put("bytes", (*bytes).into());
            put("engine", engine.map(hex).into());
        }
        Task::Command { parts, .. } => put("parts", (*parts).into()),
        Task::Created { .. } => {}
        Task::Packet(packet) => {
            put("packet", kind(packet).into());
            put("log_id", packet.id.into());
            put("hwq", hex(packet.hwq).into());
            put("swq", packet.swq.map(hex).into());
            put("index", packet.pointers.map(|pointers| pointers.write).into());
            put("backlog", packet.pointers.map(PacketPointers::backlog).into());
            if let Some(shape) = packet.shape {
                let of = |three: [u64; 3]| three.map(|one| one.to_string()).join(" x ");
                put("grid", shape.grid.map(of).into());
                put("clusters", shape.clusters.map(of).into());
                put("workgroup", of(shape.workgroup).into());
            }
        }
    }
    about
}

fn hex(value: u64) -> String {
    format!("{value:#x}")
}
