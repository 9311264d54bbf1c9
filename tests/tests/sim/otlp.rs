//! `daemon --otlp.endpoint`: what reaches a collector, when it ends, stalls, refuses, or forgets.

use anyhow::{Context, Result, ensure};
use fastrand::Rng;
use kfd_trace_tests::harness::otlp::{Mood, Received, Receiver, Request};
use kfd_trace_tests::harness::tracer::FEW;
use kfd_trace_tests::harness::wait::{ATTACH, SOON};
use kfd_trace_tests::harness::{Daemon, Steered, until};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// More makes no other case.
const MOST: usize = 12;

/// The network is away for so long.
const STALL: Duration = Duration::from_secs(60);

/// What a queue passes through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Created,
    Destroyed,
}

/// By PID and queue id, in their order.
type Ledger = BTreeMap<(u32, u64), Vec<Step>>;

fn alive(ledger: &Ledger, pid: u32) -> Vec<u64> {
    let of = |((owner, id), steps): (&(u32, u64), &Vec<Step>)| {
        (*owner == pid && steps.last() == Some(&Step::Created)).then_some(*id)
    };
    ledger.iter().filter_map(of).collect()
}

/// One random operation.
fn step(rng: &mut Rng, workload: &mut Steered, ledger: &mut Ledger) -> Result<()> {
    let pid = workload.pid();
    let alive = alive(ledger, pid);
    match rng.choice(alive.iter().copied()) {
        Some(id) if alive.len() >= MOST || rng.bool() => {
            workload.must(&format!("destroy id={id}"))?;
            ledger.entry((pid, id)).or_default().push(Step::Destroyed);
        }
        _ => {
            let answer = workload.act(rng.choice(["create aql", "create aql gpu=1"]).context("a choice")?)?;
            let id = answer["queue_id"].as_u64().with_context(|| answer.to_string())?;
            ledger.entry((pid, id)).or_default().push(Step::Created);
        }
    }
    Ok(())
}

fn steps(rng: &mut Rng, workloads: &mut [Steered], ledger: &mut Ledger, count: usize) -> Result<()> {
    for _ in 0..count {
        let chosen = rng.usize(..workloads.len());
        step(rng, &mut workloads[chosen], ledger)?;
    }
    Ok(())
}

/// Ends all: what they have is destroyed.
fn end(workloads: Vec<Steered>, ledger: &mut Ledger) -> Result<()> {
    for workload in workloads {
        let pid = workload.pid();
        workload.kill()?;
        for id in alive(ledger, pid) {
            ledger.entry((pid, id)).or_default().push(Step::Destroyed);
        }
    }
    Ok(())
}

/// By number, in a single run; how many came again.
fn numbered(kept: Vec<Received>) -> Result<(BTreeMap<u64, Received>, usize)> {
    let runs: BTreeSet<_> =
        kept.iter().map(|record| record.resource["service.instance.id"].clone()).collect();
    ensure!(runs.len() <= 1, "{runs:?}");
    let (mut all, mut repeated) = (BTreeMap::new(), 0);
    for record in kept {
        if let Some(before) = all.insert(record.number("kfd.seq")?, record.clone()) {
            assert_eq!(before, record, "the same number is the same record");
            repeated += 1;
        }
    }
    Ok((all, repeated))
}

/// What the records say of queues of these processes.
fn reported(records: &BTreeMap<u64, Received>, ledger: &Ledger) -> Result<Ledger> {
    let pids: BTreeSet<u32> = ledger.keys().map(|(pid, _)| *pid).collect();
    let mut reported = Ledger::new();
    for record in records.values() {
        let step = match record.event.as_str() {
            "kfd.queue_create" => Step::Created,
            "kfd.queue_destroy" => Step::Destroyed,
            _ => continue,
        };
        let pid = u32::try_from(record.number("process.pid")?)?;
        if pids.contains(&pid) {
            reported.entry((pid, record.number("kfd.queue_id")?)).or_default().push(step);
        }
    }
    Ok(reported)
}

fn count(daemon: &Daemon, result: &str) -> Result<u64> {
    let sum = daemon.scrape()?.sum("kfd_trace_otlp_records_total", &[("result", result)]);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count")]
    sum.map(|sum| sum as u64).context("no such result")
}

/// Waits until nothing waits for the collector, and these processes have ended for the tracer.
fn settled(daemon: &Daemon, receiver: &Receiver, pids: &BTreeSet<u32>) -> Result<()> {
    until("the ends of all processes to arrive", SOON + STALL, || {
        let is_end = |record: &&Received| record.event == "kfd.process_release";
        let kept = receiver.kept();
        let ended: BTreeSet<u64> =
            kept.iter().filter(is_end).filter_map(|record| record.number("process.pid").ok()).collect();
        Ok(pids.iter().all(|pid| ended.contains(&u64::from(*pid))).then_some(()))
    })?;
    daemon.scrape_until("nothing to wait", |metrics| {
        metrics.sum("kfd_trace_otlp_waiting_records", &[]).filter(|waiting| *waiting == 0.0)
    })?;
    Ok(())
}

/// Waits until the collector takes records, or does not.
fn is_up(daemon: &Daemon, up: bool) -> Result<()> {
    let value = f64::from(u8::from(up));
    let is = |metrics: &kfd_trace_tests::harness::Metrics| {
        metrics.sum("kfd_trace_otlp_up", &[]).filter(|now| *now == value).map(drop)
    };
    daemon.scrape_until(&format!("kfd_trace_otlp_up to be {value}"), is)
}

fn endpoint(receiver: &Receiver) -> String {
    format!("--otlp.endpoint=http://{}", receiver.address)
}

#[test]
fn every_event_of_a_ledger_arrives_though_the_collector_is_killed_and_the_network_stalls() -> Result<()> {
    killed_and_stalled().map(drop)
}

/// 2,000 operations, all of which arrive.
fn killed_and_stalled() -> Result<Receiver> {
    let receiver = Receiver::start()?;
    let mut daemon = Daemon::ready(&[&[endpoint(&receiver).as_str()], &FEW[..]].concat())?;
    let (mut rng, mut ledger) = (Rng::with_seed(21), Ledger::new());
    let mut workloads = vec![Steered::start()?, Steered::start()?, Steered::start()?];
    let pids: BTreeSet<u32> = workloads.iter().map(|workload| workload.pid()).collect();
    steps(&mut rng, &mut workloads, &mut ledger, 400)?;
    for _ in 0..2 {
        is_up(&daemon, true)?;
        receiver.set(Mood::Dies);
        let before = receiver.requests();
        steps(&mut rng, &mut workloads, &mut ledger, 400)?;
        // It has kept a batch without acknowledging it.
        until("its last request", SOON, || Ok((receiver.requests() > before).then_some(())))?;
        is_up(&daemon, false)?;
        receiver.revive()?;
        steps(&mut rng, &mut workloads, &mut ledger, 100)?;
    }
    receiver.set(Mood::Stalls);
    steps(&mut rng, &mut workloads, &mut ledger, 600)?;
    std::thread::sleep(STALL);
    receiver.set(Mood::Takes);
    end(workloads, &mut ledger)?;
    settled(&daemon, &receiver, &pids)?;
    assert_eq!([count(&daemon, "refused")?, count(&daemon, "dropped")?], [0, 0]);
    let accepted = count(&daemon, "accepted")?;
    daemon.stop()?;

    let (records, repeated) = numbered(receiver.kept())?;
    let numbers: Vec<u64> = records.keys().copied().collect();
    let expected: Vec<u64> = (1..=u64::try_from(records.len())?).collect();
    assert_eq!(numbers, expected, "no number is missing");
    assert!(repeated > 0, "what was kept and not acknowledged came again");
    let last = records.last_key_value().context("records")?;
    // Those of the stop itself came after the scrape.
    assert!(accepted <= *last.0 && accepted + 9 > *last.0, "{accepted} {}", last.0);
    assert_eq!((records[&1].event.as_str(), last.1.event.as_str()), ("kfd.trace_begin", "kfd.trace_end"));
    assert_eq!(reported(&records, &ledger)?, ledger);
    println!("{} records, {repeated} of them twice; {} queues", records.len(), ledger.len());
    Ok(receiver)
}

#[test]
fn what_a_collector_forgets_or_has_no_room_is_known_to_the_record() -> Result<()> {
    forgotten_and_dropped().map(drop)
}

/// Operations of which not all arrive.
fn forgotten_and_dropped() -> Result<Receiver> {
    let receiver = Receiver::start()?;
    let endpoint = endpoint(&receiver);
    let mut daemon = Daemon::ready(&[&[endpoint.as_str(), "--otlp.queue=16KiB"], &FEW[..]].concat())?;
    let (mut rng, mut ledger) = (Rng::with_seed(22), Ledger::new());
    let mut workloads = vec![Steered::start()?];
    until("records to be kept", SOON, || Ok((!receiver.kept().is_empty()).then_some(())))?;
    // As one that answers before it stores, and is killed then.
    receiver.set(Mood::Forgets);
    steps(&mut rng, &mut workloads, &mut ledger, 30)?;
    until("records to be forgotten", SOON, || Ok((!receiver.forgotten().is_empty()).then_some(())))?;
    receiver.set(Mood::Refuses);
    let mut dropped = 0;
    for _ in 0..40 {
        steps(&mut rng, &mut workloads, &mut ledger, 50)?;
        dropped = count(&daemon, "dropped")?;
        if dropped > 200 {
            break;
        }
    }
    assert!(dropped > 200, "{dropped}");
    receiver.set(Mood::Takes);
    daemon.scrape_until("nothing to wait", |metrics| {
        metrics.sum("kfd_trace_otlp_waiting_records", &[]).filter(|waiting| *waiting == 0.0)
    })?;
    let pids: BTreeSet<u32> = workloads.iter().map(|workload| workload.pid()).collect();
    end(workloads, &mut ledger)?;
    settled(&daemon, &receiver, &pids)?;
    let dropped = count(&daemon, "dropped")?;
    daemon.stop()?;

    let (records, _) = numbered(receiver.kept())?;
    let last = *records.last_key_value().context("records")?.0;
    let missing: BTreeSet<u64> = (1..=last).filter(|number| !records.contains_key(number)).collect();
    let forgotten = numbered(receiver.forgotten())?.0;
    assert!(!forgotten.is_empty() && forgotten.keys().all(|number| missing.contains(number)), "{missing:?}");
    assert_eq!(
        u64::try_from(missing.len() - forgotten.len())?,
        dropped,
        "what the daemon counts is what is missing"
    );
    println!("{} records, {} of {last} are missing", records.len(), missing.len());
    Ok(receiver)
}

/// For `cargo xtask questions --collector`, which sends it to a real one.
#[test]
#[ignore = "prints requests"]
fn requests() -> Result<()> {
    for (run, receiver) in [("whole", killed_and_stalled()?), ("lossy", forgotten_and_dropped()?)] {
        for Request { mood, body } in receiver.bodies() {
            println!("REQUEST {run} {mood:?} {}", hex(&body));
        }
    }
    Ok(())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn a_collector_that_is_not_there_costs_nothing_but_records() -> Result<()> {
    let mut daemon =
        Daemon::ready(&[&["--otlp.endpoint=http://127.0.0.1:9", "--otlp.events=all"], &FEW[..]].concat())?;
    let mut workload = Steered::start()?;
    (0..20).try_for_each(|_| {
        let id = workload.act("create aql")?["queue_id"].as_u64().context("an id")?;
        workload.must(&format!("destroy id={id}"))
    })?;
    workload.kill()?;
    let waiting = daemon.scrape_until("records to wait", |metrics| {
        metrics.sum("kfd_trace_otlp_waiting_records", &[]).filter(|waiting| *waiting > 40.0)
    })?;
    assert!(waiting > 40.0);
    let metrics = daemon.scrape()?;
    assert_eq!(metrics.sum("kfd_trace_otlp_up", &[]), Some(0.0));
    assert_eq!(metrics.sum("kfd_trace_records_lost_total", &[]).unwrap_or(0.0), 0.0, "of the ring buffer");
    daemon.stop()?;
    let said = daemon.stderr();
    assert!(said.contains("http://127.0.0.1:9/v1/logs: cannot export: 127.0.0.1:9: "), "{said}");
    assert_eq!(said.matches("cannot export").count(), 1, "once: {said}");
    assert!(said.contains(" records were not exported before the end"), "{said}");
    until("its end", ATTACH, || daemon.exited()).map(drop)
}
