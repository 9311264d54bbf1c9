//! What a report consists of: GPUs, queues, and the slots of each. Plain data.

use super::hqds::Place;
use super::mqds::MqdKind;
use super::progress::{Pointers, Unit};
use super::rows::Strange;
use std::time::Duration;

/// Whether the hardware has the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// On so many XCCs of all of them; the dump of slots has none of `unread` ones.
    Active { on: usize, of: usize, unread: usize },
    /// A slot still has it, and is not active.
    Stale,
    /// No slot has it.
    NotMapped,
    /// No slot that was read has it, and not all were read; or several have its ring; or its MQD's layout is not known.
    Unknown,
    /// No slots were read: `active` is what was last saved to memory, which may be long ago.
    Saved { active: bool },
    /// The dump is too short, or its rows do not follow each other.
    Damaged,
}

/// A slot that has a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Slot {
    /// XCC, by the driver's number.
    pub inst: u32,
    pub place: Place,
    pub active: bool,
    /// CP_HQD_ERROR; `None`: an SDMA slot has none.
    pub error: Option<u32>,
    /// CP_HQD_DEQUEUE_REQUEST; `None`: an SDMA slot has none.
    pub dequeue_request: Option<u32>,
}

/// A slot with an error or a dequeue request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    pub gpu_id: u32,
    pub slot: Slot,
    pub ring: u64,
    /// `None`: no MQD has that slot's queue.
    pub pid: Option<u32>,
}

/// One queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueRow {
    /// `None`: what is in the slots is in no MQD.
    pub pid: Option<u32>,
    pub gpu_id: u32,
    /// `None`: the kernel's own queue to its scheduler.
    pub kind: Option<MqdKind>,
    pub state: State,
    pub ring: Option<u64>,
    pub ring_bytes: Option<u64>,
    /// XCCs by its MQDs.
    pub xccs: usize,
    pub slots: Vec<Slot>,
    /// `None`: it is on no hardware, or on several with different ones.
    pub vmid: Option<u32>,
    /// In the order of the XCCs.
    pub pointers: Vec<Pointers>,
    /// What the queue's backlog is counted in. `None`: its MQD is damaged.
    pub unit: Option<Unit>,
    /// Whether the hardware read more of the ring between two samples; `None`: not known, or one sample.
    pub moved: Option<bool>,
    pub pipe_priority: Option<u32>,
    pub queue_priority: Option<u32>,
    pub doorbell_offset: Option<u32>,
    /// CUs of each XCC, by shader engine; empty without a generation.
    pub cu_masks: Vec<Vec<u32>>,
    /// SDMA: the driver's numbers.
    pub engine: Option<(u32, u32)>,
    /// Addresses of its MQDs.
    pub mqds: Vec<u64>,
}

impl QueueRow {
    /// A queue of which only the header is known.
    pub(super) fn bare(pid: Option<u32>, gpu_id: u32, kind: Option<MqdKind>) -> QueueRow {
        QueueRow {
            pid,
            gpu_id,
            kind,
            state: State::Damaged,
            ring: None,
            ring_bytes: None,
            xccs: 0,
            slots: vec![],
            vmid: None,
            pointers: vec![],
            unit: None,
            moved: None,
            pipe_priority: None,
            queue_priority: None,
            doorbell_offset: None,
            cu_masks: vec![],
            engine: None,
            mqds: vec![],
        }
    }

    /// Not read yet, by XCC, in the queue's unit. `None`: not known for at least one XCC.
    #[must_use]
    pub fn unread(&self) -> Option<Vec<u64>> {
        let unit = self.unit?;
        let each = self.pointers.iter().map(|pointers| Some(unit.count(pointers.unread?)));
        each.collect::<Option<Vec<u64>>>().filter(|all| !all.is_empty())
    }

    pub(super) fn active_slots(&self) -> usize {
        self.slots.iter().filter(|slot| slot.active).count()
    }

    /// Dwords of a compute queue, bytes of an SDMA queue; the XCCs have the same one but for the moment of reading.
    pub(super) fn wptr(&self) -> Option<u64> {
        self.pointers.iter().map(|pointers| pointers.wptr).max()
    }
}

/// One GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gpu {
    pub gpu_id: u32,
    pub stopped: bool,
    pub compute_queues: usize,
    pub sdma_queues: usize,
    /// XCCs, slots of compute queues on each, and active ones without the kernel's own; `None`: no such slots were read.
    pub xccs: Option<usize>,
    pub slots_each: Option<usize>,
    pub active_hqds: Option<usize>,
    /// Active slots of SDMA engines; `None`: no such slots were read.
    pub active_sdma: Option<usize>,
    /// Slots of compute queues, or of SDMA queues, are missing in the dump.
    pub compute_missing: bool,
    pub sdma_missing: bool,
}

/// The result.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HwReport {
    pub gpus: Vec<Gpu>,
    pub queues: Vec<QueueRow>,
    pub faults: Vec<Fault>,
    /// Processes without a queue.
    pub idle_processes: Vec<u32>,
    /// Queues whose type the driver does not know.
    pub unknown_queues: usize,
    /// Time between two samples; `None`: one sample.
    pub interval: Option<Duration>,
    pub mqds: Option<Source>,
    pub hqds: Option<Source>,
}

/// One of the two dumps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Source {
    pub strange: Strange,
    /// One line each: in which way the dump is not whole.
    pub missing: Vec<String>,
}
