//! `kfd-trace top` on a terminal, and in tmux: what it shows is what `ps` shows, and the terminal is restored.

use anyhow::{Context, Result, ensure};
use kfd_trace_tests::harness::tracer::{FEW, program, run_json};
use kfd_trace_tests::harness::wait::{ATTACH, SOON, until};
use kfd_trace_tests::harness::{JsonProcess, Steered, TerminalProcess};
use nix::sys::signal::Signal;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

/// Wide enough for all columns.
const SIZE: (u16, u16) = (160, 50);

fn top(size: (u16, u16)) -> Result<TerminalProcess> {
    let mut top = TerminalProcess::spawn(&program(), &[&["top"], &FEW[..]].concat(), size)?;
    top.wait_text("COMPUTE", ATTACH)?;
    Ok(top)
}

/// Types of the queues below the heading `Queues of`.
fn types(screen: &str) -> Vec<String> {
    let rows = screen.lines().skip_while(|line| !line.starts_with("Queues of ")).skip(2);
    let rows = rows.take_while(|line| !line.trim().is_empty() && !line.starts_with("TIME"));
    // QUEUE, GPU (two words), TYPE.
    rows.filter_map(|line| line.split_whitespace().nth(3)).map(str::to_owned).collect()
}

#[test]
fn rows_are_those_of_ps_and_follow_what_happens() -> Result<()> {
    let mut workload = Steered::having(&["create aql", "create sdma"])?;
    let pid = workload.pid().to_string();
    let mut top = top(SIZE)?;
    top.press(&format!("/{pid}\r"))?;
    top.wait_text(&format!("Queues of {pid} "), SOON)?;
    let of_ps = || -> Result<Vec<String>> {
        let listed = run_json(&["ps", "--json"])?.pop().context("one object")?;
        let rows = listed["queues"].as_array().context("queues")?.iter();
        let own = rows.filter(|row| row["pid"] == workload.pid());
        Ok(own.filter_map(|row| Some(row["queue_type"].as_str()?.to_owned())).collect())
    };
    let listed = of_ps()?;
    assert_eq!(listed.len(), 2);
    assert_eq!(
        top.wait("both queues", SOON, |screen| (types(screen).len() == 2).then(|| types(screen)))?,
        listed
    );
    workload.must("create aql")?;
    top.wait("the third one", SOON, |screen| (types(screen).len() == 3).then_some(()))?;
    let event = |screen: &str| {
        screen.lines().any(|line| line.contains("queue_create") && line.contains(&pid)).then_some(())
    };
    top.wait("its creation", SOON, event)?;
    assert!(!top.text().contains("lost: "), "{}", top.text());
    workload.finish()?;
    top.wait_text("No process passes the filter.", SOON)?;
    top.press("q")?;
    top.wait_restored(ATTACH)
}

#[test]
fn the_terminal_is_restored_after_sigterm_and_may_change_its_size() -> Result<()> {
    let mut top = top((80, 24))?;
    assert!(!top.is_restored()?, "it has the screen");
    top.resize((60, 20))?;
    top.wait_text("80 x 24 are needed", SOON)?;
    top.resize((100, 30))?;
    top.wait_text("COMPUTE", SOON)?;
    top.press("?")?;
    top.wait_text("next table", SOON)?;
    top.signal(Signal::SIGTERM)?;
    top.wait_restored(ATTACH)
}

#[test]
fn a_recording_is_played_to_its_end_and_again() -> Result<()> {
    const FILE: &str = "/tmp/top.rec";
    let mut traced = JsonProcess::spawn(&program(), &[&["record", "-o", FILE], &FEW[..]].concat())?;
    traced.wait_stderr("kfd-trace: tracing", ATTACH)?;
    let workload = Steered::having(&["create aql", "create sdma"])?;
    let pid = workload.pid().to_string();
    sleep(Duration::from_secs(3));
    workload.kill()?;
    sleep(Duration::from_secs(1));
    traced.signal(Signal::SIGINT)?;
    traced.wait_success(ATTACH)?;

    let mut top =
        TerminalProcess::spawn(&program(), &["top", "--recording", FILE, "--interval=250ms"], SIZE)?;
    let both = |screen: &str| (types(screen).len() == 2).then_some(());
    for again in [false, true] {
        top.wait("both queues", SOON, both)?;
        assert!(top.text().contains(&pid) && top.text().contains("recording of "), "{}", top.text());
        top.wait_text("after its begin: its end", SOON)?;
        assert!(types(&top.text()).is_empty() && !top.text().contains("lost"), "{}", top.text());
        if !again {
            top.press("\u{1b}[D")?;
        }
    }
    top.press("q")?;
    top.wait_restored(ATTACH)
}

/// A server of its own, which ends with it.
struct Tmux;

impl Tmux {
    fn run(args: &[&str]) -> Result<String> {
        let output = Command::new("tmux").args(["-u", "-L", "top", "-f", "/dev/null"]).args(args).output()?;
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "tmux {args:?}: {}: {errors}", output.status);
        Ok(String::from_utf8(output.stdout)?)
    }

    /// Until its screen is as wanted.
    fn wait(what: &str, limit: Duration, wanted: impl Fn(&str) -> bool) -> Result<String> {
        let mut screen = String::new();
        let look = || {
            screen = Tmux::run(&["capture-pane", "-p"])?;
            Ok(wanted(&screen).then(|| screen.clone()))
        };
        until(what, limit, look).with_context(|| format!("the screen of tmux:\n{screen}"))
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        // It may have ended with its last window.
        let _ = Tmux::run(&["kill-server"]);
    }
}

#[test]
fn tmux_shows_it_and_then_what_was_there_before() -> Result<()> {
    let mut workload = Steered::having(&["create aql", "create sdma"])?;
    let line = format!("echo what was there before; {} top {}; exec cat", program(), FEW.join(" "));
    let _server = Tmux;
    Tmux::run(&["new-session", "-d", "-x", "100", "-y", "30", &line])?;
    let pid = workload.pid();
    Tmux::wait("its tables", ATTACH, |screen| screen.contains("Queues of "))?;
    Tmux::run(&["send-keys", &format!("/{pid}"), "Enter"])?;
    let both = |screen: &str| types(screen) == ["compute_aql", "sdma"];
    let screen = Tmux::wait("both queues", SOON, both)?;
    ensure!(screen.lines().count() == 30 && !screen.contains("before"), "{screen}");
    workload.must("create aql")?;
    Tmux::wait("its creation", SOON, |screen| screen.contains("queue_create") && types(screen).len() == 3)?;
    // A key at once after it is not lost.
    Tmux::run(&["resize-window", "-x", "60", "-y", "20", ";", "send-keys", "?"])?;
    Tmux::wait("that it is too small", SOON, |screen| screen.contains("80 x 24 are needed"))?;
    Tmux::run(&["resize-window", "-x", "80", "-y", "24"])?;
    Tmux::wait("the help", SOON, |screen| screen.contains("next table"))?;
    Tmux::run(&["send-keys", "?", "q"])?;
    let screen = Tmux::wait("the end", ATTACH, |screen| screen.contains("what was there before"))?;
    ensure!(!screen.contains("QUEUES"), "{screen}");
    workload.finish().map(drop)
}
