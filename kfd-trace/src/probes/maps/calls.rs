//! Calls of `kfd_ioctl` in progress: in the slots of their threads in mapped memory, and in a hash map for
//! threads without a slot. In: both. Out: rows; also frees slots ([`Leaving`]).

use super::lookup::{CLAIMS, IN_FLIGHT, Lookup};
use super::mapped::{Element, Parted};
use super::reclaim::Leaving;
use crate::events::tables::InFlightRow;
use crate::model::event::ProcessId;
use crate::probes::error::LoadError;
use aya::Ebpf;
use kfd_trace_common::in_flight::{Caller, CallerSlot, OpenCall, SUMS, busy};
use kfd_trace_common::limits::CALLER_SLOTS_PART;
use kfd_trace_common::stat::Sum;
use std::collections::{BTreeMap, BTreeSet};
use std::mem::offset_of;

pub(crate) struct CallerSlots {
    array: Parted,
    leaving: Leaving,
}

impl CallerSlots {
    pub(crate) fn new(ebpf: &Ebpf) -> Result<Self, LoadError> {
        Ok(CallerSlots {
            array: Parted::new::<CallerSlot>(ebpf, "CALLER_SLOTS", "SLOTS_TAKEN", CALLER_SLOTS_PART)?,
            leaving: Leaving::default(),
        })
    }

    /// All places for sums.
    pub(crate) fn sums(&self) -> Result<impl Iterator<Item = Element<'_>>, LoadError> {
        Ok(self.array.elements::<CallerSlot>()?.into_iter().flat_map(sums))
    }

    /// As far as they can be read.
    pub(crate) fn sums_at_hand(&self) -> impl Iterator<Item = Element<'_>> {
        self.array.at_hand::<CallerSlot>().into_iter().flat_map(sums)
    }

    /// The calls that have not returned, oldest first, and how many of them are in the hash map.
    pub(crate) fn open_calls(&self, lookup: &Lookup<'_>) -> Result<(Vec<InFlightRow>, usize), LoadError> {
        let crowd = lookup.entries(&IN_FLIGHT)?.into_iter().map(|(tid, call)| (tid, row(tid, &call)));
        let mut rows: BTreeMap<u32, InFlightRow> = crowd.collect();
        let crowded = rows.len();
        let slots = self.array.elements::<CallerSlot>()?;
        let holders =
            slots.into_iter().filter_map(|(_, slot)| in_call(slot)).map(|Caller { thread, call, .. }| {
                let (caller_tgid, tid) = ids(thread);
                (tid, row(tid, &OpenCall { caller_tgid, ..call }))
            });
        rows.extend(holders);
        let mut rows: Vec<_> = rows.into_values().collect();
        rows.sort_by_key(|row| row.entered_ns);
        Ok((rows, crowded))
    }

    /// Number of threads that have a slot.
    pub(crate) fn taken(&self) -> Result<usize, LoadError> {
        let slots = self.array.elements::<CallerSlot>()?;
        Ok(slots.into_iter().filter(|(_, slot)| slot.owner().is_some()).count())
    }

    /// One round of freeing slots, one second after the previous one. `ended`: whether the thread of this
    /// tgid and tid has ended. Returns true if the programs' caches must be invalidated before the next
    /// round.
    pub(crate) fn tidy(
        &mut self,
        lookup: &Lookup<'_>,
        ended: impl Fn(u32, u32) -> bool,
    ) -> Result<bool, LoadError> {
        let slots = self.array.elements::<CallerSlot>()?;
        let round = self.leaving.round(&slots, |thread| {
            let (tgid, tid) = ids(thread);
            ended(tgid, tid)
        });
        for slot in round.claims {
            lookup.remove(&CLAIMS, slot)?;
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
        for (slot, element) in self.array.elements::<CallerSlot>()? {
            self.leaving.retire(slot, element, |process| ended.contains(&ProcessId(process)));
        }
        for (tid, call) in lookup.entries(&IN_FLIGHT)? {
            if ended.contains(&ProcessId(call.process)) {
                lookup.remove(&IN_FLIGHT, tid)?;
            }
        }
        Ok(())
    }
}

fn sums((_, slot): (u32, Element<'_>)) -> impl Iterator<Item = Element<'_>> {
    slot.parts::<Sum>(offset_of!(CallerSlot, sums), SUMS)
}

/// A thread in a call. A slot that its thread writes during the read is read again.
fn in_call(slot: Element<'_>) -> Option<Caller> {
    slot.owner()?;
    let mut caller: Caller = slot.copy();
    for _ in 0..3 {
        let again: Caller = slot.copy();
        if again == caller {
            break;
        }
        caller = again;
    }
    (caller.busy == busy::IN_CALL).then_some(caller)
}

fn row(tid: u32, call: &OpenCall) -> InFlightRow {
    let OpenCall { entered_ns, process, cmd, tgid, caller_tgid, .. } = *call;
    InFlightRow { process: ProcessId(process), tgid, caller_tgid, tid, cmd, entered_ns }
}

/// tgid and tid.
#[expect(clippy::cast_possible_truncation, reason = "the two halves, as bpf_get_current_pid_tgid makes them")]
fn ids(thread: u64) -> (u32, u32) {
    ((thread >> 32) as u32, thread as u32)
}
