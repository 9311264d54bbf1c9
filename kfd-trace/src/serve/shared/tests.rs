use super::*;
use crate::model::counters::samples::counters;
use crate::model::missed::Missed;
use crate::output::api::{ApiQuery, Refusal};
use crate::output::metrics::Format;
use crate::runtime::beat::tests::stuck_for;
use crate::serve::question::PageSource;
use crate::state::Filter;
use crate::state::samples::{create, event, ioctl_row, seen};
use crate::tracer::history;
use kfd_trace_common::kind::Kind;
use kfd_trace_common::{counter, loss};
use std::path::Path;
use std::time::Duration;

const DETAIL: Detail =
    Detail { processes: Some(10), new_processes: 1000, queues: None, linger: Duration::from_secs(300) };

#[test]
fn what_the_tracer_counts_of_itself_does_not_go_down_while_the_driver_is_away() {
    let roots = Roots::under(Path::new("/nowhere"));
    let mut tracer = Tracer::idle(&roots);
    // A record without its process's first one.
    tracer.state.apply(&event(10, 1, 700, create(3)));
    tracer.driver_loads = 2;
    let waiting = tracer.samples.waiting.clone();
    waiting.begins();
    let counted = [(counter::sent(Kind::Open), 5), (counter::hits(ProbeId::Open), 7)];
    let counters = counters(&counted, &[(loss::lost(ProbeId::Open, Kind::Open), 6)]);
    let was_on = Missed { program_skipped: Some(8), probe_missed: None };
    tracer.count_last(Tables {
        counters,
        missed: [(ProbeId::Open, was_on), (ProbeId::Ioctl, Missed::default())].into(),
        ioctls: vec![ioctl_row(1, 7, 9, 100)],
        ..Tables::default()
    });
    let counts = [
        "kfd_trace_state_anomalies_total{reason=\"process_seen_lost\"} 1",
        "kfd_trace_driver_loads_total 2",
        "kfd_trace_records_total{kind=\"open\"} 5",
        "kfd_trace_records_lost_total{kind=\"open\"} 6",
        "kfd_trace_probe_records_lost_total{probe=\"open\",cause=\"ring_full\"} 6",
        "kfd_trace_probe_hits_total{probe=\"open\"} 7",
        "kfd_trace_probe_missed_total{probe=\"open\",cause=\"program_skipped\"} 8",
        "kfd_trace_probe_hits_total{probe=\"ioctl\"} 9",
        "kfd_trace_trouble_total{reason=\"ioctl_stats_full\"} 0",
    ];
    let page = SharedPage::new(roots, DETAIL);
    let missing = || {
        let text = page.metrics(Format::Text).unwrap();
        Vec::from_iter(counts.into_iter().filter(|count| !text.lines().any(|line| line == *count)))
    };
    assert_eq!(missing(), counts, "nothing is traced yet");
    page.serves(Serving { tracer, ring_bytes: 0 });
    assert_eq!((missing(), page.ready()), (vec![], Ok(())));
    let sources = || {
        let text = page.metrics(Format::Text).unwrap();
        let lines = text.lines().filter_map(|line| line.strip_prefix("kfd_trace_collector_success"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(sources(), ["{collector=\"bpf_maps\"} 1"]);
    assert!(page.waits_for("it was unloaded").is_some_and(|serving| serving.tracer.driver_loads == 2));
    assert!(page.waits_for("it is still away").is_none());
    assert_eq!((missing(), page.ready()), (vec![], Err("it is still away".to_owned())));
    let text = page.metrics(Format::Text).unwrap();
    let of_driver = |line: &&str| line.starts_with("kfd_") && !line.starts_with("kfd_trace_");
    assert_eq!(text.lines().find(of_driver), None, "not measured is not 0");
    assert!(!text.contains("kfd_trace_processes_remembered"), "they are remembered, and not shown");
    let readers = |count| format!("kfd_trace_sample_readers_waiting {count}");
    assert!(text.lines().any(|line| line == readers(1)), "it waits all the same");
    waiting.ends();
    assert!(
        page.metrics(Format::Text).unwrap().lines().any(|line| line == readers(0)),
        "and returns meanwhile"
    );
    assert!(sources().is_empty(), "none is read");
    let html = page.page(crate::output::page::Place::Node, &[]).unwrap();
    assert!(html.contains("it is still away") && !html.contains("No process"), "{html}");
}

#[test]
fn a_driver_that_is_loaded_and_not_traced_is_reported() {
    let root = tempfile::tempdir().unwrap();
    let roots = Roots::under(root.path());
    let sysfs = roots.sysfs.clone();
    let page = SharedPage::new(roots, DETAIL);
    let loaded = || {
        let text = page.metrics(Format::Text).unwrap();
        let values = text.lines().filter_map(|line| line.strip_prefix("kfd_trace_driver_loaded "));
        values.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(loaded(), ["0"]);
    for part in ["module/amdgpu", "class/kfd"] {
        std::fs::create_dir_all(sysfs.join(part)).unwrap();
    }
    assert_eq!(loaded(), ["1"]);
    assert!(!page.metrics(Format::Text).unwrap().contains("kfd_trace_probe_attached"));
}

#[test]
fn a_node_is_diagnosed_also_while_nothing_is_traced() {
    let root = tempfile::tempdir().unwrap();
    let roots = Roots { procfs: "/proc".into(), ..Roots::under(root.path()) };
    let sysfs = roots.sysfs.clone();
    let page = SharedPage::new(roots.clone(), DETAIL);
    let refused = page.document(&ApiQuery::Doctor(None)).unwrap_err();
    let line = "the amdgpu driver is not loaded: there is nothing to trace; load it (modprobe amdgpu)";
    assert_eq!(refused, Refusal::NotTraced(line.to_owned()));
    std::fs::create_dir_all(sysfs.join("module/amdgpu")).unwrap();
    let own = std::process::id();
    std::fs::create_dir_all(sysfs.join(format!("class/kfd/kfd/proc/{own}/queues"))).unwrap();
    let why = |report: &serde_json::Value| {
        let views = report["views"].as_array().unwrap();
        ["kernel", "sampled"]
            .map(|name| views.iter().find(|view| view["view"] == name).unwrap()["why"].clone())
    };
    let report = answer(&page, &ApiQuery::Doctor(None));
    assert_eq!((&report["schema"], &report["pid"]), (&1.into(), &().into()));
    assert_eq!(report["processes"][0]["pid"], own, "sysfs has it");
    assert_eq!(why(&report), ["the daemon traces nothing now: starting"; 2]);
    let missing = page.document(&ApiQuery::Doctor(Some(4 << 20))).unwrap_err();
    assert!(
        matches!(missing, Refusal::Bad(line) if line.starts_with("pid 4194304: KFD has no such process"))
    );
    page.serves(Serving { tracer: Tracer::idle(&roots), ring_bytes: 0 });
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(why(&answer(&page, &ApiQuery::Doctor(Some(own)))), ["no probes are attached now"; 2]);
}

#[test]
fn documents_have_the_current_time() {
    let roots = Roots::under(Path::new("/nowhere"));
    let mut tracer = Tracer::idle(&roots);
    tracer.clock.mono_to_wall_ns = 0;
    let page = SharedPage::new(roots, DETAIL);
    page.serves(Serving { tracer, ring_bytes: 0 });
    let document: serde_json::Value =
        serde_json::from_str(&page.document(&ApiQuery::Queues).unwrap()).unwrap();
    let shown: jiff::Timestamp = document["ts"].as_str().unwrap().parse().unwrap();
    assert!(
        jiff::Timestamp::now().duration_since(shown).abs() < jiff::SignedDuration::from_mins(1),
        "{shown}"
    );
}

/// The page's response to the request, as JSON.
fn answer(page: &SharedPage, query: &ApiQuery) -> serde_json::Value {
    serde_json::from_str(&page.document(query).unwrap()).unwrap()
}

#[test]
fn what_is_remembered_outlives_the_driver() {
    let roots = Roots::under(Path::new("/nowhere"));
    let page = SharedPage::new(roots.clone(), DETAIL);
    let mut tracer = Tracer::idle(&roots);
    tracer.driver_loads = 1;
    page.serves(Serving { tracer, ring_bytes: 0 });
    let began_ns = clock::mono_ns();
    page.with_history(history::begins);
    let now_ns = clock::mono_ns();
    page.with_history(|tracer, history| {
        let records = [event(now_ns, 1, 700, seen(false)), event(now_ns, 1, 700, create(3))].map(Ok);
        history::records(tracer, history, &records);
        // The wall clock has nanoseconds, and the two clocks are not read at the same time.
        std::thread::sleep(std::time::Duration::from_millis(2));
        history::driver_unloaded(tracer, history);
    });
    page.waits_for("it was unloaded");
    let at_ns = clock::wall_minus_mono_ns() + i64::try_from(now_ns).unwrap() + 1_000_000;
    let held = answer(&page, &ApiQuery::QueuesAt(at_ns));
    assert_eq!(held["queues"][0]["cause"], "driver_unloaded", "{held}");
    assert_eq!((held["queues"].as_array().unwrap().len(), &held["complete"]), (1, &true.into()));
    let untraced = |mono_ns| {
        let at_ns = clock::wall_minus_mono_ns() + i64::try_from(mono_ns).unwrap();
        answer(&page, &ApiQuery::QueuesAt(at_ns))["traced"] == false
    };
    assert!(untraced(began_ns - 1_000_000) && untraced(clock::mono_ns()));
    let events = answer(&page, &ApiQuery::Events(Filter::newest(10)));
    let names: Vec<_> = events["events"].as_array().unwrap().iter().map(|event| &event["event"]).collect();
    let expected = ["process_seen", "queue_create", "queue_destroy", "process_release", "driver_unloaded"];
    assert_eq!(names, expected);
    let status = answer(&page, &ApiQuery::Status);
    assert_eq!((&status["tracing"], &status["reason"]), (&false.into(), &"it was unloaded".into()));
    assert_eq!(page.document(&ApiQuery::Queues), Err(Refusal::NotTraced("it was unloaded".into())));
    let future = page.document(&ApiQuery::QueuesAt(i64::MAX)).unwrap_err();
    assert!(matches!(&future, Refusal::Bad(line) if line.starts_with("at lies in the future")), "{future:?}");
}

#[test]
fn unreadable_sysfs_is_a_failure_of_its_collector_alone() {
    let root = tempfile::tempdir().unwrap();
    let roots = Roots::under(root.path());
    let queue = roots.sysfs.join("class/kfd/kfd/proc/4711/queues/2");
    std::fs::create_dir_all(&queue).unwrap();
    for (file, text) in [("gpuid", "58270"), ("size", "4096"), ("type", "0")] {
        std::fs::write(queue.join(file), text).unwrap();
    }
    let page = SharedPage::new(roots, DETAIL);
    let probe = |id| crate::output::samples::probe(id, crate::model::verdict::Verdict::Attached);
    let probes = [ProbeId::Ioctl, ProbeId::QueueAdd, ProbeId::QueueDel].map(probe);
    assert_eq!((page.sysfs(&[], 5), page.sysfs(&probes, 5)), (None, None), "it is not read");
    let queues = |snapshot: &Snapshot| snapshot.queues().count();
    let (snapshot, collected) = page.sysfs(&probes[..2], 5).unwrap();
    assert_eq!((queues(&snapshot), collected.collector, collected.failed), (1, SYSFS, None));
    std::fs::write(queue.join("size"), "a lot").unwrap();
    let (snapshot, collected) = page.sysfs(&probes[..2], 5).unwrap();
    assert!(collected.failed.is_some_and(|why| why.contains("queues/2/size")));
    assert_eq!(queues(&snapshot), 1);
}

#[test]
fn a_source_that_cannot_be_read_is_reported_and_withholds_documents() {
    let (none, failed) = collected(BPF_MAPS, || Err::<Tables, _>("the kernel refused it".to_owned()));
    assert_eq!((none, failed.failed.as_deref()), (None, Some("the kernel refused it")));
    let (seven, well) = collected(SYSFS, || Ok(7));
    assert_eq!((seven, well.failed.as_ref()), (Some(7), None));
    let taken = |collectors| Taken { collectors, driver_loads: 3, ..Taken::default() }.whole();
    assert_eq!(taken(vec![well.clone()]).map(|taken| taken.driver_loads), Ok(3));
    assert_eq!(taken(vec![well, failed]).err().as_deref(), Some("the kernel refused it"));
}

#[test]
fn a_document_that_cannot_be_made_is_a_failure_and_not_reported_as_nothing_traced() {
    let page = SharedPage::new(Roots::under(Path::new("/nowhere")), DETAIL);
    let (_, failed) = collected(BPF_MAPS, || Err::<Tables, _>("the kernel refused it".to_owned()));
    let taken = Taken { collectors: vec![failed], ..Taken::default() };
    assert_eq!(page.status(taken), Err(Refusal::Failed("the kernel refused it".into())));
    assert!(page.status(Taken::default()).is_ok());
    let error = <serde_json::Error as serde::ser::Error>::custom("no JSON has that");
    assert_eq!(super::super::answer::written(Err(error)), Err(Refusal::Failed("no JSON has that".into())));
}

#[test]
fn a_tracer_whose_loop_does_not_turn_is_not_healthy() {
    let mut page = SharedPage::new(Roots::under(Path::new("/nowhere")), DETAIL);
    assert_eq!((page.healthy(), page.ready()), (Ok(()), Err("starting".to_owned())));
    page.turned = stuck_for(60);
    assert!(page.healthy().unwrap_err().starts_with("the tracer's loop has not turned for 60 s"));
    page.turned().turn();
    assert_eq!(page.healthy(), Ok(()));
}
