//! What GPUs run, and their preemptions.

use super::family::{Family, number};
use super::life::gpus;
use super::scrape::Scrape;
use super::table as t;
use crate::model::mes::MesOp;
use crate::model::runlist::Reason;
use crate::state::LastList;
use crate::text::errno;
use kfd_trace_common::counter::ProbeId;

/// Whether some probe shows who changes what a GPU runs, and why.
fn sees_changes(scrape: &Scrape<'_>) -> bool {
    scrape.sees(&[ProbeId::RunlistUnmap]) || scrape.sees(&[ProbeId::RunlistChange])
}

/// Whether preemptions are seen.
pub(super) fn sees_preemptions(scrape: &Scrape<'_>) -> bool {
    sees_changes(scrape) && scrape.sees(&[ProbeId::PreemptBegin, ProbeId::PreemptEnd])
}

/// Probes for requests to the firmware scheduler MES.
const MES: [ProbeId; 4] = [ProbeId::MesAdd, ProbeId::MesRemove, ProbeId::MesCall, ProbeId::MesCallReturn];

/// Reasons whose series exist on every GPU from the start.
const USUAL: [Reason; 6] =
    [Reason::Create, Reason::Destroy, Reason::Update, Reason::Evict, Reason::Restore, Reason::ProcessEnd];

/// What a preemption usually fails with.
const TIMED_OUT: &str = "ETIME";

/// What a request to MES usually fails with.
const NO_ANSWER: &str = "ETIMEDOUT";

pub(super) fn families(scrape: &Scrape<'_>) -> Vec<Family> {
    let scheduled = &scrape.snapshot.scheduled;
    let mut all = Vec::new();
    if sees_preemptions(scrape) {
        let mut durations = Family::new(&t::PREEMPTION_DURATION);
        for (gpu_id, gpu) in scheduled {
            for (reason, sum) in gpu.preempted.iter().filter(|(_, sum)| sum.stat.returned > 0) {
                durations.histogram(&[&gpu_id.to_string(), name(*reason)], sum.clone());
            }
        }
        all.push(durations);
    }
    if sees_preemptions(scrape) && scrape.sees(&[ProbeId::PreemptWaited]) {
        let mut failed = Family::new(&t::PREEMPTIONS_FAILED);
        gpus(scrape).for_each(|gpu_id| failed.add(&[&gpu_id, TIMED_OUT], 0));
        for (gpu_id, gpu) in scheduled {
            for (number, count) in gpu.preempted.values().flat_map(|sum| &sum.errors) {
                failed.add(&[&gpu_id.to_string(), &errno::name(*number)], *count);
            }
        }
        all.push(failed);
    }
    if scrape.sees(&MES) {
        let (mut durations, mut failed) = (Family::new(&t::MES_DURATION), Family::new(&t::MES_FAILED));
        for gpu_id in
            scrape.topology.gpus.iter().filter(|gpu| gpu.has_mes()).map(|gpu| gpu.gpu_id.to_string())
        {
            MesOp::ALL.iter().for_each(|op| failed.add(&[&gpu_id, op.name(), NO_ANSWER], 0));
        }
        for (gpu_id, gpu) in scheduled {
            let gpu_id = gpu_id.to_string();
            for (op, sum) in &gpu.mes {
                if sum.stat.returned > 0 {
                    durations.histogram(&[&gpu_id, op.name()], sum.clone());
                }
                for (number, count) in &sum.errors {
                    failed.add(&[&gpu_id, op.name(), &errno::name(*number)], *count);
                }
            }
        }
        all.extend([durations, failed]);
    }
    if sees_changes(scrape) && scrape.sees(&[ProbeId::RunlistSent]) {
        let (mut lists, mut failed) = (Family::new(&t::RUNLISTS), Family::new(&t::RUNLISTS_FAILED));
        for gpu_id in gpus(scrape) {
            USUAL.iter().for_each(|reason| lists.add(&[&gpu_id, reason.name()], 0));
        }
        for (gpu_id, gpu) in scheduled {
            let gpu_id = gpu_id.to_string();
            for (reason, of) in &gpu.lists {
                if of.sent > 0 {
                    lists.add(&[&gpu_id, name(*reason)], of.sent);
                }
                for (number, count) in &of.failed {
                    failed.add(&[&gpu_id, name(*reason), &errno::name(*number)], *count);
                }
            }
        }
        all.extend([lists, failed]);
        all.push(last(scrape, Family::new(&t::RUNLIST_PROCESSES), |list| list.processes.map(u64::from)));
        if sees_preemptions(scrape) {
            all.push(last(scrape, Family::new(&t::RUNLIST_QUEUES), |list| list.queues.map(u64::from)));
            let oversubscribed = Family::new(&t::RUNLIST_OVERSUBSCRIBED);
            all.push(last(scrape, oversubscribed, |list| list.oversubscribed.map(u64::from)));
        }
    }
    all
}

/// A value of the last list of each GPU that has one.
fn last(scrape: &Scrape<'_>, mut family: Family, value: impl Fn(&LastList) -> Option<u64>) -> Family {
    for (gpu_id, gpu) in &scrape.snapshot.scheduled {
        if let Some(value) = gpu.last.as_ref().and_then(&value) {
            family.set(&[&gpu_id.to_string()], number(value));
        }
    }
    family
}

fn name(reason: Option<Reason>) -> &'static str {
    reason.map_or("unknown", Reason::name)
}
