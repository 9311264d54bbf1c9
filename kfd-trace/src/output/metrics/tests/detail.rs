//! Series of single processes and queues: their switches and limits, and how long they remain after the end.
//! What remains if a source cannot be read.

use super::*;

const QUEUE: &str = r#"pid="4321",kfd_process="1",comm="train",gpu_id="58270",queue_id="3""#;

/// [`traced`] at 3 s, with two more queues at 1 s and 2 s.
fn with_queues() -> World {
    let mut world = World::new(traced());
    let sdma = QueueFacts {
        queue_type: Some(QueueType::Sdma),
        sdma_engine_id: Some(1),
        percent: Some(25),
        ..facts(1)
    };
    world.state.apply(&event(1_000_000_000, 1, PID, Body::QueueCreate(sdma)));
    world.state.apply(&event(2_000_000_000, 1, PID, create(2)));
    world.detail.queues = Some(10);
    world
}

#[test]
fn nothing_has_a_pid_where_processes_are_switched_off() {
    let mut world = World::new(traced());
    world.tables.ioctls = vec![ioctl_row(1, CREATE, 3, 1_500)];
    assert!(world.text().contains("pid="));
    let total = r#"kfd_ioctls_total{ioctl="CREATE_QUEUE"}"#;
    let of_gpu = r#"kfd_queues{gpu_id="58270",queue_type="compute_aql"}"#;
    let before = [total, of_gpu].map(|series| world.value(series));
    world.detail.processes = None;
    assert!(!world.text().contains("pid="), "{}", world.text());
    assert_eq!([total, of_gpu].map(|series| world.value(series)), before);
    assert_eq!(before, [Some(3.0), Some(1.0)]);
    assert_eq!(world.value("kfd_trace_metrics_processes_dropped"), None, "none was requested");
}

#[test]
fn queues_have_series_only_on_request() {
    let mut world = with_queues();
    for (series, value) in [
        (
            format!(
                r#"kfd_queue_info{{{QUEUE},queue_type="compute_aql",sdma_engine_id="",of_runtime="false"}}"#
            ),
            Some(1.0),
        ),
        (format!("kfd_queue_created_timestamp_seconds{{{QUEUE}}}"), Some(1.79e9)),
        (format!("kfd_queue_priority{{{QUEUE}}}"), Some(7.0)),
        (format!("kfd_queue_share_ratio{{{QUEUE}}}"), Some(1.0)),
        (format!("kfd_queue_active{{{QUEUE}}}"), Some(1.0)),
        (format!("kfd_queue_evicted{{{QUEUE}}}"), Some(0.0)),
        (r#"kfd_trace_metrics_queues_dropped"#.to_owned(), Some(0.0)),
    ] {
        assert_eq!(world.value(&series), value, "{series}");
    }
    let other = QUEUE.replace("queue_id=\"3\"", "queue_id=\"1\"");
    let info =
        format!(r#"kfd_queue_info{{{other},queue_type="sdma",sdma_engine_id="1",of_runtime="false"}}"#);
    assert_eq!(world.value(&info), Some(1.0));
    assert_eq!(world.value(&format!("kfd_queue_share_ratio{{{other}}}")), Some(0.25));
    let created = world.value(&format!("kfd_queue_created_timestamp_seconds{{{other}}}"));
    assert_eq!(created, Some(1_790_000_001.0));
    world.state.apply(&event(2_500_000_000, 1, PID, destroy(1)));
    assert_eq!(world.value(&info), None, "it ended");
    world.detail.queues = None;
    let text = world.text();
    assert!(!text.contains("queue_id=") && !text.contains("queues_dropped"), "{text}");
}

#[test]
fn unknown_fields_of_a_queue_have_no_series() {
    let mut world = with_queues();
    let unknown =
        QueueFacts { gpu_id: Some(58270), ..QueueFacts::unknown(crate::model::event::Origin::Standing) };
    let queue = QueueFacts { queue_id: Some(9), ..unknown };
    let key = world.state.snapshot().processes[0].key;
    world.state.adopt_queue(key, 2_900_000_000, &queue, crate::state::Source::Sysfs);
    let text = world.text();
    let lines: Vec<_> = text.lines().filter(|line| line.contains(r#"queue_id="9""#)).collect();
    assert_eq!(
        lines,
        [format!(
            "kfd_queue_info{{{},queue_type=\"unknown\",sdma_engine_id=\"\",of_runtime=\"\"}} 1",
            QUEUE.replace("\"3\"", "\"9\"")
        )]
    );
}

#[test]
fn series_of_queues_are_bounded_and_the_rest_is_counted() {
    let mut world = with_queues();
    world.detail.queues = Some(2);
    let shown = |world: &World| {
        let text = world.text();
        let ids = [1, 2, 3, 4].into_iter();
        ids.filter(|id| text.contains(&format!("queue_id=\"{id}\",queue_type"))).collect::<Vec<_>>()
    };
    assert_eq!(shown(&world), [1, 3], "the oldest, which is queue 3");
    assert_eq!(world.value("kfd_trace_metrics_queues_dropped"), Some(1.0));
    world.state.apply(&event(2_500_000_000, 1, PID, create(4)));
    assert_eq!((shown(&world), world.value("kfd_trace_metrics_queues_dropped")), (vec![1, 3], Some(2.0)));
    world.state.apply(&event(2_600_000_000, 1, PID, destroy(3)));
    assert_eq!((shown(&world), world.value("kfd_trace_metrics_queues_dropped")), (vec![1, 2], Some(1.0)));
    assert!(world.value("kfd_process_ioctls_total").is_none() && world.text().contains("kfd_process_info"));
}

#[test]
fn a_dead_process_has_its_counters_for_the_linger_and_none_after_it() {
    let mut world = World::new(traced());
    world.tables.ioctls = vec![ioctl_row(1, CREATE, 3, 1_500)];
    world.detail.linger = Duration::from_millis(1_500);
    let own = r#"kfd_process_ioctls_total{pid="4321",kfd_process="1",comm="train",ioctl="CREATE_QUEUE"}"#;
    let all = r#"kfd_ioctls_total{ioctl="CREATE_QUEUE"}"#;
    // The time is 3 s.
    for (ended_ns, left) in [(2_000_000_000, Some(3.0)), (1_500_000_001, Some(3.0)), (1_500_000_000, None)] {
        world.state = traced();
        world.state.apply(&event(ended_ns, 1, PID, Body::ProcessRelease));
        assert_eq!((world.value(own), world.value(all)), (left, Some(3.0)), "ended at {ended_ns}");
        assert_eq!(world.text().contains("pid="), left.is_some(), "ended at {ended_ns}");
        assert!(!world.text().contains("kfd_process_queues{"), "its queues are gone");
        assert_eq!(
            world.value("kfd_trace_metrics_processes_dropped"),
            Some(0.0),
            "it is left out on purpose"
        );
        assert_eq!(world.value("kfd_trace_processes_remembered"), Some(1.0));
    }
    world.detail.linger = Duration::ZERO;
    world.state = traced();
    assert_eq!(world.value(own), Some(3.0), "it lives");
    world.state.apply(&event(3_000_000_000, 1, PID, Body::ProcessRelease));
    assert_eq!(world.value(own), None, "it has just ended");
}

/// If queues cannot be probed, a process of sysfs has no number: its calls are found by PID.
#[test]
fn the_dead_of_a_pid_that_lives_again_do_not_linger_longer() {
    let mut world = World::new(traced());
    world.probes.retain(|probe| probe.id != ProbeId::QueueDel);
    world.state.apply(&event(1_000_000_000, 1, PID, Body::ProcessRelease));
    world.tables.ioctls = vec![ioctl_row(1, CREATE, 3, 1_500)];
    let mut listed = State::new(StateLimits::default());
    let process = crate::model::inventory::Listed { tgid: PID, ..Default::default() };
    listed.adopt_process(3_000_000_000, &process, crate::state::Source::Sysfs);
    world.sysfs = Some(listed.snapshot());
    let own = r#"kfd_process_ioctls_total{pid="4321",kfd_process="1",comm="train",ioctl="CREATE_QUEUE"}"#;
    assert_eq!(world.value(own), Some(3.0));
    world.detail.linger = Duration::from_secs(1);
    assert_eq!(world.value(own), None);
    assert!(world.text().contains(r#"kfd_process_info{pid="4321",kfd_process="""#));
}

#[test]
fn a_source_that_cannot_be_read_leaves_the_rest() {
    let mut world = World::new(traced());
    world.tables.ioctls = vec![ioctl_row(1, CREATE, 3, 1_500)];
    let collected = |collector, failed: Option<&str>| Collected {
        collector,
        took_ns: 2_500_000,
        failed: failed.map(str::to_owned),
    };
    let of_maps = [
        "kfd_ioctls_total",
        "kfd_ioctl_duration",
        "kfd_process_ioctls",
        "kfd_trace_records",
        "kfd_trace_probe_hits",
    ];
    world.collectors = vec![collected(BPF_MAPS, None), collected(STATE, None)];
    let text = world.text();
    assert!(of_maps.iter().all(|family| text.contains(&format!("\n{family}"))));
    assert_eq!(world.value(r#"kfd_trace_collector_success{collector="bpf_maps"}"#), Some(1.0));
    world.collectors[0] = collected(BPF_MAPS, Some("no"));
    let text = world.text();
    assert_eq!(
        of_maps.iter().find(|family| text.contains(&format!("\n{family}"))),
        None,
        "not read is not 0"
    );
    assert_eq!(world.value(r#"kfd_trace_collector_success{collector="bpf_maps"}"#), Some(0.0));
    assert_eq!(world.value(r#"kfd_trace_collector_success{collector="state"}"#), None, "it cannot fail");
    assert_eq!(
        world.value(r#"kfd_trace_collector_success{collector="sysfs"}"#),
        None,
        "it was not requested"
    );
    assert_eq!(world.value(r#"kfd_trace_collector_duration_seconds{collector="state"}"#), Some(0.0025));
    assert_eq!(world.value(r#"kfd_queues{gpu_id="58270",queue_type="compute_aql"}"#), Some(1.0));
    assert_eq!(world.value(r#"kfd_trace_map_capacity{map="ioctl_stats"}"#), Some(16_384.0));
    assert!(text.contains("\nkfd_process_info{"));
}

#[test]
fn without_probes_queues_are_read_from_sysfs() {
    let (empty, sysfs) = (State::new(StateLimits::default()).snapshot(), traced().snapshot());
    let (tables, retired) = (Tables::default(), IoctlTotals::default());
    let scrape = Scrape {
        named: crate::model::ioctl::Named::default(),
        snapshot: &empty,
        queues_by_ioctl: false,
        sysfs: Some(&sysfs),
        tables: Some(&tables),
        collectors: &[],
        retired: &retired,
        samples: &SampleTotals::default(),
        probes: &[],
        topology: &topology(),
        undecoded: &Undecoded::default(),
        capacities: &[],
        admitted: None,
        detail: DETAIL,
        now_ns: 0,
        wall_minus_mono_ns: 0,
        recording: None,
        exported: None,
        driver_loaded: false,
        driver_loads: 0,
        build: BUILD,
        types: &TypesReport::default(),
        start_time_seconds: 0.0,
        duration_seconds: 0.0,
    };
    let text = exposition(&scrape, Format::Text).expect("well formed");
    assert!(text.contains("kfd_queues{gpu_id=\"58270\",queue_type=\"compute_aql\"} 1\n"), "{text}");
    assert!(text.contains("kfd_processes 1\n") && text.contains("\nkfd_process_queues{pid=\"4321\""));
    assert!(!text.contains("kfd_ioctls_total") && !text.contains("kfd_trace_records_total"));
}

#[test]
fn series_of_processes_are_bounded_and_the_rest_is_counted() {
    let mut world = World::new(State::new(StateLimits::default()));
    for id in 1..=5 {
        world.state.apply(&event(id, id, 100 + u32::try_from(id).expect("small"), seen(false)));
    }
    world.state.apply(&event(9, 1, 101, Body::ProcessRelease));
    world.detail.processes = Some(3);
    let text = world.text();
    let pids: Vec<_> =
        (101..=105).filter(|pid| text.contains(&format!("kfd_process_info{{pid=\"{pid}\""))).collect();
    assert_eq!(pids, [102, 103, 104], "live ones first, the oldest of them");
    assert_eq!(world.value("kfd_trace_metrics_processes_dropped"), Some(2.0));
    assert_eq!(world.value("kfd_processes"), Some(4.0));
}

#[test]
fn processes_over_the_budget_have_no_series_and_are_counted() {
    let mut world = World::new(State::new(StateLimits::default()));
    for id in 1..=4 {
        world.state.apply(&event(id, id, 100 + u32::try_from(id).expect("small"), seen(false)));
        world.state.apply(&event(id, id, 100 + u32::try_from(id).expect("small"), create(3)));
    }
    world.detail.queues = Some(100);
    assert_eq!(world.value("kfd_trace_metrics_processes_over_budget_total"), None, "there is no budget");
    let processes = [2, 3].map(|id| (Some(100 + id), Some(ProcessId(u64::from(id))))).into();
    world.admitted = Some(Admitted { processes: std::sync::Arc::new(processes), refused: 7 });
    let text = world.text();
    for family in ["kfd_process_info{pid", "kfd_process_queues{pid", "kfd_queue_info{pid"] {
        let pids: Vec<_> = (101..=104).filter(|pid| text.contains(&format!("{family}=\"{pid}\""))).collect();
        assert_eq!(pids, [102, 103], "{family}");
    }
    let value = |name: &str| world.value(&format!("kfd_trace_metrics_{name}"));
    let values = ["processes_dropped", "queues_dropped", "processes_over_budget_total"].map(value);
    assert_eq!(values, [Some(2.0), Some(2.0), Some(7.0)]);
    assert_eq!(world.value("kfd_processes"), Some(4.0));
}
