//! What several queues do together: sums of what `ps` shows of each.

use crate::model::event::QueueType;
use crate::model::pointers::Unit;
use crate::output::activity::{amount, per_second, unit};
use crate::state::{Measured, Queue};
use std::collections::BTreeMap;

/// A sum over queues, of which some may not be measured.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Sum<T> {
    /// `None`: none is measured.
    total: Option<T>,
    unmeasured: usize,
}

impl<T: Copy> Sum<T> {
    fn add(&mut self, value: Option<T>, plus: impl Fn(T, T) -> T) {
        match value {
            Some(value) => self.total = Some(self.total.map_or(value, |total| plus(total, value))),
            None => self.unmeasured += 1,
        }
    }

    /// `≥5` where some queues are not measured; `None` where none is.
    fn text(&self, format: impl Fn(T) -> String) -> Option<String> {
        let total = format(self.total?);
        Some(if self.unmeasured > 0 { format!("≥{total}") } else { total })
    }

    fn is_of_none(&self) -> bool {
        self.total.is_none() && self.unmeasured == 0
    }
}

/// Rate and backlog of the queues that count the same unit.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Work {
    /// Retired per second.
    rate: Sum<f64>,
    backlog: Sum<u64>,
}

/// Live queues, without those of the driver.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Load {
    packets: Work,
    ring_bytes: Work,
    pub(super) queues: usize,
    pub(super) stalled: usize,
    pub(super) suspended: usize,
    unmeasured: usize,
    /// Of the queue that was idle for the shortest time.
    idle_ns: Option<u64>,
    /// When one of them was last seen with something to do.
    busy_ns: Option<u64>,
}

impl Load {
    pub(super) fn of<'q>(queues: impl IntoIterator<Item = &'q Queue>) -> Self {
        let mut load = Load::default();
        queues.into_iter().for_each(|queue| load.add(queue));
        load
    }

    /// By gpu_id; queues of unknown GPU are left out.
    pub(super) fn by_gpu<'q>(queues: impl IntoIterator<Item = &'q Queue>) -> BTreeMap<u32, Self> {
        let mut loads: BTreeMap<u32, Load> = BTreeMap::new();
        for queue in queues {
            if let Some(gpu_id) = queue.facts.gpu_id {
                loads.entry(gpu_id).or_default().add(queue);
            }
        }
        loads
    }

    pub(super) fn add(&mut self, queue: &Queue) {
        if queue.facts.queue_type.is_some_and(QueueType::is_drivers_own) {
            return;
        }
        let now = queue.activity.now();
        let work = match counted(queue) {
            Unit::Packets => &mut self.packets,
            Unit::RingBytes => &mut self.ring_bytes,
        };
        work.rate.add(now.and_then(|now| now.rate).map(|rate| rate.retired), |a, b| a + b);
        work.backlog.add(now.map(|now| now.counts.backlog()), u64::saturating_add);
        self.queues += 1;
        self.stalled += usize::from(now.is_some_and(Measured::stalled));
        self.suspended += usize::from(queue.facts.suspended == Some(true));
        self.unmeasured += usize::from(now.is_none());
        let idle_ns = now.map(Measured::idle_ns);
        let busy_ns = now.map(|now| now.at_ns.saturating_sub(now.idle_ns()));
        self.busy_ns = self.busy_ns.max(busy_ns);
        self.idle_ns = match (self.idle_ns, idle_ns) {
            (Some(least), Some(idle_ns)) => Some(least.min(idle_ns)),
            (known, other) => known.or(other),
        };
    }

    /// AQL packets per second.
    pub(super) fn packets_per_second(&self) -> Option<f64> {
        self.packets.rate.total
    }

    pub(super) fn packets_rate(&self) -> Option<String> {
        self.packets.rate.text(|rate| per_second(Unit::Packets, rate))
    }

    /// Packets, or of queues that are all of SDMA bytes of commands, retired per second.
    pub(super) fn rate(&self) -> Option<String> {
        if self.packets.rate.is_of_none() {
            return self.sdma_rate();
        }
        self.packets.rate.text(|rate| per_second(Unit::Packets, rate))
    }

    /// Bytes of SDMA commands.
    pub(super) fn sdma_rate(&self) -> Option<String> {
        self.ring_bytes.rate.text(|rate| per_second(Unit::RingBytes, rate))
    }

    /// In the same unit as [`Load::rate`].
    pub(super) fn backlog(&self) -> Option<String> {
        if self.packets.backlog.is_of_none() {
            return self.ring_bytes.backlog.text(|backlog| amount(Unit::RingBytes, backlog));
        }
        self.packets.backlog.text(|backlog| amount(Unit::Packets, backlog))
    }

    pub(super) fn sdma_bytes_per_second(&self) -> Option<f64> {
        self.ring_bytes.rate.total
    }

    /// By which rows are sorted: packets first, then bytes.
    pub(super) fn rates(&self) -> Option<[f64; 2]> {
        both(self.packets.rate.total, self.ring_bytes.rate.total)
    }

    #[expect(clippy::cast_precision_loss, reason = "they are compared")]
    pub(super) fn backlogs(&self) -> Option<[f64; 2]> {
        let [packets, bytes] = [self.packets, self.ring_bytes].map(|work| work.backlog.total);
        both(packets.map(|count| count as f64), bytes.map(|count| count as f64))
    }

    /// Time since one of them had something to do, 0 if one has; `None` if that is not known.
    pub(super) fn idle_ns(&self) -> Option<u64> {
        self.idle_ns.filter(|idle_ns| *idle_ns == 0 || self.unmeasured == 0)
    }

    /// When one of those that are measured was last seen with something to do, CLOCK_MONOTONIC.
    pub(super) fn busy_ns(&self) -> Option<u64> {
        self.busy_ns
    }
}

fn both(packets: Option<f64>, bytes: Option<f64>) -> Option<[f64; 2]> {
    (packets.is_some() || bytes.is_some()).then(|| [packets, bytes].map(Option::unwrap_or_default))
}

/// What its pointers count, or would if they could be read.
fn counted(queue: &Queue) -> Unit {
    unit(&queue.facts).unwrap_or(match queue.facts.queue_type {
        Some(QueueType::Sdma | QueueType::SdmaXgmi | QueueType::SdmaByEngId) => Unit::RingBytes,
        _ => Unit::Packets,
    })
}
