//! The state is held against the driver's own lists, again and again.
//!
//! A look finds differences that exist only because the driver was at work: what is found twice in a row is believed,
//! counted, told and set right. A first find, and any lost record, makes the next looks come soon and take in the
//! kernel's own table, which knows more than sysfs and is never behind.

use super::clock;
use super::standing::{Look, Standings};
use super::tracer::Tracer;
use crate::attribute::Topology;
use crate::attribute::process::{self, ProcessError};
use crate::events::event::{Body, Event};
use crate::state::{Change, Difference, Finding, List, Process, ProcessKey};
use std::collections::BTreeSet;

/// Ticks between looks while there is no doubt; the caller ticks once a second.
const QUIET: u32 = 10;

/// Ticks between looks at the kernel's own table while there is no doubt.
const QUIET_WALK: u32 = 60;

/// How long doubt lasts after its last reason, nanoseconds: what changed then must have settled, be found, and be found
/// again.
const DOUBT_NS: u64 = 5_000_000_000;

/// What is remembered from look to look.
pub(super) struct Doubt {
    standings: Standings,
    ticks: u32,
    /// Until then there is a look at every tick, CLOCK_MONOTONIC nanoseconds.
    until_ns: u64,
    /// Lost records at the last tick, and what could not be told.
    lost: u64,
    found: BTreeSet<Finding>,
    /// Live rows that no list had at the last look.
    unlisted: BTreeSet<ProcessKey>,
}

impl Doubt {
    pub(super) fn new(standings: Standings) -> Self {
        Doubt { standings, ticks: 0, until_ns: 0, lost: 0, found: BTreeSet::new(), unlisted: BTreeSet::new() }
    }
}

impl Tracer {
    /// Takes in what stands already. Gives the reason where queues stand and have no addresses.
    pub(super) fn adopt(&mut self) -> Option<String> {
        self.doubt.standings.adopt(&mut self.session, &mut self.state)
    }

    /// Reads the driver's lists when it is time to; to be called once a second. Give it to [`Tracer::reconcile`] after
    /// all records that stand in the ring buffer were taken in.
    pub fn look(&mut self) -> Option<Look> {
        let now_ns = clock::mono_ns();
        let doubt = &mut self.doubt;
        let lost = self.session.untold().unwrap_or(doubt.lost);
        if lost > doubt.lost {
            log::warn!("{} events were not told: comparing with the driver's lists", lost - doubt.lost);
            (doubt.lost, doubt.until_ns) = (lost, now_ns + DOUBT_NS);
        }
        doubt.ticks += 1;
        let doubtful = now_ns < doubt.until_ns;
        let often = doubtful || self.session.queues_by_ioctl();
        if !often && !doubt.ticks.is_multiple_of(QUIET) {
            return None;
        }
        // GPUs come after the driver, and partitions change.
        if doubt.ticks.is_multiple_of(QUIET) {
            self.topology = Topology::read(&self.roots.sysfs);
        }
        let walk = doubtful || doubt.ticks.is_multiple_of(QUIET_WALK);
        self.doubt.standings.look(&self.session, walk)
    }

    /// Compares; gives what was set right, as events of the owners.
    pub fn reconcile(&mut self, look: &Look) -> Vec<(Event, Change)> {
        let mut told = self.end_gone(look);
        let walks = self.doubt.standings.walks();
        let found = findings(look, |list| self.state.compare(list));
        // Without the kernel's word a ghost may be a queue that sysfs does not list.
        let certain =
            |finding: &&Finding| finding.difference != Difference::Ghost || look.kernel.is_some() || !walks;
        let believed: Vec<Finding> = found.intersection(&self.doubt.found).filter(certain).copied().collect();
        let lists: Vec<&List> = look.kernel.iter().chain([&look.sysfs]).collect();
        for finding in &believed {
            log::warn!("{}", line(finding));
            let resynced = self.state.resync(*finding, &lists, look.sysfs.read.until_ns);
            if let Some((_, change)) = resynced.as_ref().filter(|_| finding.difference == Difference::Missing)
            {
                self.enrich(change);
            }
            told.extend(resynced);
        }
        let believed: BTreeSet<Finding> = believed.into_iter().collect();
        self.doubt.found = &found - &believed;
        if !self.doubt.found.is_empty() || !self.doubt.unlisted.is_empty() {
            let until_ns = look.sysfs.read.until_ns + DOUBT_NS;
            self.doubt.until_ns = self.doubt.until_ns.max(until_ns);
        }
        told
    }

    /// Ends the rows of processes whose end was missed: in no list, at two looks in a row.
    fn end_gone(&mut self, look: &Look) -> Vec<(Event, Change)> {
        let settled_ns = look.sysfs.settled_ns();
        let quiet = self.state.live().filter(|row| row.last_event_ns <= settled_ns);
        let gone: BTreeSet<ProcessKey> =
            quiet.filter(|row| self.is_gone(row, look)).map(|row| row.key).collect();
        let mut told = Vec::new();
        for key in gone.intersection(&self.doubt.unlisted) {
            let at_ns = look.sysfs.read.until_ns;
            let change = self.state.gone(*key, at_ns);
            let row = self.state.process(*key);
            let (id, tgid) = (row.and_then(Process::id), row.and_then(|row| row.tgid));
            log::warn!("process {}: gone without being seen to go", tgid.unwrap_or(0));
            told.push((Event::of_standing(at_ns, id, tgid, Body::ProcessRelease), change));
        }
        self.doubt.unlisted = &gone - &self.doubt.unlisted;
        told
    }

    fn is_gone(&self, row: &Process, look: &Look) -> bool {
        let Some(place) = row.place() else { return false };
        if look.sysfs.has(place) {
            return false;
        }
        let not_in_proc = || {
            let read = process::read(&self.roots.procfs, place.0, row.start_boottime_ns);
            matches!(read, Err(ProcessError::Gone { .. } | ProcessError::Reused { .. }))
        };
        match &look.kernel {
            Some(kernel) => !kernel.has(place),
            None => not_in_proc() || !self.doubt.standings.walks() && !look.sysfs.processes.is_empty(),
        }
    }
}

/// The differences of all lists. What one list lacks and another one has is no ghost.
fn findings(look: &Look, compare: impl Fn(&List) -> BTreeSet<Finding>) -> BTreeSet<Finding> {
    let mut found = compare(&look.sysfs);
    let Some(kernel) = &look.kernel else { return found };
    let in_kernel = compare(kernel);
    let ghosts: Vec<Finding> =
        found.union(&in_kernel).filter(|one| one.difference == Difference::Ghost).copied().collect();
    found.extend(in_kernel.iter().copied());
    for ghost in ghosts {
        let lacks = |list: &List| list.queue(ghost.place(), ghost.queue_id).is_none();
        let (by_sysfs, by_kernel) = (lacks(&look.sysfs), lacks(kernel));
        if by_sysfs && by_kernel {
            continue;
        }
        found.remove(&ghost);
        if by_sysfs {
            found.insert(Finding { difference: Difference::Unlisted, ..ghost });
        }
    }
    found
}

fn line(finding: &Finding) -> String {
    let Finding { key: _, tgid, context_id, queue_id, difference } = finding;
    let context = context_id.map_or_else(String::new, |id| format!(" context {id}"));
    let what = match difference {
        Difference::Ghost => "the driver does not have it any more, and no end was seen: taken off",
        Difference::Missing => "the driver has it, and no birth was seen: taken in",
        Difference::Unlisted => "the driver has it, and sysfs does not list it: kept",
        Difference::Properties => "the driver has other properties: taken over",
    };
    format!("process {tgid}{context} queue {queue_id}: {what}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::event::QueueCreate;
    use crate::state::samples::{create, event, facts, seen, state};
    use crate::state::{Source, StandingProcess};

    const PID: u32 = 700;
    const S: u64 = 1_000_000_000;

    fn list(source: Source, queues: &[QueueCreate]) -> List {
        let process = StandingProcess { tgid: PID, ..StandingProcess::default() };
        List { source, read: (9 * S).into(), processes: vec![(process, queues.to_vec())] }
    }

    fn found(sysfs: &[QueueCreate], kernel: Option<&[QueueCreate]>) -> Vec<Difference> {
        let mut state = state();
        state.apply(&event(S, 1, PID, seen(false)));
        state.apply(&event(S, 1, PID, create(3)));
        let look = Look {
            sysfs: list(Source::Sysfs, sysfs),
            kernel: kernel.map(|queues| list(Source::Kernel, queues)),
        };
        findings(&look, |list| state.compare(list)).iter().map(|one| one.difference).collect()
    }

    #[test]
    fn a_ghost_is_what_no_list_has() {
        assert_eq!(found(&[], None), [Difference::Ghost]);
        assert_eq!(found(&[], Some(&[])), [Difference::Ghost]);
        assert_eq!(found(&[], Some(&[facts(3)])), [Difference::Unlisted]);
        assert_eq!(found(&[facts(3)], Some(&[])), [], "the driver removes it from sysfs last");
        assert_eq!(found(&[facts(3)], Some(&[facts(3), facts(4)])), [Difference::Missing]);
    }
}
