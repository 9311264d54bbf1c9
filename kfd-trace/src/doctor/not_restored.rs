//! Evictions that no restore followed. In: two looks at the driver. Out: findings. Pure.

use super::evicted::EvictedFrom;
use super::finding::FindingKind;
use super::sampled::Sampled;
use super::seen::Observed;
use crate::model::incident::Trigger;
use std::collections::BTreeMap;

/// The driver restores what it evicted within a second, or tries again and again while memory is short
/// (`PROCESS_RESTORE_TIME_MS`, kfd_priv.h). An eviction that lasts longer than this is reported as it is.
const LONG_NS: u64 = 60_000_000_000;

/// Whether a second look shows more: it is evicted, and may be restored any moment.
pub(super) fn may_end(seen: &Observed, pid: u32) -> bool {
    seen.evicted.get(&pid).is_some_and(|all| all.iter().any(|from| from.lasts_ns < LONG_NS))
}

/// One finding for each trigger.
pub(super) fn findings(seen: &Observed, before: Option<&Observed>, pid: u32) -> Vec<FindingKind> {
    let of = |seen: &Observed| seen.sampled.as_ref().ok().and_then(|all| all.get(&pid).cloned());
    let (sampled, sampled_before) = (of(seen), before.and_then(of));
    let backlog = sampled.as_ref().filter(|sampled| sampled.queues_measured > 0).map(Sampled::backlog);
    let stood_still = sampled.zip(sampled_before).is_some_and(|(now, before)| now.stood_still_since(&before));
    let was_evicted = |from: &EvictedFrom| {
        let all = before.and_then(|before| before.evicted.get(&pid));
        all.into_iter().flatten().any(|before| before.gpu_id == from.gpu_id)
    };
    let mut found: BTreeMap<(Option<Trigger>, bool), FindingKind> = BTreeMap::new();
    for from in seen.evicted.get(&pid).into_iter().flatten() {
        let long = from.lasts_ns >= LONG_NS;
        if !long && !was_evicted(from) {
            continue;
        }
        let stuck = long || stood_still;
        let kind = found.entry((from.trigger, stuck)).or_insert_with(|| match stuck {
            true => {
                FindingKind::NotRestored { gpu_ids: vec![], trigger: from.trigger, seconds: None, backlog }
            }
            false => FindingKind::Evicted { gpu_ids: vec![] },
        });
        match kind {
            FindingKind::NotRestored { gpu_ids, seconds, .. } => {
                gpu_ids.push(from.gpu_id);
                *seconds = (*seconds).max(long.then_some(from.lasts_ns / 1_000_000_000));
            }
            FindingKind::Evicted { gpu_ids } => gpu_ids.push(from.gpu_id),
            _ => {}
        }
    }
    found.into_values().collect()
}

#[cfg(test)]
mod tests;
