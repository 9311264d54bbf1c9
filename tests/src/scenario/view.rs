//! The same tables from the ledger, from sysfs and from the tracer's output. Pure, except for reading sysfs.

use super::diff::{Row, Table};
use super::ledger::{Ledger, Queue};
use crate::harness::sysfs;
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::iter::once;
use std::path::Path;

/// How much a source can know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// What the driver's sysfs shows.
    Sysfs,
    /// What `kfd-trace ps` shows.
    Addresses,
    /// What sysfs and the kernel's structures hold: all that remains where records were lost.
    State,
    /// What is known only after observing every event.
    History,
}

fn queue_name(pid: u64, context: Option<u64>, queue_id: u64) -> String {
    match context {
        None => format!("pid {pid} queue {queue_id}"),
        Some(id) => format!("pid {pid} context {id} queue {queue_id}"),
    }
}

fn process_name(pid: u64, context: Option<u64>) -> String {
    match context {
        None => format!("pid {pid}"),
        Some(id) => format!("pid {pid} context {id}"),
    }
}

fn hex(address: u64) -> Value {
    format!("{address:#x}").into()
}

/// Live queues, with the field names of the tracer's API.
pub fn queues(ledger: &Ledger, depth: Depth) -> Table {
    let mut table = Table::new();
    for (owner, process) in ledger.processes() {
        for (queue_id, queue) in &process.queues {
            let name = queue_name(process.pid.into(), owner.context, u64::from(*queue_id));
            table.insert(name, queue_row(queue, depth));
        }
    }
    table
}

fn queue_row(queue: &Queue, depth: Depth) -> Row {
    let mut row = Row::from([("gpu_id", json!(queue.gpu_id)), ("ring_size", json!(queue.ring_size))]);
    if depth == Depth::Sysfs {
        row.insert("compute", queue.queue_type.is_compute().into());
        return row;
    }
    row.insert("queue_type", json!(queue.queue_type));
    row.insert("ring_address", hex(queue.ring_address()));
    row.insert("write_pointer_address", hex(queue.write_pointer));
    row.insert("read_pointer_address", hex(queue.read_pointer));
    if matches!(depth, Depth::State | Depth::History) {
        row.insert("priority", queue.priority.into());
        row.insert("percent", queue.percent.into());
        row.insert("evicted", queue.evicted.into());
        // not in sysfs: queue_properties.is_active, of the kernel's own table
        row.insert("active", queue.active().into());
    }
    if depth == Depth::History {
        let words = |mask: &Vec<u32>| mask.iter().map(|word| format!("{word:#010x}")).collect::<Vec<_>>();
        row.insert("cu_mask", json!(queue.cu_mask.as_ref().map(words)));
        row.insert("evictions", queue.evictions.into());
        row.insert("updates", queue.updates.into());
        row.insert("mqd_writes", json!({"init": 1, "update": queue.updates, "restore": 0}));
        row.insert("origin", "ioctl".into());
        row.insert("resynced", false.into());
    }
    row
}

/// Live processes, their queues, and their events on each GPU.
pub fn processes(ledger: &Ledger, depth: Depth) -> Table {
    let mut table = Table::new();
    for (owner, process) in ledger.processes() {
        let mut row = Row::from([("queues", process.queues.len().into())]);
        if depth == Depth::History {
            let on_gpu = |(gpu_id, gpu): (&u32, &super::ledger::OnGpu)| {
                (gpu_id.to_string(), json!({"evicted": gpu.refs > 0, "evictions": gpu.evictions}))
            };
            let gpus = process.gpus.iter().filter(|(_, gpu)| gpu.evictions > 0).map(on_gpu);
            row.insert("vm_faults", process.vm_faults.into());
            row.insert("evictions", Value::Object(gpus.collect()));
        }
        table.insert(process_name(process.pid.into(), owner.context), row);
    }
    table
}

/// The reported table at [`Depth::State`], plus those of the ledger's processes without a queue that are not
/// in it: where all records of a process were lost, no difference of queues leads to it.
pub fn with_unseen(ledger: &Table, mut reported: Table) -> Table {
    for (name, row) in ledger.iter().filter(|(_, row)| row.get("queues") == Some(&json!(0))) {
        reported.entry(name.clone()).or_insert_with(|| row.clone());
    }
    reported
}

/// GPUs: none is ever reset here; all faults are on the first one.
pub fn gpus(ledger: &Ledger, depth: Depth) -> Table {
    let row = |(index, gpu_id): (usize, &u32)| {
        let mut row = Row::from([("resets", 0.into()), ("hangs", 0.into())]);
        if depth == Depth::History {
            row.insert("vm_faults", if index == 0 { ledger.vm_faults } else { 0 }.into());
        }
        (format!("gpu {gpu_id}"), row)
    };
    ledger.gpu_ids().iter().enumerate().map(row).collect()
}

/// `GET /api/v1/gpus`
pub fn reported_gpus(answer: &Value) -> Result<Table> {
    let rows = answer["gpus"].as_array().context("no gpus in the answer")?;
    Ok(by_name(rows.iter().map(|row| (format!("gpu {}", row["gpu_id"]), fields(row)))))
}

/// A further row with the same name gets an unexpected name: a stale row must not be hidden by a live one,
/// nor hide it.
fn by_name(rows: impl IntoIterator<Item = (String, Row)>) -> Table {
    let mut table = Table::new();
    for (name, row) in rows {
        let again = (2..).map(|number| format!("{name}, row {number}"));
        let free = once(name.clone()).chain(again).find(|name| !table.contains_key(name));
        table.extend(free.map(|name| (name, row)));
    }
    table
}

/// `GET /api/v1/queues` or `kfd-trace ps --json`: both have their rows in `queues`.
pub fn reported_queues(answer: &Value) -> Result<Table> {
    let rows = answer["queues"].as_array().context("no queues in the answer")?;
    let rows = rows.iter().map(|row| Ok((name_of(row, true)?, fields(row))));
    Ok(by_name(rows.collect::<Result<Vec<_>>>()?))
}

/// Live processes of `GET /api/v1/processes`; evictions by GPU, where there were any.
pub fn reported_processes(answer: &Value) -> Result<Table> {
    let rows = answer["processes"].as_array().context("no processes in the answer")?;
    let mut live = Vec::new();
    for row in rows.iter().filter(|row| row["alive"] == true) {
        let gpus = row["evictions"].as_array().context("evictions")?;
        let evicted = gpus.iter().filter(|gpu| gpu["evictions"] != 0).map(|gpu| {
            let state = json!({"evicted": gpu["evicted"], "evictions": gpu["evictions"]});
            (gpu["gpu_id"].to_string(), state)
        });
        let mut reported = fields(row);
        reported.insert("evictions", Value::Object(evicted.collect()));
        live.push((name_of(row, false)?, reported));
    }
    Ok(by_name(live))
}

fn name_of(row: &Value, queue: bool) -> Result<String> {
    let pid = row["pid"].as_u64().with_context(|| format!("no pid: {row}"))?;
    let context = row["context_id"].as_u64();
    if !queue {
        return Ok(process_name(pid, context));
    }
    let queue_id = row["queue_id"].as_u64().with_context(|| format!("no queue id: {row}"))?;
    Ok(queue_name(pid, context, queue_id))
}

/// The fields that the ledger has.
fn fields(row: &Value) -> Row {
    const NAMES: [&str; 20] = [
        "gpu_id",
        "queue_type",
        "ring_address",
        "ring_size",
        "write_pointer_address",
        "read_pointer_address",
        "priority",
        "percent",
        "cu_mask",
        "active",
        "evicted",
        "evictions",
        "updates",
        "mqd_writes",
        "origin",
        "resynced",
        "queues",
        "vm_faults",
        "resets",
        "hangs",
    ];
    NAMES.iter().filter_map(|name| Some((*name, row.get(*name)?.clone()))).collect()
}

/// What sysfs shows, secondary processes included.
pub fn sysfs_queues(root: &Path) -> Result<Table> {
    let queues = sysfs::all_queues(root)?;
    let row = |((pid, context, queue_id), queue): (sysfs::QueueKey, sysfs::SysfsQueue)| {
        let row = Row::from([
            ("gpu_id", queue.gpu_id.into()),
            ("ring_size", queue.size.into()),
            // KFD_QUEUE_TYPE_COMPUTE of kfd_priv.h; other numbers differ between kernels
            ("compute", (queue.queue_type == 0).into()),
        ]);
        (queue_name(pid.into(), context, queue_id.into()), row)
    };
    Ok(queues.into_iter().map(row).collect())
}

/// Processes by PID, as sysfs lists them.
pub fn sysfs_processes(root: &Path) -> Result<Table> {
    let pids = sysfs::processes(root)?;
    Ok(pids.into_iter().map(|pid| (process_name(pid.into(), None), Row::new())).collect())
}

/// The ledger's, for [`sysfs_processes`].
pub fn pids(ledger: &Ledger) -> Table {
    let primary = ledger.processes().filter(|(owner, _)| owner.context.is_none());
    primary.map(|(_, process)| (process_name(process.pid.into(), None), BTreeMap::new())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kfd::uapi::QueueType;
    use crate::scenario::diff::diff;
    use crate::scenario::ledger::Vms;
    use crate::scenario::op::{Answer, Made, NewQueue, Op, Owner};

    fn ledger() -> Ledger {
        let mut ledger = Ledger::new(&[11, 22], Vms::Together, 1024);
        let owner = Owner::primary(1);
        let made = Made { queue_id: 4, ring: 0x1000, write_pointer: 0x38, read_pointer: 0x80 };
        let queue_type = QueueType::ComputeAql;
        let new = NewQueue {
            gpu_id: 22,
            queue_type,
            priority: 7,
            percent: 100,
            ring_size: 4096,
            engine: 0,
            spoilt: false,
        };
        ledger.apply(&Op::Start { agent: 1 }, &Answer::Started { pid: 100 }).unwrap();
        ledger.apply(&Op::Create { owner, new }, &Answer::Created(made)).unwrap();
        ledger.apply(&Op::CuMask { owner, queue_id: 4, mask: vec![0xff] }, &Answer::Done).unwrap();
        ledger.apply(&Op::Fault { agent: 1 }, &Answer::Done).unwrap();
        ledger
    }

    #[test]
    fn a_row_of_the_api_equals_the_ledgers() {
        let answer = json!({"queues": [{"pid": 100, "context_id": null, "queue_id": 4, "gpu_id": 22,
            "queue_type": "compute_aql", "ring_address": "0x1000", "ring_size": 4096,
            "write_pointer_address": "0x38", "read_pointer_address": "0x80", "priority": 7, "percent": 100,
            "cu_mask": ["0x000000ff"], "active": true, "evicted": false, "evictions": 0, "updates": 1,
            "mqd_writes": {"init": 1, "update": 1, "restore": 0}, "origin": "ioctl", "resynced": false}]});
        let reported = reported_queues(&answer).unwrap();
        assert_eq!(diff("api", &queues(&ledger(), Depth::History), &reported), Vec::<String>::new());
        let mut other = answer;
        other["queues"][0]["active"] = false.into();
        let of_state = diff("api", &queues(&ledger(), Depth::State), &reported_queues(&other).unwrap());
        assert_eq!(of_state, ["pid 100 queue 4: active: api false, ledger true"]);
        other["queues"][0]["context_id"] = json!(3);
        assert_eq!(diff("api", &queues(&ledger(), Depth::State), &reported_queues(&other).unwrap()).len(), 2);
    }

    #[test]
    fn a_second_row_of_a_queue_is_a_difference() {
        let row = |size: u64| json!({"pid": 100, "context_id": null, "queue_id": 4, "ring_size": size});
        let reported = |rows: [Value; 3]| reported_queues(&json!({ "queues": rows })).unwrap();
        let ledger = reported_queues(&json!({"queues": [row(4096)]})).unwrap();
        let lines = diff("api", &ledger, &reported([row(4096), row(4096), row(512)]));
        let again = [2, 3].map(|number| format!("pid 100 queue 4, row {number}: only api has it"));
        assert_eq!(lines, again);
        assert_eq!(diff("api", &ledger, &reported([row(512), row(4096), row(4096)])).len(), 3);
    }

    #[test]
    fn faults_belong_to_the_first_gpu_and_a_reset_to_nobody() {
        let mut answer = json!({"gpus": [{"gpu_id": 11, "resets": 0, "hangs": 0, "vm_faults": 1},
            {"gpu_id": 22, "resets": 0, "hangs": 0, "vm_faults": 0}]});
        let differences =
            |answer: &Value| diff("api", &gpus(&ledger(), Depth::History), &reported_gpus(answer).unwrap());
        assert_eq!(differences(&answer), Vec::<String>::new());
        answer["gpus"][1]["resets"] = 1.into();
        assert_eq!(differences(&answer), ["gpu 22: resets: api 1, ledger 0"]);
    }

    #[test]
    fn a_process_of_the_api_equals_the_ledgers() {
        let mut answer = json!({"processes": [
            {"pid": 100, "context_id": null, "alive": true, "queues": 1, "vm_faults": 1, "evictions": [
                {"gpu_id": 11, "evicted": true, "evictions": 1}, {"gpu_id": 22, "evicted": false, "evictions": 0}]},
            {"pid": 99, "context_id": null, "alive": false, "queues": 0, "vm_faults": 0, "evictions": []}]});
        let reported = reported_processes(&answer).unwrap();
        let differences = |depth, reported: &Table| diff("api", &processes(&ledger(), depth), reported);
        assert_eq!(differences(Depth::History, &reported), Vec::<String>::new());
        answer["processes"][0]["vm_faults"] = 0.into();
        let reported = reported_processes(&answer).unwrap();
        assert_eq!(differences(Depth::State, &reported), Vec::<String>::new());
        assert_eq!(differences(Depth::History, &reported), ["pid 100: vm_faults: api 0, ledger 1"]);
    }

    #[test]
    fn where_records_were_lost_a_process_may_lack_that_has_no_queue() {
        let mut ledger = ledger();
        ledger.apply(&Op::Start { agent: 2 }, &Answer::Started { pid: 200 }).unwrap();
        let ledger = processes(&ledger, Depth::State);
        let differences = |rows: &[(u32, u32)]| {
            let row = |(pid, queues): &(u32, u32)| json!({"pid": pid, "context_id": null, "alive": true, "queues": queues, "evictions": []});
            let rows: Vec<Value> = rows.iter().map(row).collect();
            let reported = reported_processes(&json!({ "processes": rows })).unwrap();
            diff("api", &ledger, &with_unseen(&ledger, reported))
        };
        assert_eq!(differences(&[(100, 1), (200, 0)]), Vec::<String>::new());
        assert_eq!(differences(&[(100, 1)]), Vec::<String>::new());
        assert_eq!(differences(&[(200, 0)]), ["pid 100: api does not have it"]);
        assert_eq!(differences(&[(100, 2), (200, 0)]), ["pid 100: queues: api 2, ledger 1"]);
        assert_eq!(differences(&[(100, 1), (300, 0)]), ["pid 300: only api has it"]);
        assert_eq!(differences(&[(100, 1), (100, 0)]), ["pid 100, row 2: only api has it"]);
    }
}
