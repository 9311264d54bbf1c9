//! The tracer's own cost: from its start to the first reported event, and while it has nothing to report; and
//! the cost of starting and ending each of its commands. One process uses KFD meanwhile.

use super::caller::{Caller, Order};
use super::case::Work;
use super::clock;
use crate::harness::footprint::Footprint;
use crate::harness::setting::{HUGE_PAGES, Setting};
use crate::harness::status::number;
use crate::harness::tracer::run as run_command;
use crate::harness::wait::ATTACH;
use crate::harness::{Daemon, Metrics, Stream, Workload};
use anyhow::{Context, Result, ensure};
use serde_json::json;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::time::Duration;

/// Prefix of the lines for the host (xtask/src/bench/overhead/own.rs).
const MARK: &str = "kfd-own";

/// Time after its start until a daemon only waits, and the threads of its start-up have ended (tokio keeps
/// them for 10 s).
const SETTLES: Duration = Duration::from_secs(20);

/// How long a daemon is watched.
const WATCHED: Duration = Duration::from_secs(30);

const STARTS: usize = 3;

/// Queues of one process that are sampled, once a second.
const SAMPLED: u32 = 100;

const ONE_PAIR: Order = Order { work: Work::Pair, operations: 1, bursts: 1 };

/// Measures and reports. `program` is this executable, for callers.
pub fn run(program: &str) -> Result<()> {
    clock::check()?;
    let mut caller = Caller::start(program, true)?;
    starts(&mut caller).context("from its start")?;
    commands().context("commands that end")?;
    rest(&mut caller).context("at rest")?;
    drop(caller);
    sampling().context("while it samples")
}

/// The least of several starts: the first one finds nothing in the page cache, and a kernel that has not
/// attached a probe yet.
fn starts(caller: &mut Caller) -> Result<()> {
    let mut least = [u64::MAX; 3];
    for _ in 0..STARTS {
        let start = start(caller)?;
        least = std::array::from_fn(|part| least[part].min(start[part]));
    }
    let [tracing, first_event, end] = least;
    report("start.tracing", tracing, "instructions")?;
    report("start.first_event", first_event, "instructions")?;
    report("end.stream", end, "instructions")
}

/// To its line, to the first event, and from SIGINT to its end. Instructions of all tasks: the tracer's, the
/// kernel's on its behalf, and a caller's pair of ioctls, which is little in comparison.
fn start(caller: &mut Caller) -> Result<[u64; 3]> {
    let begin = clock::busy()?;
    let mut stream = Stream::tracing(&[])?;
    let tracing = clock::busy()? - begin;
    caller.order(ONE_PAIR)?;
    stream.wait_line("a queue", ATTACH, |line| line["event"] == "queue_create")?;
    let first_event = clock::busy()? - begin;
    let ends = clock::busy()?;
    stream.finish()?;
    Ok([tracing, first_event, clock::busy()? - ends])
}

/// Commands that end by themselves, each once: their programs and files are in the page cache since the
/// starts.
fn commands() -> Result<()> {
    for command in [&["ps"][..], &["status"], &["run", "--", "true"]] {
        let begin = clock::busy()?;
        let output = run_command(command)?;
        let took = clock::busy()? - begin;
        ensure!(output.status.success(), "{command:?}: {}", output.status);
        report(&format!("command.{}", command[0]), took, "instructions")?;
    }
    Ok(())
}

fn rest(caller: &mut Caller) -> Result<()> {
    // Depending on an address, one of these is by chance 2 MiB of memory of which the daemon uses next to
    // nothing.
    let _small_pages = Setting::of(HUGE_PAGES, "never")?;
    let begin = clock::busy()?;
    let mut daemon = Daemon::ready(&[])?;
    report("start.daemon", clock::busy()? - begin, "instructions")?;
    caller.order(ONE_PAIR)?;
    daemon.scrape()?;
    std::thread::sleep(SETTLES);
    let proc = Path::new("/proc").join(daemon.pid().to_string());
    let before = threads(&proc)?;
    std::thread::sleep(WATCHED);
    let done = since(&before, &threads(&proc)?);
    let Footprint { resident, anonymous, highest, .. } = Footprint::of(daemon.pid())?;
    let seconds = WATCHED.as_secs();
    for (case, kib) in
        [("tracing.resident", resident), ("tracing.anonymous", anonymous), ("tracing.highest", highest)]
    {
        report(case, kib * 1024, "bytes")?;
    }
    report(&format!("tracing.wake_ups.{seconds}_seconds"), done.waits, "wake-ups")?;
    report(&format!("tracing.work.{seconds}_seconds"), done.ran, "instructions")?;
    let ends = clock::busy()?;
    daemon.stop()?;
    report("end.daemon", clock::busy()? - ends, "instructions")
}

/// Cost of reading a queue's pointers in the thread that does it, the kernel's part included.
fn sampling() -> Result<()> {
    let mut daemon = Daemon::ready(&[])?;
    let mut workload = Workload::spawn(&["hold", &format!("--aql={SAMPLED}"), "--sdma=0"])?;
    workload.wait_line("its queues", ATTACH, |line| line["ready"] == true)?;
    std::thread::sleep(SETTLES);
    let before = daemon.scrape()?;
    std::thread::sleep(WATCHED);
    let after = daemon.scrape()?;
    let grown = |name: &str| {
        let of = |metrics: &Metrics| metrics.sum(name, &[]).with_context(|| format!("no {name}"));
        Ok::<_, anyhow::Error>(of(&after)? - of(&before)?)
    };
    let samples = grown("kfd_trace_samples_total")?;
    let own_ns = grown("kfd_trace_sample_cpu_seconds_total")? * 1e9;
    ensure!(samples >= f64::from(SAMPLED) * 20.0, "{samples} samples in {WATCHED:?}");
    workload.finish()?;
    daemon.stop()?;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count")]
    report("sample.reading", (own_ns / samples) as u64, "instructions/queue")
}

/// Work of a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Done {
    /// Instructions.
    ran: u64,
    /// How often it went to sleep, and so woke up.
    waits: u64,
}

/// The threads of a process, by tid.
fn threads(proc: &Path) -> Result<BTreeMap<OsString, Done>> {
    let mut all = BTreeMap::new();
    for thread in fs::read_dir(proc.join("task")).context("the daemon has ended")? {
        let thread = thread.context("the daemon's threads")?;
        let read = |name: &str| fs::read_to_string(thread.path().join(name));
        // One that ends meanwhile has nothing more to report.
        let (Ok(schedstat), Ok(status)) = (read("schedstat"), read("status")) else { continue };
        // The first number is the time on a CPU (proc_pid_schedstat, fs/proc/base.c).
        let ran = schedstat.split_whitespace().next().and_then(|word| word.parse().ok());
        let waits = number(&status, "voluntary_ctxt_switches").ok();
        let work = ran.zip(waits).map(|(ran, waits)| Done { ran, waits });
        all.insert(thread.file_name(), work.context("a thread's schedstat or status")?);
    }
    ensure!(!all.is_empty(), "the daemon has no threads");
    Ok(all)
}

/// The work of all threads together between two readings, as far as the second one shows them.
fn since(before: &BTreeMap<OsString, Done>, after: &BTreeMap<OsString, Done>) -> Done {
    after.iter().fold(Done::default(), |sum, (tid, now)| {
        let then = before.get(tid).copied().unwrap_or_default();
        Done { ran: sum.ran + now.ran - then.ran, waits: sum.waits + now.waits - then.waits }
    })
}

fn report(case: &str, value: u64, unit: &str) -> Result<()> {
    let line = serde_json::to_string(&json!({ "case": case, "value": value, "unit": unit }))?;
    println!("{MARK} {line}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_come_and_go_are_counted_for_what_they_did_meanwhile() {
        let root = tempfile::tempdir().unwrap();
        assert!(threads(root.path()).is_err(), "no such process");
        let thread = |tid: &str, ran: u64, waits: u64| {
            let folder = root.path().join("task").join(tid);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("schedstat"), format!("{ran} 55 66\n")).unwrap();
            let status =
                format!("Name:\tx\nnonvoluntary_ctxt_switches:\t99\nvoluntary_ctxt_switches:\t{waits}\n");
            fs::write(folder.join("status"), status).unwrap();
        };
        thread("7", 1000, 3);
        thread("9", 50_000, 400);
        let before = threads(root.path()).unwrap();
        fs::remove_dir_all(root.path().join("task/9")).unwrap();
        thread("7", 1020, 7);
        thread("11", 300, 1);
        assert_eq!(since(&before, &threads(root.path()).unwrap()), Done { ran: 320, waits: 5 });
    }
}
