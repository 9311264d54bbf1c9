//! This machine's procfs, with a synthetic sysfs and driver.

use super::*;
use crate::doctor::DoctorOutcome;
use crate::doctor::finding::FindingKind;
use crate::model::event::{Origin, QueueFacts};
use crate::model::inventory::Listed;
use crate::model::pointers::Counts;
use crate::state::samples::{create, event, facts, seen};
use crate::state::{Sample, StateLimits};
use std::fs;
use std::path::Path;

/// No process can have it (PID_MAX_LIMIT is 4 Mi).
const GONE: u32 = 4 << 20;

fn own() -> u32 {
    std::process::id()
}

/// sysfs with a driver that has these processes, of one queue each.
fn sysfs(pids: &[u32]) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir_all(root.path().join("module/amdgpu")).unwrap();
    let processes = root.path().join("class/kfd/kfd/proc");
    fs::create_dir_all(&processes).unwrap();
    for pid in pids {
        let queue = processes.join(format!("{pid}/queues/3"));
        fs::create_dir_all(&queue).unwrap();
        for (file, text) in [("gpuid", "7"), ("size", "4096"), ("type", "0")] {
            fs::write(queue.join(file), text).unwrap();
        }
    }
    root
}

fn roots(sysfs: &Path) -> Roots {
    Roots { procfs: "/proc".into(), sysfs: sysfs.to_owned(), ..Roots::under(Path::new("/nowhere")) }
}

/// Its table has these processes; it counts the readings.
#[derive(Default)]
struct Driver {
    pids: Vec<u32>,
    readings: u32,
}

impl DriverViews for Driver {
    fn read(&mut self, _: &Progress) -> DriverRead {
        self.readings += 1;
        let listed = |tgid: &u32| Listed {
            tgid: *tgid,
            queues: vec![QueueFacts { queue_id: Some(3), ..QueueFacts::unknown(Origin::Standing) }],
            ..Listed::default()
        };
        let processes = self.pids.iter().map(listed).collect();
        let existing = Inventory { processes, ..Inventory::empty(Source::Kernel, 9.into()) };
        let activities = Err("not measured".to_owned());
        DriverRead { existing: Ok(existing), activities, evicted: AllEvicted::new() }
    }
}

fn examined(driver: &mut Driver, sysfs: &Path, only: Option<u32>) -> Examination {
    let node = Node::read(&roots(sysfs)).unwrap_or_else(|finding| panic!("{finding}"));
    node.examine(driver, only, &Progress::default())
}

fn kinds(report: &Diagnosis, pid: u32) -> Vec<FindingKind> {
    report.processes.iter().find(|row| row.pid == pid).map(|row| row.findings.clone()).expect("a row")
}

#[test]
fn without_a_driver_there_is_nothing_to_diagnose() {
    let root = tempfile::tempdir().unwrap();
    let finding = Node::read(&roots(root.path())).err().expect("no driver");
    assert_eq!(finding.severity, FindingSeverity::NothingToTrace);
}

#[test]
fn what_may_be_in_progress_is_read_again_and_all_else_is_not() {
    let (progress, sysfs) = (Progress::default(), sysfs(&[own(), GONE]));
    let mut driver = Driver { pids: vec![own()], readings: 0 };
    let alone = examined(&mut driver, sysfs.path(), Some(own()));
    assert_eq!(driver.readings, 1, "the other process does not matter");
    assert_eq!(alone.diagnosis(Some(own()), &progress).unwrap().processes.len(), 1);
    let all = examined(&mut driver, sysfs.path(), None);
    assert_eq!(driver.readings, 3);
    let report = all.diagnosis(None, &progress).unwrap();
    assert_eq!((report.outcome, report.processes.len()), (DoctorOutcome::Wrong, 2));
    assert_eq!(kinds(&report, GONE), [FindingKind::Teardown { lsof: Some(false) }]);
    // One reading is enough for each process.
    let report = all.diagnosis(Some(GONE), &progress).unwrap();
    assert_eq!((report.outcome, report.processes.len()), (DoctorOutcome::Wrong, 1));
}

#[test]
fn a_process_without_a_part_in_kfd_is_read_when_requested() {
    let (progress, sysfs) = (Progress::default(), sysfs(&[]));
    let node = examined(&mut Driver::default(), sysfs.path(), None);
    assert!(node.diagnosis(None, &progress).unwrap().processes.is_empty());
    let report = node.diagnosis(Some(own()), &progress).unwrap();
    assert_eq!((kinds(&report, own()), report.outcome), (vec![FindingKind::NoPart], DoctorOutcome::Well));
    let why = node.diagnosis(Some(GONE), &progress).unwrap_err();
    assert!(why.starts_with("no such process. PIDs are those of the host"), "{why}");
    let mut hiding = node;
    hiding.seen.hides = true;
    let why = hiding.diagnosis(Some(GONE), &progress).unwrap_err();
    assert!(why.starts_with("/proc shows no such process, and hides those of other users"), "{why}");
}

#[test]
fn clients_of_the_daemon_learn_nothing_of_processes_without_a_part_in_kfd() {
    let sysfs = sysfs(&[own()]);
    let node = examined(&mut Driver { pids: vec![own()], readings: 0 }, sysfs.path(), None);
    assert!(node.document_of_users(Some(own())).unwrap().contains("\"comm\""));
    assert!(node.document_of_users(None).is_ok());
    let [init, none] = [1, GONE].map(|pid| node.document_of_users(Some(pid)).unwrap_err());
    assert!(init.starts_with("KFD has no such process, and none of this PID has /dev/kfd open"), "{init}");
    assert_eq!(init, none, "nor whether there is one");
    let mut with_render_node = node;
    let seen = with_render_node.seen.processes.remove(&own()).expect("it");
    with_render_node.seen.processes.insert(1, seen);
    assert_eq!(with_render_node.document_of_users(Some(1)), Err(init), "nor of other users of a GPU");
}

#[test]
fn a_second_look_is_left_out_where_nobody_would_wait_for_it() {
    let sysfs = sysfs(&[GONE]);
    let node = || Node::read(&roots(sysfs.path())).unwrap_or_else(|finding| panic!("{finding}"));
    let progress = Progress::until(Instant::now() + SETTLES);
    let mut driver = Driver::default();
    let examination = node().examine(&mut driver, None, &progress);
    assert_eq!(driver.readings, 1);
    let report = examination.diagnosis(None, &progress).unwrap();
    assert_eq!((kinds(&report, GONE), report.outcome), (vec![FindingKind::Ending], DoctorOutcome::Well));
    let progress = Progress::default();
    progress.cancel();
    let mut driver = Driver::default();
    let _ = node().examine(&mut driver, None, &progress);
    assert_eq!(driver.readings, 1, "cancelled");
}

#[test]
fn a_table_that_was_not_read_whole_is_none() {
    assert!(whole(DriverTable::default()).is_ok());
    let broken = DriverTable { broken: 1, ..DriverTable::default() };
    assert!(whole(broken).unwrap_err().starts_with("the driver's table changed while it was read"));
}

#[test]
fn a_thread_means_its_process_and_one_that_ended_may_still_be_in_kfd() {
    let roots = roots(Path::new("/nowhere"));
    let tid = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
    assert_eq!((process_of(&roots, tid), process_of(&roots, GONE)), (Ok(own()), Ok(GONE)));
}

#[test]
fn each_view_of_the_driver_has_its_own_reason() {
    let sysfs = sysfs(&[own()]);
    let report = examined(&mut Driver { pids: vec![own()], readings: 0 }, sysfs.path(), None)
        .diagnosis(None, &Progress::default())
        .unwrap();
    let why: Vec<_> = report.views.iter().rev().take(2).map(|view| view.why.clone()).collect();
    assert_eq!(why, [Some("not measured".to_owned()), None]);
    assert_eq!(report.processes[0].activity, None, "not known");
    let tracer = Tracer::idle(&roots(Path::new("/nowhere")));
    let why = tracer.driver_views().existing.unwrap_err();
    assert_eq!(why, "no probes are attached now");
}

#[test]
fn counters_are_those_of_the_queue_at_the_same_place() {
    let mut state = State::new(StateLimits::default());
    state.apply(&event(1, 1, own(), seen(false)));
    state.apply(&event(2, 1, own(), create(3)));
    let key = crate::model::event::ProcessId(1).into();
    let reading = Ok(Counts { submitted: 9, retired: 9 });
    state.sampled(&Sample { key, queue_id: 3, since_ns: 2, reading, at_ns: 5 });
    let listed = |context_id| Listed {
        tgid: own(),
        context_id,
        queues: vec![facts(3), facts(4)],
        ..Listed::default()
    };
    let sampled = |context_id| {
        let processes = vec![listed(context_id)].into();
        let existing = Ok(Inventory { processes, ..Inventory::empty(Source::Kernel, 9.into()) });
        let evicted = AllEvicted::new();
        let read = DriverRead { existing, activities: Ok(activities(&state)), evicted };
        let (_, sampled) = read.views(&roots(Path::new("/nowhere")));
        sampled.unwrap()[&own()].clone()
    };
    let first = sampled(None);
    assert_eq!((first.queues_measured, first.packets_retired), (1, 9));
    assert_eq!(first.not_measured, [("failed", 1)].into(), "no sample has the other one");
    assert_eq!(sampled(Some(1)).queues_measured, 0, "of another context");
}
