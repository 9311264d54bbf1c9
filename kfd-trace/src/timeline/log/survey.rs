//! The first reading of a log. In: its lines. Out: a plan, or why nothing of it joins the recording.

use super::offsets::Offsets;
use crate::amd_log::Correlator;
use crate::amd_log::life::Birth;
use crate::amd_log::limits::PROCESSES;
use crate::amd_log::lines::LogLine;
use crate::amd_log::packet::{Packet, PacketKind};
use crate::amd_log::source::LogProcess;
use crate::amd_log::work::{Task, Work};
use crate::timeline::known::{Known, LogPlace, Unknown};
use crate::timeline::lives::Timeline;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::Write;

/// What the first reading learned.
#[derive(Debug, Default)]
pub struct LogPlan {
    pub(super) name: String,
    pub(super) offsets: Offsets,
    /// The processes of the recording that the log's processes are, by a queue of theirs: the first ones.
    pub(super) owners: HashMap<LogProcess, usize>,
    pub(super) agreement: Agreement,
    /// Packets of further PIDs.
    pub(super) owners_left_out: u64,
}

/// How well lines and lives of queues agree: what other difference of the clocks would still fit.
#[derive(Debug, Default)]
pub(super) struct Agreement {
    /// Packets within the life of their queue, lines of its creation, too, and those queues.
    pub(super) packets: u64,
    pub(super) lines: u64,
    /// Such lines that contradict it: outside the life of each queue that they could be of.
    pub(super) outside: u64,
    pub(super) queues: HashSet<usize>,
    /// If the log's clock were ahead, or behind, by more, a line were outside; nanoseconds, `None` where no such end of a
    /// life was seen.
    pub(super) ahead_ns: Option<u64>,
    pub(super) behind_ns: Option<u64>,
}

impl Agreement {
    fn take(&mut self, queue: usize, (ahead_ns, behind_ns): (Option<u64>, Option<u64>)) {
        self.lines += 1;
        self.queues.insert(queue);
        let least = |one: Option<u64>, other: Option<u64>| one.into_iter().chain(other).min();
        self.ahead_ns = least(self.ahead_ns, ahead_ns);
        self.behind_ns = least(self.behind_ns, behind_ns);
    }
}

/// Where a packet's line puts it.
pub(super) fn place_of(pid: Option<u32>, packet: &Packet) -> LogPlace {
    // A source bug of 5.x and 6.0: the HWq of these lines is the SWq.
    if packet.kind == PacketKind::BarrierValue && packet.swq.is_none() {
        return LogPlace { pid, hwq: None, swq: Some(packet.hwq) };
    }
    LogPlace { pid, hwq: Some(packet.hwq), swq: packet.swq }
}

/// The first reading.
pub struct Survey<'a> {
    known: &'a Known,
    /// There is no recording to join with.
    alone: bool,
    plan: LogPlan,
    correlator: Correlator,
    works: Vec<Work>,
    /// First and last time of work, microseconds.
    span: Option<(u64, u64)>,
    packets: u64,
    /// Packets of processes that were not requested.
    not_requested: u64,
    unknown: BTreeMap<Unknown, u64>,
}

impl<W: Write> Timeline<W> {
    /// Begins the first reading of a log. To be called after [`Timeline::settle`].
    #[must_use]
    pub fn survey(&self, name: String) -> Survey<'_> {
        let plan = LogPlan { name, ..LogPlan::default() };
        Survey {
            known: &self.known,
            alone: self.alone,
            plan,
            correlator: Correlator::default(),
            works: Vec::new(),
            span: None,
            packets: 0,
            not_requested: 0,
            unknown: BTreeMap::new(),
        }
    }
}

impl Survey<'_> {
    /// Takes the next line.
    pub fn line(&mut self, line: LogLine<'_>) {
        self.correlator.line(line, &mut self.works);
        self.take();
    }

    fn take(&mut self) {
        for work in std::mem::take(&mut self.works) {
            if let Some(measured) = &work.measured {
                self.plan.offsets.learn(&work, measured);
            }
            if let Task::Created { birth, after_us } = work.task {
                self.created(work.process.pid, work.at_us, birth, after_us);
                continue;
            }
            let (first, last) = self.span.unwrap_or((work.at_us, work.at_us));
            self.span = Some((first.min(work.at_us), last.max(work.at_us)));
            let Some(packet) = work.task.packet() else { continue };
            self.packets += 1;
            match self.known.find(place_of(work.process.pid, packet), work.at_us) {
                Ok(queue) => {
                    if self.known.shows_queue(queue) {
                        self.plan.agreement.packets += 1;
                    } else {
                        self.not_requested += 1;
                    }
                    self.plan.agreement.take(queue, self.known.slack(queue, work.at_us));
                    self.owner(work.process, queue);
                }
                Err(why) => {
                    self.plan.agreement.outside += u64::from(why == Unknown::OtherTime);
                    *self.unknown.entry(why).or_default() += 1;
                }
            }
        }
    }

    fn owner(&mut self, process: LogProcess, queue: usize) {
        let Some(owner) = self.known.owner(queue) else { return };
        if self.plan.owners.len() < PROCESSES || self.plan.owners.contains_key(&process) {
            self.plan.owners.entry(process).or_insert(owner);
        } else {
            self.plan.owners_left_out += 1;
        }
    }

    /// The queue was created between two lines of the log.
    fn created(&mut self, pid: Option<u32>, at_us: u64, birth: Birth, after_us: Option<u64>) {
        let place = LogPlace { pid, hwq: birth.hwq, swq: Some(birth.swq) };
        let queue = match self.known.find(place, at_us) {
            Ok(queue) => queue,
            Err(why) => {
                self.plan.agreement.outside += u64::from(why == Unknown::OtherTime);
                return;
            }
        };
        let (ahead_ns, behind_ns) = self.known.slack(queue, at_us);
        let after_ns = after_us.and_then(|us| us.checked_mul(1000));
        // Else there was another line of that thread between.
        let before =
            after_ns.zip(self.known.born_ns(queue)).and_then(|(after, born)| born.checked_sub(after));
        self.plan.agreement.take(queue, (ahead_ns, before.or(behind_ns)));
    }

    /// To be called after the last line.
    ///
    /// # Errors
    /// Why nothing of it can be placed: one line.
    pub fn finish(mut self) -> Result<LogPlan, String> {
        self.correlator.finish(&mut self.works);
        self.take();
        let Some((first, last)) = self.span else {
            return Err(
                "it has no packets with times; AMD_LOG_LEVEL=5 AMD_LOG_MASK=0x9019a writes them".to_owned()
            );
        };
        if self.alone || self.plan.agreement.packets > 0 {
            return Ok(self.plan);
        }
        if self.not_requested > 0 {
            return Err("what of it joins the recording is of processes that were not requested".to_owned());
        }
        let (from, until) = self.known.span().unwrap_or_default();
        let (from, until) = (from / 1000, until / 1000);
        if last < from || first > until {
            return Err(format!(
                "its packets are of {} to {} s after the machine's start, and the recording is of {} to {} s: it is of another \
                 time, boot or machine",
                seconds(first),
                seconds(last),
                seconds(from),
                seconds(until),
            ));
        }
        if self.packets == 0 {
            return Err("no packet of it names a queue: whose copies these are is not known".to_owned());
        }
        if !self.known.has_addresses() {
            return Err("the recording has no addresses of queues to join with".to_owned());
        }
        let most = self.unknown.iter().max_by_key(|(_, count)| **count);
        let why = most.map_or(Unknown::NotFound, |(why, _)| *why).why();
        Err(format!("none of its {} packets is of a queue of the recording: {why}", self.packets))
    }
}

/// Seconds with microseconds.
fn seconds(us: u64) -> String {
    format!("{}.{:06}", us / 1_000_000, us % 1_000_000)
}
