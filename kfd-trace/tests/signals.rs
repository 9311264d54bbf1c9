//! The effect of signals on the daemon and on commands that end by one, and who a command runs as, as separate processes.
//! The daemon waits for a driver that does not exist: none needs a privilege.

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getuid};
use rustix::io::{FdFlags, fcntl_setfd};
use std::io::Write as _;
use std::io::{BufRead as _, BufReader};
use std::os::fd::AsRawFd as _;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

const SOON: Duration = Duration::from_secs(20);

/// Ended when it is dropped.
struct Daemon {
    child: Child,
    said: Receiver<String>,
}

impl Daemon {
    fn waiting_for_a_driver() -> Self {
        let daemon = Daemon::with(&[]);
        daemon.says("waiting for it");
        daemon
    }

    fn with(options: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kfd-trace"));
        command.args(["daemon", "--web.listen-address=127.0.0.1:0", "--path.sysfs=/nowhere"]).args(options);
        let mut child = command.stderr(Stdio::piped()).spawn().expect("the daemon");
        let lines = BufReader::new(child.stderr.take().expect("a pipe")).lines();
        let (sender, said) = channel();
        std::thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| sender.send(line)));
        Daemon { child, said }
    }

    /// Waits for a line that contains this.
    fn says(&self, words: &str) {
        loop {
            match self.said.recv_timeout(SOON) {
                Ok(line) if line.contains(words) => return,
                Ok(_) => {}
                Err(error) => panic!("it does not say `{words}`: {error}"),
            }
        }
    }

    fn send(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().cast_signed()), signal).expect("it is there");
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_hangup_is_reported_and_ends_nothing() {
    let mut daemon = Daemon::waiting_for_a_driver();
    for _ in 0..2 {
        daemon.send(Signal::SIGHUP);
        daemon.says("SIGHUP: there is nothing to load again");
    }
    assert!(daemon.child.try_wait().expect("its state").is_none(), "it goes on");
    daemon.send(Signal::SIGTERM);
    daemon.says("stopped");
    assert_eq!(daemon.child.wait().expect("its end").code(), Some(0));
}

#[test]
fn a_folder_that_cannot_be_recorded_to_is_reported_at_the_start() {
    // There is no driver, and so no first file.
    for folder in ["/sys/kernel", "/proc/new/folder"] {
        Daemon::with(&["--record", folder]).says(&format!("{folder}: cannot be recorded to"));
    }
}

/// `amd-log --follow`, once it catches SIGTERM. `before`: of sh(1).
fn following(before: &str) -> (tempfile::NamedTempFile, Child) {
    let log = tempfile::NamedTempFile::new().expect("a file");
    let line = format!("{before} exec '{}' amd-log --follow \"$0\"", env!("CARGO_BIN_EXE_kfd-trace"));
    // The tests themselves may run under nohup(1), and a shell cannot undo that.
    let mut command = Command::new("env");
    command.args(["--default-signal=HUP", "sh", "-c", &line]).arg(log.path());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("env(1)");
    let catches = |child: &Child| {
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
        caught >> (Signal::SIGTERM as i32 - 1) & 1 == 1
    };
    while !catches(&child) {
        assert!(child.try_wait().expect("its state").is_none(), "it ended");
        std::thread::sleep(Duration::from_millis(20));
    }
    // All signals are asked for at once.
    std::thread::sleep(Duration::from_millis(200));
    (log, child)
}

#[test]
fn a_hangup_ends_a_command_with_its_report_unless_it_was_ignored_from_the_start() {
    let report = |Output { status, stdout, stderr }: Output| {
        assert_eq!(status.code(), Some(0), "{}", String::from_utf8_lossy(&stderr));
        assert!(!stdout.is_empty(), "it has no report");
    };
    let send =
        |child: &Child, signal| kill(Pid::from_raw(child.id().cast_signed()), signal).expect("it is there");
    let (_log, child) = following("");
    send(&child, Signal::SIGHUP);
    report(child.wait_with_output().expect("its end"));
    // As nohup(1) does.
    let (_log, mut child) = following("trap '' HUP;");
    send(&child, Signal::SIGHUP);
    std::thread::sleep(Duration::from_millis(500));
    assert!(child.try_wait().expect("its state").is_none(), "it goes on");
    send(&child, Signal::SIGTERM);
    report(child.wait_with_output().expect("its end"));
}

#[test]
fn a_command_runs_as_the_user_that_is_asked_for_or_not_at_all() {
    let (pipe, mut go) = std::io::pipe().expect("a pipe");
    fcntl_setfd(&pipe, FdFlags::empty()).expect("a descriptor");
    go.write_all(b".").expect("a pipe");
    let number = pipe.as_raw_fd().to_string();
    let mut command = Command::new(env!("CARGO_BIN_EXE_kfd-trace"));
    command.args(["exec-command", &number, "--as", "65533:65532:65532,65531", "--"]);
    let output = command.args(["sh", "-c", "id -u; id -g; id -G"]).output().expect("the program");
    let (out, why) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if getuid().is_root() {
        assert_eq!((output.status.code(), &*out), (Some(0), "65533\n65532\n65532 65531\n"), "{why}");
    } else {
        assert_eq!((output.status.code(), &*out), (Some(126), ""));
        assert!(why.contains("cannot run a command as user 65533"), "{why}");
    }
}

#[test]
fn what_sudo_never_sets_is_refused_in_one_line() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kfd-trace"));
    command
        .args(["run", "--path.sysfs=/nowhere", "--", "true"])
        .env("SUDO_UID", "0x3e8")
        .env("SUDO_GID", "100");
    let output = command.output().expect("the program");
    let why = String::from_utf8(output.stderr).expect("text");
    assert!(!output.status.success() && why.lines().count() == 1, "{why}");
    assert!(
        !getuid().is_root() || why.contains("SUDO_UID is `0x3e8`") && why.contains("--user NAME"),
        "{why}"
    );
}
