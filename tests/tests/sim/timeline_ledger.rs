//! `kfd-trace timeline` against a ledger of random operations: every life of a queue, every change of one and every ioctl
//! is in the trace, at its time.

use crate::timeline::ns;
use anyhow::{Context, Result};
use fastrand::Rng;
use kfd_trace_tests::harness::pftrace::{Slice, slices};
use kfd_trace_tests::harness::tracer::{program, run};
use kfd_trace_tests::harness::wait::ATTACH;
use kfd_trace_tests::harness::{JsonProcess, Steered};
use nix::sys::signal::Signal;
use nix::time::ClockId;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

const OPERATIONS: usize = 150;

/// Begin and end of an operation as the test sees it, nanoseconds of CLOCK_MONOTONIC.
#[derive(Clone, Copy, Debug)]
struct Span(u64, u64);

impl Span {
    fn of<T>(act: impl FnOnce() -> Result<T>) -> Result<(T, Self)> {
        let begin_ns = ns(ClockId::CLOCK_MONOTONIC)?;
        let done = act()?;
        Ok((done, Span(begin_ns, ns(ClockId::CLOCK_MONOTONIC)?)))
    }

    fn has(self, at_ns: u64) -> bool {
        (self.0..=self.1).contains(&at_ns)
    }
}

/// What was done to one queue.
#[derive(Debug)]
struct Life {
    pid: u32,
    id: u64,
    created: Span,
    updated: Vec<Span>,
    ended: Option<Span>,
}

#[derive(Debug, Default)]
struct Ledger {
    lives: Vec<Life>,
    /// Queue ioctls per process.
    calls: BTreeMap<u32, usize>,
}

impl Ledger {
    fn alive(&mut self, pid: u32) -> Vec<&mut Life> {
        self.lives.iter_mut().filter(|life| life.pid == pid && life.ended.is_none()).collect()
    }
}

/// One random operation of a process.
fn step(rng: &mut Rng, workload: &mut Steered, ledger: &mut Ledger) -> Result<()> {
    let pid = workload.pid();
    *ledger.calls.entry(pid).or_default() += 1;
    let mut alive = ledger.alive(pid);
    let chosen = rng.usize(..alive.len().max(1));
    match alive.get_mut(chosen).filter(|_| rng.u8(..) < 150) {
        Some(life) if rng.bool() => {
            let ((), span) = Span::of(|| workload.must(&format!("destroy id={}", life.id)))?;
            life.ended = Some(span);
        }
        Some(life) => {
            let percent = rng.u8(1..=100);
            life.updated.push(Span::of(|| workload.must(&format!("update id={} {percent}", life.id)))?.1);
        }
        None => {
            let what = rng
                .choice(["create aql", "create sdma", "create aql gpu=1", "create aql"])
                .context("a choice")?;
            let (answer, created) = Span::of(|| workload.act(what))?;
            match answer["queue_id"].as_u64() {
                Some(id) => ledger.lives.push(Life { pid, id, created, updated: Vec::new(), ended: None }),
                // SDMA queues are few, and all processes share them.
                None => assert_eq!((what, &answer["errno"]), ("create sdma", &"ENOMEM".into()), "{answer}"),
            }
        }
    }
    Ok(())
}

/// Those on this track of a process itself.
fn on<'a>(all: &'a [Slice], pid: u32, track: &str) -> Vec<&'a Slice> {
    let of = |slice: &&Slice| slice.pid.and_then(|own| u32::try_from(own).ok()) == Some(pid);
    all.iter().filter(of).filter(|slice| slice.path.last().is_some_and(|name| name == track)).collect()
}

#[test]
fn every_operation_of_a_ledger_is_in_the_trace_at_its_time() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let path = |name: &str| folder.path().join(name).to_str().map(str::to_owned).context("a path of text");
    let (file, trace) = (path("a.rec")?, path("a.pftrace")?);
    let mut traced = JsonProcess::spawn(&program(), &["record", "-o", &file])?;
    traced.wait_stderr("kfd-trace: tracing", ATTACH)?;
    let (mut rng, mut ledger) = (Rng::with_seed(20), Ledger::default());
    let mut workloads = [Steered::start()?, Steered::start()?, Steered::start()?];
    for _ in 0..OPERATIONS {
        let chosen = rng.usize(..workloads.len());
        step(&mut rng, &mut workloads[chosen], &mut ledger)?;
    }
    let [killed, finished, lives_on] = workloads;
    for (workload, how) in [(killed, Steered::kill as fn(Steered) -> Result<()>), (finished, finish)] {
        let pid = workload.pid();
        let ((), span) = Span::of(|| how(workload))?;
        ledger.alive(pid).into_iter().for_each(|life| life.ended = Some(span));
    }
    traced.signal(Signal::SIGINT)?;
    traced.wait_success(ATTACH)?;

    let made = run(&["timeline", &file, "-o", &trace])?;
    assert!(made.status.success(), "{made:?}");
    let all = slices(Path::new(&trace))?;
    // Shown where something is missing: whether the tracer said so, and what it had.
    let replayed = run(&["replay", "--json", &file])?;
    let stream = String::from_utf8(replayed.stdout)?;
    let had = |pid: u32| {
        let of = format!("\"pid\":{pid},");
        let lines: Vec<_> = stream.lines().filter(|line| line.contains(&of)).collect();
        format!("the tracer said:\n{}\nand had:\n{}", traced.stderr(), lines.join("\n"))
    };
    let tracks: BTreeSet<_> = ledger.lives.iter().map(|life| (life.pid, life.id)).collect();
    for (pid, id) in tracks {
        let shown = on(&all, pid, &format!("queue {id}"));
        let mut lives = shown.iter().filter(|slice| slice.end_ns != Some(slice.begin_ns));
        let mut updates = shown.iter().filter(|slice| slice.name == "queue_update");
        for life in ledger.lives.iter().filter(|life| (life.pid, life.id) == (pid, id)) {
            let slice =
                lives.next().with_context(|| format!("{life:?} is missing: {shown:?}; {}", had(pid)))?;
            assert!(life.created.has(slice.begin_ns), "{life:?}: {slice:?}");
            match (life.ended, slice.end_ns) {
                (Some(span), Some(end_ns)) => assert!(span.has(end_ns), "{life:?}: {slice:?}"),
                (ended, shown) => assert_eq!((ended.is_none(), shown), (true, None), "{life:?}: {slice:?}"),
            }
            for span in &life.updated {
                let update = updates
                    .next()
                    .with_context(|| format!("an update of {life:?}: {shown:?}; {}", had(pid)))?;
                assert!(span.has(update.begin_ns), "{life:?}: {update:?}");
            }
        }
        let more: Vec<_> = lives.chain(updates).collect();
        assert!(more.is_empty(), "not in the ledger: {more:?}");
    }
    for (pid, calls) in &ledger.calls {
        let of_queues = ["CREATE_QUEUE", "UPDATE_QUEUE", "DESTROY_QUEUE"];
        let ioctls =
            all.iter().filter(|slice| slice.pid.and_then(|own| u32::try_from(own).ok()) == Some(*pid));
        assert_eq!(ioctls.filter(|slice| of_queues.contains(&&*slice.name)).count(), *calls, "PID {pid}");
    }

    // to the nanosecond: the stream's line and the trace's packet are of the same record
    let times: BTreeSet<u64> =
        all.iter().flat_map(|slice| [Some(slice.begin_ns), slice.end_ns]).flatten().collect();
    let mut lines = 0;
    for line in stream.lines() {
        let event: Value = serde_json::from_str(line)?;
        // The slice of an ioctl begins where the call does, and its record is made a little after its end.
        if let Some(mono_ns) = event["entered_mono_ns"].as_u64().or(event["mono_ns"].as_u64()) {
            assert!(times.contains(&mono_ns), "not in the trace: {line}");
            lines += 1;
        }
    }
    assert!(lines > 2 * OPERATIONS, "{lines} lines, {} lives", ledger.lives.len());
    println!("{OPERATIONS} operations, {} lives of queues, {lines} events", ledger.lives.len());
    lives_on.kill()
}

fn finish(mut workload: Steered) -> Result<()> {
    workload.finish().map(drop)
}
