//! Counts lines of hardware queues as they arrive. Which address is which queue is resolved at the end
//! (report.rs).

use super::capped::Capped;
use super::life::{Birth, LogStep};
use super::limits::{ADDRESSES, HOST_QUEUES_A_QUEUE, QUEUES, SHAPES};
use super::packet::{Packet, PacketKind, PacketPointers, Shape};
use super::source::LogProcess;

/// A queue as named by its packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    pub process: LogProcess,
    pub id: Option<u64>,
    pub hwq: u64,
    pub swq: Option<u64>,
}

/// First and last time, microseconds of CLOCK_MONOTONIC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span(pub Option<(u64, u64)>);

impl Span {
    #[inline]
    pub fn take(&mut self, time_us: Option<u64>) {
        let Some(time) = time_us else { return };
        self.0 = Some(match self.0 {
            None => (time, time),
            Some((first, last)) => (first.min(time), last.max(time)),
        });
    }

    pub fn merge(&mut self, other: Span) {
        if let Some((first, last)) = other.0 {
            self.take(Some(first));
            self.take(Some(last));
        }
    }
}

/// Packets of a queue.
#[derive(Clone, Debug, Default)]
pub struct Packets {
    pub dispatches: u64,
    pub barriers_and: u64,
    pub barriers_or: u64,
    pub barrier_values: u64,
    pub others: u64,
    pub span: Span,
    /// From packets whose line has `rptr` and `wptr`.
    pub backlog: Option<Backlog>,
    /// Number of the kernel that was named right before the last dispatch, and the time of the dispatch's line.
    pub last_kernel: Option<(u32, Option<u64>)>,
    /// Host queues whose command came right before a packet on the same thread.
    pub host_queues: Vec<u64>,
}

/// `rptr` and `wptr` of a queue over time.
#[derive(Clone, Copy, Debug)]
pub struct Backlog {
    pub packets: u64,
    pub sum: u128,
    pub most: u64,
    pub most_at_us: Option<u64>,
    pub first_write: u64,
    pub last: PacketPointers,
}

impl Backlog {
    fn take(old: Option<Backlog>, pointers: PacketPointers, time_us: Option<u64>) -> Backlog {
        let now = pointers.backlog();
        let begin = Backlog {
            packets: 0,
            sum: 0,
            most: now,
            most_at_us: time_us,
            first_write: pointers.write,
            last: pointers,
        };
        let mut all = old.unwrap_or(begin);
        all.packets += 1;
        all.sum += u128::from(now);
        all.last = pointers;
        if now > all.most {
            (all.most, all.most_at_us) = (now, time_us);
        }
        all
    }
}

/// Events at an address, which is an SWq or an HWq.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Steps {
    pub acquired: u64,
    pub selected: u64,
    pub released: u64,
    pub deleted: u64,
    pub cu_masks: u64,
    pub aborted: u64,
    /// Streams that hold the queue now, and the most that ever did.
    pub held: u64,
    pub most_held: u64,
    pub span: Span,
}

/// Streams that held queues at the same time, and how many queues those were, when they were most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Streams {
    pub most: u64,
    pub queues: u64,
}

/// Queue creations at the same addresses, with the properties of the latest.
#[derive(Clone, Copy, Debug, Default)]
pub struct Births {
    pub count: u64,
    pub latest: Option<Birth>,
    pub span: Span,
}

/// Queues of the whole log.
#[derive(Clone, Debug, Default)]
pub struct LogQueues {
    pub packets: Capped<Key, Packets, QUEUES>,
    pub shapes: Capped<(Key, Shape), u64, SHAPES>,
    /// By process, SWq and HWq.
    pub births: Capped<(LogProcess, u64, Option<u64>), Births, QUEUES>,
    pub steps: Capped<(LogProcess, u64), Steps, ADDRESSES>,
    /// Now.
    streams: Streams,
    /// `None` while no line of a stream that takes a queue was read.
    pub most_streams: Option<Streams>,
    /// Lines of 5.x and 6.0 whose `HWq` is the software queue.
    pub barrier_values_without_queue: u64,
}

impl LogQueues {
    pub fn packet(
        &mut self,
        process: LogProcess,
        time_us: Option<u64>,
        packet: &Packet,
        host_queue: Option<u64>,
        kernel: Option<(u32, Option<u64>)>,
    ) {
        if packet.kind == PacketKind::BarrierValue && packet.swq.is_none() {
            self.barrier_values_without_queue += 1;
            return;
        }
        let key = Key { process, id: packet.id, hwq: packet.hwq, swq: packet.swq };
        let Some(queue) = self.packets.at(key) else { return };
        *match packet.kind {
            PacketKind::Dispatch => &mut queue.dispatches,
            PacketKind::BarrierAnd => &mut queue.barriers_and,
            PacketKind::BarrierOr => &mut queue.barriers_or,
            PacketKind::BarrierValue => &mut queue.barrier_values,
            PacketKind::Other => &mut queue.others,
        } += 1;
        queue.span.take(time_us);
        if packet.shape.is_some() {
            queue.last_kernel = kernel;
        }
        if let Some(pointers) = packet.pointers {
            queue.backlog = Some(Backlog::take(queue.backlog, pointers, time_us));
        }
        if let Some(host) = host_queue
            && !queue.host_queues.contains(&host)
            && queue.host_queues.len() < HOST_QUEUES_A_QUEUE
        {
            queue.host_queues.push(host);
        }
        if let Some(count) = packet.shape.and_then(|shape| self.shapes.at((key, shape))) {
            *count += 1;
        }
    }

    pub fn birth(&mut self, process: LogProcess, time_us: Option<u64>, birth: Birth) {
        if let Some(births) = self.births.at((process, birth.swq, birth.hwq)) {
            births.count += 1;
            births.latest = Some(birth);
            births.span.take(time_us);
        }
    }

    /// `references`: streams that then hold the queue, if the line has their number.
    pub fn step(
        &mut self,
        process: LogProcess,
        time_us: Option<u64>,
        address: u64,
        step: LogStep,
        references: Option<u64>,
    ) {
        let Some(steps) = self.steps.at((process, address)) else { return };
        *match step {
            LogStep::Acquired => &mut steps.acquired,
            LogStep::Selected => &mut steps.selected,
            LogStep::Released => &mut steps.released,
            LogStep::Deleted => &mut steps.deleted,
            LogStep::CuMask => &mut steps.cu_masks,
        } += 1;
        steps.span.take(time_us);
        let before = steps.held;
        let now = match step {
            LogStep::CuMask => return,
            LogStep::Deleted => 0,
            LogStep::Acquired | LogStep::Selected => references.unwrap_or(before.saturating_add(1)),
            LogStep::Released => references.unwrap_or(before.saturating_sub(1)),
        };
        steps.held = now;
        steps.most_held = steps.most_held.max(now);
        let streams = &mut self.streams;
        streams.most = streams.most.saturating_sub(before).saturating_add(now);
        streams.queues = streams.queues - u64::from(before > 0) + u64::from(now > 0);
        let takes = matches!(step, LogStep::Acquired | LogStep::Selected);
        if takes && self.most_streams.is_none_or(|most| most.most < streams.most) {
            self.most_streams = Some(*streams);
        }
    }

    pub fn abort(&mut self, process: LogProcess, time_us: Option<u64>, address: u64) {
        if let Some(steps) = self.steps.at((process, address)) {
            steps.aborted += 1;
            steps.span.take(time_us);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: u32) -> LogProcess {
        LogProcess { pid: Some(pid), ..LogProcess::default() }
    }

    #[test]
    fn streams_that_share_queues_are_counted_when_they_are_most() {
        let mut queues = LogQueues::default();
        let mut step = |pid, address, step, references| {
            queues.step(process(pid), None, address, step, references);
            queues.most_streams
        };
        assert_eq!(step(7, 0x10, LogStep::CuMask, None), None);
        for (address, what, references) in [
            (0x10, LogStep::Acquired, 1),
            (0x20, LogStep::Acquired, 1),
            (0x10, LogStep::Selected, 2),
            (0x20, LogStep::Released, 0),
        ] {
            step(7, address, what, Some(references));
        }
        let most = step(8, 0x10, LogStep::Acquired, None);
        assert_eq!(most, Some(Streams { most: 3, queues: 2 }), "of another process, and no more than before");
        let most = step(7, 0x10, LogStep::Selected, Some(3));
        assert_eq!(most, Some(Streams { most: 4, queues: 2 }));
        step(7, 0x10, LogStep::Deleted, None);
        let most = step(7, 0x20, LogStep::Acquired, Some(4));
        assert_eq!(most, Some(Streams { most: 5, queues: 2 }), "one was deleted");
        let mut held =
            |address| queues.steps.at((process(7), address)).map(|steps| (steps.held, steps.most_held));
        assert_eq!((held(0x10), held(0x20)), (Some((0, 3)), Some((4, 4))));
    }

    #[test]
    fn a_line_of_an_address_without_room_is_left_out_once() {
        let mut queues = LogQueues::default();
        let addresses = u64::try_from(ADDRESSES).unwrap();
        for address in 0..=addresses {
            queues.step(LogProcess::default(), None, address, LogStep::Acquired, Some(1));
        }
        assert_eq!(queues.steps.left_out(), 1);
        assert_eq!(queues.most_streams, Some(Streams { most: addresses, queues: addresses }));
    }
}
