//! Preemptions and lists of queues, against the driver's own calls as tracefs shows them.

use anyhow::{Context as _, Result};
use kfd_trace_tests::harness::events::{all, of, so_far};
use kfd_trace_tests::harness::node::nodes;
use kfd_trace_tests::harness::setting::{Hang, PREEMPTION_TIMEOUT, Setting};
use kfd_trace_tests::harness::wait::{ATTACH, SOON};
use kfd_trace_tests::harness::workload::{kfdsim, kfdsim_at};
use kfd_trace_tests::harness::{Calls, Daemon, JsonProcess, Metrics, Steered, Stream, tracer, until};
use kfd_trace_tests::kfd::topology::gpu_id as gpu;
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// What the driver calls for each: a preemption, its confirmation, and a list.
const CALLS: [&str; 3] = ["pm_send_unmap_queue", "pm_release_ib", "pm_send_runlist"];

/// Reason and PID of each, of one GPU.
fn reasons(lines: &[Value], event: &str, gpu: u64) -> Vec<Value> {
    let here = all(lines, event).into_iter().filter(|line| line["gpu_id"] == gpu);
    here.map(|line| json!([line["reason"], line["pid"]])).collect()
}

#[test]
fn each_change_has_its_reason_and_its_process() -> Result<()> {
    changes(&["--runlists"])
}

/// As where the compiler made `unmap_queues_cpsch` a part of its callers (ROCm's 6.0.5).
const INLINED: &str = "--without-probe=runlist_unmap";

#[test]
fn each_change_has_them_where_the_drivers_function_is_inlined() -> Result<()> {
    changes(&["--runlists", INLINED])?;
    changes(&["--runlists", INLINED, "--without-probe=runlist_execute"])
}

fn changes(options: &[&str]) -> Result<()> {
    let stream = Stream::tracing(options)?;
    let witness = Calls::of(&CALLS)?;
    let mut one = Steered::having(&["create aql"])?;
    let mut other = Steered::having(&["create aql"])?;
    let (a, b, first) = (one.pid(), other.pid(), gpu(0)?);
    one.must("update 0 50")?;
    kfdsim("quiesce", a)?;
    kfdsim("resume", a)?;
    one.must("destroy 0")?;
    one.kill()?;
    let lines = so_far(&stream, &mut other)?;

    assert_eq!(
        reasons(&lines, "runlist", first),
        [
            json!(["create", a]),
            json!(["create", b]),
            json!(["update", a]),
            json!(["evict", a]),
            json!(["restore", a]),
            json!(["destroy", a]),
            json!(["process_end", a]),
        ]
    );
    // nothing ran before the first queue
    let preempts = reasons(&lines, "preempt", first);
    assert_eq!(preempts, reasons(&lines, "runlist", first)[1..]);
    let lists: Vec<Value> = all(&lines, "runlist")
        .iter()
        .filter(|line| line["gpu_id"] == first)
        .map(|line| {
            json!([line["queues"], line["cp_queues"], line["oversubscribed"], line["unmapped_ns"].is_null()])
        })
        .collect();
    let counts = |count: u32, first: bool| json!([count, count, false, first]);
    let [one_queue, two] = [1, 2].map(|count| counts(count, false));
    assert_eq!(
        lists,
        [counts(1, true), two.clone(), two.clone(), one_queue.clone(), two, one_queue.clone(), one_queue]
    );
    for line in all(&lines, "preempt").iter().filter(|line| line["gpu_id"] == first) {
        let waits = if line["pid"] == a { b } else { a };
        assert_eq!(line["hit_pids"], json!([waits]), "{line}");
        assert!(line["errno"].is_null() && line["latency_ns"].as_u64().is_some_and(|ns| ns > 0), "{line}");
    }

    // as often as the driver did so, on whichever GPU; after this, in the order of the ring buffer
    let called = |name: &str| -> Result<usize> {
        Ok(witness.seen()?.iter().filter(|call| call.function == name).count())
    };
    assert_eq!(all(&lines, "preempt").len(), called("pm_send_unmap_queue")?);
    assert_eq!(all(&lines, "runlist").len(), called("pm_send_runlist")?);
    other.kill()?;
    Ok(())
}

#[test]
fn the_table_counts_each_interval_by_itself() -> Result<()> {
    intervals(&["runlist", "--json", "--interval=500ms"])
}

#[test]
fn the_table_is_whole_where_the_drivers_function_is_inlined() -> Result<()> {
    intervals(&["runlist", "--json", "--interval=500ms", INLINED])
}

fn intervals(words: &[&str]) -> Result<()> {
    let mut table = JsonProcess::spawn(&tracer::program(), words)?;
    table.wait_stderr("kfd-trace: tracing", ATTACH)?;
    let first = gpu(0)?;
    let of_gpu = |line: &Value| -> Option<Value> {
        let gpus = line["gpus"].as_array()?;
        gpus.iter().find(|gpu| gpu["gpu_id"] == first).cloned()
    };
    let unknown = table.wait_line("an interval", SOON, |line| of_gpu(line).is_some())?;
    assert_eq!(of_gpu(&unknown).context("the GPU")?["queues"], Value::Null, "{unknown}");
    let mut one = Steered::having(&["create aql"])?;
    let other = Steered::having(&["create aql"])?;
    let (a, b) = (one.pid(), other.pid());
    table.wait_line("two queues", SOON, |line| {
        of_gpu(line).is_some_and(|gpu| gpu["queues"] == 2 && gpu["processes"] == 2)
    })?;
    let of = |line: &Value, pid: u32, name: &str| -> u64 {
        let rows = line["processes"].as_array().into_iter().flatten();
        rows.filter(|row| row["pid"] == pid && row["gpu_id"] == first)
            .filter_map(|row| row[name].as_u64())
            .sum()
    };
    let before = table.lines().len();
    for percent in ["10", "20", "30"] {
        one.must(&format!("update 0 {percent}"))?;
    }
    let sum = |pid, name| table.lines().iter().skip(before).map(|line| of(line, pid, name)).sum::<u64>();
    until("three preemptions", SOON, || Ok((sum(a, "own_preemptions") >= 3).then_some(())))?;
    sleep(Duration::from_secs(1));
    assert_eq!((sum(a, "own_preemptions"), sum(a, "others_preemptions")), (3, 0));
    assert_eq!((sum(b, "own_preemptions"), sum(b, "others_preemptions")), (0, 3));
    assert_eq!(sum(a, "own_ns"), sum(b, "others_ns"));
    table.signal(Signal::SIGINT)?;
    table.wait_success(ATTACH)?;
    assert!(table.lines().iter().all(|line| line["lost"] == json!({})), "{:?}", table.lines());
    Ok(())
}

#[test]
fn a_rest_of_an_interval_is_in_the_table_before_it() -> Result<()> {
    let words = ["runlist", "--json", "--interval=1s", "--duration=1100ms"];
    let mut table = JsonProcess::spawn(&tracer::program(), &words)?;
    table.wait_success(ATTACH)?;
    let lines = table.lines();
    let [line] = &lines[..] else { anyhow::bail!("{lines:?}") };
    assert!(line["interval_ns"].as_u64() >= Some(1_000_000_000), "{line}");
    Ok(())
}

#[test]
fn who_preempts_slowly_lets_the_others_wait() -> Result<()> {
    let mut daemon = Daemon::quick(&["--runlists"])?;
    let mut one = Steered::having(&["create aql"])?;
    let other = Steered::having(&["create aql"])?;
    let timeout = Setting::of(PREEMPTION_TIMEOUT, "60000")?;
    let hang = Hang::begin()?;
    let begun = one.begin("update 0 50")?;
    let (start, least) = (Instant::now(), Duration::from_secs(2));
    sleep(least);
    drop(hang);
    one.answer(&begun)?;
    let most = start.elapsed();
    drop(timeout);
    let [a, b] = [one.pid(), other.pid()].map(|pid| pid.to_string());
    let seconds =
        |metrics: &Metrics, name: &str, pid: &str| metrics.sum(name, &[("pid", pid)]).unwrap_or(0.0);
    let within = |seconds: f64| (1.0..=most.as_secs_f64() + 1.0).contains(&seconds);
    daemon.scrape_until("whom it lets wait", |metrics| {
        within(seconds(metrics, "kfd_process_preempted_seconds_total", &b)).then_some(())
    })?;
    let metrics = daemon.scrape()?;
    assert!(within(seconds(&metrics, "kfd_process_preemption_seconds_total", &a)), "who caused it");
    assert!(seconds(&metrics, "kfd_process_preempted_seconds_total", &a) < 1.0);
    assert_eq!(
        metrics.sum("kfd_gpu_preemption_duration_seconds_count", &[("reason", "update")]),
        Some(1.0),
        "{metrics:?}"
    );
    assert_eq!(metrics.sum("kfd_gpu_runlist_queues", &[]), Some(2.0));
    one.kill()?;
    other.kill()?;
    daemon.scrape_until("nothing runs", |metrics| {
        (metrics.sum("kfd_gpu_runlist_queues", &[]) == Some(0.0)).then_some(())
    })?;
    daemon.stop()
}

#[test]
fn a_preemption_that_times_out_says_so() -> Result<()> {
    let mut stream = Stream::tracing(&["--event", "preempt", "--event", "gpu_reset_end"])?;
    let mut workload = Steered::having(&["create aql gpu=1"])?;
    let pid = workload.pid();
    kfdsim_at("hang", 1, 1)?;
    workload.act("create aql gpu=1")?;
    let failed = stream
        .wait_line("the time-out", SOON, |line| line["event"] == "preempt" && !line["errno"].is_null())?;
    stream.wait_line("the reset that follows", SOON, |line| line["event"] == "gpu_reset_end")?;
    assert_eq!(
        json!([failed["errno"], failed["reason"], failed["pid"], failed["gpu_id"]]),
        json!(["ETIME", "create", pid, gpu(1)?])
    );
    assert!(failed["latency_ns"].as_u64().is_some_and(|ns| ns > 400_000_000), "{failed}");
    workload.kill()?;
    stream.finish().map(drop)
}

#[test]
fn more_queues_than_slots_are_oversubscribed() -> Result<()> {
    let mut stream = Stream::tracing(&["--event", "runlist", "--event", "preempt"])?;
    let slots = usize::try_from(nodes(Path::new("/sys"))?[0].property("num_cp_queues")?)?;
    let mut workload = Steered::having(&vec!["create aql"; slots])?;
    let list = |queues: usize| {
        stream.wait_line("a list", SOON, |line| line["event"] == "runlist" && line["queues"] == queues)
    };
    assert_eq!(list(slots)?["oversubscribed"], false);
    workload.must("create aql")?;
    assert_eq!(list(slots + 1)?["oversubscribed"], true);
    workload.must("destroy 0")?;
    let of_it = until("its preemption", SOON, || {
        let destroys = of(&stream.lines(), "preempt", workload.pid());
        Ok(destroys.into_iter().find(|line| line["reason"] == "destroy"))
    })?;
    assert_eq!(of_it["oversubscribed"], true, "the list that ends");
    workload.kill()?;
    stream.finish().map(drop)
}

#[test]
fn a_selected_process_is_shown_what_it_causes_and_what_it_waits_for() -> Result<()> {
    let one = Steered::having(&["create aql gpu=0"])?;
    let pid = one.pid();
    let mut stream = Stream::tracing(&["--event", "preempt", "--pid", &pid.to_string()])?;
    let mut other = Steered::having(&["create aql gpu=1", "create aql gpu=1", "create aql gpu=0"])?;
    let by_other = stream.wait_line("what it waits for", SOON, |line| line["event"] == "preempt")?;
    assert_eq!(
        json!([by_other["gpu_id"], by_other["pid"], by_other["hit_pids"]]),
        json!([gpu(0)?, other.pid(), [pid]]),
        "not what happens on the other GPU: {by_other}"
    );
    other.must("destroy 1")?;
    one.kill()?;
    let all = stream.wait_lines("its end", SOON, |lines| {
        let ends = lines.iter().filter(|line| line["reason"] == "process_end" && line["pid"] == pid);
        (ends.count() > 0).then(|| reasons(lines, "preempt", gpu(1).unwrap_or(0)))
    })?;
    assert_eq!(all, [json!(["process_end", pid])], "each process that ends interrupts all GPUs");
    // it ends with the process
    stream.wait_success(SOON)?;
    other.kill()
}

#[test]
fn a_stream_that_is_not_asked_for_them_has_none() -> Result<()> {
    let stream = Stream::shared()?;
    let mut workload = Steered::having(&["create aql", "create aql"])?;
    let lines = so_far(&stream, &mut workload)?;
    assert_eq!((all(&lines, "runlist"), all(&lines, "preempt")), (vec![], vec![]));
    workload.kill()?;
    stream.end()
}
