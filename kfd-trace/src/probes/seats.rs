//! Calls of `kfd_ioctl` that are under way: in the seats of their threads, in mapped memory, and of threads without a seat in a
//! hash map. Takes in both; gives out rows, and frees the seats of ended processes.

use super::load::LoadError;
use super::mapped::{Element, Mapped};
use super::maps;
use crate::events::event::ProcessId;
use crate::events::tables::InFlightRow;
use aya::Ebpf;
use aya::maps::HashMap;
use kfd_trace_common::in_flight::{Caller, SUMS, Seat, Slot};
use kfd_trace_common::stat::Sum;
use std::collections::{BTreeMap, BTreeSet};
use std::mem::offset_of;

const CALLS: &str = "IN_FLIGHT";
const CLAIMS: &str = "CLAIMS";

/// The mapped array.
pub(super) struct Seats(Mapped);

impl Seats {
    pub(super) fn new(ebpf: &Ebpf) -> Result<Self, LoadError> {
        Ok(Seats(Mapped::new::<Seat>(ebpf, "SEATS")?))
    }

    /// All places for sums.
    pub(super) fn sums(&self) -> impl Iterator<Item = Element<'_>> {
        self.0.elements::<Seat>().flat_map(|seat| seat.parts::<Sum>(offset_of!(Seat, sums), SUMS))
    }

    /// The calls, the oldest first, and how many of them the hash map holds.
    pub(super) fn in_flight(&self, ebpf: &Ebpf) -> Result<(Vec<InFlightRow>, usize), LoadError> {
        let map: HashMap<_, u32, Slot> = maps::find(ebpf, CALLS)?.try_into().map_err(maps::error(CALLS))?;
        let mut rows = BTreeMap::new();
        for entry in map.iter().take(maps::WALK_MAX) {
            let (tid, slot) = entry.map_err(maps::error(CALLS))?;
            rows.insert(tid, row(tid, &slot));
        }
        let crowded = rows.len();
        let seated = self.0.elements::<Seat>().filter_map(in_call).map(|caller| {
            let tid = tid(caller.thread);
            (tid, row(tid, &caller.slot))
        });
        rows.extend(seated);
        let mut rows: Vec<_> = rows.into_values().collect();
        rows.sort_by_key(|row| row.entered_ns);
        Ok((rows, crowded))
    }

    /// Frees the seats of processes that have ended. One of their threads may live on as another program: it takes a seat
    /// anew when it calls again.
    pub(super) fn retire(&self, ebpf: &mut Ebpf, ended: &BTreeSet<ProcessId>) -> Result<(), LoadError> {
        let map = ebpf.map_mut(CLAIMS).ok_or(LoadError::NoMap(CLAIMS))?;
        let mut claims: HashMap<_, u32, u64> = map.try_into().map_err(maps::error(CLAIMS))?;
        for (index, seat) in (0u32..).zip(self.0.elements::<Seat>()) {
            let Some(thread) = seat.owner() else { continue };
            let Caller { slot, .. } = seat.copy();
            // The claim goes last: before that nobody takes the seat.
            if ended.contains(&ProcessId(slot.process)) && seat.let_go(thread) {
                maps::absent_is_fine(claims.remove(&index)).map_err(maps::error(CLAIMS))?;
            }
        }
        maps::drop_rows!(ebpf, CALLS, HashMap<_, u32, Slot>, |(_, slot)| {
            ended.contains(&ProcessId(slot.process))
        });
        Ok(())
    }
}

/// A thread in a call. A seat that its thread writes while it is read is read again.
fn in_call(seat: Element<'_>) -> Option<Caller> {
    seat.owner()?;
    let mut caller: Caller = seat.copy();
    for _ in 0..3 {
        let again: Caller = seat.copy();
        if again == caller {
            break;
        }
        caller = again;
    }
    (caller.busy != 0).then_some(caller)
}

fn row(tid: u32, slot: &Slot) -> InFlightRow {
    let Slot { entered_ns, process, cmd, tgid, .. } = *slot;
    InFlightRow { process: ProcessId(process), tgid, tid, cmd, entered_ns }
}

#[expect(clippy::cast_possible_truncation, reason = "the lower half, as bpf_get_current_pid_tgid makes it")]
fn tid(thread: u64) -> u32 {
    thread as u32
}
