//! The test bed itself: what each of kfdsim's controls makes the driver do, as tracefs shows it.

use anyhow::{Context, Result};
use kfd_trace_tests::harness::setting::PREEMPTION_TIMEOUT;
use kfd_trace_tests::harness::sleep::Asleep;
use kfd_trace_tests::harness::wait::SOON;
use kfd_trace_tests::harness::workload::{kfdsim, kfdsim_at};
use kfd_trace_tests::harness::{Call, Calls, VmKernel, Workload, counts, nodes, sysfs, until};
use std::path::Path;
use std::time::{Duration, Instant};

/// Functions that every kernel with kfdsim has exactly once.
const WATCHED: [&str; 6] = [
    "kfd_process_evict_queues",
    "kfd_process_restore_queues",
    "evict_process_queues_cpsch",
    "restore_process_queues_cpsch",
    "kfd_signal_vm_fault_event",
    "kfd_signal_reset_event",
];

/// Waits until `function` was called, and returns its first call.
fn called(calls: &Calls, function: &str) -> Result<Call> {
    until(function, SOON, || Ok(calls.seen()?.into_iter().find(|call| call.function == function)))
}

fn count(calls: &Calls, function: &str) -> Result<usize> {
    Ok(calls.seen()?.iter().filter(|call| call.function == function).count())
}

/// A workload with an AQL queue on each of the two GPUs, steered line by line.
fn steered() -> Result<Workload> {
    let mut workload = Workload::ready(&["script"])?;
    assert_eq!(errno(&mut workload, "create aql gpu=0")?, None);
    assert_eq!(errno(&mut workload, "create aql gpu=1")?, None);
    Ok(workload)
}

/// Has the workload do an operation and returns its errno.
fn errno(workload: &mut Workload, operation: &str) -> Result<Option<String>> {
    let op = operation.split(' ').next().context("an operation")?;
    let before = workload.operations(op).len();
    workload.send_line(operation)?;
    let line = until(operation, SOON, || Ok(workload.operations(op).get(before).cloned()))?;
    Ok(line["errno"].as_str().map(str::to_owned))
}

#[test]
fn quiesce_and_resume_act_in_the_writer() -> Result<()> {
    let workload = Workload::ready(&["hold"])?;
    let calls = Calls::of(&WATCHED)?;
    kfdsim("quiesce", workload.pid())?;
    let evict = called(&calls, "kfd_process_evict_queues")?;
    assert_eq!(count(&calls, "evict_process_queues_cpsch")?, 2, "on each GPU, queues or not");
    assert_eq!(count(&calls, "kfd_process_restore_queues")?, 0);
    kfdsim("resume", workload.pid())?;
    let restore = called(&calls, "kfd_process_restore_queues")?;
    // tests run in threads: comm and task are this thread's
    let own = nix::unistd::gettid().as_raw();
    assert_eq!((i64::from(evict.pid), i64::from(restore.pid)), (own.into(), own.into()));
    Ok(())
}

#[test]
fn evict_is_the_drivers_worker_and_its_restore_follows() -> Result<()> {
    let workload = Workload::ready(&["hold"])?;
    let calls = Calls::of(&WATCHED)?;
    kfdsim("evict", workload.pid())?;
    let evict = called(&calls, "kfd_process_evict_queues")?;
    let restore = called(&calls, "kfd_process_restore_queues")?;
    for call in [evict, restore] {
        assert!(call.comm.starts_with("kworker"), "{call:?}");
    }
    Ok(())
}

#[test]
fn a_vm_fault_evicts_on_its_gpu_only() -> Result<()> {
    let workload = Workload::ready(&["hold", "--gpus=all"])?;
    let calls = Calls::of(&WATCHED)?;
    kfdsim_at("vmfault", workload.pid(), 1)?;
    let signal = called(&calls, "kfd_signal_vm_fault_event")?;
    assert!(signal.comm.starts_with("kworker"), "{signal:?}");
    assert_eq!(count(&calls, "evict_process_queues_cpsch")?, 1);
    assert_eq!(count(&calls, "kfd_process_evict_queues")?, 0);
    let absent = kfdsim_at("vmfault", workload.pid(), 2);
    assert!(absent.is_err(), "there are two GPUs");
    Ok(())
}

#[test]
fn after_a_reset_old_queues_stay_evicted() -> Result<()> {
    let mut workload = steered()?;
    let calls = Calls::of(&WATCHED)?;
    kfdsim("reset", 1)?;
    called(&calls, "kfd_signal_reset_event")?;
    assert_eq!(count(&calls, "kfd_process_evict_queues")?, 1, "{:?}", calls.seen()?);
    assert_eq!(errno(&mut workload, "destroy 0")?, None);
    assert_eq!(errno(&mut workload, "destroy 1")?, None);
    assert_eq!(count(&calls, "kfd_process_restore_queues")?, 0);
    Ok(())
}

#[test]
fn all_processes_sleep_from_the_first_gpu_to_the_last() -> Result<()> {
    let workload = Workload::ready(&["hold"])?;
    let calls = Calls::of(&WATCHED)?;
    let evicted = || count(&calls, "kfd_process_evict_queues");
    let restored = || count(&calls, "kfd_process_restore_queues");
    let first = Asleep::put(0)?;
    assert!(kfdsim_at("suspend", 0, 1).is_err(), "it sleeps already");
    assert_eq!((evicted()?, count(&calls, "evict_process_queues_cpsch")?), (1, 2), "on each GPU");
    let second = Asleep::put(1)?;
    let is_old = VmKernel::from_env()?.before_6_12();
    // up to 6.1 it makes the process first, and a resume may then find it without a VM and read through a
    // null pointer
    assert!(is_old || Workload::ready(&["hold"]).is_err(), "KFD cannot be opened");
    second.wake()?;
    assert_eq!((evicted()?, restored()?), (1, 0));
    first.wake()?;
    let restore = called(&calls, "kfd_process_restore_queues")?;
    // up to 6.1 it is a worker's
    let own = u32::try_from(nix::unistd::gettid().as_raw())?;
    assert_eq!(restore.pid == own, !is_old, "{restore:?}");
    assert!(kfdsim_at("suspend", 0, 0).is_err(), "it is awake");
    drop(workload);
    Ok(())
}

#[test]
fn a_hang_of_one_gpu_leaves_the_other_and_ends_in_its_reset() -> Result<()> {
    let mut workload = steered()?;
    let calls = Calls::of(&WATCHED)?;
    kfdsim_at("hang", 1, 1)?;
    assert_eq!(errno(&mut workload, "create aql gpu=0")?, None);
    let start = Instant::now();
    let created = errno(&mut workload, "create aql gpu=1")?;
    assert_eq!(created.as_deref(), VmKernel::from_env()?.fails_to_create_in_a_hang().then_some("ETIME"));
    // the driver waits this long, and an emulated CPU adds to it; the driver's default is 9 s
    let took = start.elapsed();
    assert_eq!(std::fs::read_to_string(PREEMPTION_TIMEOUT)?.trim(), "500");
    assert!(took > Duration::from_millis(400), "{took:?}");
    called(&calls, "kfd_signal_reset_event")?;
    let mut fresh = Workload::ready(&["hold", "--gpus=all"])?;
    fresh.finish()?;
    Ok(())
}

#[test]
fn a_destroy_that_runs_into_a_hang_fails_and_takes_the_queue() -> Result<()> {
    let mut workload = steered()?;
    let calls = Calls::of(&WATCHED)?;
    kfdsim_at("hang", 1, 0)?;
    assert_eq!(errno(&mut workload, "destroy 0")?.as_deref(), Some("ETIME"));
    let standing: Vec<_> = sysfs::queues(Path::new("/sys"))?.into_keys().collect();
    assert_eq!(standing, [(workload.pid(), 1)]);
    assert_eq!(errno(&mut workload, "update 0 50")?.as_deref(), Some("EFAULT"));
    called(&calls, "kfd_signal_reset_event").map(drop)
}

#[test]
fn destroying_a_queue_of_a_debugged_process_is_refused() -> Result<()> {
    let mut workload = steered()?;
    let pid = workload.pid();
    kfdsim("debug", pid)?;
    assert_eq!(errno(&mut workload, "destroy 0")?.as_deref(), Some("EBUSY"));
    // the queue still exists: it can be updated
    assert_eq!(errno(&mut workload, "update 0 50")?, None);
    let listed = || Ok::<_, anyhow::Error>(sysfs::queues(Path::new("/sys"))?.contains_key(&(pid, 0)));
    // up to 6.1 pqm_destroy_queue calls kfd_procfs_del_queue before it knows that it will fail
    let del_comes_first = VmKernel::from_env()?.before_6_12();
    assert_eq!(listed()?, !del_comes_first);
    kfdsim_at("debug", pid, 0)?;
    // kfdsim lists it again, but not in ROCm's driver
    assert_eq!(listed()?, !(del_comes_first && counts::has_old_debugger()));
    assert_eq!(errno(&mut workload, "destroy 0")?, None);
    assert!(!listed()?);
    Ok(())
}

#[test]
fn each_gpu_has_an_id_of_its_own() -> Result<()> {
    let nodes = nodes(Path::new("/sys"))?;
    let ids: Vec<_> = nodes.iter().map(|node| node.property("unique_id")).collect::<Result<_>>()?;
    assert_eq!(ids, [0x1000, 0x2000]);
    Ok(())
}
