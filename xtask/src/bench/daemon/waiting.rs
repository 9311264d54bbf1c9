//! The released daemon while it waits for the driver: its memory use, and how often it wakes up. Both of its processes
//! are meant.

use crate::bench::baseline::Figure;
use crate::build;
use crate::paths;
use crate::run::{self, Ended, step};
use anyhow::{Context as _, Result, ensure};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

/// Time after its start until it only waits.
const SETTLES: Duration = Duration::from_secs(5);

/// How long it is watched.
const WATCHED: Duration = Duration::from_secs(30);

/// In [`WATCHED`]: twelve looks at sysfs, and three pulses between both processes, which wake up three threads each.
const MOST_WAKE_UPS: i64 = 35;

/// Heap and stacks, bytes: what it has beyond the file of the program.
const MOST_MEMORY: i64 = 4_000_000;

/// `false`: it costs more than that, and this was reported.
pub(super) fn is_well() -> Result<bool> {
    let most = [("waiting.wake_ups", MOST_WAKE_UPS), ("waiting.anonymous", MOST_MEMORY)];
    let mut well = true;
    for Figure { case, value, unit } in figures()? {
        if let Some((_, most)) = most.iter().find(|(begin, most)| case.starts_with(begin) && value > *most) {
            eprintln!("error: {case}: {value} {unit}, and at most {most} are accepted");
            well = false;
        }
    }
    Ok(well)
}

/// Memory, and wake-ups in [`WATCHED`].
pub(super) fn figures() -> Result<Vec<Figure>> {
    let binary = build::build()?;
    let seconds = WATCHED.as_secs();
    step(format!("watching the daemon wait for a driver ({seconds} s)"));
    // An empty sysfs shows no driver, whatever this machine has.
    let sysfs = paths::target().join("bench-daemon/sysfs");
    fs::create_dir_all(&sysfs).with_context(|| format!("cannot make {}", sysfs.display()))?;
    let mut command = Command::new(&binary);
    command.args(["daemon", "--web.listen-address", "127.0.0.1:0", "--path.sysfs"]).arg(&sysfs);
    let mut daemon = Ended(command.stdout(Stdio::null()).spawn().context("cannot run it")?);
    sleep(SETTLES);
    ensure!(daemon.0.try_wait()?.is_none(), "the daemon does not wait");
    let all = run::family(daemon.0.id())?;
    let sum = |read: &dyn Fn(&Path) -> Result<i64>| all.iter().map(|proc| read(proc)).sum::<Result<i64>>();
    let before = sum(&wake_ups)?;
    sleep(WATCHED);
    let after = sum(&wake_ups)?;
    // What both have in memory of the program's file counts once.
    let resident = sum(&|proc| run::status_number(&proc.join("smaps_rollup"), "Pss"))? * 1024;
    let anonymous = sum(&|proc| run::status_number(&proc.join("status"), "RssAnon"))? * 1024;
    Ok(vec![
        Figure::new("waiting.resident", resident, "bytes"),
        Figure::new("waiting.anonymous", anonymous, "bytes"),
        Figure::new(format!("waiting.wake_ups.{seconds}_seconds"), after - before, "wake-ups"),
    ])
}

/// How often its threads have slept, and so woken up.
fn wake_ups(proc: &Path) -> Result<i64> {
    let tasks = fs::read_dir(proc.join("task")).context("the daemon has ended")?;
    let threads =
        tasks.map(|task| run::status_number(&task?.path().join("status"), "voluntary_ctxt_switches"));
    let threads: Vec<i64> = threads.collect::<Result<_>>()?;
    ensure!(!threads.is_empty(), "the daemon has no threads");
    Ok(threads.iter().sum())
}
