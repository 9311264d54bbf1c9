//! What a recording had, for the join with logs: its processes and queues with their lives, and its clocks.
//!
//! A log's HWq is the address of the ring, its SWq that of the write pointer less 0x38 (see `amd_log/join.rs`). Both
//! count CLOCK_MONOTONIC: the line of a packet is written while KFD has the queue. The log's PID is that of the
//! process's own namespace.

use super::packets::Track;
use crate::amd_log::join::software_queue;
use crate::model::event::Body;
use crate::state::{Process, Queue};
use std::collections::HashMap;

/// Processes, queues and sleeps that are kept, requested or not; further ones are counted.
const MOST: usize = 65_536;

/// Times are nanoseconds of CLOCK_MONOTONIC.
#[derive(Debug, Default)]
pub(super) struct Known {
    processes: Vec<KnownProcess>,
    queues: Vec<KnownQueue>,
    /// Queues by each of their addresses.
    places: HashMap<u64, Vec<usize>>,
    /// When the last queue of a PID and a ring ended.
    ends: HashMap<(Option<u32>, Option<u64>), u64>,
    /// CLOCK_BOOTTIME minus CLOCK_MONOTONIC from these times on, oldest first.
    boot: Vec<(u64, i64)>,
    span: Option<(u64, u64)>,
    pub(super) left_out: u64,
}

#[derive(Debug)]
pub(super) struct KnownProcess {
    /// `None`: it was not requested.
    pub(super) track: Option<Track>,
    /// On the host.
    pub(super) pid: Option<u32>,
    /// In its own namespace.
    pub(super) ns_pid: Option<u32>,
    pub(super) ended_ns: Option<u64>,
}

#[derive(Debug)]
pub(super) struct KnownQueue {
    /// `None`: it was not requested.
    pub(super) track: Option<Track>,
    process: Option<usize>,
    ring: Option<u64>,
    write_pointer: Option<u64>,
    /// `None`: it was there before the recording.
    born: Option<Bound>,
    ended: Option<Bound>,
}

/// An end of a life.
#[derive(Clone, Copy, Debug)]
struct Bound {
    at_ns: u64,
    /// Else it is where a gap of the recording is: the queue may have been there before, or after.
    seen: bool,
}

impl Bound {
    fn seen_ns(bound: Option<Bound>) -> Option<u64> {
        bound.filter(|bound| bound.seen).map(|bound| bound.at_ns)
    }
}

/// Where a log's line puts a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct LogPlace {
    pub(super) pid: Option<u32>,
    pub(super) hwq: Option<u64>,
    pub(super) swq: Option<u64>,
}

/// Why a queue of a log is none of the recording's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Unknown {
    NotFound,
    PointerDiffers,
    OtherPid,
    OtherTime,
    Ambiguous,
}

impl Unknown {
    pub(super) fn why(self) -> &'static str {
        match self {
            Unknown::NotFound => "the recording has no queue of that address",
            Unknown::PointerDiffers => "the recording's queue of that ring has its write pointer elsewhere",
            Unknown::OtherPid => "the recording's queue of that address is of another PID",
            Unknown::OtherTime => "the recording's queue of that address lived at another time",
            Unknown::Ambiguous => "several queues of the recording have that address, and lived then",
        }
    }
}

impl KnownQueue {
    /// `row`: as it is now. `at_ns`: where its slice begins.
    pub(super) fn new(track: Option<Track>, row: Option<&Queue>, at_ns: u64) -> Self {
        let born_ns = row.map_or(Some(at_ns), |row| row.born_ns);
        let facts = row.map(|row| &row.facts);
        let ring = facts.and_then(|facts| facts.ring_address);
        let write_pointer = facts.and_then(|facts| facts.write_pointer_address);
        let born = born_ns.map(|at_ns| Bound { at_ns, seen: true });
        KnownQueue { track, process: None, ring, write_pointer, born, ended: None }
    }

    fn software(&self) -> Option<u64> {
        self.write_pointer.and_then(software_queue)
    }

    /// Within the microsecond of a line.
    fn lived(&self, at_us: u64) -> bool {
        let (first_ns, last_ns) =
            (at_us.saturating_mul(1000), at_us.saturating_mul(1000).saturating_add(999));
        self.born.is_none_or(|born| born.at_ns <= last_ns)
            && self.ended.is_none_or(|ended| first_ns <= ended.at_ns)
    }
}

impl Known {
    pub(super) fn covers(&mut self, now_ns: u64) {
        let (first, last) = self.span.unwrap_or((now_ns, now_ns));
        self.span = Some((first.min(now_ns), last.max(now_ns)));
    }

    /// First and last time of the recording.
    pub(super) fn span(&self) -> Option<(u64, u64)> {
        self.span
    }

    pub(super) fn boot(&mut self, mono_ns: u64, boot_minus_mono_ns: i64) {
        if self.boot.len() < MOST {
            self.boot.push((mono_ns, boot_minus_mono_ns));
        } else {
            self.left_out += 1;
        }
    }

    /// CLOCK_BOOTTIME minus CLOCK_MONOTONIC at that time.
    pub(super) fn boot_minus_mono_ns(&self, mono_ns: u64) -> Option<i64> {
        let until = self.boot.partition_point(|(from, _)| *from <= mono_ns);
        self.boot.get(until.saturating_sub(1)).map(|(_, offset)| *offset)
    }

    pub(super) fn add_process(&mut self, process: KnownProcess) -> Option<usize> {
        add(&mut self.processes, process, &mut self.left_out)
    }

    pub(super) fn process_is(&mut self, index: Option<usize>, row: Option<&Process>) {
        if let Some((process, row)) = index.and_then(|index| self.processes.get_mut(index)).zip(row) {
            process.pid = row.tgid.or(process.pid);
            process.ns_pid = row.ns_tgid.or(process.ns_pid);
        }
    }

    pub(super) fn process_ends(&mut self, index: Option<usize>, at_ns: u64) {
        if let Some(process) = index.and_then(|index| self.processes.get_mut(index)) {
            process.ended_ns = Some(at_ns);
        }
    }

    pub(super) fn add_queue(&mut self, process: Option<usize>, mut queue: KnownQueue) -> Option<usize> {
        // One that was known before a gap of the recording goes on where that began.
        let ended_ns = self.ends.get(&(self.pid(process), queue.ring)).copied();
        if let Some(at_ns) = ended_ns.filter(|_| queue.ring.is_some())
            && queue.born.is_none_or(|born| born.at_ns < at_ns)
        {
            queue.born = Some(Bound { at_ns, seen: false });
        }
        queue.process = process;
        add(&mut self.queues, queue, &mut self.left_out)
    }

    fn pid(&self, process: Option<usize>) -> Option<u32> {
        self.processes.get(process?)?.pid
    }

    pub(super) fn queue_is(&mut self, index: Option<usize>, row: Option<&Queue>) {
        if let Some(queue) = index.and_then(|index| self.queues.get_mut(index))
            && let Some(row) = row
        {
            let facts = &row.facts;
            queue.ring = facts.ring_address.or(queue.ring);
            queue.write_pointer = facts.write_pointer_address.or(queue.write_pointer);
        }
    }

    pub(super) fn queue_ends(&mut self, index: Option<usize>, at_ns: u64) {
        self.queue_until(index, Bound { at_ns, seen: true });
    }

    /// When it ended is not known: the recording has a gap.
    pub(super) fn queue_lost(&mut self, index: Option<usize>, at_ns: u64) {
        self.queue_until(index, Bound { at_ns, seen: false });
    }

    fn queue_until(&mut self, index: Option<usize>, ended: Bound) {
        let Some(queue) = index.and_then(|index| self.queues.get_mut(index)) else { return };
        queue.ended = Some(ended);
        let key = (queue.process, queue.ring);
        self.ends.insert((self.pid(key.0), key.1), ended.at_ns);
    }

    /// To be called when all is known, before the first search.
    pub(super) fn index(&mut self) {
        self.places.clear();
        for (index, queue) in self.queues.iter().enumerate() {
            for address in [queue.ring, queue.software()].into_iter().flatten() {
                self.places.entry(address).or_default().push(index);
            }
        }
    }

    /// Whether any queue has an address.
    pub(super) fn has_addresses(&self) -> bool {
        !self.places.is_empty()
    }

    pub(super) fn process(&self, index: usize) -> Option<&KnownProcess> {
        self.processes.get(index)
    }

    pub(super) fn queue(&self, index: usize) -> Option<&KnownQueue> {
        self.queues.get(index)
    }

    /// Whether the process was requested; its queues are shown as it is.
    pub(super) fn shows(&self, process: usize) -> bool {
        self.process(process).is_some_and(|process| process.track.is_some())
    }

    pub(super) fn shows_queue(&self, queue: usize) -> bool {
        self.queue(queue).is_some_and(|queue| queue.track.is_some())
    }

    pub(super) fn owner(&self, queue: usize) -> Option<usize> {
        self.queue(queue)?.process
    }

    /// The queue that a line of this time is of.
    pub(super) fn find(&self, place: LogPlace, at_us: u64) -> Result<usize, Unknown> {
        let LogPlace { pid, hwq, swq } = place;
        let there = hwq.or(swq).and_then(|address| self.places.get(&address)).into_iter().flatten();
        let mut left: Vec<usize> = there.copied().collect();
        let mut keep = |why: Unknown, fits: &dyn Fn(&KnownQueue) -> bool| {
            left.retain(|index| self.queue(*index).is_some_and(fits));
            if left.is_empty() { Err(why) } else { Ok(()) }
        };
        keep(Unknown::NotFound, &|queue| hwq.is_none() || queue.ring == hwq)?;
        let is_software = |software| Some(software) == swq;
        keep(Unknown::PointerDiffers, &|queue| swq.is_none() || queue.software().is_none_or(is_software))?;
        keep(Unknown::OtherPid, &|queue| pid.is_none() || self.may_be(queue, pid))?;
        keep(Unknown::OtherTime, &|queue| queue.lived(at_us))?;
        if let [index] = left[..] { Ok(index) } else { Err(Unknown::Ambiguous) }
    }

    /// When it was created, if that was seen.
    pub(super) fn born_ns(&self, queue: usize) -> Option<u64> {
        Bound::seen_ns(self.queue(queue)?.born)
    }

    fn may_be(&self, queue: &KnownQueue, pid: Option<u32>) -> bool {
        let own = queue.process.and_then(|index| self.processes.get(index)).and_then(|one| one.ns_pid);
        own.is_none() || own == pid
    }

    /// How much later than in truth the log's clock could be read, and how much earlier, before this line were
    /// outside the life of its queue; nanoseconds, `None` where that end of the life was not seen.
    pub(super) fn slack(&self, queue: usize, at_us: u64) -> (Option<u64>, Option<u64>) {
        let Some(queue) = self.queue(queue) else { return (None, None) };
        let at_ns = at_us.saturating_mul(1000);
        let since = Bound::seen_ns(queue.born).map(|born| at_ns.saturating_add(999).saturating_sub(born));
        (since, Bound::seen_ns(queue.ended).map(|ended| ended.saturating_sub(at_ns)))
    }
}

/// Id of a queue that exists from an event on.
pub(super) fn begun(body: &Body) -> Option<u32> {
    match body {
        Body::QueueCreate(facts) => facts.queue_id,
        Body::QueueDestroyFailed { queue_id, .. } => Some(*queue_id),
        _ => None,
    }
}

fn add<T>(all: &mut Vec<T>, one: T, left_out: &mut u64) -> Option<usize> {
    if all.len() >= MOST {
        *left_out += 1;
        return None;
    }
    all.push(one);
    Some(all.len() - 1)
}
