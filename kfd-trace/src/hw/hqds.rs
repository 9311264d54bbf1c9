//! debugfs `kfd/hqds` (kfd_device_queue_manager.c, dqm_debugfs_hqds): the registers of each slot of each GPU. Slots change
//! while it is read: it is no snapshot.

use super::rows::{Strange, after, cut_line, hex, number, row};

/// Registers of one slot at most.
const LONGEST: usize = 128;

/// Where a hardware queue is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// The kernel's own queue to the scheduler.
    Hiq {
        mec: u32,
        pipe: u32,
        queue: u32,
    },
    Cp {
        pipe: u32,
        queue: u32,
    },
    Sdma {
        engine: u32,
        rlc: u32,
    },
}

/// A slot and its registers, in the order of the dump.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hqd {
    pub gpu_id: u32,
    /// Number of the XCC in its GPU node; 0 if the driver names none.
    pub inst: u32,
    pub place: Place,
    pub registers: Vec<u32>,
}

/// The file, in its order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HqdFile {
    /// GPUs, each with whether its driver has stopped it: then it has no slots here.
    pub gpus: Vec<(u32, bool)>,
    pub slots: Vec<Hqd>,
    /// The text ends within a line: the driver ends each one, so the copy was cut off, or its last newline was lost.
    pub in_line: bool,
    pub strange: Strange,
}

/// `Node 2, gpu_id f7bc:`
fn node(line: &str) -> Option<u32> {
    let (node, gpu_id) = after(line, "Node ")?.split_once(", gpu_id ")?;
    number(node)?;
    hex(gpu_id.strip_suffix(':')?)
}

/// `Inst 0, HIQ on MEC 2 Pipe 0 Queue 0`, `Inst 0,  CP Pipe 0, Queue 2`, `SDMA Engine 0, RLC 1`; without `Inst` up to 6.1.
fn slot(line: &str) -> Option<(u32, Place)> {
    let (inst, rest) = match after(line, "Inst ") {
        Some(rest) => {
            let (inst, rest) = rest.split_once(',')?;
            (number(inst)?, rest.trim())
        }
        None => (0, line.trim()),
    };
    let two = |rest: &str, between: &str| {
        let (first, second) = rest.split_once(between)?;
        Some((number(first)?, number(second)?))
    };
    if let Some(rest) = rest.strip_prefix("CP Pipe ") {
        let (pipe, queue) = two(rest, ", Queue ")?;
        return Some((inst, Place::Cp { pipe, queue }));
    }
    if let Some(rest) = rest.strip_prefix("SDMA Engine ") {
        let (engine, rlc) = two(rest, ", RLC ")?;
        return Some((inst, Place::Sdma { engine, rlc }));
    }
    let (mec, rest) = rest.strip_prefix("HIQ on MEC ")?.split_once(" Pipe ")?;
    let (pipe, queue) = two(rest, " Queue ")?;
    Some((inst, Place::Hiq { mec: number(mec)?, pipe, queue }))
}

impl HqdFile {
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let cut = cut_line(text);
        let mut file = HqdFile { in_line: cut.is_some(), ..HqdFile::default() };
        let mut open = false;
        for (number, line) in (1..).zip(text.lines()) {
            if let Some(row) = row(line) {
                let slot = file.slots.last_mut().filter(|_| open);
                match slot.filter(|slot| slot.registers.len() + row.dwords.len() <= LONGEST) {
                    Some(slot) => slot.registers.extend(row.dwords),
                    None => file.strange.add(number, line),
                }
            } else if let Some(gpu_id) = node(line) {
                open = false;
                file.gpus.push((gpu_id, false));
            } else if let (Some((inst, place)), Some((gpu_id, _))) = (slot(line), file.gpus.last()) {
                open = true;
                file.slots.push(Hqd { gpu_id: *gpu_id, inst, place, registers: vec![] });
            } else if let (Some(""), Some((_, stopped))) =
                (after(line, "Device is stopped"), file.gpus.last_mut())
            {
                *stopped = true;
            } else if !line.trim().is_empty() && cut != Some(number) {
                file.strange.add(number, line);
            }
        }
        file
    }
}
