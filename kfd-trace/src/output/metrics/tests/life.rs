//! Exported queue and GPU events.

use super::*;
use crate::model::incident::{Eviction, MqdOp, QueueUpdate, Trigger, VmFault};
use crate::model::suspension::samples::{resume_of_all, suspension};
use crate::model::suspension::{NamedQueue, Queues, Suspension};

const GPU: u32 = 58270;
const OWN: &str = r#"pid="4321",kfd_process="1",comm="train",gpu_id="58270""#;

fn eviction(at: u64, trigger: Option<Trigger>) -> crate::model::event::Event {
    let eviction = Eviction { gpu_id: Some(GPU), trigger, errno: 0, latency_ns: 5 };
    event(at, 1, PID, if trigger.is_some() { Body::Evict(eviction) } else { Body::Restore(eviction) })
}

#[test]
fn evictions_have_triggers_and_durations() {
    let mut world = World::new(traced());
    world.state.apply(&eviction(500_000_000, Some(Trigger::Ttm)));
    world.state.apply(&eviction(750_000_000, None));
    world.state.apply(&eviction(2_000_000_000, Some(Trigger::Userptr)));
    for (series, value) in [
        (r#"kfd_evictions_total{gpu_id="58270",trigger="ttm"}"#.to_owned(), 1.0),
        (r#"kfd_evictions_total{gpu_id="58270",trigger="userptr"}"#.to_owned(), 1.0),
        (r#"kfd_restores_total{gpu_id="58270"}"#.to_owned(), 1.0),
        (r#"kfd_evicted_seconds_total{gpu_id="58270"}"#.to_owned(), 1.25),
        (r#"kfd_evicted_processes{gpu_id="58270"}"#.to_owned(), 1.0),
        (format!("kfd_process_evictions_total{{{OWN}}}"), 2.0),
        (format!("kfd_process_evicted_seconds_total{{{OWN}}}"), 1.25),
        (r#"kfd_gpu_queue_slots_used{gpu_id="58270",kind="cp"}"#.to_owned(), 0.0),
    ] {
        assert_eq!(world.value(&series), Some(value), "{series}");
    }
    world.state.apply(&event(2_500_000_000, 1, PID, Body::ProcessRelease));
    assert_eq!(world.value(r#"kfd_evicted_processes{gpu_id="58270"}"#), Some(0.0));
    let ended = format!("kfd_process_evicted_seconds_total{{{OWN}}}");
    assert_eq!(world.value(&ended), Some(0.75), "it ended with the process");
    assert_eq!(world.value(SECONDS), Some(0.75), "which takes nothing from the sum");
}

const SECONDS: &str = r#"kfd_evicted_seconds_total{gpu_id="58270"}"#;

/// A queue was found to be evicted, or not.
fn found(at: u64, evicted: bool) -> crate::model::event::Event {
    let now = QueueFacts { evicted: Some(evicted), ..facts(3) };
    event(
        at,
        1,
        PID,
        Body::QueueUpdate(QueueUpdate { now, cu_mask: None, mask_unread: false, errno: Some(0) }),
    )
}

#[test]
fn a_running_eviction_has_an_age_and_a_trigger() {
    let mut world = World::new(traced());
    let age = |trigger: &str| format!("kfd_process_eviction_seconds{{{OWN},trigger=\"{trigger}\"}}");
    world.state.apply(&eviction(1_000_000_000, Some(Trigger::Svm)));
    assert_eq!(world.value(&age("svm")), Some(2.0));
    world.state.apply(&eviction(2_000_000_000, None));
    assert!(!world.text().contains("\nkfd_process_eviction_seconds"), "it was restored");
    world.state.apply(&found(2_500_000_000, true));
    assert_eq!(world.value(&age("unknown")), Some(0.5), "since it was found");
    assert_eq!(world.value(SECONDS), Some(1.5));
    world.state.apply(&event(
        2_600_000_000,
        1,
        PID,
        Body::QueueDestroy { queue_id: 3, gpu_id: None, last: None },
    ));
    assert_eq!(world.value(&age("unknown")), None, "nothing of it waits for a restore there");
}

#[test]
fn the_time_evicted_never_falls() {
    let mut world = World::new(traced());
    let mut last = 0.0;
    let mut rises = |world: &World| {
        let now = world.value(SECONDS).expect("the series");
        let own = world.value(&format!("kfd_process_evicted_seconds_total{{{OWN}}}"));
        assert!(now >= last && own == Some(now), "{own:?} and {now} after {last}");
        last = now;
    };
    for next in [
        eviction(1_000_000_000, Some(Trigger::Svm)),
        found(3_000_000_000, false),
        found(3_000_000_000, true),
        eviction(3_000_000_000, Some(Trigger::Ttm)),
        eviction(3_000_000_000, None),
        eviction(3_000_000_000, Some(Trigger::Svm)),
        event(3_000_000_000, 1, PID, Body::ProcessRelease),
    ] {
        world.state.apply(&next);
        rises(&world);
    }
}

#[test]
fn suspended_queues_are_counted_where_a_debugger_was() {
    let mut world = World::new(traced());
    let series = format!("kfd_process_queues_suspended{{{OWN}}}");
    assert_eq!(world.value(&series), None, "no debugger was there");
    world.state.apply(&event(30, 1, PID, Body::QueuesSuspended(suspension())));
    assert_eq!(world.value(&series), Some(1.0));
    world.state.apply(&event(40, 1, PID, Body::QueuesResumed(resume_of_all())));
    assert_eq!(world.value(&series), Some(0.0));
    let listed = vec![NamedQueue { queue_id: 3, result: None }];
    let unknown = Suspension { queues: Queues::Named { listed, more: 0 }, ..suspension() };
    world.state.apply(&event(50, 1, PID, Body::QueuesSuspended(unknown)));
    assert_eq!(world.value(&series), None, "it is not known of the queue");
    world.state.apply(&event(60, 1, PID, Body::QueuesSuspended(suspension())));
    world.probes.retain(|probe| probe.id != ProbeId::ResumeQueues);
    assert_eq!(world.value(&series), None, "the resume would not be seen");
}

#[test]
fn a_process_whose_address_space_went_is_torn_down_until_its_release() {
    let mut world = World::new(traced());
    let series = r#"kfd_process_teardown_seconds{pid="4321",kfd_process="1",comm="train"}"#;
    assert_eq!(world.value(series), None, "it lives");
    world.state.apply(&event(1_000_000_000, 1, PID, Body::MmRelease));
    assert_eq!(world.value(series), Some(2.0));
    assert_eq!(world.value(&format!("kfd_process_queues{{{OWN},queue_type=\"compute_aql\"}}")), Some(1.0));
    world.state.apply(&event(2_500_000_000, 1, PID, Body::ProcessRelease));
    assert_eq!(world.value(series), None, "it was released");
}

#[test]
fn updates_and_mqd_writes_are_counted() {
    let mut world = World::new(traced());
    for errno in [Some(0), Some(22), None] {
        let update = QueueUpdate { now: facts(3), cu_mask: None, mask_unread: false, errno };
        world.state.apply(&event(30, 1, PID, Body::QueueUpdate(update)));
    }
    for op in [MqdOp::Update, MqdOp::Update, MqdOp::Init] {
        world.state.apply(&event(40, 1, PID, Body::MqdWrite { queue_id: 3, gpu_id: Some(GPU), op }));
    }
    let label = r#"gpu_id="58270",queue_type="compute_aql""#;
    assert_eq!(world.value(&format!("kfd_queue_updates_total{{{label}}}")), Some(3.0));
    assert_eq!(world.value(&format!("kfd_queue_updates_no_return_seen_total{{{label}}}")), Some(1.0));
    assert_eq!(world.value(&format!("kfd_queue_update_errors_total{{{label},errno=\"EINVAL\"}}")), Some(1.0));
    let writes = |function: &str| {
        world.value(&format!("kfd_mqd_writes_total{{gpu_id=\"58270\",function=\"{function}\"}}"))
    };
    assert_eq!([writes("init"), writes("update"), writes("restore")], [Some(1.0), Some(2.0), Some(0.0)]);
}

#[test]
fn incidents_are_counted_by_gpu_and_faults_by_process_too() {
    let mut world = World::new(traced());
    let gpu_id = Some(GPU);
    world.state.apply(&event(30, 1, PID, Body::VmFault(VmFault { gpu_id, access: None })));
    world.state.apply(&event(40, 1, PID, Body::HwsHang { gpu_id }));
    world.state.apply(&event(1_000_000_000, 1, PID, Body::GpuResetBegin { gpu_id }));
    world.state.apply(&event(1_500_000_000, 1, PID, Body::GpuResetEnd { gpu_id }));
    for at in [1_550_000_000, 1_600_000_000] {
        world.state.apply(&event(at, 1, PID, Body::GpuResetBegin { gpu_id }));
    }
    world.state.apply(&event(1_600_000_000, 1, PID, Body::GpuResetBegin { gpu_id: Some(9) }));
    for (name, value) in [
        ("kfd_vm_faults_total", 1.0),
        ("kfd_hws_hangs_total", 1.0),
        ("kfd_gpu_resets_total", 3.0),
        ("kfd_gpu_reset_seconds_total", 0.5),
        ("kfd_gpu_resets_unfinished_total", 1.0),
    ] {
        assert_eq!(world.value(&format!("{name}{{gpu_id=\"58270\"}}")), Some(value), "{name}");
    }
    assert_eq!(world.value(&format!("kfd_process_vm_faults_total{{{OWN}}}")), Some(1.0));
    let stranger = r#"kfd_gpu_resets_total{gpu_id="9"}"#;
    assert_eq!(world.value(stranger), Some(1.0), "a GPU that the topology does not have");
}

#[test]
fn what_no_probe_sees_is_absent() {
    let mut world = World::new(traced());
    world.state.apply(&event(30, 1, PID, Body::MmRelease));
    for (gone, families) in [
        (&[ProbeId::QueueUpdateReturn][..], &["kfd_queue_updates_total"][..]),
        (&[ProbeId::EvictGpuReturn], &["kfd_evictions_total", "kfd_evicted", "kfd_process_evict"]),
        (&[ProbeId::NotifierRelease], &["kfd_process_teardown_seconds"]),
        (&[ProbeId::VmFault], &["kfd_vm_faults_total", "kfd_process_vm_faults_total"]),
        (&[ProbeId::GpuReset], &["kfd_gpu_reset"]),
        (&[ProbeId::HwsHang, ProbeId::HwException, ProbeId::ResetRequest][..], &["kfd_hws_hangs_total"]),
        (&[ProbeId::MqdInit, ProbeId::MqdUpdate, ProbeId::MqdRestore], &["kfd_mqd_writes_total"]),
    ] {
        let before = world.text();
        for probe in world.probes.iter_mut().filter(|probe| gone.contains(&probe.id)) {
            probe.verdict = Verdict::Refused("no".into());
        }
        let after = world.text();
        for family in families {
            let series = format!("\n{family}");
            assert!(before.contains(&series) && !after.contains(&series), "{family}");
        }
    }
    let mut world = World::new(traced());
    for id in [ProbeId::HwsHang, ProbeId::HwException] {
        for probe in world.probes.iter_mut().filter(|probe| probe.id == id) {
            probe.verdict = Verdict::Refused("inlined".into());
        }
        assert_eq!(world.value(r#"kfd_hws_hangs_total{gpu_id="58270"}"#), Some(0.0), "another one shows it");
    }
}
