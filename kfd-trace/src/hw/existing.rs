//! User queues of processes, as sysfs lists them and as the dump of MQDs has them.
//!
//! In: sysfs before and after the dump, and the dump. Out: what the MQD of a queue states, by process and queue id. The
//! dump has no ids; a process's queues are in the order of their creation there, the newest first
//! (pqm_create_queue, `list_add`), and so are the inode numbers of their folders in sysfs, whatever ids were reused.
//! If anything of a process contradicts that, nothing of it is taken. Pure.

use super::layout::{Generation, Registers, SdmaAddresses, SdmaRegisters, sdma_place};
use super::mqds::{MqdFile, MqdKind, MqdProcess, MqdQueue};
use crate::attribute::{SysfsProcess, SysfsQueue};
use crate::model::event::{Origin, QueueFacts, QueueType};
use crate::model::inventory::Listed;
use crate::model::queue::priority_level;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// `KFD_QUEUE_TYPE_COMPUTE` of every driver; all other user queues are SDMA queues.
const COMPUTE: u32 = 0;

/// What sysfs lists at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    pub processes: Vec<SysfsProcess>,
    /// By PID and queue id: of two queues the later one has the larger number.
    pub births: BTreeMap<(u32, u32), u64>,
}

impl Listing {
    /// The only process of a PID: further contexts (7.2) cannot be distinguished in the dump.
    fn only(&self, tgid: u32) -> Option<&SysfsProcess> {
        only(self.processes.iter().filter(|process| process.tgid == tgid))
    }

    /// The queues of a process, the newest first.
    fn newest_first<'a>(&self, process: &'a SysfsProcess) -> Option<Vec<(u64, &'a SysfsQueue)>> {
        let born = |queue: &'a SysfsQueue| Some((*self.births.get(&(process.tgid, queue.queue_id))?, queue));
        let mut queues: Vec<_> = process.queues.iter().map(born).collect::<Option<_>>()?;
        queues.sort_by_key(|(birth, _)| Reverse(*birth));
        Some(queues)
    }
}

fn only<T>(mut all: impl Iterator<Item = T>) -> Option<T> {
    let first = all.next()?;
    all.next().is_none().then_some(first)
}

/// The processes that the dump has, each with those of its queues that are known from it; `generation`: of a GPU, if
/// its layout is known.
///
/// # Errors
/// One line: the dump has something that is not understood.
pub fn existing(
    before: &Listing,
    dump: &MqdFile,
    after: &Listing,
    generation: impl Fn(u32) -> Option<Generation>,
) -> Result<Vec<Listed>, String> {
    if let Some((number, line)) = dump.strange.first.first_key_value() {
        return Err(format!("line {number} of the dump of MQDs is not understood: {line}"));
    }
    let process = |process: &SysfsProcess| {
        let dumped = only(dump.processes.iter().filter(|dumped| dumped.tgid == process.tgid))?;
        before.only(process.tgid).filter(|process| process.context_id.is_none())?;
        let queues = joined(before, dumped, dump, after, &generation);
        Some(Listed { tgid: process.tgid, queues: queues.unwrap_or_default(), ..Listed::default() })
    };
    Ok(before.processes.iter().filter_map(process).collect())
}

/// `None`: it is not certain which queue is which.
fn joined(
    before: &Listing,
    dumped: &MqdProcess,
    dump: &MqdFile,
    after: &Listing,
    generation: &impl Fn(u32) -> Option<Generation>,
) -> Option<Vec<QueueFacts>> {
    let listed = before.newest_first(before.only(dumped.tgid)?)?;
    // Created, destroyed or updated meanwhile; a queue in the place of another one has its own folder.
    if after.newest_first(after.only(dumped.tgid)?)? != listed || listed.len() != dumped.user_queues.len() {
        return None;
    }
    let mut queues = Vec::new();
    for ((_, listed), place) in listed.into_iter().zip(&dumped.user_queues) {
        let mqd = place.map(|place| &dump.queues[place]);
        let stated = mqd.and_then(|mqd| stated(mqd, generation(mqd.gpu_id)?));
        if !agrees(listed, mqd, stated.as_ref()) {
            return None;
        }
        // A queue whose ring was taken away by UPDATE_QUEUE has none.
        if let Some(stated) = stated.filter(|_| listed.size != Some(0)) {
            queues.push(QueueFacts { queue_id: Some(listed.queue_id), ..stated });
        }
    }
    Some(queues)
}

/// Whether a queue of sysfs can be the one at its place of the dump: what both have is the same.
fn agrees(listed: &SysfsQueue, mqd: Option<&MqdQueue>, stated: Option<&QueueFacts>) -> bool {
    let compute = mqd.is_some_and(|mqd| mqd.kind == MqdKind::Compute);
    let same_kind = listed.queue_type_raw.is_none_or(|raw| (raw == COMPUTE) == compute);
    let same_gpu = match (listed.gpu_id, mqd) {
        (Some(gpu_id), Some(mqd)) => gpu_id == mqd.gpu_id,
        _ => true,
    };
    let same_size = match (listed.size, stated) {
        (None | Some(0), _) | (_, None) => true,
        (size, Some(stated)) => size == stated.ring_size,
    };
    same_kind && same_gpu && same_size
}

/// What the MQD of a user queue states with certainty. Whether it is active is not: that is as it was saved last.
fn stated(mqd: &MqdQueue, generation: Generation) -> Option<QueueFacts> {
    if mqd.damaged {
        return None;
    }
    let facts = match mqd.kind {
        MqdKind::Compute => {
            // Every XCC has the same facts, or something else was read.
            let all: Option<Vec<QueueFacts>> =
                mqd.dumps.iter().map(|dump| Some(compute(&Registers::of_mqd(dump)?))).collect();
            let all = all?;
            all.first().filter(|first| all.iter().all(|facts| facts == *first)).cloned()?
        }
        MqdKind::Sdma => sdma(mqd.dumps.first()?, generation)?,
        MqdKind::Diq => return None,
    };
    Some(QueueFacts { gpu_id: Some(mqd.gpu_id), ..facts })
}

fn compute(registers: &Registers) -> QueueFacts {
    // Later drivers write the level alone, and leave 0 for the number.
    let level = |level: u32| ["low", "normal", "high"].get(level as usize).copied();
    let priority = Some(registers.queue_priority).filter(|number| {
        *number != 0 && priority_level(*number).is_some_and(|own| level(registers.pipe_priority) == Some(own))
    });
    QueueFacts {
        queue_type: registers.aql.then_some(QueueType::ComputeAql),
        ring_address: Some(registers.ring),
        ring_size: registers.ring_bytes,
        write_pointer_address: Some(registers.wptr_address),
        read_pointer_address: Some(registers.rptr_address),
        doorbell_offset: Some(registers.doorbell),
        priority,
        ..QueueFacts::unknown(Origin::Standing)
    }
}

fn sdma(dump: &[u32], generation: Generation) -> Option<QueueFacts> {
    let (registers, addresses) = (SdmaRegisters::of(dump)?, SdmaAddresses::of(dump, generation)?);
    Some(QueueFacts {
        ring_address: Some(registers.ring),
        ring_size: Some(registers.ring_bytes),
        write_pointer_address: addresses.wptr_address,
        read_pointer_address: Some(addresses.rptr_address),
        doorbell_offset: Some(addresses.doorbell),
        sdma_engine_id: sdma_place(dump).map(|(engine, _)| engine),
        ..QueueFacts::unknown(Origin::Standing)
    })
}
