//! `kfd-trace top` while 2,000 random operations run: its rows are those of `ps` and of a ledger.

use anyhow::{Context, Result};
use fastrand::Rng;
use kfd_trace_tests::harness::tracer::{FEW, program, run_json};
use kfd_trace_tests::harness::wait::{ATTACH, SOON};
use kfd_trace_tests::harness::{Steered, TerminalProcess};
use std::collections::{BTreeMap, BTreeSet};

/// Operations between two comparisons, and how many comparisons.
const BETWEEN: usize = 100;
const TIMES: usize = 20;

/// More would not be on the screen.
const MOST: usize = 12;
const SIZE: (u16, u16) = (160, 60);

/// Ids of live queues by PID.
type Ledger = BTreeMap<u32, BTreeSet<u64>>;

fn step(rng: &mut Rng, workload: &mut Steered, ledger: &mut Ledger) -> Result<()> {
    let alive = ledger.entry(workload.pid()).or_default();
    let chosen = rng.choice(alive.iter()).copied();
    match (chosen, rng.u8(..3)) {
        (Some(id), 0) => {
            workload.must(&format!("destroy id={id}"))?;
            alive.remove(&id);
        }
        (Some(id), 1) => workload.must(&format!("update id={id} {}", rng.u8(1..=100)))?,
        _ if alive.len() < MOST => {
            let what = rng.choice(["create aql", "create sdma", "create aql gpu=1"]).context("a choice")?;
            let answer = workload.act(what)?;
            // SDMA queues are few, and all processes share them.
            let id = answer["queue_id"].as_u64().filter(|_| answer["errno"].is_null());
            assert!(id.is_some() || answer["errno"] == "ENOMEM", "{answer}");
            alive.extend(id);
        }
        _ => {}
    }
    Ok(())
}

/// Number of queues by PID, as the table of processes has it.
fn counts(screen: &str) -> BTreeMap<u32, usize> {
    let mut lines = screen.lines().skip_while(|line| !(line.contains(" PID ") && line.contains("QUEUES")));
    let Some(header) = lines.next() else { return BTreeMap::new() };
    let end = header.split("QUEUES").next().map_or(0, |before| before.chars().count()) + "QUEUES".len();
    let row = |line: &str| {
        let pid = line.split_whitespace().next()?.parse().ok()?;
        let begin: String = line.chars().take(end).collect();
        Some((pid, begin.split_whitespace().last()?.parse().ok()?))
    };
    lines.map_while(row).collect()
}

/// The process whose queues are shown, and their ids.
fn selected(screen: &str) -> Option<(u32, BTreeSet<u64>)> {
    let mut lines = screen.lines().skip_while(|line| !line.starts_with("Queues of "));
    let pid = lines.next()?.split_whitespace().nth(2)?.parse().ok()?;
    let ids = lines.skip(1).map_while(|line| line.split_whitespace().next()?.parse().ok());
    Some((pid, ids.collect()))
}

#[test]
fn its_rows_are_those_of_ps_and_the_ledger_while_random_operations_run() -> Result<()> {
    let (mut rng, mut ledger) = (Rng::with_seed(2000), Ledger::new());
    let mut workloads = [Steered::start()?, Steered::start()?, Steered::start()?];
    let mut top = TerminalProcess::spawn(&program(), &[&["top"], &FEW[..]].concat(), SIZE)?;
    top.wait_text("COMPUTE", ATTACH)?;
    let (mut compared, mut looked) = (0, BTreeSet::new());
    for _ in 0..TIMES {
        for _ in 0..BETWEEN {
            let chosen = rng.usize(..workloads.len());
            step(&mut rng, &mut workloads[chosen], &mut ledger)?;
        }
        let expected: BTreeMap<u32, usize> = ledger.iter().map(|(pid, ids)| (*pid, ids.len())).collect();
        let listed = run_json(&["ps", "--json"])?.pop().context("one object")?;
        let mut of_ps: Ledger = ledger.keys().map(|pid| (*pid, BTreeSet::new())).collect();
        for row in listed["queues"].as_array().context("queues")? {
            let pid = row["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok());
            let own = pid.and_then(|pid| of_ps.get_mut(&pid));
            own.into_iter().for_each(|ids| ids.extend(row["queue_id"].as_u64()));
        }
        assert_eq!(of_ps, ledger);
        let shown = top.wait(&format!("{expected:?}"), SOON, |screen| {
            let (pid, ids) = selected(screen)?;
            (counts(screen) == expected && ledger.get(&pid) == Some(&ids)).then_some((pid, ids))
        })?;
        compared += shown.1.len();
        looked.insert(shown.0);
        assert!(!top.text().contains("lost: "), "{}", top.text());
        // the next process
        top.press("j")?;
    }
    assert!(compared > TIMES && looked.len() > 1, "{compared} queues of {looked:?}");
    println!("{} operations, {compared} queues of {looked:?} compared", TIMES * BETWEEN);
    workloads.into_iter().try_for_each(|mut workload| workload.finish().map(drop))?;
    top.press("q")?;
    top.wait_restored(ATTACH)
}

#[test]
fn the_tables_of_a_screen_are_read() {
    let screen = "    PID COMM   OWNER  GPUS  QUEUES  RATE\n     71 a b    x 7    0,1       3     9/s\n     72 c      -      -         0       -\n\nQueues of 71 a b: 2\nQUEUE GPU   TYPE\n    1 gpu 0 sdma\n   12 gpu 1 sdma\n\n";
    assert_eq!(counts(screen), BTreeMap::from([(71, 3), (72, 0)]));
    assert_eq!(selected(screen), Some((71, BTreeSet::from([1, 12]))));
}
