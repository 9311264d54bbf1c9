//! What the tracer itself needs: from its start to the first event it tells, and while it has nothing to tell. One process
//! uses KFD meanwhile.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::json;

use super::caller::{Caller, Order};
use super::case::Work;
use super::clock;
use crate::harness::wait::ATTACH;
use crate::harness::{Daemon, Stream};

/// What the lines for the host begin with (xtask/src/overhead/own.rs).
const MARK: &str = "kfd-own";

/// After its start, until a daemon only waits.
const SETTLES: Duration = Duration::from_secs(5);

/// For so long a daemon is watched.
const WATCHED: Duration = Duration::from_secs(30);

const ONE_PAIR: Order = Order { work: Work::Pair, operations: 1, bursts: 1 };

/// Measures and reports. `program` is our own, for callers.
pub fn run(program: &str) -> Result<()> {
    clock::check()?;
    let mut caller = Caller::start(program, true)?;
    // The first one finds nothing in the page cache, and a kernel that has not put a probe on yet.
    Stream::tracing(&[])?.finish()?;
    start(&mut caller).context("from its start")?;
    rest(&mut caller).context("at rest")
}

/// Of all tasks: the tracer's, the kernel's for it, and a caller's pair of ioctls, which is little beside.
fn start(caller: &mut Caller) -> Result<()> {
    let begin = clock::busy()?;
    let mut stream = Stream::tracing(&[])?;
    let tracing = clock::busy()? - begin;
    caller.order(ONE_PAIR)?;
    stream.wait_line("a queue", ATTACH, |line| line["event"] == "queue_create")?;
    let first_event = clock::busy()? - begin;
    stream.finish()?;
    report("start.tracing", tracing, "instructions")?;
    report("start.first_event", first_event, "instructions")
}

fn rest(caller: &mut Caller) -> Result<()> {
    let mut daemon = Daemon::ready(&[])?;
    caller.order(ONE_PAIR)?;
    daemon.scrape()?;
    std::thread::sleep(SETTLES);
    let proc = Path::new("/proc").join(daemon.pid().to_string());
    let before = Tasks::read(&proc)?;
    std::thread::sleep(WATCHED);
    let after = Tasks::read(&proc)?;
    let status = fs::read_to_string(proc.join("status")).context("the daemon has ended")?;
    let seconds = WATCHED.as_secs();
    for (case, field) in
        [("tracing.resident", "VmRSS"), ("tracing.anonymous", "RssAnon"), ("tracing.highest", "VmHWM")]
    {
        let kib = number(&status, field).with_context(|| format!("its status has no {field}"))?;
        report(case, kib * 1024, "bytes")?;
    }
    report(&format!("tracing.wake_ups.{seconds}_seconds"), after.waits - before.waits, "wake-ups")?;
    let (ran, case) = (after.ran - before.ran, format!("tracing.work.{seconds}_seconds"));
    report(&case, ran, "instructions")?;
    daemon.stop()
}

/// All threads of a process together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tasks {
    /// Instructions.
    ran: u64,
    /// How often they went to sleep, and so woke up.
    waits: u64,
}

impl Tasks {
    fn read(proc: &Path) -> Result<Self> {
        let mut all = Self::default();
        let tasks = fs::read_dir(proc.join("task")).context("the daemon has ended")?;
        let threads: Vec<PathBuf> =
            tasks.map(|task| task.map(|task| task.path())).collect::<Result<_, _>>()?;
        ensure!(!threads.is_empty(), "the daemon has no threads");
        for thread in threads {
            let read = |name: &str| {
                fs::read_to_string(thread.join(name)).with_context(|| format!("{}: {name}", thread.display()))
            };
            // The first number is the time on a CPU (proc_pid_schedstat, fs/proc/base.c).
            let ran: Option<u64> =
                read("schedstat")?.split_whitespace().next().and_then(|word| word.parse().ok());
            all.ran += ran.context("schedstat")?;
            all.waits +=
                number(&read("status")?, "voluntary_ctxt_switches").context("voluntary_ctxt_switches")?;
        }
        Ok(all)
    }
}

/// The number after a name in a `status` file of procfs.
fn number(status: &str, name: &str) -> Option<u64> {
    let mut fields = status.lines().filter_map(|line| line.split_once(':'));
    let (_, value) = fields.find(|(field, _)| *field == name)?;
    value.split_whitespace().next()?.parse().ok()
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
    fn all_threads_count() {
        let root = tempfile::tempdir().unwrap();
        assert!(Tasks::read(root.path()).is_err(), "no such process");
        for (thread, ran, waits) in [("7", 1000, 3), ("9", 20, 4)] {
            let folder = root.path().join("task").join(thread);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("schedstat"), format!("{ran} 55 66\n")).unwrap();
            let status =
                format!("Name:\tx\nnonvoluntary_ctxt_switches:\t99\nvoluntary_ctxt_switches:\t{waits}\n");
            fs::write(folder.join("status"), status).unwrap();
        }
        assert_eq!(Tasks::read(root.path()).unwrap(), Tasks { ran: 1020, waits: 7 });
    }

    #[test]
    fn a_number_is_found_by_its_whole_name() {
        let status = "VmRSSx:\t1 kB\nVmRSS:\t  5220 kB\n";
        assert_eq!((number(status, "VmRSS"), number(status, "VmHWM")), (Some(5220), None));
    }
}
