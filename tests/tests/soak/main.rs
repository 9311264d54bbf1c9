//! Runs in the VM with the real amdgpu and kfdsim's two GPUs, on clocks that count the guest's instructions:
//! the tracer over a long time.

use anyhow::{Context, Result};
use kfd_trace_tests::harness::evictions::ON_BOTH;
use kfd_trace_tests::harness::tracer::FEW;
use kfd_trace_tests::harness::wait::until;
use kfd_trace_tests::harness::workload::kfdsim;
use kfd_trace_tests::harness::{Daemon, Steered, VmKernel};
use kfd_trace_tests::scenario::ledger::Vms;
use kfd_trace_tests::scenario::life::{Life, soak};
use std::time::Duration;

fn life() -> Result<Life> {
    let kernel = VmKernel::from_env()?;
    // AMDKFD_IOC_CREATE_PROCESS came with UAPI 1.19
    let contexts = kernel.driver_is_from("7.2");
    let vms = if kernel.before_6_12() { Vms::Together } else { Vms::Each };
    let min_ring = kernel.min_ring;
    Ok(Life { seed: 1, operations: 0, drops: false, contexts, vms, min_ring, without: None })
}

#[test]
fn two_minutes_leave_nothing_behind() -> Result<()> {
    soak::soak(life()?, 2)
}

/// `minutes=60` is one of the arguments, which libtest takes for a filter that matches no test name.
#[test]
#[ignore = "takes long: run by `cargo xtask soak`"]
fn as_long_as_asked() -> Result<()> {
    let word = std::env::args().find_map(|word| Some(word.strip_prefix("minutes=")?.to_owned()));
    let minutes = word.context("how long: minutes=N")?;
    soak::soak(life()?, minutes.parse().with_context(|| format!("minutes={minutes}"))?)
}

/// The return of `kfd_process_evict_queues` is not probed: as if it were missed each time.
fn missing_returns() -> Result<Daemon> {
    Daemon::quick(&[&FEW[..], &["--without-probe=evict_return"]].concat())
}

fn missed(daemon: &Daemon, probe: &str) -> Result<Option<f64>> {
    let labels = [("probe", probe), ("reason", "nested_return_missed")];
    Ok(daemon.scrape()?.sum("kfd_trace_probe_trouble_total", &labels))
}

/// All are written by this thread: the second eviction is what it leaves over, and the restore is of the first
/// process.
#[test]
fn what_another_process_left_over_is_noticed_at_the_next_call() -> Result<()> {
    let mut daemon = missing_returns()?;
    let [first, second] = [Steered::having(&ON_BOTH)?, Steered::having(&ON_BOTH)?];
    kfdsim("quiesce", first.pid())?;
    kfdsim("quiesce", second.pid())?;
    assert_eq!(missed(&daemon, "evict_return")?, None);
    kfdsim("resume", first.pid())?;
    assert_eq!(missed(&daemon, "evict_return")?, Some(1.0), "once for both GPUs");
    kfdsim("resume", second.pid())?;
    daemon.stop()
}

#[test]
fn what_a_missed_return_leaves_over_is_removed_and_counted() -> Result<()> {
    let mut daemon = missing_returns()?;
    let workload = Steered::having(&ON_BOTH)?;
    kfdsim("quiesce", workload.pid())?;
    kfdsim("resume", workload.pid())?;
    let found = || missed(&daemon, "evict_gpu_return");
    assert_eq!(found()?, None);
    let once = until("the missed return to be found", Duration::from_secs(400), || {
        std::thread::sleep(Duration::from_secs(10));
        found()
    })?;
    assert_eq!(once, 1.0, "once");
    daemon.stop()
}
