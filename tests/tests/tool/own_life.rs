//! Conditions of the tracer itself: it is killed and restarted, another tracer runs, its output is not read,
//! /proc is empty or wrong, the clock is set.

use anyhow::{Context, Result, ensure};
use kfd_trace_tests::harness::footprint::Footprint;
use kfd_trace_tests::harness::tracer::{FEW, NO_MQD, program};
use kfd_trace_tests::harness::wait::{ATTACH, SOON};
use kfd_trace_tests::harness::{
    Daemon, JsonProcess, Metrics, Steered, Stream, Workload, counts, shared, until, workload,
};
use nix::sys::signal::{Signal, kill};
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, clock_gettime, clock_settime};
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::fs::OpenOptions;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::symlink;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

const CALLS: u32 = 1000;

fn burst() -> Result<()> {
    let (_, truth) = Workload::run(&["burst", "--threads=2", &format!("--count={CALLS}")])?;
    assert_eq!(counts::total(&truth), u64::from(CALLS));
    Ok(())
}

fn sum(metrics: &Metrics, name: &str) -> f64 {
    metrics.sum(name, &[]).unwrap_or(0.0)
}

#[test]
fn killed_beside_another_and_started_again_it_finds_what_stands() -> Result<()> {
    let other = Daemon::shared()?;
    let mut workload = Workload::ready(&["hold", "--aql=2", "--sdma=1"])?;
    let mut killed = Daemon::ready(&FEW)?;
    let calls = |metrics: &Metrics| sum(metrics, "kfd_ioctls_total");
    let (before, of_killed) = (calls(&other.scrape()?), killed.scrape()?);
    assert_eq!(calls(&of_killed), 0.0);
    burst()?;
    assert_eq!(calls(&other.scrape()?), before + f64::from(CALLS));
    assert_eq!(calls(&killed.scrape()?), f64::from(CALLS));
    killed.signal(Signal::SIGKILL)?;
    killed.wait_exit(SOON)?;
    burst()?;
    assert_eq!(calls(&other.scrape()?), before + 2.0 * f64::from(CALLS), "it has lost nothing by that");

    let mut again = Daemon::quick(&FEW)?;
    let metrics = again.scrape()?;
    let queues = [sum(&metrics, "kfd_queues"), sum(&metrics, "kfd_trace_queues_adopted_total")];
    assert_eq!((queues, sum(&metrics, "kfd_processes")), ([3.0, 3.0], 1.0));
    let anew = [calls(&metrics), sum(&metrics, "kfd_queues_created_total")];
    assert_eq!(anew, [0.0, 0.0], "counters begin anew");
    let began = |metrics: &Metrics| metrics.sum("kfd_trace_start_time_seconds", &[]).context("a start");
    assert!(began(&metrics)? > began(&of_killed)?);
    workload.finish()?;
    let over = |metrics: &Metrics| (sum(metrics, "kfd_queues") == 0.0).then_some(());
    again.scrape_until("their end", over)?;
    other.scrape_until("their end", over)?;
    again.stop()?;
    other.end()
}

/// A stream whose standard output is not read automatically. Killed when dropped.
struct Unread {
    child: Child,
    /// Lines of standard error as they arrive.
    stderr: Receiver<String>,
}

impl Unread {
    fn tracing(args: &[&str], out: Stdio) -> Result<Self> {
        let mut command = Command::new(program());
        command.arg("--json").args(NO_MQD).args(args).stdout(out).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let stderr = child.stderr.take().context("piped")?;
        let (line, lines) = channel();
        thread::spawn(move || {
            BufReader::new(stderr).lines().map_while(Result::ok).try_for_each(|text| line.send(text))
        });
        let unread = Self { child, stderr: lines };
        unread.says("kfd-trace: tracing", ATTACH)?;
        Ok(unread)
    }

    /// Waits for a line that contains this text, and returns the line.
    fn says(&self, words: &str, limit: Duration) -> Result<String> {
        let begin = Instant::now();
        loop {
            let left = limit.saturating_sub(begin.elapsed());
            let line =
                self.stderr.recv_timeout(left).with_context(|| format!("its stderr has no `{words}`"))?;
            if line.contains(words) {
                return Ok(line);
            }
        }
    }

    fn interrupt(&self) -> Result<()> {
        Ok(kill(Pid::from_raw(i32::try_from(self.child.id())?), Signal::SIGINT)?)
    }

    /// Its exit code, and all messages since.
    fn end(&mut self) -> Result<(Option<i32>, Vec<String>)> {
        let status = until("its end", SOON, || Ok(self.child.try_wait()?))?;
        Ok((status.code(), self.stderr.iter().collect()))
    }
}

impl Drop for Unread {
    fn drop(&mut self) {
        // fails only if it has already ended
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_full_disk_is_one_line_and_a_closed_pipe_is_none() -> Result<()> {
    let few = ["--event=open", "--without-probe=ioctl_return"];
    let full = OpenOptions::new().write(true).open("/dev/full")?;
    let mut full = Unread::tracing(&few, full.into())?;
    let mut closed = Unread::tracing(&few, Stdio::piped())?;
    drop(closed.child.stdout.take());
    Workload::run(&["script", "version"])?;
    let (code, stderr) = full.end()?;
    assert_eq!((code, stderr.len()), (Some(1), 1), "{stderr:?}");
    assert!(stderr[0].contains("No space left on device"), "{stderr:?}");
    assert_eq!(closed.end()?, (Some(0), vec![]));
    Ok(())
}

/// Longer than the time until dropped lines are first reported.
const MOMENT: Duration = Duration::from_secs(1);

fn read_lines(mut stdout: ChildStdout) -> Result<Vec<Value>> {
    let mut text = String::new();
    stdout.read_to_string(&mut text)?;
    text.lines().map(|line| serde_json::from_str(line).with_context(|| line.to_owned())).collect()
}

#[test]
fn who_does_not_read_is_not_waited_for() -> Result<()> {
    shared::end_stream()?;
    let options = ["--event=ioctl", "--buffer-size=64KiB"];
    let mut never = Unread::tracing(&options, Stdio::piped())?;
    let mut late = Unread::tracing(&options, Stdio::piped())?;
    let before = Footprint::of(never.child.id())?.anonymous;
    let mut calls = 0;
    for stream in [&never, &late] {
        until("lines to be dropped", SOON, || {
            burst()?;
            calls += u64::from(CALLS);
            Ok(stream.says("lines were dropped so far: standard output is read too slowly", MOMENT).ok())
        })?;
    }
    let grown = Footprint::of(never.child.id())?.anonymous.saturating_sub(before);
    // 512 KiB may wait (`outlet::room`); the rest is what reporting ioctls needs in any case
    assert!(grown < 4096, "{before} KiB, then {grown} more");
    never.interrupt()?;
    let (code, stderr) = never.end()?;
    let why = stderr.last().context("its stderr is empty")?;
    assert!(code == Some(1) && why.contains("standard output is not read"), "{code:?} {stderr:?}");

    let stdout = late.child.stdout.take().context("piped")?;
    let reader = thread::spawn(move || read_lines(stdout));
    late.interrupt()?;
    let (code, stderr) = late.end()?;
    assert_eq!(code, Some(0), "{stderr:?}");
    let mut lines = reader.join().expect("the reader does not panic")?;
    let summary = lines.pop().context("it reported nothing")?;
    assert_eq!(summary["event"], "summary");
    let lost = counts::object(&summary["lost"])?;
    let of = |name: &str| lost.get(name).copied().unwrap_or(0);
    let (dropped, overflown) = (of("lines dropped, ioctl"), counts::lost(&summary, "ioctl")?);
    let reported = u64::try_from(lines.len())?;
    assert!(reported > 0 && dropped > 0, "{reported} were reported, {summary}");
    assert_eq!(reported + dropped + overflown, calls, "{summary}");
    assert_eq!(summary["records"]["ioctl"], reported + dropped);
    println!("{reported} reported, {dropped} dropped, {overflown} lost of {calls}; {grown} KiB grown");
    Ok(())
}

/// A procfs without processes except the reader itself, and one that shows another process under the PID.
#[test]
fn what_proc_does_not_show_is_reported_by_the_kernel_alone() -> Result<()> {
    let proc = tempfile::tempdir()?;
    for name in ["kallsyms", "modules", "sys", "self"] {
        symlink(format!("/proc/{name}"), proc.path().join(name))?;
    }
    let root = format!("--path.procfs={}", proc.path().display());
    let options =
        [&root, "--cmdline", "--event=process_seen", "--event=queue_create", "--event=queue_destroy"];
    let mut stream = Stream::tracing(&[&FEW[..], &["--without-probe=ioctl_return"], &options].concat())?;
    let nowhere = Workload::ready(&["hold"])?;
    let seen =
        |pid: u32| stream.wait_line("it", SOON, |line| line["event"] == "process_seen" && line["pid"] == pid);
    let reported = |line: &Value| json!([line["comm"], line["uid"], line["cmdline"]]);
    let alone = json!(["kfd-workload", 0, null]);
    assert_eq!(reported(&seen(nowhere.pid())?), alone);
    // its PID is in use again, according to /proc
    let script = format!("read go; exec {} short", workload::program());
    let mut replaced = JsonProcess::spawn("sh", &["-c", &script])?;
    symlink(format!("/proc/{}", std::process::id()), proc.path().join(replaced.pid().to_string()))?;
    replaced.send_line("go")?;
    replaced.close_stdin();
    assert_eq!(reported(&seen(replaced.pid())?), alone);
    replaced.wait_success(SOON)?;
    let birth = stream.wait_line("its queue", SOON, |line| {
        line["event"] == "queue_create" && line["pid"] == replaced.pid()
    })?;
    assert_eq!(birth["comm"], "kfd-workload");
    drop(nowhere);
    stream.interrupt()
}

#[test]
fn a_clock_that_is_set_changes_no_duration() -> Result<()> {
    const HOUR: i64 = 3600;
    let stream = Stream::shared()?;
    let mut steered = Steered::having(&["create aql"])?;
    let real = clock_gettime(ClockId::CLOCK_REALTIME)?;
    clock_settime(ClockId::CLOCK_REALTIME, TimeSpec::new(real.tv_sec() + HOUR, real.tv_nsec()))?;
    let destroyed = steered.must("destroy 0");
    let now = clock_gettime(ClockId::CLOCK_REALTIME)?;
    clock_settime(ClockId::CLOCK_REALTIME, TimeSpec::new(now.tv_sec() - HOUR, now.tv_nsec()))?;
    destroyed?;
    let pid = steered.pid();
    let of = |event: &'static str| move |line: &Value| line["event"] == event && line["pid"] == pid;
    let born = stream.wait_line("its birth", SOON, of("queue_create"))?;
    let gone = stream.wait_line("its end", SOON, of("queue_destroy"))?;
    let lived = gone["lifetime_ns"].as_u64().context("a lifetime")?;
    let mono = |line: &Value| line["mono_ns"].as_u64().context("mono_ns");
    assert_eq!(lived, mono(&gone)? - mono(&born)?);
    assert!(Duration::from_nanos(lived) < SOON, "{lived}");
    drop(steered);
    stream.end()
}

/// Runs a script in a new mount and PID namespace.
fn inside(script: &str) -> Result<(Option<i32>, String, String)> {
    let mut command = Command::new("unshare");
    let output = command.args(["--mount", "--pid", "--fork", "sh", "-c", script]).output()?;
    let text = |bytes: Vec<u8>| String::from_utf8(bytes);
    Ok((output.status.code(), text(output.stdout)?, text(output.stderr)?))
}

#[test]
fn in_a_pid_namespace_it_names_the_hosts_pid_or_says_that_it_cannot() -> Result<()> {
    let (workload, trace) = (Workload::ready(&["hold"])?, program());
    let own = "mount -t proc proc /proc";
    let hosts = "mkdir -p /tmp/host-proc && mount --bind /proc /tmp/host-proc";
    // the host's procfs is mounted at its usual place, and elsewhere
    for script in [
        format!("exec {trace} ps --json"),
        format!("{hosts} && {own} && exec {trace} ps --json --path.procfs=/tmp/host-proc"),
    ] {
        let (code, out, stderr) = inside(&script)?;
        assert_eq!((code, stderr.as_str()), (Some(0), ""), "{script}");
        let ps: Value = serde_json::from_str(&out)?;
        let row = &ps["queues"][0];
        let reported = json!([row["pid"], row["ns_pid"], row["comm"], row["sources"]]);
        assert_eq!(reported, json!([workload.pid(), workload.pid(), "kfd-workload", ["kernel", "sysfs"]]));
    }
    // it is mounted nowhere
    for args in ["", "--json", "daemon --web.listen-address=127.0.0.1:0", "ps", "status", "doctor"] {
        let (code, out, stderr) = inside(&format!("{own} && exec {trace} {args}"))?;
        assert_eq!((code, out.contains("kfd-workload")), (Some(1), false), "{args}: {out} {stderr}");
        let lines: Vec<&str> = stderr.lines().filter(|line| !line.contains("serving http://")).collect();
        assert_eq!(lines.len(), 1, "{args}: {stderr}");
        let wanted = "procfs shows the processes of a PID namespace that is not the host's";
        assert!(lines[0].contains(wanted) && lines[0].contains("--path.procfs"), "{args}: {stderr}");
    }
    Ok(())
}

/// The reader of standard error has exited: messages to it are lost, and nothing else.
#[test]
fn a_closed_standard_error_ends_nothing() -> Result<()> {
    let mut command = Command::new(program());
    command.args(["daemon", "--web.listen-address=127.0.0.1:0", "--path.sysfs=/nowhere"]);
    let mut child = command.stderr(Stdio::piped()).spawn()?;
    let mut stderr = BufReader::new(child.stderr.take().context("piped")?).lines();
    let waits = |line: &io::Result<String>| line.as_ref().is_ok_and(|line| line.contains("waiting for it"));
    ensure!(stderr.any(|line| waits(&line)), "it does not wait");
    drop(stderr);
    kill(Pid::from_raw(i32::try_from(child.id())?), Signal::SIGTERM)?;
    let status = until("its end", SOON, || Ok(child.try_wait()?))?;
    assert_eq!(status.code(), Some(0), "it was to say that it stops");
    Ok(())
}
