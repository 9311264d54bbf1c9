//! Runs in the VM with the real amdgpu and kfdsim's two GPUs, on clocks that count the guest's instructions:
//! the tracer over a long time.

use anyhow::{Context, Result};
use kfd_trace_tests::harness::VmKernel;
use kfd_trace_tests::scenario::ledger::Vms;
use kfd_trace_tests::scenario::life::{Life, soak};

fn life() -> Result<Life> {
    let kernel = VmKernel::from_env()?;
    // AMDKFD_IOC_CREATE_PROCESS came with UAPI 1.19
    let contexts = kernel.driver_is_from("7.2");
    let vms = if kernel.before_6_12() { Vms::Together } else { Vms::Each };
    Ok(Life { seed: 1, operations: 0, drops: false, contexts, vms, without: None })
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
