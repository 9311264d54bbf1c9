//! Every verdict, from synthetic input; and the two forms of the report.

use super::finding::FindingKind;
use super::report::{ProcessRow, RocmSmi, Standing, ViewName};
use super::sampled::Sampled;
use super::samples::{GPU, HOST, OTHER, PID, bare, life, open, process, seen, with};
use super::seen::{DescriptorTotals, KfdProcess, KfdProcesses, Mappings, Node, Observed, SeenProcess};
use super::{Diagnosis, DoctorOutcome, diagnose};
use crate::attribute::process::Life;
use std::collections::BTreeSet;

mod forms;

/// The report for a node whose state does not change.
fn report_of(seen: &Observed) -> Diagnosis {
    diagnose(seen, Some(seen), None)
}

fn row(report: &Diagnosis, pid: u32) -> &ProcessRow {
    report.processes.iter().find(|row| row.pid == pid).expect("a row")
}

/// The outcome, and the findings for the sample process.
fn of(seen: &Observed) -> (DoctorOutcome, Vec<FindingKind>) {
    let report = report_of(seen);
    (report.outcome, row(&report, PID).findings.clone())
}

fn by_view(report: &Diagnosis, view: ViewName) -> Option<Vec<u32>> {
    report.views.iter().find(|seen| seen.view == view).expect("a view").saw.clone()
}

#[test]
fn a_process_that_all_views_have_is_well() {
    let report = report_of(&seen());
    assert_eq!((report.outcome, report.complete, report.unsettled), (DoctorOutcome::Well, true, false));
    assert_eq!(row(&report, PID).findings, [FindingKind::Seen { fd: 3 }]);
    for view in ViewName::ALL {
        assert_eq!(by_view(&report, view), Some(vec![PID]), "{view:?}");
    }
    let row = row(&report, PID);
    assert_eq!((row.rocm_smi, row.queues, row.vram_bytes), (Some(RocmSmi::Named), 2, Some(1 << 29)));
    assert_eq!(row.activity.as_ref().map(|activity| activity.packets_retired), Some(127_644));
}

#[test]
fn counters_that_cannot_be_read_are_not_known() {
    let unread = report_of(&Observed { sampled: Err("no BTF".to_owned()), ..seen() });
    let view = unread.views.last().expect("views");
    assert_eq!((view.saw.clone(), view.why.as_deref()), (None, Some("no BTF")));
    let only = row(&unread, PID);
    assert_eq!((only.activity.clone(), only.seen_by[&ViewName::Sampled]), (None, None));
    let of = |sampled: Sampled| report_of(&Observed { sampled: Ok([(PID, sampled)].into()), ..seen() });
    let denied = of(Sampled { not_measured: [("denied", 2)].into(), ..Sampled::default() });
    assert_eq!(by_view(&denied, ViewName::Sampled), Some(vec![]), "none of its queues could be read");
    assert_eq!(denied.outcome, DoctorOutcome::Well, "that hides it from none of the usual checks");
}

#[test]
fn a_node_of_its_own_hides_it_from_lsof() {
    let own = || {
        let mappings = Some(Mappings { kfd: BTreeSet::from([OTHER]), ..Mappings::default() });
        SeenProcess { kfd: vec![open(OTHER)], own_mounts: Some(true), mappings, ..process() }
    };
    assert_eq!(of(&with(own())), (DoctorOutcome::Hidden, vec![FindingKind::OwnNode { fd: 3 }]));
    let report = report_of(&with(own()));
    assert_eq!(
        (by_view(&report, ViewName::Lsof), by_view(&report, ViewName::DeviceNumber)),
        (Some(vec![]), Some(vec![PID]))
    );
    let same_inode = Node { inode: HOST.inode, ..OTHER };
    let two = SeenProcess { kfd: vec![open(same_inode)], mappings: Some(Mappings::default()), ..own() };
    assert_eq!(of(&with(two.clone())).1, [FindingKind::OwnNode { fd: 3 }], "both are compared");
    assert_eq!(row(&report_of(&with(two)), PID).seen_by[&ViewName::Lsof], Some(false));
    let both = SeenProcess { kfd: vec![open(OTHER), open(HOST)], ..own() };
    assert_eq!(of(&with(both)).0, DoctorOutcome::Well);
}

#[test]
fn a_bind_mounted_node_is_the_hosts() {
    let bound = SeenProcess { own_mounts: Some(true), ..process() };
    assert_eq!(of(&with(bound)), (DoctorOutcome::Well, vec![FindingKind::BindMounted { fd: 3 }]));
}

#[test]
fn a_closed_descriptor_hides_it_unless_a_mapping_is_left() {
    let closed = SeenProcess { kfd: Vec::new(), ..process() };
    assert_eq!(of(&with(closed.clone())), (DoctorOutcome::Well, vec![FindingKind::MappingOnly]));
    assert_eq!(row(&report_of(&with(closed)), PID).seen_by[&ViewName::Lsof], Some(true));
    assert_eq!(of(&with(bare())), (DoctorOutcome::Hidden, vec![FindingKind::ClosedDescriptor]));
}

#[test]
fn a_dead_leader_hides_the_threads_behind_it() {
    let led = SeenProcess { life: life('Z', 3), ..process() };
    assert_eq!(
        of(&with(led.clone())),
        (DoctorOutcome::Hidden, vec![FindingKind::ZombieLeader { threads: 3 }])
    );
    let report = report_of(&with(led));
    assert_eq!(row(&report, PID).standing, Standing::WithoutLeader);
    assert_eq!(by_view(&report, ViewName::Lsof), Some(vec![]));
}

#[test]
fn another_pid_namespace_is_reported_and_hides_nothing_on_the_host() {
    let inner = SeenProcess { inner_pid: Some(1), ..process() };
    let found = vec![FindingKind::Seen { fd: 3 }, FindingKind::OtherPidNamespace { inner: 1 }];
    assert_eq!(of(&with(inner)), (DoctorOutcome::Well, found));
}

#[test]
fn mappings_that_may_not_be_read_hide_nothing_for_certain() {
    let unread = SeenProcess { kfd: Vec::new(), mappings: None, ..process() };
    assert_eq!(of(&with(unread.clone())), (DoctorOutcome::Hidden, vec![FindingKind::NotPermitted]));
    assert_eq!(row(&report_of(&with(unread)), PID).seen_by[&ViewName::Lsof], None);
}

#[test]
fn missing_permission_is_reported_and_nothing_is_claimed() {
    let closed = SeenProcess { closed: true, mappings: None, own_mounts: None, kfd: Vec::new(), ..process() };
    let seen = Observed { closed: BTreeSet::from([PID, 7]), ..with(closed) };
    assert_eq!(of(&seen), (DoctorOutcome::Hidden, vec![FindingKind::NotPermitted]));
    let report = report_of(&seen);
    assert_eq!((report.complete, report.not_permitted), (false, 2));
    assert_eq!(of(&Observed { host_node: None, ..seen.clone() }).1, [FindingKind::NotPermitted]);
    let row = row(&report, PID);
    assert_eq!((row.seen_by[&ViewName::Lsof], row.seen_by[&ViewName::DeviceNumber]), (None, None));
    // KFD has nothing, and the descriptors of other processes are not known.
    let nothing = KfdProcesses::new();
    let idle = Observed { sysfs: Some(nothing.clone()), kernel: Ok(nothing), processes: [].into(), ..seen };
    let report = report_of(&idle);
    assert_eq!((report.outcome, report.complete), (DoctorOutcome::Well, false));
}

#[test]
fn hidepid_is_not_taken_for_an_end() {
    let hidden = Observed { hides: true, processes: [].into(), ..seen() };
    assert_eq!(of(&hidden), (DoctorOutcome::Hidden, vec![FindingKind::HidePid]));
    let report = report_of(&hidden);
    assert_eq!((row(&report, PID).standing, report.complete), (Standing::Unknown, false));
}

#[test]
fn what_a_dead_process_left_is_wrong_when_it_stays() {
    let teardown = Observed { kernel: Ok([].into()), processes: [].into(), ..seen() };
    let once = diagnose(&teardown, None, None);
    assert_eq!((once.outcome, once.unsettled), (DoctorOutcome::Well, true));
    assert_eq!(row(&once, PID).findings, [FindingKind::Ending]);
    assert_eq!(
        diagnose(&teardown, Some(&seen()), None).outcome,
        DoctorOutcome::Well,
        "it lived a moment ago"
    );
    assert_eq!(of(&teardown), (DoctorOutcome::Wrong, vec![FindingKind::Teardown { lsof: Some(false) }]));
    let report = report_of(&teardown);
    let row = row(&report, PID);
    assert_eq!((row.standing, row.rocm_smi), (Standing::Gone, Some(RocmSmi::Unknown)));
    let exiting = SeenProcess { life: Life { exiting: true, ..life('D', 1) }, ..process() };
    let own_node = SeenProcess { kfd: vec![open(OTHER)], mappings: None, ..exiting.clone() };
    let kept_from_looking = SeenProcess { closed: true, ..SeenProcess { life: life('Z', 1), ..bare() } };
    for (dead, lsof) in [
        (SeenProcess { life: life('Z', 1), ..bare() }, Some(false)),
        (exiting, Some(true)),
        (own_node, Some(false)),
        (kept_from_looking, None),
    ] {
        let ended = Observed { kernel: Ok([].into()), ..with(dead) };
        assert_eq!(of(&ended), (DoctorOutcome::Wrong, vec![FindingKind::Teardown { lsof }]));
        let report = report_of(&ended);
        let row = self::row(&report, PID);
        assert_eq!((row.standing, row.rocm_smi), (Standing::Ended, Some(RocmSmi::Named)), "ps has its name");
    }
    // Another process has the PID by now.
    let reused = KfdProcesses::from([(PID, KfdProcess { reused: true, ..KfdProcess::default() })]);
    assert_eq!(
        of(&Observed { kernel: Ok(reused), ..seen() }),
        (DoctorOutcome::Wrong, vec![FindingKind::KeptByMemory])
    );
}

#[test]
fn a_dead_process_that_others_keep_names_them() {
    let child = SeenProcess { life: Life { parent: 1, ..life('S', 1) }, ..process() };
    let kept = Observed { kernel: Ok([].into()), processes: [(325, child)].into(), ..seen() };
    assert_eq!(of(&kept), (DoctorOutcome::Wrong, vec![FindingKind::KeptByDescriptor { holders: vec![325] }]));
    // A child of a served process inherits its descriptor.
    let childs = SeenProcess { life: Life { parent: 902, ..life('S', 1) }, ..process() };
    let mut other = Observed { processes: [(902, process()), (925, childs)].into(), ..kept };
    for all in [other.sysfs.as_mut(), other.kernel.as_mut().ok()].into_iter().flatten() {
        all.insert(902, KfdProcess::default());
    }
    assert_eq!(of(&other), (DoctorOutcome::Wrong, vec![FindingKind::Teardown { lsof: Some(false) }]));
    let shared = Observed { processes: [].into(), ..seen() };
    assert_eq!(of(&shared), (DoctorOutcome::Wrong, vec![FindingKind::KeptByMemory]));
    let unreadable = Observed { kernel: Err("no BTF".to_owned()), processes: [].into(), ..seen() };
    assert_eq!(
        of(&unreadable),
        (DoctorOutcome::Wrong, vec![FindingKind::Teardown { lsof: Some(false) }]),
        "sysfs alone shows it, too"
    );
}

#[test]
fn exec_leaves_what_the_program_before_had() {
    let execed = Observed { kernel: Ok([].into()), ..seen() };
    assert_eq!(of(&execed), (DoctorOutcome::Wrong, vec![FindingKind::Execed { own: true, holders: vec![] }]));
    let other =
        Observed { kernel: Ok([].into()), processes: [(PID, bare()), (325, process())].into(), ..seen() };
    assert_eq!(of(&other).1, [FindingKind::Execed { own: false, holders: vec![325] }]);
    let unreadable = Observed { kernel: Err("no BTF".to_owned()), ..seen() };
    assert_eq!(
        of(&unreadable),
        (DoctorOutcome::Well, vec![FindingKind::Seen { fd: 3 }]),
        "only the table shows it"
    );
}

#[test]
fn processes_that_open_it_without_being_served_are_distinguished() {
    let child = SeenProcess { life: Life { parent: PID, ..life('S', 1) }, ..process() };
    let seen = Observed { processes: [(PID, process()), (325, child)].into(), ..seen() };
    let report = report_of(&seen);
    assert_eq!(report.outcome, DoctorOutcome::Well);
    assert_eq!(row(&report, 325).findings, [FindingKind::Inherited { parent: PID, fd: 3 }]);
    assert_eq!(
        (row(&report, 325).kfd, by_view(&report, ViewName::Lsof)),
        (Some(false), Some(vec![PID, 325]))
    );
    let mapped = SeenProcess { kfd: Vec::new(), ..process() };
    let seen = Observed { processes: [(PID, process()), (325, process()), (326, mapped)].into(), ..seen };
    let report = report_of(&seen);
    assert_eq!(row(&report, 325).findings, [FindingKind::Stray { fd: 3 }]);
    assert_eq!(row(&report, 326).findings, [FindingKind::StrayMapping]);
    let unread = Observed { sysfs: None, kernel: Err("no BTF".to_owned()), ..seen };
    assert_eq!(row(&report_of(&unread), 325).findings, [FindingKind::ServiceUnknown]);
}

#[test]
fn contexts_and_processes_missing_in_sysfs_are_reported() {
    let mut twofold = seen();
    for all in [twofold.sysfs.as_mut(), twofold.kernel.as_mut().ok()].into_iter().flatten() {
        all.get_mut(&PID).expect("it").contexts.push(3);
    }
    assert_eq!(
        of(&twofold),
        (DoctorOutcome::Well, vec![FindingKind::Seen { fd: 3 }, FindingKind::Contexts { further: 1 }])
    );
    let lacking = Observed { sysfs: Some([].into()), ..seen() };
    assert_eq!(
        of(&lacking),
        (DoctorOutcome::Hidden, vec![FindingKind::Seen { fd: 3 }, FindingKind::NotInSysfs])
    );
    assert_eq!(row(&report_of(&lacking), PID).rocm_smi, Some(RocmSmi::Missed));
    let no_node = Observed { host_node: None, ..seen() };
    assert_eq!(of(&no_node).1, [FindingKind::HostNodeUnknown]);
    assert_eq!(by_view(&report_of(&no_node), ViewName::Lsof), None);
}

#[test]
fn one_requested_process_is_always_reported() {
    let only = |process: SeenProcess| {
        let seen = Observed { sysfs: Some([].into()), kernel: Ok([].into()), ..with(process) };
        let report = diagnose(&seen, None, Some(PID));
        assert_eq!((report.processes.len(), report.chips.len()), (1, 0));
        report.processes[0].findings.clone()
    };
    assert_eq!(only(bare()), [FindingKind::NoPart]);
    let library = Some(Mappings { libraries: BTreeSet::from(["libamdhip64"]), ..Mappings::default() });
    assert_eq!(only(SeenProcess { mappings: library, ..bare() }), [FindingKind::NotOpened { library: true }]);
    assert_eq!(
        only(SeenProcess { drm: process().drm, ..bare() }),
        [FindingKind::NotOpened { library: false }]
    );
    assert_eq!(only(SeenProcess { closed: true, mappings: None, ..bare() }), [FindingKind::Unlooked]);
    let node = Observed { processes: [(PID, process()), (7, bare())].into(), ..seen() };
    assert_eq!(report_of(&node).processes.len(), 1, "of the node only those with a part in it");
    let two = Observed { processes: [(PID, process()), (325, process())].into(), ..seen() };
    let report = diagnose(&two, None, Some(325));
    assert_eq!(report.processes.iter().map(|row| row.pid).collect::<Vec<_>>(), [325]);
    assert_eq!(by_view(&report, ViewName::Sysfs), Some(vec![]));
}

#[test]
fn memory_without_an_owner_is_wrong_if_all_processes_were_read() {
    let used = |bytes| {
        let mut seen = seen();
        seen.chips[0].vram_used = Some(bytes);
        seen
    };
    let owned = report_of(&used(2 << 30));
    assert_eq!(
        (owned.chips[0].vram_owned_bytes, owned.outcome),
        (1 << 30, DoctorOutcome::Well),
        "the larger, once"
    );
    let more = used((2 << 30) + 1);
    assert_eq!((report_of(&more).outcome, report_of(&more).chips[0].unowned), (DoctorOutcome::Wrong, true));
    let blind = Observed { closed: BTreeSet::from([7]), ..more };
    assert_eq!(report_of(&blind).outcome, DoctorOutcome::Well);
    let mut other = used(4 << 30);
    other.chips[0].gpu_ids = BTreeSet::from([GPU + 1]);
    other.processes.get_mut(&PID).expect("it").totals = DescriptorTotals::default();
    assert_eq!(report_of(&other).chips[0].vram_owned_bytes, 0);
    let mut many = used(4 << 30);
    many.processes.get_mut(&PID).expect("it").totals.vram_incomplete = true;
    let report = report_of(&many);
    assert_eq!((report.outcome, report.complete), (DoctorOutcome::Well, false), "who owns it is not known");
}
