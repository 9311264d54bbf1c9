//! Compares the state with the driver's own lists, repeatedly.
//!
//! A scan also finds differences that exist only because the driver was at work: what two consecutive scans
//! find is believed, counted, reported and corrected. A first finding, and any lost record, makes the next
//! scans follow soon and include the kernel's own table, which has more than sysfs. If that table is not
//! available, sysfs decides what it can. What a GPU's scheduler may be about to report is postponed.

pub mod background;
pub mod judge;
mod liveness;
mod pending;
pub mod progress;
pub mod scan;

use self::judge::{findings, sysfs_is_alone};
use self::liveness::is_gone;
pub(super) use self::pending::Pending;
use self::pending::{LIVES, Missing, SUSPICION_NS};
use self::scan::{Begun, Look, Scan, Walked, Wanted};
use super::engine::Tracer;
use crate::attribute::process::{self, ProcessError};
use crate::model::event::{Event, ProcessId};
use crate::runtime::clock;
use crate::state::{Change, Difference, Inventory, Process, ProcessKey};
use crate::text::count::counted;
use std::collections::BTreeSet;

/// Ticks between scans while there is no suspicion; the caller ticks once a second.
const QUIET: u32 = 10;

/// Ticks between scans of the kernel's own table while there is no suspicion.
const QUIET_WALK: u32 = 60;

impl Tracer {
    /// Begins to read the driver's lists when it is due; must be called once a second, also while a scan is
    /// in progress (then not `idle`): losses are counted, and the suspicion waits for the next scan. Pass the
    /// result of [`Begun::finish`] to [`Tracer::reconcile`] after all records in the ring buffer were
    /// processed.
    pub fn look(&mut self, idle: bool) -> Option<Begun> {
        let now_ns = clock::mono_ns();
        let pending = &mut self.pending;
        let session = self.session.as_ref()?;
        let reader = pending.reader.clone()?;
        let missing = Missing {
            lost: session.unreported(),
            skipped: session.skipped(&LIVES),
            undecoded: self.undecoded.total(),
        };
        let (events, of_memory) = pending.suspect(missing, now_ns);
        if events > 0 {
            log::warn!(
                "up to {} missed: comparing with the driver's lists",
                counted(events, "event was", "events were")
            );
        }
        if of_memory {
            self.state.miss_memory(now_ns);
        }
        let suspicious = now_ns < pending.until_ns;
        if !idle {
            if suspicious {
                pending.until_ns = now_ns + SUSPICION_NS;
            }
            return None;
        }
        pending.ticks += 1;
        let often = suspicious || session.queues_by_ioctl();
        if !often && !pending.ticks.is_multiple_of(QUIET) {
            return None;
        }
        let topology = pending.ticks.is_multiple_of(QUIET).then(|| self.topology.clone());
        let walk = suspicious || pending.ticks.is_multiple_of(QUIET_WALK);
        let by_ancestor = reader.selected.ancestor().is_some();
        let rows = self.state.live().filter(|_| by_ancestor).filter_map(|row| row.tgid);
        let details = scan::unknown(&self.state, &pending.found);
        Some(reader.begin(session, walk, topology, Wanted { rows: rows.collect(), details }))
    }

    /// Compares; returns what was corrected, as events of the owners.
    pub fn reconcile(&mut self, seen: Scan) -> Vec<(Event, Change)> {
        // A scan may have read the lists of the driver's next loading: the rows do not belong to that.
        if self.driver_has_gone() {
            return Vec::new();
        }
        if let Some(topology) = seen.topology {
            self.topology = topology;
        }
        seen.look.map(|look| self.compare(&look)).unwrap_or_default()
    }

    fn compare(&mut self, look: &Look) -> Vec<(Event, Change)> {
        match look.kernel {
            Walked::Done(_) => self.pending.broken_walks = 0,
            Walked::Broke => self.pending.broken_walks += 1,
            Walked::NotRequested | Walked::Impossible => {}
        }
        let mut corrections = self.end_gone(look);
        let found = findings(look, &self.state);
        let judgement = judge::judge(look, &found, &self.pending.found, self.pending.broken_walks);
        let lists: Vec<&Inventory> = look.kernel.list().into_iter().chain(&look.sysfs).collect();
        lists.iter().for_each(|list| self.state.compared(list.source));
        if let Some(sysfs) = &look.sysfs {
            self.state.count_vram(sysfs.read, &sysfs.processes);
        }
        for finding in &judgement.believed {
            let resynced = self.state.resync(*finding, &lists, look.until_ns);
            let kept = finding.difference == Difference::Unlisted && self.state.keep_unlisted(finding);
            if resynced.is_some() || kept {
                log::warn!("{}", judge::line(finding));
            }
            let missing = resynced.as_ref().filter(|_| finding.difference == Difference::Missing);
            let key = missing.and_then(|(_, change)| change.process);
            if let (Some(key), Some(details)) = (key, look.details.get(&finding.tgid)) {
                self.state.enrich(key, details.clone());
            }
            corrections.extend(resynced);
        }
        self.pending.found = judgement.pending;
        if judgement.suspicious || !self.pending.unlisted.is_empty() {
            let until_ns = look.until_ns + SUSPICION_NS;
            self.pending.until_ns = self.pending.until_ns.max(until_ns);
        }
        corrections
    }

    /// Ends the rows of processes whose end was missed: gone from the lists of two consecutive scans.
    fn end_gone(&mut self, look: &Look) -> Vec<(Event, Change)> {
        // A dying process leaves the kernel's table before the driver is done with it.
        let Some(sysfs) = &look.sysfs else {
            self.pending.unlisted.clear();
            return Vec::new();
        };
        let alive = |id: &ProcessId| self.state.process((*id).into()).is_some_and(Process::alive);
        self.pending.released.retain(alive);
        let is_over = |row: &Process| row.id().is_some_and(|id| self.pending.released.contains(&id));
        let settled_ns =
            |row: &Process| if is_over(row) { sysfs.settled_ns() } else { sysfs.settled_ns_of(row) };
        let quiet = self.state.live().filter(|row| row.last_event_ns <= settled_ns(row));
        let gone: BTreeSet<ProcessKey> =
            quiet.filter(|row| self.is_gone(row, look, sysfs)).map(|row| row.key).collect();
        let mut corrections = Vec::new();
        for key in gone.intersection(&self.pending.unlisted) {
            let at_ns = look.until_ns;
            let (release, change) = self.state.gone(*key, at_ns);
            log::warn!("process {}: ended; its end was missed", release.tgid.unwrap_or(0));
            corrections.push((release, change));
        }
        self.pending.unlisted = &gone - &self.pending.unlisted;
        corrections
    }

    fn is_gone(&self, row: &Process, look: &Look, sysfs: &Inventory) -> bool {
        let alone = sysfs_is_alone(look, self.pending.broken_walks);
        is_gone(&self.state, row, sysfs, &look.kernel, alone, || {
            let check = row.tgid.map(|tgid| process::check(&self.roots.procfs, tgid, row.start_boottime_ns));
            matches!(check, Some(Err(ProcessError::Gone { .. } | ProcessError::Reused { .. })))
        })
    }
}

#[cfg(test)]
mod tests;
