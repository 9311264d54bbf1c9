//! `cargo xtask bench look`: what it costs to look: a recording of a million events that is read again, and `top` beside
//! a daemon of 10,000 queues. Times are of this machine and this moment, so nothing is compared with accepted figures.

use crate::bench::baseline::Figure;
use crate::bench::daemon;
use crate::build;
use crate::paths;
use crate::run::{self, Ended, step};
use anyhow::{Context as _, Result, ensure};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike as _;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _, copy, sink};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// In the recording.
const EVENTS: i64 = 1_000_000;

/// Between two questions of `top`: so long that it does not ask less often by itself.
const INTERVAL: Duration = Duration::from_secs(2);

/// How long `top` is watched, after it has begun.
const SETTLES: Duration = Duration::from_secs(10);
const WATCHED: Duration = Duration::from_secs(60);

/// Of `utime` and `stime` in `/proc/PID/stat` (proc_pid_stat(5)): the same on each architecture.
const TICK_MS: u64 = 10;

/// Of its terminal.
const SCREEN: &str = "stty cols 200 rows 60";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// An array of {case, value, unit} instead of a table
    #[arg(long)]
    json: bool,
}

pub(crate) fn look(args: &Args) -> Result<()> {
    let program = daemon::build()?;
    let binary = build::build()?;
    let dir = paths::target().join("bench-look");
    fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
    let mut all = recordings(&program, &binary, &dir)?;
    all.extend(top(&program, &binary)?);
    daemon::print(&all, args.json)
}

fn recordings(program: &Path, binary: &Path, dir: &Path) -> Result<Vec<Figure>> {
    let (file, trace) = (dir.join("events.kfdtrace"), dir.join("events.pftrace"));
    step(format!("writing {EVENTS} events"));
    // It is refused if it exists.
    let _ = fs::remove_file(&file);
    run::run(Command::new(program).arg("write").arg(&file).arg(EVENTS.to_string()))?;
    let mut all = vec![Figure::new("recording.file", length(&file)?, "bytes")];
    let cases: [(&str, &[&str]); 4] = [
        ("replay.text", &["replay"]),
        ("replay.json", &["replay", "--json"]),
        ("replay.count", &["replay", "-c"]),
        ("timeline", &["timeline"]),
    ];
    for (case, arguments) in cases {
        step(format!("kfd-trace {}", arguments.join(" ")));
        let mut command = Command::new(binary);
        command.args(arguments).arg(&file).stdin(Stdio::null());
        if case == "timeline" {
            command.arg("-o").arg(&trace);
        }
        command.stdout(File::create(dir.join("out"))?).stderr(File::create(dir.join("err"))?);
        let used = used(&mut command)?;
        let per_second = |time: Duration| EVENTS * 1000 / millis(time).max(1);
        all.push(Figure::new(format!("{case}.cpu"), millis(used.cpu), "ms"));
        all.push(Figure::new(format!("{case}.time"), millis(used.time), "ms"));
        all.push(Figure::new(format!("{case}.rate"), per_second(used.time), "events/s"));
        all.push(Figure::new(format!("{case}.highest"), used.highest, "bytes"));
        if case == "replay.json" {
            let lines = i64::try_from(BufReader::new(File::open(dir.join("out"))?).lines().count())?;
            ensure!(lines > EVENTS, "{lines} lines of {EVENTS} events");
        }
    }
    all.push(Figure::new("timeline.file", length(&trace)?, "bytes"));
    Ok(all)
}

fn length(file: &Path) -> Result<i64> {
    let length = fs::metadata(file).with_context(|| format!("there is no {}", file.display()))?.len();
    Ok(i64::try_from(length)?)
}

fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

/// What a command took.
struct Used {
    time: Duration,
    /// Of all its threads.
    cpu: Duration,
    /// Bytes of memory at most, as seen every few milliseconds.
    highest: i64,
}

fn used(command: &mut Command) -> Result<Used> {
    let before = children()?;
    let begin = Instant::now();
    let mut child = command.spawn().context("cannot run it")?;
    let status = Path::new("/proc").join(child.id().to_string()).join("status");
    let mut highest = 0;
    let ended = loop {
        if let Some(ended) = child.try_wait()? {
            break ended;
        }
        // What has just ended has none any more.
        highest = highest.max(run::status_number(&status, "VmHWM").unwrap_or(0) * 1024);
        sleep(Duration::from_millis(5));
    };
    let time = begin.elapsed();
    ensure!(ended.success(), "it ended with {ended}");
    Ok(Used { time, cpu: children()?.saturating_sub(before), highest })
}

/// CPU time of all children that have ended.
fn children() -> Result<Duration> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let us = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    Ok(Duration::from_micros(u64::try_from(us)?))
}

/// `top` beside a daemon with [`crate::bench::daemon`]'s 10,000 queues.
fn top(program: &Path, binary: &Path) -> Result<Vec<Figure>> {
    let mut command = Command::new(program);
    let mut serves = Ended(
        command.arg("serve").stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?,
    );
    let lines = BufReader::new(serves.0.stderr.take().context("no stderr")?).lines();
    let url = lines.map_while(Result::ok).find_map(|line| {
        let (_, address) = line.split_once("serving http://")?;
        Some(format!("http://{}", address.trim_end_matches("/metrics")))
    });
    let url = url.context("the daemon does not serve")?;
    step(format!("watching top for {} s", WATCHED.as_secs()));
    let mut command = Command::new("script");
    command
        .args([
            "-qfc",
            &format!(
                "{SCREEN}; exec '{}' top --url {url} --interval {}s",
                binary.display(),
                INTERVAL.as_secs()
            ),
        ])
        .arg("/dev/null");
    // script ends with its input.
    command.env("TERM", "xterm-256color").stdin(Stdio::piped()).stdout(Stdio::null());
    let terminal = Ended(command.spawn().context("there is no script(1)")?);
    sleep(SETTLES);
    let top = run::family(terminal.0.id())?.pop().context("top does not run")?;
    let name = fs::read_to_string(top.join("comm"))?;
    ensure!(name.trim() == "kfd-trace", "{} is {}", top.display(), name.trim());
    let both = |server: &Child| -> Result<(u64, u64)> {
        let server = run::family(server.id())?;
        let server = server.iter().map(|proc| cpu_ms(proc)).sum::<Result<u64>>()?;
        Ok((cpu_ms(&top)?, server))
    };
    let before = both(&serves.0)?;
    sleep(WATCHED);
    let after = both(&serves.0)?;
    // It waits for the interval after each answer. A list of the queues is nearly all of one.
    let asked = Instant::now();
    let address = url.trim_start_matches("http://");
    let mut stream = TcpStream::connect(address).context("the daemon does not answer")?;
    write!(stream, "GET /api/v1/queues HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    copy(&mut stream, &mut sink())?;
    let period = millis(INTERVAL + asked.elapsed());
    let each = |before: u64, after: u64| -> Result<i64> {
        Ok(i64::try_from(after.saturating_sub(before))? * period / millis(WATCHED))
    };
    ensure!(each(before.1, after.1)? > 0, "the daemon was not asked");
    let highest = run::status_number(&top.join("status"), "VmHWM")? * 1024;
    drop(terminal);
    Ok(vec![
        Figure::new("top.10000_queues.cpu", each(before.0, after.0)?, "ms of CPU per answer"),
        Figure::new("top.10000_queues.highest", highest, "bytes"),
        Figure::new("top.10000_queues.daemon", each(before.1, after.1)?, "ms of CPU per answer"),
    ])
}

/// CPU time of a process.
fn cpu_ms(proc: &Path) -> Result<u64> {
    let stat = fs::read_to_string(proc.join("stat")).context("it has ended")?;
    // The name, in parentheses, can have blanks.
    let (_, fields) = stat.rsplit_once(')').context("no stat")?;
    let times = fields.split_whitespace().skip(11).take(2).map(str::parse::<u64>);
    Ok(times.sum::<Result<u64, _>>()? * TICK_MS)
}
