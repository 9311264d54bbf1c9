//! The tracer's slots: threads whose tids map to the same slot, and threads that leave theirs.

use anyhow::{Context, Result, bail};
use kfd_trace_common::limits::CALLER_SLOTS;
use kfd_trace_tests::harness::bpf_calls::BpfCalls;
use kfd_trace_tests::harness::bpf_maps::claims;
use kfd_trace_tests::harness::tracer::FEW;
use kfd_trace_tests::harness::wait::SOON;
use kfd_trace_tests::harness::{Daemon, Metrics, Steered, Stream, until};

/// Calls of each kind that one process makes.
const TIMES: u32 = 40;

/// Creates and destroys a queue, with an occasional failure.
fn calls(steered: &mut Steered) -> Result<()> {
    steered.must("create aql")?;
    steered.must("destroy 0")?;
    let reply = steered.act("destroy 77")?;
    assert!(!reply["errno"].is_null(), "{reply}");
    Ok(())
}

fn entries(metrics: &Metrics, map: &str) -> Option<f64> {
    metrics.sum("kfd_trace_map_entries", &[("map", map)])
}

/// A process whose main thread's tid maps to this tid's slot.
fn with_slot_of(tid: u32) -> Result<Steered> {
    for turn in 1..=5 {
        if let Some(steered) = Steered::with_pid(tid + turn * CALLER_SLOTS)? {
            return Ok(steered);
        }
    }
    bail!("each of the PIDs of that slot was lost to another task")
}

#[test]
fn who_finds_the_slot_taken_is_counted_as_exactly() -> Result<()> {
    let mut daemon = Daemon::quick(&FEW)?;
    let mut holder = Steered::start()?;
    calls(&mut holder)?;
    let before = daemon.scrape()?;
    assert_eq!((entries(&before, "ioctl_stats"), entries(&before, "ioctl_errors")), (Some(0.0), Some(0.0)));
    let mut other = with_slot_of(holder.pid())?;
    let of_daemon = BpfCalls::of(daemon.pid())?;
    for _ in 1..TIMES {
        calls(&mut holder)?;
        calls(&mut other)?;
        daemon.scrape()?;
    }
    calls(&mut other)?;
    let after = daemon.scrape()?;
    of_daemon.touched_no_entry()?;
    let missed = after.sum("kfd_trace_probe_missed_total", &[]);
    assert_eq!(missed.unwrap_or(0.0), 0.0, "no other program uses bpf(2) here");
    assert!(entries(&after, "ioctl_stats") >= Some(2.0), "the other one has no slot");
    assert!(entries(&after, "ioctl_errors") >= Some(1.0));
    for process in [&holder, &other] {
        let pid = process.pid().to_string();
        for (name, times) in [("CREATE_QUEUE", TIMES), ("DESTROY_QUEUE", 2 * TIMES)] {
            let own = after.sum("kfd_process_ioctls_total", &[("pid", &pid), ("ioctl", name)]);
            assert_eq!(own.context("its calls")?, f64::from(times), "{name} of {pid}");
        }
    }
    for (name, times) in [("CREATE_QUEUE", 2 * TIMES), ("DESTROY_QUEUE", 4 * TIMES)] {
        let measured = after.sum("kfd_ioctl_duration_seconds_count", &[("ioctl", name)]);
        assert_eq!(measured, Some(f64::from(times)), "every return of {name} was seen");
    }
    let failed = after.sum("kfd_ioctl_errors_total", &[("ioctl", "DESTROY_QUEUE")]);
    assert_eq!(failed, Some(f64::from(2 * TIMES)));
    daemon.stop()
}

/// Threads of a process that make one call each, and stay until the next operation.
const THREADS: u32 = 150;

/// Their tids.
fn threads(steered: &mut Steered) -> Result<Vec<u32>> {
    let reply = steered.act(&format!("threads {THREADS}"))?;
    let tids = reply["tids"].as_array().context("tids")?.iter();
    tids.map(|tid| Ok(u32::try_from(tid.as_u64().context("a tid")?)?)).collect()
}

/// Waits until at most this many slots are claimed.
fn claimed(tracer: u32, most: usize) -> Result<()> {
    until("the claims of ended threads to go", SOON, || Ok((claims(tracer)? <= most).then_some(())))
}

#[test]
fn threads_that_have_ended_keep_no_seat() -> Result<()> {
    let daemon = Daemon::shared()?;
    // The entries of earlier processes are removed some time after their end.
    let crowded = entries(&daemon.scrape()?, "ioctl_stats");
    let mut crowd = Steered::start()?;
    crowd.must("version")?;
    let of_daemon = BpfCalls::of(daemon.pid())?;
    let tids = threads(&mut crowd)?;
    let taken = entries(&daemon.scrape()?, "seats").context("no slots are reported")?;
    assert!(taken > f64::from(THREADS / 2), "few of the {THREADS} threads had a slot: {taken}");
    crowd.act("sleep 0")?;
    let alone = |metrics: &Metrics| entries(metrics, "seats").filter(|slots| *slots <= 1.0);
    assert_eq!(daemon.scrape_until("the slots of ended threads to be free", alone)?, 1.0);

    // A slot is then free for another thread, and the counts stay.
    claimed(daemon.pid(), 1)?;
    of_daemon.touched_no_entry()?;
    let mut next = with_slot_of(tids[0])?;
    next.must("create aql")?;
    let after = daemon.scrape()?;
    assert_eq!(entries(&after, "seats"), Some(2.0));
    assert!(entries(&after, "ioctl_stats") <= crowded, "it found the slot taken");
    let pid = crowd.pid().to_string();
    let calls = after.sum("kfd_process_ioctls_total", &[("pid", &pid), ("ioctl", "GET_VERSION")]);
    assert_eq!(calls, Some(f64::from(THREADS + 1)));
    daemon.end()
}

/// Nothing is counted for these, so their ends are not reported either.
#[test]
fn threads_of_others_keep_no_seat() -> Result<()> {
    let (wanted, mut other) = (Steered::start()?, Steered::start()?);
    let mut stream = Stream::tracing(&[&FEW[..], &["--pid", &wanted.pid().to_string()]].concat())?;
    threads(&mut other)?;
    let taken = claims(stream.pid())?;
    assert!(taken > 75, "few of the {THREADS} threads had a slot: {taken}");
    other.act("sleep 0")?;
    claimed(stream.pid(), 0)?;
    stream.interrupt()
}
