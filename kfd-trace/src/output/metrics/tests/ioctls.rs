//! Ioctls: totals, errors, latencies, calls in flight, and threads that wait for events.

use super::*;

#[test]
fn ioctls_have_errors_latencies_and_calls_under_way() {
    let mut world = World::new(traced());
    let mut wait = ioctl_row(1, WAIT, 0, 0);
    (wait.stat.entered, wait.stat.refused) = (5, 1);
    world.tables.ioctls = vec![ioctl_row(1, CREATE, 3, 1_500), wait];
    world.tables.errors = vec![error_row(1, CREATE, 22, 2)];
    let entered_ns = [2_500_000_000, 1_000_000_000];
    world.tables.in_flight = entered_ns.map(|entered_ns| open_call(1, DESTROY, 9, entered_ns)).into();
    assert_eq!(world.value(r#"kfd_ioctls_total{ioctl="CREATE_QUEUE"}"#), Some(3.0));
    assert_eq!(world.value(r#"kfd_ioctl_errors_total{ioctl="CREATE_QUEUE",errno="EINVAL"}"#), Some(2.0));
    let duration = |what: &str| world.value(&format!("kfd_ioctl_duration_seconds_{what}"));
    assert_eq!(duration(r#"bucket{ioctl="CREATE_QUEUE",le="0.000001024"}"#), Some(0.0));
    assert_eq!(duration(r#"bucket{ioctl="CREATE_QUEUE",le="0.000004096"}"#), Some(3.0));
    assert_eq!(duration(r#"bucket{ioctl="CREATE_QUEUE",le="+Inf"}"#), Some(3.0));
    assert_eq!(duration(r#"sum{ioctl="CREATE_QUEUE"}"#), Some(4.5e-6));
    assert_eq!(world.value(r#"kfd_ioctls_in_flight{ioctl="DESTROY_QUEUE"}"#), Some(2.0));
    assert_eq!(world.value(r#"kfd_ioctl_in_flight_oldest_seconds{ioctl="DESTROY_QUEUE"}"#), Some(2.0));
    assert_eq!(world.value(r#"kfd_ioctls_not_measured_total{ioctl="WAIT_EVENTS"}"#), Some(4.0));
    let own = r#"kfd_process_ioctls_total{pid="4321",kfd_process="1",comm="train",ioctl="CREATE_QUEUE"}"#;
    assert_eq!(world.value(own), Some(3.0));
}

#[test]
fn threads_asleep_in_wait_events_wait_and_are_not_stuck() {
    let mut world = World::new(traced());
    let mut wait = ioctl_row(1, WAIT, 2, 1_500);
    wait.stat.entered = 305;
    let mut destroy = ioctl_row(1, DESTROY, 0, 0);
    destroy.stat.entered = 1;
    world.tables.ioctls = vec![wait, destroy];
    world.tables.errors = vec![error_row(1, WAIT, 512, 1)];
    let mut open: Vec<_> = (0..300).map(|tid| open_call(1, WAIT, tid, 500_000_000)).collect();
    open[7].entered_ns = 0;
    open.push(open_call(1, DESTROY, 300, 1_000_000_000));
    world.tables = world.tables.with_open(open);
    world.tables.whole_calls = true;

    assert_eq!(world.value("kfd_event_waits_in_flight"), Some(300.0));
    assert_eq!(world.value("kfd_event_wait_in_flight_oldest_seconds"), Some(3.0));
    let duration = |what: &str| world.value(&format!("kfd_event_wait_duration_seconds_{what}"));
    assert_eq!(duration(r#"bucket{le="0.000001024"}"#), Some(0.0));
    assert_eq!(duration(r#"bucket{le="0.000004096"}"#), Some(2.0));
    assert_eq!((duration("count"), duration("sum")), (Some(2.0), Some(3e-6)));
    assert_eq!(world.value(r#"kfd_ioctls_total{ioctl="WAIT_EVENTS"}"#), Some(305.0));
    let errors = r#"kfd_ioctl_errors_total{ioctl="WAIT_EVENTS",errno="ERESTARTSYS"}"#;
    assert_eq!(world.value(errors), Some(1.0));
    assert_eq!(world.value(r#"kfd_trace_ioctl_returns_missed{ioctl="WAIT_EVENTS"}"#), Some(3.0));
    assert_eq!(world.value(r#"kfd_ioctls_not_measured_total{ioctl="WAIT_EVENTS"}"#), Some(0.0));

    let text = world.text();
    let series = |family: &str| {
        let lines = text.lines().filter(|line| line.starts_with(&format!("{family}{{")));
        lines.filter(|line| !line.ends_with(" 0")).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(series("kfd_ioctls_in_flight"), [r#"kfd_ioctls_in_flight{ioctl="DESTROY_QUEUE"} 1"#]);
    assert_eq!(
        series("kfd_ioctl_in_flight_oldest_seconds"),
        [r#"kfd_ioctl_in_flight_oldest_seconds{ioctl="DESTROY_QUEUE"} 2"#]
    );
    assert_eq!(series("kfd_ioctl_duration_seconds_count"), Vec::<String>::new());
    let in_total = r#"kfd_ioctl_duration_seconds_count{ioctl="WAIT_EVENTS"}"#;
    assert_eq!(
        (world.value(in_total), world.value(&in_total.replace("WAIT_EVENTS", "SVM"))),
        (None, Some(0.0))
    );
}

#[test]
fn waits_whose_return_is_not_probed_are_unknown_and_not_zero() {
    let mut world = World::new(traced());
    let mut wait = ioctl_row(1, WAIT, 0, 0);
    wait.stat.entered = 4;
    world.tables.ioctls = vec![wait];
    let text = world.text();
    assert!(!text.lines().any(|line| line.starts_with("kfd_event_wait")), "{text}");
    assert_eq!(world.value(r#"kfd_ioctls_not_measured_total{ioctl="WAIT_EVENTS"}"#), Some(4.0));
    assert_eq!(world.value(r#"kfd_trace_ioctl_returns_missed{ioctl="WAIT_EVENTS"}"#), None);
    // The next driver is probed in the other way.
    world.retired.retire(&world.tables);
    world.tables = Tables { whole_calls: true, ..Tables::default() };
    assert_eq!(world.value(r#"kfd_ioctls_not_measured_total{ioctl="WAIT_EVENTS"}"#), Some(4.0));
    assert_eq!(world.value(r#"kfd_trace_ioctl_returns_missed{ioctl="WAIT_EVENTS"}"#), Some(0.0));
    assert_eq!(world.value("kfd_event_waits_in_flight"), Some(0.0));
    assert_eq!(world.value("kfd_event_wait_in_flight_oldest_seconds"), None);
    // No return is probed at all.
    world.probes.retain(|probe| probe.id != ProbeId::IoctlReturn);
    let text = world.text();
    let of_returns =
        ["kfd_event_wait", "kfd_ioctls_in_flight", "kfd_ioctl_duration", "kfd_trace_ioctl_returns"];
    let shown = |line: &&str| of_returns.iter().any(|family| line.starts_with(family));
    assert_eq!(text.lines().filter(shown).collect::<Vec<_>>(), Vec::<&str>::new());
}

#[test]
fn totals_stay_when_the_rows_of_an_ended_process_leave_the_maps() {
    let mut world = World::new(traced());
    world.tables.ioctls = vec![ioctl_row(1, CREATE, 3, 1_500), ioctl_row(2, CREATE, 1, 10)];
    world.tables.errors = vec![error_row(1, CREATE, 22, 2)];
    let total = r#"kfd_ioctls_total{ioctl="CREATE_QUEUE"}"#;
    let failed = r#"kfd_ioctl_errors_total{ioctl="CREATE_QUEUE",errno="EINVAL"}"#;
    let before = [world.value(total), world.value(failed)];
    let ioctls = world.tables.ioctls.extract_if(.., |row| row.process == ProcessId(1)).collect();
    let errors = std::mem::take(&mut world.tables.errors);
    world.retired.retire(&Tables { ioctls, errors, ..Tables::default() });
    assert_eq!([world.value(total), world.value(failed)], before);
    assert_eq!(before, [Some(4.0), Some(2.0)]);
}
