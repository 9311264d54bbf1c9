//! Suspend, resume and a reset of the machine: after each step the state equals the driver's own lists, its
//! table (as `kfd-trace ps` reads it) and sysfs.

use anyhow::{Context, Result};
use kfd_trace_tests::harness::evictions::{ON_BOTH, trigger};
use kfd_trace_tests::harness::sleep::Asleep;
use kfd_trace_tests::harness::tracer::run_json;
use kfd_trace_tests::harness::wait::SOON;
use kfd_trace_tests::harness::workload::kfdsim_at;
use kfd_trace_tests::harness::{Daemon, Steered, sysfs, until};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;

/// GPU of each queue, and whether it is evicted and active, by PID and queue id.
type Queues = BTreeMap<(u64, u64), [Value; 3]>;

fn queues(document: &Value) -> Result<Queues> {
    let rows = document["queues"].as_array().with_context(|| format!("queues: {document}"))?;
    let row = |row: &Value| {
        let key = (row["pid"].as_u64().context("a PID")?, row["queue_id"].as_u64().context("an id")?);
        Ok((key, ["gpu_id", "evicted", "active"].map(|field| row[field].clone())))
    };
    let queues: Queues = rows.iter().map(row).collect::<Result<_>>()?;
    assert_eq!(queues.len(), rows.len(), "each once: {document}");
    Ok(queues)
}

/// The queues, once the daemon, the driver's table and sysfs agree, and the wanted number is evicted.
fn agreed(daemon: &Daemon, what: &str, evicted: usize) -> Result<Queues> {
    until(&format!("all to agree {what}"), SOON, || {
        let known = queues(&daemon.json("/api/v1/queues")?)?;
        let kernel = queues(&run_json(&["ps", "--json"])?.pop().context("one object")?)?;
        let listed = sysfs::queues(Path::new("/sys"))?;
        let listed: Vec<_> = listed
            .iter()
            .map(|((pid, id), queue)| (((*pid).into(), (*id).into()), json!(queue.gpu_id)))
            .collect();
        let places: Vec<_> = known.iter().map(|(key, [gpu, ..])| (*key, gpu.clone())).collect();
        let found = known.values().filter(|[_, evicted, _]| *evicted == json!(true)).count();
        Ok((known == kernel && places == listed && found == evicted).then_some(known))
    })
}

/// For each live process: PID, whether it is evicted, how often it was, and the reasons of the last eviction
/// by GPU.
fn processes(daemon: &Daemon) -> Result<Vec<Value>> {
    let document = daemon.json("/api/v1/processes")?;
    let rows =
        document["processes"].as_array().context("processes")?.iter().filter(|row| row["alive"] == true);
    let reported = rows.map(|row| {
        let on_gpus = row["evictions"].as_array().into_iter().flatten();
        let on_gpus: Vec<Value> =
            on_gpus.map(|gpu| json!([gpu["evicted"], gpu["evictions"], gpu["last_trigger"]])).collect();
        json!([row["pid"], row["comm"], row["evicted"], row["evictions_total"], on_gpus])
    });
    Ok(reported.collect())
}

/// For each GPU: resets, whether one is under way, and whether its scheduler hangs.
fn gpus(daemon: &Daemon) -> Result<Vec<Value>> {
    let document = daemon.json("/api/v1/gpus")?;
    let rows = document["gpus"].as_array().context("gpus")?.iter();
    Ok(rows.map(|gpu| json!([gpu["resets"], gpu["resetting"], gpu["hung"]])).collect())
}

#[test]
fn sleep_and_a_reset_leave_the_state_as_the_driver_has_it() -> Result<()> {
    let daemon = Daemon::shared()?;
    let mut one = Steered::having(&ON_BOTH)?;
    let mut other = Steered::having(&["create aql", "create sdma gpu=1"])?;
    let mut pids = [one.pid(), other.pid()];
    pids.sort_unstable();
    let resets = gpus(&daemon)?;
    let before = agreed(&daemon, "at first", 0)?;
    assert_eq!(before.len(), 6);

    // the machine suspends and resumes, as the devices are called one after the other
    let first = Asleep::put(0)?;
    agreed(&daemon, "on the first GPU's sleep", 6)?;
    let second = Asleep::put(1)?;
    agreed(&daemon, "on the second GPU's", 6)?;
    first.wake()?;
    agreed(&daemon, "while one still sleeps", 6)?;
    second.wake()?;
    assert_eq!(agreed(&daemon, "after the sleep", 0)?, before);
    let slept = json!([false, 1, trigger("suspend")]);
    let awake = pids.map(|pid| json!([pid, "kfd-workload", false, 1, [slept, slept]]));
    assert_eq!(processes(&daemon)?, awake);
    assert_eq!(gpus(&daemon)?, resets, "it was no reset");
    for workload in [&mut one, &mut other] {
        workload.must("update 0 50")?;
    }
    agreed(&daemon, "after updates", 0)?;

    // a reset of one GPU evicts from all GPUs, and the driver restores nothing after it
    kfdsim_at("reset", 1, 1)?;
    let after = agreed(&daemon, "after the reset", 6)?;
    assert_eq!(gpus(&daemon)?[0], resets[0]);
    let begun = resets[1][0].as_u64().context("resets")?;
    assert_eq!(gpus(&daemon)?[1], json!([begun + 1, false, false]));

    // what was evicted already stays so across a suspend
    let again = Asleep::put(0)?;
    agreed(&daemon, "on a sleep after the reset", 6)?;
    again.wake()?;
    assert_eq!(agreed(&daemon, "after that sleep", 6)?, after);

    one.kill()?;
    other.kill()?;
    assert_eq!(agreed(&daemon, "at the end", 0)?.len(), 0);
    daemon.scrape_until("no eviction under way", |metrics| {
        (metrics.sum("kfd_evicted_processes", &[]).unwrap_or(0.0) == 0.0).then_some(())
    })?;
    daemon.end()
}
