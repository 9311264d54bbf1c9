//! A daemon that is started again goes on with the history of the one before, from its recordings: against a ledger of all
//! operations.

use anyhow::{Context, Result, ensure};
use kfd_trace_tests::harness::tracer::NO_MQD;
use kfd_trace_tests::harness::wait::SOON;
use kfd_trace_tests::harness::{Daemon, Steered, shared, until};
use nix::mount::{MsFlags, mount, umount};
use nix::sys::signal::Signal;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

const FOLDER: &str = "/tmp/kept-recordings";
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// What was done while a daemon ran: PID and event, and how often.
#[derive(Debug, Default, PartialEq, Eq)]
struct Ledger(BTreeMap<(u32, &'static str), usize>);

/// The events of a ledger; a queue that only existed is no creation.
const DONE: [&str; 3] = ["queue_create", "queue_destroy", "process_release"];

impl Ledger {
    fn add(&mut self, pid: u32, event: &'static str) {
        *self.0.entry((pid, event)).or_default() += 1;
    }

    fn must(&mut self, process: &mut Steered, operation: &str) -> Result<()> {
        process.must(operation)?;
        self.add(process.pid(), if operation.starts_with("create") { DONE[0] } else { DONE[1] });
        Ok(())
    }

    fn started(&mut self, operations: &[&str]) -> Result<Steered> {
        let mut process = Steered::start()?;
        operations.iter().try_for_each(|operation| self.must(&mut process, operation))?;
        Ok(process)
    }

    /// Its queues end with it.
    fn ends(&mut self, process: Steered, queues: usize) -> Result<()> {
        let pid = process.pid();
        process.kill()?;
        (0..queues).for_each(|_| self.add(pid, DONE[1]));
        self.add(pid, DONE[2]);
        Ok(())
    }

    /// What a daemon remembers, of these processes.
    fn remembered(events: &[Value], pids: &[u32]) -> Self {
        let mut ledger = Ledger::default();
        for event in events {
            let Some(name) = DONE.iter().find(|name| event["event"] == **name) else { continue };
            let pid = event["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok());
            let Some(pid) = pid.filter(|pid| pids.contains(pid)) else { continue };
            if event["origin"] != "standing" {
                ledger.add(pid, name);
            }
        }
        ledger
    }
}

fn daemon() -> Result<Daemon> {
    Daemon::quick(&[&["--record", FOLDER], &NO_MQD[..]].concat())
}

fn events(daemon: &Daemon) -> Result<Vec<Value>> {
    let document = daemon.json("/api/v1/events?limit=10000")?;
    ensure!(document["matched"].as_u64() < Some(10_000), "{document}");
    Ok(document["events"].as_array().context("events")?.clone())
}

/// Waits until the daemon remembers all of it; checks that it is all of it, each once.
fn agrees(daemon: &Daemon, ledger: &Ledger, pids: &[u32]) -> Result<Vec<Value>> {
    let all = until("the history to have all", SOON, || {
        let all = events(daemon)?;
        let remembered = Ledger::remembered(&all, pids);
        let count = |ledger: &Ledger| ledger.0.values().sum::<usize>();
        Ok((count(&remembered) >= count(ledger)).then_some(all))
    });
    let all = match all {
        Ok(all) => all,
        Err(error) => {
            let remembered = Ledger::remembered(&events(daemon)?, pids);
            return Err(error.context(format!("{remembered:?}\nof\n{ledger:?}")));
        }
    };
    assert_eq!(Ledger::remembered(&all, pids), *ledger);
    Ok(all)
}

/// PID, GPU, id and type of each queue that existed at that time, and whether these are all.
fn held(daemon: &Daemon, at: &str) -> Result<(Vec<String>, bool)> {
    let document = daemon.json(&format!("/api/v1/queues?at={at}"))?;
    let names = ["pid", "gpu_id", "queue_id", "queue_type", "comm"];
    let rows = document["queues"].as_array().context("queues")?.iter();
    // The times are by the wall clock, which is read for each answer.
    let row = |row: &Value| names.map(|name| format!("{name}={}", row[name])).join(" ") + known(row);
    Ok((rows.map(row).collect(), document["complete"] == true))
}

fn known(row: &Value) -> &'static str {
    if row["born"].is_null() { " found" } else { " born" }
}

fn now(daemon: &Daemon) -> Result<String> {
    Ok(daemon.json("/api/v1/status")?["ts"].as_str().context("a time")?.to_owned())
}

fn gaps(all: &[Value]) -> Vec<&Value> {
    all.iter().filter(|event| event["event"] == "recording_gap").collect()
}

/// The last end of a queue of that process.
fn end(all: &[Value], pid: u32, queue_id: u64) -> Result<&Value> {
    let of = |event: &&Value| {
        event["event"] == "queue_destroy" && event["pid"] == pid && event["queue_id"] == queue_id
    };
    all.iter().rev().find(of).with_context(|| format!("queue {queue_id} of {pid}"))
}

#[test]
fn the_history_goes_on_over_restarts_and_each_operation_is_in_it_once() -> Result<()> {
    shared::end()?;
    let _ = fs::remove_dir_all(FOLDER);
    let mut ledger = Ledger::default();
    let mut older = Steered::having(&["create aql"])?;
    let mut first = daemon()?;
    let mut kept = ledger.started(&["create aql", "create sdma", "create aql", "destroy 1"])?;
    let gone = ledger.started(&["create aql"])?;
    let short = ledger.started(&["create sdma", "destroy 0", "create aql"])?;
    let pids = [older.pid(), kept.pid(), gone.pid(), short.pid()];
    let of_gone = gone.queue_id(0)?;
    ledger.ends(short, 1)?;
    agrees(&first, &ledger, &pids)?;
    let at = now(&first)?;
    let then = held(&first, &at)?;
    assert!(then.0.len() == 4 && then.1, "{then:?}");
    sleep(Duration::from_millis(20));
    first.stop()?;

    // Nobody sees this. When the next one finds it out, it is added.
    ledger.ends(gone, 1)?;
    let mut second = daemon()?;
    let said = second.stderr();
    assert!(said.contains("the history goes on: "), "{said}");
    assert_eq!(held(&second, &at)?, then, "of the time before, the answer is as before");
    let all = agrees(&second, &ledger, &pids)?;
    let gap = gaps(&all);
    assert!(gap.len() == 1 && gap[0]["gap_ns"].as_u64() > Some(1_000_000), "{gap:?}");
    assert_eq!(end(&all, pids[2], of_gone)?["cause"], "not_seen");
    ledger.must(&mut kept, "destroy 0")?;
    ledger.must(&mut kept, "create sdma")?;
    ledger.must(&mut older, "destroy 0")?;
    let all = agrees(&second, &ledger, &pids)?;
    let lived = end(&all, kept.pid(), kept.queue_id(0)?)?["lifetime_ns"].as_u64();
    assert!(lived > gap_ns(&all), "it was created before the gap: {lived:?}");
    assert_eq!(
        end(&all, older.pid(), older.queue_id(0)?)?["lifetime_ns"],
        Value::Null,
        "nobody saw its creation"
    );

    // The same after a crash, of a program whose recordings have no id of the boot.
    second.stop()?;
    mount(Some("/dev/null"), BOOT_ID, None::<&str>, MsFlags::MS_BIND, None::<&str>)
        .context("hide the boot id")?;
    let third = daemon().and_then(|third| {
        ledger.must(&mut kept, "destroy 2")?;
        let queue_id = kept.queue_id(2)?;
        until("it to be seen", SOON, || Ok(end(&events(&third)?, kept.pid(), queue_id).ok().map(drop)))?;
        Ok(third)
    });
    umount(BOOT_ID).context("show the boot id")?;
    let mut third = third?;
    assert!(gaps(&events(&third)?).is_empty(), "in doubt it is another boot");
    // What is written once a second.
    sleep(Duration::from_millis(2_500));
    third.signal(Signal::SIGKILL)?;
    third.wait_exit(SOON)?;
    let mut fourth = daemon()?;
    ledger.ends(kept, 1)?;
    let all = agrees(&fourth, &ledger, &pids)?;
    assert_eq!(gaps(&all).len(), 3, "{:?}", gaps(&all));
    assert_eq!(held(&fourth, &at)?, then);
    fourth.stop()?;

    // Nothing of another kind delays or ends a start.
    let newest = Path::new(FOLDER).join("kfd-trace-99999998-20260921T141320Z.rec");
    fs::write(&newest, "not a recording")?;
    let mut last = daemon()?;
    let said = last.stderr();
    assert!(said.contains("the history begins anew: ") && said.contains("it is no recording"), "{said}");
    assert!(gaps(&events(&last)?).is_empty());
    last.stop()?;
    fs::remove_dir_all(FOLDER)?;
    older.kill()
}

fn gap_ns(all: &[Value]) -> Option<u64> {
    gaps(all).first().and_then(|gap| gap["gap_ns"].as_u64())
}
