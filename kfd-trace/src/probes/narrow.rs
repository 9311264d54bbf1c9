//! Which functions of a planned row are in use on this machine. In: a row and the functions that the GPUs use
//! ([`super::mqds`]). Out: the row with those functions, and the others. Pure.

use super::plan::{Action, Planned};
use super::site::AttachTarget;
use super::table::ProbeRow;
use crate::model::verdict::{ProbeStatus, Verdict};
use std::collections::BTreeSet;

/// Functions of a row that no GPU of this machine uses.
#[derive(Debug)]
pub(super) struct Unused {
    pub(super) row: &'static ProbeRow,
    targets: Vec<AttachTarget>,
    strangers: Vec<String>,
}

/// Splits off what is not used. If the use is not known (`None`, or an address that is hidden), everything
/// counts as used.
pub(super) fn narrow(planned: Planned, used: Option<&BTreeSet<u64>>) -> (Planned, Option<Unused>) {
    let Planned { row, ref action, ref strangers, .. } = planned;
    let (Some(used), Action::Attach(targets), true) = (used, action, row.of_gpus) else {
        return (planned, None);
    };
    if targets.iter().any(|target| target.address().is_none()) {
        return (planned, None);
    }
    let (now, rest): (Vec<AttachTarget>, Vec<AttachTarget>) =
        targets.iter().cloned().partition(|target| target.address().is_some_and(|at| used.contains(&at)));
    let unused = Unused { row, targets: rest, strangers: strangers.clone() };
    let narrowed = if now.is_empty() {
        Planned { action: Action::Skip(Verdict::NoGpu), ..planned }
    } else {
        Planned { symbols: names(&now), action: Action::Attach(now), ..planned }
    };
    (narrowed, Some(unused).filter(|unused| !unused.targets.is_empty()))
}

impl Unused {
    /// Removes and returns what is used now; everything, if the use is not known.
    pub(super) fn take(&mut self, used: Option<&BTreeSet<u64>>) -> Vec<AttachTarget> {
        let is_used = |target: &AttachTarget| {
            used.is_none_or(|used| target.address().is_some_and(|address| used.contains(&address)))
        };
        let targets = std::mem::take(&mut self.targets);
        let (now, rest) = targets.into_iter().partition(is_used);
        self.targets = rest;
        now
    }

    pub(super) fn is_empty(&self) -> bool {
        self.targets.is_empty()
    }

    /// Unknown functions of its family; each row reports them once.
    pub(super) fn strangers(&mut self, status: &ProbeStatus) -> Vec<String> {
        let strangers = std::mem::take(&mut self.strangers);
        if status.verdict == Verdict::NoGpu { strangers } else { Vec::new() }
    }
}

/// Adds functions to those that a row is attached to already.
pub(super) fn add(status: &mut ProbeStatus, targets: &[AttachTarget], places: usize, verdict: Verdict) {
    let before = std::mem::replace(&mut status.verdict, Verdict::NoGpu);
    if before == Verdict::NoGpu {
        status.symbols.clear();
    }
    let new = names(targets).into_iter().filter(|name| !status.symbols.contains(name));
    let new: Vec<String> = new.collect();
    let failed = |verdict: &Verdict, symbols: &[String]| match verdict {
        Verdict::Refused(why) => vec![(symbols.join(", "), why.clone())],
        Verdict::Partly { failed } => failed.clone(),
        _ => Vec::new(),
    };
    status.verdict = match before {
        Verdict::NoGpu => verdict,
        before if before == verdict => before,
        before => {
            let failed = [failed(&before, &status.symbols), failed(&verdict, &names(targets))].concat();
            Verdict::Partly { failed }
        }
    };
    status.symbols.extend(new);
    status.places += places;
}

/// Copies share a name.
fn names(targets: &[AttachTarget]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for target in targets {
        if !names.contains(&target.symbol) {
            names.push(target.symbol.clone());
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probes::rows::PROBES;
    use crate::probes::site::At;
    use kfd_trace_common::counter::ProbeId;

    fn target(symbol: &str, address: u64) -> AttachTarget {
        AttachTarget { symbol: symbol.into(), at: At::Address(address) }
    }

    /// A unique name and two copies of another.
    fn planned(id: ProbeId) -> Planned {
        let row = PROBES.iter().find(|row| row.id == id).unwrap();
        let targets = vec![target("init_mqd_v9_4_3", 1), target("init_mqd", 2), target("init_mqd", 3)];
        let symbols = names(&targets);
        Planned { row, symbols, strangers: vec!["init_mqd_v99".into()], action: Action::Attach(targets) }
    }

    fn addresses(targets: &[AttachTarget]) -> Vec<u64> {
        targets.iter().filter_map(AttachTarget::address).collect()
    }

    #[test]
    fn only_the_functions_in_use_are_left_also_those_with_names_of_their_own() {
        let (narrowed, unused) = narrow(planned(ProbeId::MqdInit), Some(&BTreeSet::from([3, 9])));
        let Action::Attach(targets) = &narrowed.action else { panic!("{narrowed:?}") };
        assert_eq!((addresses(targets), narrowed.symbols), (vec![3], vec!["init_mqd".to_owned()]));
        let mut unused = unused.unwrap();
        assert_eq!(addresses(&unused.take(Some(&BTreeSet::from([1])))), [1]);
        assert!(!unused.is_empty());
        assert_eq!(addresses(&unused.take(None)), [2]);
        assert!(unused.is_empty());
    }

    #[test]
    fn without_a_gpu_no_place_is_left() {
        let (narrowed, unused) = narrow(planned(ProbeId::MqdInit), Some(&BTreeSet::new()));
        assert_eq!(narrowed.action, Action::Skip(Verdict::NoGpu));
        assert_eq!((narrowed.symbols.len(), unused.unwrap().targets.len()), (2, 3));
    }

    #[test]
    fn what_is_not_known_leaves_all_places() {
        let all = |planned: Planned, used: Option<&BTreeSet<u64>>| {
            let (narrowed, unused) = narrow(planned, used);
            let Action::Attach(targets) = narrowed.action else { panic!("skipped") };
            assert!(unused.is_none());
            targets.len()
        };
        assert_eq!(all(planned(ProbeId::MqdInit), None), 3);
        let none = BTreeSet::new();
        assert_eq!(all(planned(ProbeId::EvictGpu), Some(&none)), 3, "not of generations");
        let mut hidden = planned(ProbeId::MqdInit);
        let Action::Attach(targets) = &mut hidden.action else { panic!("skipped") };
        targets[0].at = At::Name;
        assert_eq!(all(hidden, Some(&none)), 3);
    }

    #[test]
    fn a_row_has_the_verdict_on_all_of_its_places() {
        let mut status = crate::output::samples::probe(ProbeId::MqdInit, Verdict::NoGpu);
        status.places = 0;
        let verdict = |status: &ProbeStatus| (status.places, status.verdict.clone());
        add(&mut status, &[target("init_mqd", 2)], 1, Verdict::Attached);
        assert_eq!(verdict(&status), (1, Verdict::Attached));
        assert_eq!(status.symbols, ["init_mqd"]);
        add(&mut status, &[target("init_mqd", 3)], 1, Verdict::Attached);
        assert_eq!((verdict(&status), status.symbols.len()), ((2, Verdict::Attached), 1));
        let refused = || Verdict::Refused("ENOMEM".into());
        add(&mut status, &[target("init_mqd_v9_4_3", 1)], 0, refused());
        let failed = vec![("init_mqd_v9_4_3".to_owned(), "ENOMEM".to_owned())];
        assert_eq!(verdict(&status), (2, Verdict::Partly { failed }));
        assert_eq!(status.symbols, ["init_mqd", "init_mqd_v9_4_3"]);
    }
}
