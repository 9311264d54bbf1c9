//! Calls of `kfd_ioctl` in progress: in the slots of their threads in mapped memory, and in a hash map for
//! threads without a slot. In: both. Out: rows; also frees slots ([`Leaving`]).

use super::lookup::{CLAIMS, IN_FLIGHT, Lookup};
use super::mapped::{Element, Mapped};
use super::reclaim::Leaving;
use crate::events::tables::InFlightRow;
use crate::model::event::ProcessId;
use crate::probes::error::LoadError;
use aya::Ebpf;
use kfd_trace_common::in_flight::{Caller, SUMS, Seat, Slot, busy};
use kfd_trace_common::stat::Sum;
use std::collections::{BTreeMap, BTreeSet};
use std::mem::offset_of;

pub(crate) struct CallerSlots {
    /// The array.
    mapped: Mapped,
    leaving: Leaving,
}

impl CallerSlots {
    pub(crate) fn new(ebpf: &Ebpf) -> Result<Self, LoadError> {
        Ok(CallerSlots { mapped: Mapped::new::<Seat>(ebpf, "SEATS")?, leaving: Leaving::default() })
    }

    /// All places for sums.
    pub(crate) fn sums(&self) -> impl Iterator<Item = Element<'_>> {
        self.mapped.elements::<Seat>().flat_map(|seat| seat.parts::<Sum>(offset_of!(Seat, sums), SUMS))
    }

    /// The calls, oldest first, and how many of them are in the hash map.
    pub(crate) fn in_flight(&self, lookup: &Lookup<'_>) -> Result<(Vec<InFlightRow>, usize), LoadError> {
        let crowd = lookup.entries(&IN_FLIGHT)?.into_iter().map(|(tid, slot)| (tid, row(tid, &slot)));
        let mut rows: BTreeMap<u32, InFlightRow> = crowd.collect();
        let crowded = rows.len();
        let seated =
            self.mapped.elements::<Seat>().filter_map(in_call).map(|Caller { thread, slot, .. }| {
                let (caller_tgid, tid) = ids(thread);
                (tid, row(tid, &Slot { caller_tgid, ..slot }))
            });
        rows.extend(seated);
        let mut rows: Vec<_> = rows.into_values().collect();
        rows.sort_by_key(|row| row.entered_ns);
        Ok((rows, crowded))
    }

    /// Number of threads that have a slot.
    pub(crate) fn taken(&self) -> usize {
        self.mapped.elements::<Seat>().filter(|seat| seat.owner().is_some()).count()
    }

    /// One round of freeing slots, one second after the previous one. `ended`: whether the thread of this
    /// tgid and tid has ended. Returns true if the programs' caches must be invalidated before the next
    /// round.
    pub(crate) fn tidy(
        &mut self,
        lookup: &Lookup<'_>,
        ended: impl Fn(u32, u32) -> bool,
    ) -> Result<bool, LoadError> {
        let seats: Vec<Element<'_>> = self.mapped.elements::<Seat>().collect();
        let round = self.leaving.round(&seats, |thread| {
            let (tgid, tid) = ids(thread);
            ended(tgid, tid)
        });
        for seat in round.claims {
            lookup.remove(&CLAIMS, seat)?;
        }
        Ok(round.suspects)
    }

    /// The next rounds free the slots of processes that have ended; all other data of their calls is removed.
    /// One of their threads may live on as another program: it takes a new slot at its next call.
    pub(crate) fn retire(
        &mut self,
        lookup: &Lookup<'_>,
        ended: &BTreeSet<ProcessId>,
    ) -> Result<(), LoadError> {
        for (seat, element) in (0u32..).zip(self.mapped.elements::<Seat>()) {
            self.leaving.retire(seat, element, |process| ended.contains(&ProcessId(process)));
        }
        for (tid, slot) in lookup.entries(&IN_FLIGHT)? {
            if ended.contains(&ProcessId(slot.process)) {
                lookup.remove(&IN_FLIGHT, tid)?;
            }
        }
        Ok(())
    }
}

/// A thread in a call. A slot that its thread writes during the read is read again.
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
    (caller.busy == busy::IN_CALL).then_some(caller)
}

fn row(tid: u32, slot: &Slot) -> InFlightRow {
    let Slot { entered_ns, process, cmd, tgid, caller_tgid, .. } = *slot;
    InFlightRow { process: ProcessId(process), tgid, caller_tgid, tid, cmd, entered_ns }
}

/// tgid and tid.
#[expect(clippy::cast_possible_truncation, reason = "the two halves, as bpf_get_current_pid_tgid makes them")]
fn ids(thread: u64) -> (u32, u32) {
    ((thread >> 32) as u32, thread as u32)
}
