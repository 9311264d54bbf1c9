//! Random lives of KFD processes: the tracer's state, sysfs and a ledger kept beside them are one.

use anyhow::{Context, Result};
use kfd_trace_tests::harness::{VmKernel, shared};
use kfd_trace_tests::scenario::ledger::Vms;
use kfd_trace_tests::scenario::life::{Life, run};
use kfd_trace_tests::scenario::plan::REQUIRED;

/// AMDKFD_IOC_CREATE_PROCESS came with UAPI 1.19.
fn contexts() -> Result<bool> {
    Ok(VmKernel::from_env()?.series == "7.2")
}

fn vms() -> Result<Vms> {
    Ok(if VmKernel::from_env()?.series == "6.1" { Vms::Together } else { Vms::Each })
}

#[test]
fn a_short_random_life() -> Result<()> {
    shared::end()?;
    let life = Life { seed: 1, operations: 300, drops: false, contexts: contexts()?, vms: vms()? };
    println!("{}", run(life)?);
    Ok(())
}

#[test]
fn a_short_random_life_with_lost_records() -> Result<()> {
    shared::end()?;
    let life = Life { seed: 2, operations: 150, drops: true, contexts: contexts()?, vms: vms()? };
    println!("{}", run(life)?);
    Ok(())
}

/// `seeds=10` among the arguments, which libtest takes for a filter that no test's name fits.
fn argument(name: &str, default: usize) -> Result<usize> {
    let found =
        std::env::args().find_map(|word| Some(word.strip_prefix(name)?.strip_prefix('=')?.to_owned()));
    found.map_or(Ok(default), |value| value.parse().with_context(|| format!("{name}={value}")))
}

/// `cargo xtask scenario`: every third seed loses records.
#[test]
#[ignore = "takes minutes: run by `cargo xtask scenario`"]
fn long_random_lives() -> Result<()> {
    let (first, seeds) = (argument("first", 1)?, argument("seeds", 10)?);
    let operations = argument("operations", 2000)?;
    let mut failed = 0;
    for seed in first..first + seeds {
        let life = Life {
            seed: seed.try_into()?,
            operations,
            drops: seed % 3 == 0,
            contexts: contexts()?,
            vms: vms()?,
        };
        match run(life) {
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
    assert_eq!(failed, 0, "seeds with differences, of {seeds}");
    Ok(())
}
