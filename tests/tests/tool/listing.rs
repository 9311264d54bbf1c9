//! Queues as `ps` lists them with one source of types, compared with another listing.

use anyhow::{Context, Result};
use kfd_trace_tests::harness::Steered;
use serde_json::Value;
use std::collections::BTreeMap;

/// Queues of one process, by number.
pub(crate) type Rows = BTreeMap<u64, Value>;

/// The rows of one process.
pub(crate) fn rows(ps: &Value, pid: u32) -> Result<Rows> {
    let rows = ps["queues"].as_array().context("queues")?.iter().filter(|row| row["pid"] == pid);
    rows.map(|row| Ok((row["queue_id"].as_u64().context("a number")?, row.clone()))).collect()
}

/// Fields that differ between two listings of the same queues, or belong to how they were found.
const OTHERS: [&str; 4] = ["sources", "age_ns", "process_age_ns", "activity"];

/// Fields of `shown` with another value than in `truth`; what is not known is no other value. sysfs does not
/// show the format of packets.
pub(crate) fn wrong(shown: &Rows, truth: &Rows) -> Vec<String> {
    let mut wrong = Vec::new();
    for (id, row) in shown {
        let Some(right) = truth.get(id) else {
            wrong.push(format!("queue {id} does not exist"));
            continue;
        };
        for (name, value) in row.as_object().into_iter().flatten() {
            let is_coarse = value == "compute" && right[name] == "compute_aql";
            let other = right.get(name).filter(|right| *right != value);
            if let Some(right) = other
                && !value.is_null()
                && !is_coarse
                && !OTHERS.contains(&name.as_str())
            {
                wrong.push(format!("queue {id}: {name} is {value}, not {right}"));
            }
        }
    }
    if shown.len() < truth.len() {
        wrong.push(format!("{} of {} queues", shown.len(), truth.len()));
    }
    wrong
}

/// Queues with differing types and GPUs.
pub(crate) const QUEUES: [&str; 3] = ["create aql", "create sdma", "create aql gpu=1"];

/// What the process itself knows of its queues.
pub(crate) fn of_workload(workload: &Steered) -> Result<Rows> {
    let row = |queue: &Value| {
        let names = [
            ("pid", "pid"),
            ("gpu_id", "gpu_id"),
            ("queue_id", "queue_id"),
            ("queue_type", "queue_type"),
            ("ring", "ring_address"),
            ("ring_size", "ring_size"),
            ("wptr", "write_pointer_address"),
            ("rptr", "read_pointer_address"),
        ];
        let row = names.map(|(own, name)| (name.to_owned(), queue[own].clone()));
        Ok((queue["queue_id"].as_u64().context("a number")?, row.into_iter().collect()))
    };
    workload.queues().iter().map(row).collect()
}
