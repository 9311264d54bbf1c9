//! More ioctls than records could carry: the counts stay exact, and what is missing is counted.

use anyhow::{Context, Result, ensure};
use kfd_trace_common::counter::ProbeId;
use kfd_trace_common::kind::Kind;
use kfd_trace_tests::harness::footprint::Footprint;
use kfd_trace_tests::harness::{Daemon, Metrics, Stream, VmKernel, Workload, counts, kernel, ring, shared};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use std::thread;
use std::time::Duration;

/// 100,000 ioctls on an emulated CPU.
const LONG: Duration = Duration::from_secs(150);

/// Ends the shared stream, which would have to report each ioctl.
fn quiet() -> Result<()> {
    shared::end_stream()
}

/// Threads whose returns are all seen: on 5.10 a kretprobe has an instance per CPU, later 10 at least
/// (register_kretprobe).
fn threads() -> Result<usize> {
    let has_ten = VmKernel::from_env()?.is_from("6.1");
    Ok(if has_ten { 4 } else { std::thread::available_parallelism()?.get().min(4) })
}

#[test]
fn counts_are_exact() -> Result<()> {
    quiet()?;
    let daemon = Daemon::shared()?;
    let threads = format!("--threads={}", threads()?);
    let mut burst = Workload::spawn(&["burst", &threads, "--count=100000"])?;
    let truth = burst.finish_within(LONG)?;
    assert_eq!(counts::total(&truth), 100_000);
    let metrics = daemon.scrape()?;
    assert_eq!(counts::by_label(&metrics, "kfd_ioctls_total", "ioctl")?, counts::calls(&truth));
    let measured = counts::by_label(&metrics, "kfd_ioctl_duration_seconds_count", "ioctl")?;
    assert_eq!(measured, counts::calls(&truth), "every return was seen");
    assert_eq!(counts::metric_errors(&metrics)?, counts::errors(&truth));
    assert_eq!(metrics.sum("kfd_trace_records_total", &[("kind", "ioctl")]), Some(0.0), "none was requested");
    daemon.end()
}

/// Calls of a probe's functions that a stream missed, all causes together; 0 where the kernel does not count
/// them.
fn missed(summary: &Value, probe: &str) -> Result<u64> {
    let lost = counts::object(&summary["lost"])?;
    let of = |words: &str| lost.get(&format!("{words}, {probe}")).copied().unwrap_or(0);
    Ok(of("program skipped") + of("probe missed"))
}

/// How the calls of a burst were reported.
#[derive(Debug)]
struct Reported {
    seen: u64,
    /// Their records found the buffer full.
    lost: u64,
    /// Their lines were dropped, because this program did not read them in time.
    dropped: u64,
    /// The kernel did not run the program at their entry.
    missed: u64,
    /// The same at their return: the entry of the thread's next call reports these.
    unknown: u64,
}

/// Counts a burst with one record per call: the calls seen, those that found a buffer full, and those whose
/// entry was missed add up to the total.
fn reported(stream: &mut Stream, total: u64) -> Result<Reported> {
    let summary = stream.finish()?;
    let missed_entries = missed(&summary, "ioctl")?;
    assert_eq!(counts::summary_calls(&summary)?.values().sum::<u64>() + missed_entries, total);
    let seen = u64::try_from(stream.events("ioctl").len())?;
    let missing = counts::object(&summary["lost"])?;
    let of = |name: &str| missing.get(name).copied().unwrap_or(0);
    let (lost, dropped) = (counts::lost(&summary, "ioctl")?, of("lines dropped, ioctl"));
    assert_eq!(summary["records"]["ioctl"].as_u64().context("records")?, seen + dropped);
    let unknown = missed(&summary, "ioctl_return")?;
    // The return probe reports calls that returned, and nothing else can be lost where every return was seen.
    let returned = of("records lost, ioctl, ioctl_return");
    assert!(returned <= lost && lost <= returned + unknown, "{lost} were lost: {missing:?}");
    // A call whose return was missed is reported at the thread's next call; there is none after its last
    // call.
    let whole = seen + dropped + lost + missed_entries;
    assert!(
        whole <= total && total <= whole + unknown,
        "{seen} {lost} {missed_entries} {unknown} of {total}"
    );
    Ok(Reported { seen, lost, dropped, missed: missed_entries, unknown })
}

#[test]
fn seen_and_lost_records_make_the_whole() -> Result<()> {
    quiet()?;
    let mut stream = Stream::tracing(&["--event", "ioctl", "--buffer-size", "64KiB"])?;
    // On 5.10 it is not counted what a kretprobe misses.
    let threads = format!("--threads={}", threads()?);
    let mut burst = Workload::spawn(&["burst", &threads, "--count=100000"])?;
    let truth = burst.finish_within(LONG)?;
    let reported = reported(&mut stream, counts::total(&truth))?;
    assert!(reported.seen > 0, "{reported:?}");
    Ok(())
}

/// The probe that reports a burst of calls, all of which return, and the process that makes them.
fn sender(kind: &str) -> &'static str {
    match kind {
        "process_seen" => "create_process",
        "open" => "open",
        "ioctl" => "ioctl_return",
        "close" => "release",
        "mm_release" => "notifier_release",
        "process_release" => "wq_release_return",
        _ => panic!("{kind}"),
    }
}

#[test]
fn a_reader_that_stands_still_loses_and_says_how_much() -> Result<()> {
    quiet()?;
    let mut stream = Stream::tracing(&["--event", "ioctl", "--buffer-size", "64KiB"])?;
    stream.signal(Signal::SIGSTOP)?;
    let (_, truth) = Workload::run(&["burst", "--threads=2", "--count=2000"])?;
    let senders = ring::unread(stream.pid())?;
    stream.signal(Signal::SIGCONT)?;
    let by_entry = (Kind::Ioctl, Some(ProbeId::Ioctl));
    for (kind, probe) in senders.iter().filter(|sent| **sent != by_entry) {
        assert_eq!(probe.map(ProbeId::name), Some(sender(kind.name())), "{}", kind.name());
    }
    let reported = reported(&mut stream, counts::total(&truth))?;
    let ioctls = Vec::from_iter(senders.iter().filter(|(kind, _)| *kind == Kind::Ioctl));
    let by_entry = ioctls.iter().filter(|sent| ***sent == by_entry).count();
    assert!(u64::try_from(by_entry)? <= reported.unknown, "{by_entry} without a return: {reported:?}");
    assert_eq!(
        u64::try_from(ioctls.len())?,
        reported.seen + reported.dropped,
        "those that stood there, no others"
    );
    // a record is larger than 64 bytes, so that 64 KiB cannot hold more than 1024
    assert!(
        reported.seen > 0 && reported.seen + reported.dropped <= 1024 && reported.lost > 0,
        "{reported:?}"
    );
    Ok(())
}

/// `kfd_trace_probe_missed_total` of a probe, all causes together; `None` where the kernel does not count.
fn missed_total(metrics: &Metrics, probe: &str) -> Option<f64> {
    metrics.sum("kfd_trace_probe_missed_total", &[("probe", probe)])
}

/// Bursts that are tried until something is skipped.
const BURSTS: u32 = 10;

#[test]
fn what_the_kernel_skips_is_counted() -> Result<()> {
    // what is skipped is skipped for all tracers: the shared daemon would miss creations, too
    quiet()?;
    let daemon = Daemon::ready(&[])?;
    let mut stream = Stream::tracing(&["--event", "ioctl"])?;
    let mut lookups = Workload::ready(&["lookups", "--cpu=0"])?;
    let preempts = kernel::preempts()?;
    let (mut total, mut counted) = (0, None);
    // The scheduler decides which of the two threads runs when: a burst may pass without a call that falls
    // into a lookup.
    for _ in 0..BURSTS {
        let mut burst = Workload::spawn(&["burst", "--threads=1", "--count=20000", "--cpu=0"])?;
        total += counts::total(&burst.finish_within(LONG)?);
        counted = missed_total(&daemon.scrape()?, "ioctl");
        if !preempts || counted.is_some_and(|missed| missed > 0.0) {
            break;
        }
    }
    lookups.close_stdin();
    lookups.wait_success(LONG)?;
    let metrics = daemon.scrape()?;
    let reported = reported(&mut stream, total)?;
    let not_measured = &stream.summary()?["misses_not_measured"];
    if let Some(missed) = counted {
        assert_eq!(*not_measured, json!([]));
        let calls = metrics.sum("kfd_ioctls_total", &[]).context("no ioctls")?;
        assert_eq!(calls + missed, f64::from(u32::try_from(total)?));
        ensure!(!preempts || reported.missed > 0 && missed > 0.0, "provoked none: {reported:?}, {missed}");
    } else {
        assert_eq!(*not_measured, json!(["program_skipped", "probe_missed"]));
        assert_eq!(reported.missed, 0);
    }
    Ok(())
}

/// How long a flood lasts.
const FLOOD: Duration = Duration::from_secs(20);

/// Memory of the daemon at rest, and the limit of what a flood may add to a tracer, KiB.
const AT_REST: u64 = 25 * 1024;
const GROWTH: u64 = 2 * 1024;

#[test]
fn a_flood_blocks_nobody_and_leaves_no_gap_unreported() -> Result<()> {
    quiet()?;
    let mut daemon = Daemon::quick(&[])?;
    let mut stream = Stream::tracing(&["--event", "ioctl", "--buffer-size", "64KiB"])?;
    let seconds = format!("--seconds={}", FLOOD.as_secs());
    let mut floods = Vec::new();
    for _ in 0..3 {
        floods.push(Workload::ready(&["flood", "--threads=2", &seconds])?);
    }
    let sizes = || {
        Ok::<_, anyhow::Error>([
            Footprint::of(daemon.pid())?.anonymous,
            Footprint::of(stream.pid())?.anonymous,
        ])
    };
    thread::sleep(FLOOD / 4);
    let early = sizes()?;
    let calls = |metrics: &Metrics| metrics.sum("kfd_ioctls_total", &[]);
    let amid = daemon.scrape_until("calls", |metrics| calls(metrics).filter(|calls| *calls > 0.0))?;
    thread::sleep(FLOOD / 2);
    let (late, resident) = (sizes()?, Footprint::of(daemon.pid())?.resident);
    for (early, late) in early.into_iter().zip(late) {
        assert!(late <= early + GROWTH, "{early} KiB, then {late}");
    }
    assert!(resident <= AT_REST, "{resident} KiB");
    let mut total = 0;
    for flood in &mut floods {
        total += counts::total(&flood.finish_within(LONG)?);
    }
    let metrics = daemon.scrape()?;
    let reported = reported(&mut stream, total)?;
    assert!(reported.seen > 0 && reported.lost > 0, "the buffer is to overflow: {reported:?} of {total}");
    let counted = calls(&metrics).context("no ioctls")?;
    let missed = missed_total(&metrics, "ioctl").unwrap_or(0.0);
    assert_eq!(counted + missed, f64::from(u32::try_from(total)?));
    assert!(amid < counted, "a scrape amid the flood counts it: {amid} of {counted}");
    println!("{reported:?} of {total}; KiB: anonymous {early:?}, {late:?}, the daemon's resident {resident}");
    daemon.stop()
}
