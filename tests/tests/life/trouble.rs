//! VM faults, GPU resets and hangs: the process, the GPU, and what happens to the queues there.
//!
//! After a reset the driver leaves the queues of old processes evicted until these end; new processes work.

use anyhow::{Context, Result};
use kfd_trace_tests::harness::events::{self, all, gpu_id, mono_ns, of};
use kfd_trace_tests::harness::evictions::trigger;
use kfd_trace_tests::harness::shared;
use kfd_trace_tests::harness::tracer::run_json;
use kfd_trace_tests::harness::wait::SOON;
use kfd_trace_tests::harness::workload::{kfdsim, kfdsim_at, vm_fault};
use kfd_trace_tests::harness::{
    Calls, JsonLines, Steered, Stream, VmKernel, Workload, driver_has, sysfs, until,
};
use kfd_trace_tests::kfd::topology::gpu_id as gpu;
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use std::path::Path;

const ON_BOTH: [&str; 2] = ["create aql", "create aql gpu=1"];

fn of_gpu(lines: &[Value], gpu: u64) -> Vec<Value> {
    lines.iter().filter(|line| gpu_id(line) == gpu).cloned().collect()
}

/// Begin and end of each reset so far, all of one GPU and not attributed to a process.
fn resets_of(lines: &[Value], gpu: u64) -> Vec<[Value; 2]> {
    let reported: Vec<Value> = lines
        .iter()
        .filter(|line| line["event"] == "gpu_reset_begin" || line["event"] == "gpu_reset_end")
        .cloned()
        .collect();
    for event in &reported {
        assert_eq!((gpu_id(event), &event["pid"], &event["kfd_process"]), (gpu, &Value::Null, &Value::Null));
    }
    let (pairs, rest) = reported.as_chunks::<2>();
    assert!(rest.is_empty(), "{reported:?}");
    for [begin, end] in pairs {
        assert_eq!((&begin["event"], &end["event"]), (&json!("gpu_reset_begin"), &json!("gpu_reset_end")));
    }
    pairs.to_vec()
}

/// Waits until this many resets are over, as tracefs shows by the driver's own functions.
pub(super) fn resets(stream: &JsonLines, witness: &Calls, gpu: u64) -> Result<Vec<[Value; 2]>> {
    stream.wait_line("the end of a reset", SOON, |line| line["event"] == "gpu_reset_end")?;
    let called = |name: &str| -> Result<usize> {
        Ok(witness.seen()?.iter().filter(|call| call.function == name).count())
    };
    until("the resets that the driver makes", SOON, || {
        let begun = called("kgd2kfd_pre_reset")?;
        let ended = all(&stream.lines(), "gpu_reset_end").len();
        Ok((begun == called("kgd2kfd_post_reset")? && begun == ended).then_some(()))
    })?;
    Ok(resets_of(&stream.lines(), gpu))
}

/// A reset of the driver begins and ends with a call of these.
pub(super) fn witness() -> Result<Calls> {
    Calls::of(&["kgd2kfd_pre_reset", "kgd2kfd_post_reset"])
}

/// Kills the workload, and waits until the driver has released it.
pub(super) fn kill(stream: &JsonLines, workload: &mut Workload) -> Result<()> {
    let pid = workload.pid();
    workload.signal(Signal::SIGKILL)?;
    workload.wait_exit(SOON)?;
    events::wait(stream, "process_release", pid, 1).map(drop)
}

/// The driver works for a new process, and nothing is left of the old ones.
pub(super) fn all_is_well_again(stream: &JsonLines) -> Result<()> {
    let mut fresh = Steered::having(&ON_BOTH)?;
    let births = events::wait(stream, "queue_create", fresh.pid(), 2)?;
    assert!(births.iter().all(|birth| birth["evicted"] == false), "{births:?}");
    for operation in ["update 0 50", "update 1 50", "destroy 0", "destroy 1"] {
        assert_eq!(fresh.act(operation)?["errno"], Value::Null, "{operation}");
    }
    fresh.finish()?;
    events::wait(stream, "process_release", fresh.pid(), 1)?;
    let ps = run_json(&["ps", "--json"])?.pop().context("one object")?;
    assert_eq!((&ps["queues"], &ps["processes"]), (&json!([]), &json!([])));
    assert_eq!(sysfs::queues(Path::new("/sys"))?.len(), 0);
    Ok(())
}

#[test]
fn a_vm_fault_is_its_processs_and_its_gpus() -> Result<()> {
    let stream = Stream::shared()?;
    faults(&stream, Steered::having(&ON_BOTH)?, 0)?;
    stream.end()
}

#[test]
fn a_vm_fault_of_a_process_that_stood_is_reported_alike() -> Result<()> {
    let workload = Steered::having(&ON_BOTH)?;
    let mut stream = Stream::tracing(&[])?;
    faults(&stream, workload, 1)?;
    let summary = stream.finish()?;
    assert_eq!(summary["queues"]["alive"], 0, "{summary}");
    assert_eq!(summary["lost"], json!({}));
    Ok(())
}

/// Makes a process that has [`ON_BOTH`] fault on a GPU, next to another process.
fn faults(stream: &JsonLines, mut workload: Steered, number: u32) -> Result<()> {
    let mut other = Steered::having(&ON_BOTH)?;
    let (pid, gpu) = (workload.pid(), gpu(number.try_into()?)?);
    kfdsim_at("vmfault", pid, number)?;
    let fault = events::wait(stream, "vm_fault", pid, 1)?.remove(0);
    events::wait(stream, "evict", pid, 1)?;
    let lines = events::so_far(stream, &mut other)?;
    assert_eq!((gpu_id(&fault), &fault["comm"]), (gpu, &json!("kfd-workload")), "{fault}");
    assert_ne!(fault["task_pid"], pid, "an interrupt's worker: {fault}");
    let evicts = of(&lines, "evict", pid);
    let reported: Vec<Value> = evicts.iter().map(|line| json!([line["gpu_id"], line["trigger"]])).collect();
    assert_eq!(reported, [json!([gpu, "fault"])]);
    assert_eq!((all(&lines, "vm_fault").len(), all(&lines, "evict").len()), (1, 1), "none of the other's");

    kill(stream, &mut workload)?;
    assert_eq!(of(&stream.lines(), "queue_destroy", pid).len(), 2);
    other.finish()?;
    all_is_well_again(stream)
}

/// Drivers differ in where they keep the fault (`struct kfd_vm_fault_info` or `struct
/// kfd_hsa_memory_exception_data`).
#[test]
fn a_vm_fault_shows_where() -> Result<()> {
    let stream = Stream::shared()?;
    let workload = Steered::having(&["create aql"])?;
    // a page number of more than 32 bits
    vm_fault(workload.pid(), 0, 0x7_f001_2345)?;
    let fault = events::wait(&stream, "vm_fault", workload.pid(), 1)?.remove(0);
    let reported = ["address", "not_present", "read_only", "no_execute"].map(|name| fault[name].clone());
    assert_eq!(json!(reported), json!(["0x7f0012345000", true, true, false]), "{fault}");
    stream.end()
}

#[test]
fn a_reset_is_one_gpus_and_evicts_who_has_queues_there() -> Result<()> {
    let stream = Stream::shared()?;
    let mut workload = Steered::having(&ON_BOTH)?;
    let mut other = Steered::having(&["create aql gpu=1"])?;
    let witness = witness()?;
    kfdsim("reset", 1)?;
    let resets = resets(&stream, &witness, gpu(1)?)?;
    let [[begin, end]] = &*resets else { panic!("one reset: {resets:?}") };
    let lines = events::so_far(&stream, &mut other)?;
    for pid in [workload.pid(), other.pid()] {
        let evicts = of_gpu(&of(&lines, "evict", pid), gpu(1)?);
        assert_eq!(evicts.len(), 1, "{lines:?}");
        assert_eq!(evicts[0]["trigger"], trigger("suspend"), "{evicts:?}");
        assert!((mono_ns(begin)..mono_ns(end)).contains(&mono_ns(&evicts[0])), "{begin} {evicts:?} {end}");
        assert_eq!(of_gpu(&of(&lines, "restore", pid), gpu(1)?), Vec::<Value>::new(), "until it dies");
    }
    assert_eq!(all(&lines, "hws_hang"), Vec::<Value>::new());
    // 6.1 refuses the GPU that is being reset (EIO), counts its queues as evicted and rolls nothing back
    assert_eq!(all(&lines, "evict_failed"), Vec::<Value>::new());
    kill(&stream, &mut workload)?;
    kill(&stream, &mut other)?;
    let lines = stream.lines();
    for (pid, queues) in [(workload.pid(), 2), (other.pid(), 1)] {
        let ends = of(&lines, "queue_destroy", pid);
        assert_eq!(ends.len(), queues, "{ends:?}");
        assert!(ends.iter().all(|end| end["cause"] == "process_death"), "{ends:?}");
    }
    all_is_well_again(&stream)?;
    stream.end()
}

#[test]
fn a_hang_is_reported_and_then_its_reset() -> Result<()> {
    let stream = Stream::shared()?;
    let mut workload = Steered::having(&["create aql gpu=1"])?;
    let pid = workload.pid();
    let witness = witness()?;
    kfdsim_at("hang", 1, 1)?;
    let reply = workload.act("create aql gpu=1")?;
    let fails = VmKernel::from_env()?.fails_to_create_in_a_hang();
    assert_eq!(reply["errno"], json!(fails.then_some("ETIME")), "{reply}");
    let born = if fails { 1 } else { 2 };
    // the eviction that a reset begins with may itself time out and request another reset
    let resets = resets(&stream, &witness, gpu(1)?)?;
    let lines = events::so_far(&stream, &mut workload)?;
    let hangs = all(&lines, "hws_hang");
    let [first, ..] = &*hangs else { panic!("no hang: {lines:?}") };
    assert!(hangs.iter().all(|hang| gpu_id(hang) == gpu(1).expect("it is there")), "{hangs:?}");
    assert!(mono_ns(first) < mono_ns(&resets[0][0]), "{first} {resets:?}");
    assert!(mono_ns(first) > mono_ns(&of(&lines, "queue_create", pid)[0]));
    assert_eq!(of(&lines, "queue_create", pid).len(), born, "a refused one was never born");
    kill(&stream, &mut workload)?;
    assert_eq!(of(&stream.lines(), "queue_destroy", pid).len(), born);
    all_is_well_again(&stream)?;
    stream.end()
}

/// The preemption of the second GPU times out; the first one was evicted before, and is restored.
#[test]
fn an_eviction_that_fails_is_reported_for_its_process() -> Result<()> {
    // the summary of the shared stream would report the race below
    shared::end()?;
    let mut stream = Stream::tracing(&[])?;
    let mut workload = Steered::having(&ON_BOTH)?;
    let pid = workload.pid();
    let witness = witness()?;
    kfdsim_at("hang", 1, 1)?;
    let refused = kfdsim("quiesce", pid).expect_err("its preemption times out");
    assert!(format!("{refused:#}").ends_with("(os error 62)"), "ETIME: {refused:#}");
    let resets = resets(&stream, &witness, gpu(1)?)?;
    let lines = events::so_far(&stream, &mut workload)?;
    let failed = of(&lines, "evict_failed", pid);
    let [event] = &*failed else { panic!("one failed: {lines:?}") };
    assert_eq!((&event["trigger"], &event["errno"]), (&trigger("userptr"), &json!("ETIME")), "{event}");
    assert_eq!(event["task_pid"], std::process::id(), "this test wrote to the control: {event}");
    assert!(event["latency_ns"].as_u64().is_some_and(|ns| ns > 1_000_000), "until the time-out: {event}");
    let hangs = all(&lines, "hws_hang");
    // elsewhere a worker reports it, before the reset
    let later = if driver_has("kfd_hws_hang") { event } else { &resets[0][0] };
    assert!(mono_ns(&hangs[0]) < mono_ns(later), "{hangs:?} {later}");
    kill(&stream, &mut workload)?;
    all_is_well_again(&stream)?;
    let lost = stream.finish()?["lost"].take();
    // The reset evicts all processes while the driver restores those of the failed eviction.
    let raced = "trouble, eviction_raced, evict_gpu_return";
    assert!(lost.as_object().is_some_and(|lost| lost.keys().all(|name| name == raced)), "{lost}");
    Ok(())
}
