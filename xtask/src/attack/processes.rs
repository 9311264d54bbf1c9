//! What becomes of the daemon where one of its two processes hangs, and what one that asks without pause costs the
//! tracer's.

use super::{ATTACKER, Daemon, HOST, LASTS, LONG, OTHER, PATIENCE, Seen, command, folder, large, status};
use anyhow::{Context as _, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::Path;
use std::process::Command;
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

/// The tracer's process, and the one that serves.
fn processes(daemon: &Daemon) -> Result<[Pid; 2]> {
    let pids = daemon.processes()?.iter().map(|process| pid(process)).collect::<Option<Vec<_>>>();
    pids.and_then(|pids| pids.try_into().ok()).context("it serves by no process of its own")
}

fn pid(process: &Path) -> Option<Pid> {
    process.file_name()?.to_str()?.parse().ok().map(Pid::from_raw)
}

fn healthy(daemon: &Daemon) -> Option<u16> {
    daemon.status(OTHER, "/-/healthy", HOST).ok()
}

pub(super) fn tracer_hangs(binary: &Path) -> Result<Seen> {
    let daemon = Daemon::start(&mut command(binary, &folder("tracer-hangs")?))?;
    let [tracer, _] = processes(&daemon)?;
    kill(tracer, Signal::SIGSTOP)?;
    let stopped = healthy(&daemon);
    kill(tracer, Signal::SIGCONT)?;
    sleep(PATIENCE);
    let goes_on = healthy(&daemon);
    let shown = |status: Option<u16>| status.map_or("none".to_owned(), |status| status.to_string());
    let figure = format!("{} while it hangs, {} after that", shown(stopped), shown(goes_on));
    Ok(Seen { figure, well: stopped == Some(503) && goes_on == Some(200) })
}

pub(super) fn web_hangs(binary: &Path) -> Result<Seen> {
    /// Some pulses.
    const LONGEST: Duration = Duration::from_secs(45);
    let daemon = Daemon::start(&mut command(binary, &folder("web-hangs")?))?;
    let [_, web] = processes(&daemon)?;
    kill(web, Signal::SIGSTOP)?;
    let begin = Instant::now();
    while begin.elapsed() < LONGEST {
        let asked = daemon.connect(OTHER).and_then(|stream| {
            stream.set_read_timeout(Some(PATIENCE))?;
            status(stream, "/-/healthy", HOST)
        });
        if asked.ok() == Some(200) {
            return Ok(Seen {
                figure: format!("200 after {:.0} s", begin.elapsed().as_secs_f64()),
                well: true,
            });
        }
        sleep(Duration::from_millis(200));
    }
    Ok(Seen { figure: "no answer".to_owned(), well: false })
}

pub(super) fn web_hangs_at_the_end(binary: &Path) -> Result<Seen> {
    let mut daemon = Daemon::start(&mut command(binary, &folder("web-hangs-at-the-end")?))?;
    let [tracer, web] = processes(&daemon)?;
    kill(web, Signal::SIGSTOP)?;
    kill(tracer, Signal::SIGTERM)?;
    let begin = Instant::now();
    let status = daemon.process.0.wait()?;
    // Had the daemon given up on it, it would not have succeeded.
    let figure = format!("{status} after {:.1} s", begin.elapsed().as_secs_f64());
    Ok(Seen { figure, well: status.success() })
}

pub(super) fn few_descriptors(binary: &Path) -> Result<Seen> {
    let inner = command(binary, &folder("few-descriptors")?);
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -n 48 && exec \"$@\"", "sh"]).arg(inner.get_program()).args(inner.get_args());
    limited.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::piped());
    let daemon = Daemon::start(&mut limited)?;
    let crowd = (0..100).map(|_| daemon.connect(ATTACKER)).collect::<Result<Vec<_>>>()?;
    // Until all of them were accepted, or not.
    sleep(LASTS);
    let asked = (0..5).filter(|_| {
        let answer = daemon.connect(OTHER).and_then(|stream| {
            stream.set_read_timeout(Some(3 * PATIENCE))?;
            status(stream, "/-/healthy", HOST)
        });
        answer.ok() == Some(200)
    });
    let good = asked.count();
    drop(crowd);
    Ok(Seen { figure: format!("{good} of 5 health checks"), well: good == 5 })
}

/// CPU time of all threads of a process.
fn cpu(pid: Pid) -> Result<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let (_, fields) = stat.rsplit_once(')').context("no stat")?;
    let ticks = fields.split_whitespace().skip(11).take(2).map(|field| Ok(field.parse::<u64>()?));
    let ticks = ticks.sum::<Result<u64>>()?;
    // USER_HZ, of x86 and arm64 alike.
    Ok(Duration::from_millis(ticks * 10))
}

/// Two lanes are asked, each of which may take a quarter of a CPU.
pub(super) fn asks_without_pause(_: &Path) -> Result<Seen> {
    let daemon = large()?;
    let [tracer, _] = processes(&daemon)?;
    // Each on one connection, so that the tracer is asked as often as it answers.
    let ask = |path: &str| -> Result<usize> {
        let mut stream = BufReader::new(daemon.connect(ATTACKER)?);
        stream.get_ref().set_read_timeout(Some(LONG))?;
        let (begin, mut answers) = (Instant::now(), 0);
        while begin.elapsed() < LASTS {
            // In one piece: the next one would wait for the acknowledgement of this.
            stream.get_mut().write_all(format!("GET {path} HTTP/1.1\r\n{HOST}\r\n").as_bytes())?;
            let (mut head, mut length) = (String::new(), 0);
            while head != "\r\n" {
                head.clear();
                ensure!(stream.read_line(&mut head)? > 0, "{path}: the connection was closed");
                if let Some(value) = head.to_ascii_lowercase().strip_prefix("content-length:") {
                    length = value.trim().parse()?;
                }
            }
            stream.read_exact(&mut vec![0; length])?;
            answers += 1;
        }
        Ok(answers)
    };
    let (before, begin) = (cpu(tracer)?, Instant::now());
    let answers = scope(|scope| {
        let paths = ["/", "/api/v1/queues", "/metrics", "/api/v1/processes"];
        let clients = paths.map(|path| scope.spawn(move || ask(path)));
        clients
            .into_iter()
            .map(|client| client.join().unwrap_or_else(|_| anyhow::bail!("a client panicked")))
            .sum::<Result<usize>>()
    })?;
    ensure!(answers > 4, "there are only {answers} answers");
    let share = (cpu(tracer)? - before).as_secs_f64() / begin.elapsed().as_secs_f64() * 100.0;
    Ok(Seen { figure: format!("{share:.0} % of a CPU, {answers} answers"), well: share < 60.0 })
}
