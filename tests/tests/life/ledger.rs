//! Random lives of KFD processes: the tracer's state, sysfs and a ledger kept by the test agree.

use anyhow::{Context, Result};
use kfd_trace_common::counter::ProbeId;
use kfd_trace_tests::harness::{VmKernel, shared};
use kfd_trace_tests::scenario::diff::Differs;
use kfd_trace_tests::scenario::ledger::Vms;
use kfd_trace_tests::scenario::life::{Life, run};
use kfd_trace_tests::scenario::plan::REQUIRED;

/// AMDKFD_IOC_CREATE_PROCESS came with UAPI 1.19.
fn contexts() -> Result<bool> {
    Ok(VmKernel::from_env()?.driver_is_from("7.2"))
}

fn vms() -> Result<Vms> {
    Ok(if VmKernel::from_env()?.before_6_12() { Vms::Together } else { Vms::Each })
}

/// Nothing is lost on purpose, and no probe is left out.
fn life(seed: u64, operations: usize) -> Result<Life> {
    let (contexts, vms, min_ring) = (contexts()?, vms()?, VmKernel::from_env()?.min_ring);
    Ok(Life { seed, operations, drops: false, contexts, vms, min_ring, without: None })
}

#[test]
fn a_short_random_life() -> Result<()> {
    shared::end()?;
    println!("{}", run(life(1, 300)?)?);
    Ok(())
}

#[test]
fn a_tracer_that_lacks_a_probe_is_found_out() -> Result<()> {
    shared::end()?;
    let broken = Life { without: Some(ProbeId::QueueDel), ..life(1, 100)? };
    let error = run(broken).err().context("nothing was found")?;
    assert!(error.is::<Differs>(), "{error:#}");
    Ok(())
}

#[test]
fn a_short_random_life_with_lost_records() -> Result<()> {
    shared::end()?;
    println!("{}", run(Life { drops: true, ..life(2, 150)? })?);
    Ok(())
}

/// The value of an argument such as `seeds=10`, which libtest takes for a filter that matches no test name.
fn argument(name: &str) -> Option<String> {
    std::env::args().find_map(|word| Some(word.strip_prefix(name)?.strip_prefix('=')?.to_owned()))
}

fn number(name: &str, default: usize) -> Result<usize> {
    argument(name).map_or(Ok(default), |value| value.parse().with_context(|| format!("{name}={value}")))
}

fn left_out() -> Result<Option<ProbeId>> {
    let Some(name) = argument("without") else { return Ok(None) };
    let probe = ProbeId::ALL.iter().copied().find(|probe| probe.name() == name);
    Ok(Some(probe.with_context(|| format!("without={name}: no such probe"))?))
}

/// `cargo xtask scenario`: every third seed loses records. Every seed has to detect a tracer with a missing
/// probe.
#[test]
#[ignore = "takes minutes: run by `cargo xtask scenario`"]
fn long_random_lives() -> Result<()> {
    let (first, seeds) = (number("first", 1)?, number("seeds", 10)?);
    let (operations, without) = (number("operations", 2000)?, left_out()?);
    let mut failed = 0;
    for seed in first..first + seeds {
        let life = Life {
            drops: without.is_none() && seed % 3 == 0,
            without,
            ..life(seed.try_into()?, operations)?
        };
        match run(life) {
            Err(error) if without.is_some() && error.is::<Differs>() => {
                println!("seed {seed}, found out: {error:#}");
            }
            Ok(_) if without.is_some() => {
                failed += 1;
                println!("seed {seed}: nothing was found");
            }
            Ok(outcome) => {
                for kind in REQUIRED {
                    let count = outcome.operations.get(&kind).copied().unwrap_or(0);
                    assert!(count >= operations / 40, "{count} times {kind:?}");
                }
                println!("{outcome}");
            }
            Err(error) => {
                failed += 1;
                println!("seed {seed}: {error:#}");
            }
        }
    }
    let what = if without.is_some() { "that found nothing" } else { "with differences" };
    assert_eq!(failed, 0, "seeds {what}, of {seeds}");
    Ok(())
}
