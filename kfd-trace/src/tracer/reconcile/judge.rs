//! Where the driver's lists of one scan and the state disagree, and which differences are believed.
//!
//! In: a [`Look`], the state, and the findings of the previous scan. Out: a [`Judgement`]. Pure.

use super::scan::{Look, Walked};
use crate::state::{Difference, FoundDifference, Inventory, Shown, State};
use std::collections::BTreeSet;

/// A walk that broke off may be complete when it is retried; after this many in a row it is not waited for.
const BROKEN_WALKS: u32 = 3;

/// What to do with the findings of one scan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Judgement {
    /// To be corrected.
    pub believed: BTreeSet<FoundDifference>,
    /// To be found again, or decided by a later scan.
    pub pending: BTreeSet<FoundDifference>,
    /// Another scan soon can decide what is pending.
    pub suspicious: bool,
}

/// The findings of a scan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Findings {
    pub found: BTreeSet<FoundDifference>,
    /// Something depends on what a scheduler at work has not reported yet: another scan is needed.
    pub put_off: bool,
}

/// What two consecutive scans found is believed, if the lists can decide it. `before`: pending since the
/// previous scan; `broken_walks`: consecutive walks that broke off, including this scan's.
pub(crate) fn judge(
    look: &Look,
    Findings { found, put_off }: &Findings,
    before: &BTreeSet<FoundDifference>,
    broken_walks: u32,
) -> Judgement {
    let alone = sysfs_is_alone(look, broken_walks);
    let decided = |finding: &FoundDifference| match finding.difference {
        Difference::Ghost => match (look.kernel.list(), &look.sysfs) {
            (Some(_), Some(_)) => true,
            (None, sysfs) => alone && sysfs.as_ref().is_some_and(|sysfs| sysfs_decides(sysfs, finding)),
            // A process leaves the table before its queues end: without sysfs no list shows that they exist.
            (Some(kernel), None) => kernel.has(finding.place()),
        },
        // Only a walk shows whether a scheduler is at work.
        Difference::Properties => alone || !matches!(look.kernel, Walked::Broke),
        Difference::Missing | Difference::Unlisted => true,
    };
    let believed: BTreeSet<FoundDifference> =
        found.intersection(before).filter(|finding| decided(finding)).copied().collect();
    let pending = found - &believed;
    // If sysfs is alone, no list will decide what was found twice already; if sysfs cannot be read, not soon.
    let decides_soon = !alone && look.sysfs.is_some();
    let suspicious = *put_off || pending.iter().any(|finding| decides_soon || !before.contains(finding));
    Judgement { believed, pending, suspicious }
}

/// The kernel's own table is not available, and will not be: sysfs decides what it can.
pub(crate) fn sysfs_is_alone(look: &Look, broken_walks: u32) -> bool {
    match look.kernel {
        Walked::Impossible => true,
        Walked::Broke => broken_walks >= BROKEN_WALKS,
        Walked::Done(_) | Walked::NotRequested => false,
    }
}

/// A ghost is no queue of the driver. Without the folder of its process, sysfs has no information about
/// queues. A row does not know its context if the record with it was lost: it may be any one of its process.
fn sysfs_decides(sysfs: &Inventory, ghost: &FoundDifference) -> bool {
    let mut own = sysfs.processes.with_tgid(ghost.tgid);
    sysfs.has((ghost.tgid, None))
        && (ghost.context_id.is_some() || !own.any(|process| process.queue(ghost.queue_id).is_some()))
}

/// The differences of all lists. What one list does not have and another one has is no ghost. What sysfs has
/// at a place is no property of a row whose process is not there by its number. What a scheduler at work
/// changes is postponed: it reports properties when it is done, and on 6.1 an end before that.
pub(crate) fn findings(look: &Look, state: &State) -> Findings {
    let all = all_findings(look, state);
    let Some(kernel) = look.kernel.list() else { return Findings { found: all, put_off: false } };
    let at_work = |finding: &FoundDifference| {
        let listed = state.listed(kernel, finding).and_then(|(_, queue)| queue.gpu_id);
        let row = || finding.key.and_then(|key| state.process(key));
        let gpu_id = listed.or_else(|| row()?.queues.get(&finding.queue_id)?.facts.gpu_id);
        gpu_id.is_some_and(|gpu_id| kernel.at_work.contains(&gpu_id))
    };
    let may_wait =
        |one: &FoundDifference| matches!(one.difference, Difference::Properties | Difference::Missing);
    let (later, found): (BTreeSet<_>, BTreeSet<_>) =
        all.into_iter().partition(|one| may_wait(one) && at_work(one));
    Findings { found, put_off: !later.is_empty() }
}

fn all_findings(look: &Look, state: &State) -> BTreeSet<FoundDifference> {
    let mut found = look.sysfs.as_ref().map(|sysfs| state.compare(sysfs)).unwrap_or_default();
    let Some(kernel) = look.kernel.list() else { return found };
    let in_kernel = state.compare(kernel);
    let Some(sysfs) = &look.sysfs else { return in_kernel };
    let another = |finding: &FoundDifference| {
        let row = finding.key.and_then(|key| state.process(key));
        row.is_some_and(|row| state.shown(kernel, row) == Shown::Another)
    };
    found.retain(|one| one.difference != Difference::Properties || !another(one));
    let ghosts: Vec<FoundDifference> =
        found.union(&in_kernel).filter(|one| one.difference == Difference::Ghost).copied().collect();
    found.extend(in_kernel.iter().copied());
    for ghost in ghosts {
        let missing = |list: &Inventory| state.listed(list, &ghost).is_none();
        let (by_sysfs, by_kernel) = (missing(sysfs), missing(kernel));
        if by_sysfs && by_kernel {
            continue;
        }
        found.remove(&ghost);
        if by_sysfs {
            found.insert(FoundDifference { difference: Difference::Unlisted, ..ghost });
        }
    }
    found
}

/// For the log.
pub(crate) fn line(finding: &FoundDifference) -> String {
    let FoundDifference { key: _, tgid, context_id, queue_id, difference } = finding;
    let context = context_id.map_or_else(String::new, |id| format!(" context {id}"));
    let what = match difference {
        Difference::Ghost => "the driver no longer has it, its end was missed: removed",
        Difference::Missing => "the driver has it, its creation was missed: added",
        Difference::Unlisted => "the driver has it, sysfs does not list it: kept",
        Difference::Properties => "the driver has other properties: updated",
    };
    format!("process {tgid}{context} queue {queue_id}: {what}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::event::{Body, ProcessId, QueueFacts};
    use crate::model::inventory::Listed;
    use crate::state::Source;
    use crate::state::samples::{create, event, facts, seen, state};
    use std::collections::BTreeMap;

    const PID: u32 = 700;
    const S: u64 = 1_000_000_000;

    fn process(context_id: Option<u32>) -> Listed {
        Listed { tgid: PID, context_id, ..Listed::default() }
    }

    fn list(source: Source, queues: &[QueueFacts]) -> Inventory {
        let process = Listed { queues: queues.to_vec(), ..process(None) };
        Inventory { processes: vec![process].into(), ..Inventory::empty(source, (9 * S).into()) }
    }

    fn found(sysfs: &[QueueFacts], kernel: Option<&[QueueFacts]>) -> Vec<Difference> {
        let mut state = state();
        state.apply(&event(S, 1, PID, seen(false)));
        state.apply(&event(S, 1, PID, create(3)));
        let kernel = kernel.map(|queues| list(Source::Kernel, queues));
        let look = Look {
            sysfs: Some(list(Source::Sysfs, sysfs)),
            ..look(kernel.map_or(Walked::Broke, Walked::Done))
        };
        findings(&look, &state).found.iter().map(|one| one.difference).collect()
    }

    #[test]
    fn a_ghost_is_what_no_list_has() {
        assert_eq!(found(&[], None), [Difference::Ghost]);
        assert_eq!(found(&[], Some(&[])), [Difference::Ghost]);
        assert_eq!(found(&[], Some(&[facts(3)])), [Difference::Unlisted]);
        assert_eq!(found(&[facts(3)], Some(&[])), [], "the driver removes it from sysfs last");
        assert_eq!(found(&[facts(3)], Some(&[facts(3), facts(4)])), [Difference::Missing]);
    }

    fn finding(context_id: Option<u32>, difference: Difference) -> FoundDifference {
        FoundDifference { key: Some(ProcessId(1).into()), tgid: PID, context_id, queue_id: 3, difference }
    }

    fn look(kernel: Walked) -> Look {
        let sysfs = Some(list(Source::Sysfs, &[]));
        Look { sysfs, kernel, until_ns: 9 * S, details: BTreeMap::new() }
    }

    fn walked() -> Walked {
        Walked::Done(list(Source::Kernel, &[]))
    }

    /// For one finding: it is believed; another scan soon can decide it.
    fn judged(
        look: &Look,
        finding: FoundDifference,
        before: &[FoundDifference],
        broken_walks: u32,
    ) -> (bool, bool) {
        let found = BTreeSet::from([finding]);
        let findings = Findings { found: found.clone(), put_off: false };
        let judgement = judge(look, &findings, &before.iter().copied().collect(), broken_walks);
        assert_eq!(&judgement.believed | &judgement.pending, found);
        (judgement.pending.is_empty(), judgement.suspicious)
    }

    #[test]
    fn what_is_found_once_is_pending() {
        for difference in Difference::ALL {
            let finding = finding(None, *difference);
            for kernel in [walked(), Walked::NotRequested, Walked::Broke, Walked::Impossible] {
                assert_eq!(judged(&look(kernel), finding, &[], 9), (false, true), "{difference:?}");
            }
            assert_eq!(judged(&look(walked()), finding, &[finding], 0), (true, false), "{difference:?}");
        }
    }

    #[test]
    fn a_ghost_waits_for_a_walk_that_may_decide() {
        let ghost = finding(None, Difference::Ghost);
        for (kernel, broken_walks, judgement) in [
            (Walked::NotRequested, 9, (false, true)),
            (Walked::Broke, 1, (false, true)),
            (Walked::Broke, 2, (false, true)),
            (Walked::Broke, 3, (true, false)),
            (Walked::Impossible, 0, (true, false)),
        ] {
            let look = look(kernel);
            assert_eq!(judged(&look, ghost, &[ghost], broken_walks), judgement, "{look:?} {broken_walks}");
        }
        let other = finding(None, Difference::Properties);
        assert_eq!(judged(&look(Walked::NotRequested), other, &[other], 0), (true, false));
        for (broken_walks, judgement) in [(2, (false, true)), (3, (true, false))] {
            assert_eq!(judged(&look(Walked::Broke), other, &[other], broken_walks), judgement);
        }
        let missing = finding(None, Difference::Missing);
        assert_eq!(judged(&look(Walked::Broke), missing, &[missing], 1), (true, false));
    }

    #[test]
    fn sysfs_alone_decides_where_it_would_list_the_queue() {
        let mut look = look(Walked::Impossible);
        let (own, further) = (finding(None, Difference::Ghost), finding(Some(0), Difference::Ghost));
        assert_eq!(judged(&look, own, &[own], 0), (true, false));
        assert_eq!(judged(&look, further, &[further], 0), (true, false), "its process is listed, it is not");
        let of = |processes: Vec<Listed>| {
            Some(Inventory { processes: processes.into(), ..list(Source::Sysfs, &[]) })
        };
        look.sysfs = of(vec![Listed { queues: vec![facts(3)], ..process(Some(0)) }]);
        assert_eq!(judged(&look, own, &[own], 0), (false, false), "it may be the other context's");
        look.sysfs = of(Vec::new());
        assert_eq!(judged(&look, own, &[own], 0), (false, false), "no list will show it");
        assert_eq!(judged(&look, further, &[further], 0), (false, false), "no list will show it");
        look.kernel = walked();
        assert_eq!(judged(&look, further, &[further], 0), (true, false));
    }

    #[test]
    fn the_kernel_alone_decides_of_whom_it_lists() {
        let mut look = Look { sysfs: None, ..look(walked()) };
        let (own, further) = (finding(None, Difference::Ghost), finding(Some(0), Difference::Ghost));
        assert_eq!(judged(&look, own, &[], 0), (false, true));
        assert_eq!(judged(&look, own, &[own], 0), (true, false));
        assert_eq!(
            judged(&look, further, &[further], 0),
            (false, false),
            "it may be dying, and its queues stand"
        );
        let missing = finding(Some(0), Difference::Missing);
        assert_eq!(judged(&look, missing, &[missing], 0), (true, false));
        let mut state = state();
        state.apply(&event(S, 1, PID, seen(false)));
        state.apply(&event(S, 1, PID, create(3)));
        look.kernel = Walked::Done(list(Source::Kernel, &[facts(4)]));
        let found = findings(&look, &state).found;
        let found: Vec<_> = found.iter().map(|one| (one.queue_id, one.difference)).collect();
        assert_eq!(found, [(3, Difference::Ghost), (4, Difference::Missing)]);
    }

    #[test]
    fn what_a_scheduler_at_work_changes_is_put_off() {
        let mut state = state();
        state.apply(&event(S, 1, PID, seen(false)));
        state.apply(&event(S, 1, PID, create(3)));
        state.apply(&event(S, 1, PID, create(5)));
        let gpu_id = facts(3).gpu_id.expect("a GPU");
        let found = |at_work: u32, sysfs: bool| {
            let queues = [QueueFacts { ring_size: Some(4096), ..facts(3) }, facts(4)];
            let at_work = BTreeSet::from([at_work]);
            let kernel = Walked::Done(Inventory { at_work, ..list(Source::Kernel, &queues) });
            let sysfs = sysfs.then(|| list(Source::Sysfs, &queues));
            let look = Look { sysfs, ..look(kernel) };
            let findings = findings(&look, &state);
            let found: BTreeSet<_> =
                findings.found.iter().map(|one| (one.queue_id, one.difference)).collect();
            (found, findings.put_off, judge(&look, &findings, &findings.found, 0).suspicious)
        };
        let (ghost, missing) = ((5, Difference::Ghost), (4, Difference::Missing));
        for sysfs in [false, true] {
            assert_eq!(found(gpu_id, sysfs), (BTreeSet::from([ghost]), true, true), "it is looked at again");
            let all = BTreeSet::from([(3, Difference::Properties), missing, ghost]);
            assert_eq!(found(gpu_id + 1, sysfs), (all, false, false));
        }
    }

    #[test]
    fn a_queue_of_another_process_is_neither_its_own_nor_unlisted() {
        let mut state = state();
        state.apply(&event(S, 1, PID, seen(false)));
        state.apply(&event(S, 1, PID, create(3)));
        state.apply(&event(S, 2, PID, seen(false)));
        let other = QueueFacts { ring_size: Some(4096), ..facts(3) };
        state.apply(&event(S, 2, PID, Body::QueueCreate(other.clone())));
        let mut kernel = list(Source::Kernel, std::slice::from_ref(&other));
        kernel.processes.update(|all| all[0].id = Some(ProcessId(2)));
        let look = |sysfs: Inventory| Look { sysfs: Some(sysfs), ..look(Walked::Done(kernel.clone())) };
        // An exec: sysfs shows the second process, and cannot show that it is not the first one.
        assert_eq!(findings(&look(list(Source::Sysfs, &[other])), &state), Findings::default());
        let none = Inventory { processes: Vec::new().into(), ..list(Source::Sysfs, &[]) };
        let found: Vec<_> =
            findings(&look(none), &state).found.iter().map(|one| (one.key, one.difference)).collect();
        let key = |id| Some(ProcessId(id).into());
        assert_eq!(found, [(key(1), Difference::Ghost), (key(2), Difference::Unlisted)]);
    }
}
