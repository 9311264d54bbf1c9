//! The report on one case under one subject.

use super::caller::Took;
use super::case::Case;
use anyhow::{Context, Result};
use serde::Serialize;

/// Prefix of the lines for the host (xtask/src/bench/overhead/figures.rs).
const MARK: &str = "kfd-cost";

/// One line. Instructions are per operation, one number per repeat.
#[derive(Debug, Serialize)]
pub(super) struct Figure<'a> {
    pub(super) case: Case,
    pub(super) subject: &'a str,
    /// The caller's waiting time.
    pub(super) caller: Vec<f64>,
    /// Of all tasks, the tracer's own process included.
    pub(super) machine: Vec<f64>,
    /// Runs of the tracer's programs, where it counts them.
    pub(super) probes: Option<f64>,
}

impl<'a> Figure<'a> {
    /// From repeats of bursts of `operations`, and from the same without any operation.
    pub(super) fn new(case: Case, subject: &'a str, operations: u32, idle: Took, took: &[Took]) -> Self {
        let operations = f64::from(operations);
        let caller = |took: &Took| per(took.caller, idle.caller, operations);
        let machine = |took: &Took| per(took.machine, idle.machine, operations);
        Self {
            case,
            subject,
            caller: took.iter().map(caller).collect(),
            machine: took.iter().map(machine).collect(),
            probes: None,
        }
    }

    pub(super) fn report(&self) -> Result<()> {
        println!("{MARK} {}", serde_json::to_string(self).context("a figure")?);
        Ok(())
    }
}

/// The part of `with` that is not in `without`, per operation.
#[expect(clippy::cast_precision_loss, reason = "spans of seconds are far below 2^53 ns")]
fn per(with: u64, without: u64, operations: f64) -> f64 {
    (with as f64 - without as f64) / operations
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_without_operations_is_taken_off() {
        let idle = Took { caller: 100, machine: 5_000 };
        let took = [Took { caller: 600, machine: 15_000 }, Took { caller: 650, machine: 4_000 }];
        let figure = Figure::new(Case::CreateDestroy, "x", 50, idle, &took);
        assert_eq!(figure.caller, [10.0, 11.0]);
        // less than without any: shown unchanged, so that it is not taken for 0
        assert_eq!(figure.machine, [200.0, -20.0]);
    }
}
