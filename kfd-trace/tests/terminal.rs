//! `kfd-trace top` without a terminal, with one that changes its size, and with one that is closed, as a separate process. It needs neither privilege nor
//! driver.

use kfd_trace::recording::compress;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::AsFd;
use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};
use tempfile::TempDir;

#[test]
fn top_takes_a_terminal() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kfd-trace"));
    let output = command.arg("top").stdin(Stdio::null()).output().expect("the program");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), errors.lines().count()), (Some(2), 1), "{errors}");
    assert!(errors.contains("`top` needs a terminal") && output.stdout.is_empty(), "{errors}");
}

/// Whether a process runs: not a dead one that nobody has waited for.
fn runs(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, fields)| !fields.starts_with(['Z', 'X']))
}

/// What started last of what a process started.
fn last_child(pid: u32) -> Option<String> {
    let of = |pid: &str| {
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
        children.split_whitespace().next_back().map(str::to_owned)
    };
    let mut last = of(&pid.to_string())?;
    while let Some(next) = of(&last) {
        last = next;
    }
    Some(last)
}

/// A recording in a folder of its own.
fn recording() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let recording = folder.path().join("recording");
    let lines = include_bytes!("golden/recording-2.jsonl");
    fs::write(&recording, compress(lines).expect("zstd")).expect("a file");
    (folder, recording)
}

/// `top` in a terminal whose other side is here: dropping that closes it.
struct Top {
    /// The leader of the terminal's session.
    child: Child,
    terminal: File,
}

impl Top {
    /// `line`, for sh(1), starts `top`.
    fn of(line: &str, recording: &Path) -> Self {
        Top::with(line, &format!("--recording '{}'", recording.display()))
    }

    /// setsid(1) is in Debian's essential packages.
    fn with(line: &str, options: &str) -> Self {
        let terminal =
            openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).expect("/dev/ptmx");
        grantpt(&terminal).and_then(|()| unlockpt(&terminal)).expect("a terminal");
        resize(&terminal, 30);
        let name = ptsname(&terminal, Vec::new()).expect("its name");
        let side =
            rustix::fs::open(name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).expect("its other side");
        let copy = side.try_clone().expect("a descriptor");
        let top = format!("'{}' top {options}", env!("CARGO_BIN_EXE_kfd-trace"));
        let mut command = Command::new("setsid");
        command.args(["--ctty", "sh", "-c", &line.replace("top", &top)]).env("TERM", "xterm");
        let child = command.stdin(side).stdout(copy).stderr(Stdio::null()).spawn().expect("setsid(1)");
        Top { child, terminal: terminal.into() }
    }

    fn press(&mut self, key: &[u8]) {
        self.terminal.write_all(key).expect("the terminal");
    }

    /// Whether it shows this from now on; else all that it has shown meanwhile.
    fn shows(&mut self, wanted: &str, limit: Duration) -> Result<(), String> {
        let (end, mut screen, mut part) = (Instant::now() + limit, Vec::new(), [0; 4096]);
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let left = left.try_into().expect("seconds");
            let readable = poll(&mut [PollFd::new(&self.terminal, PollFlags::IN)], Some(&left));
            let read = if readable == Ok(0) { 0 } else { self.terminal.read(&mut part).unwrap_or(0) };
            screen.extend(&part[..read]);
            let shown = String::from_utf8_lossy(&screen);
            match (shown.contains(wanted), read) {
                (true, _) => return Ok(()),
                (false, 0) => return Err(shown.into_owned()),
                (false, _) => {}
            }
        }
    }
}

fn resize(terminal: impl AsFd, rows: u16) {
    let size = Winsize { ws_row: rows, ws_col: 120, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(terminal, size).expect("a terminal");
}

fn ends_with_its_terminal(line: &str) {
    let (_folder, recording) = recording();
    let mut top = Top::of(line, &recording);
    top.shows("QUEUES", Duration::from_secs(60)).expect("its tables");
    let leader = top.child.id();
    let pid = last_child(leader).unwrap_or_else(|| leader.to_string());
    // Until it has drawn all, so that it does not find the terminal gone by that.
    sleep(Duration::from_millis(500));
    drop(top.terminal);
    let ended = (0..600).any(|_| {
        sleep(Duration::from_millis(50));
        !runs(&pid)
    });
    if !ended {
        Command::new("kill").args(["-KILL", &pid]).status().expect("kill(1)");
    }
    top.child.wait().expect("a child");
    assert!(ended, "{line}: it still ran half a minute after its terminal was closed");
}

#[test]
fn top_ends_when_its_terminal_is_closed() {
    ends_with_its_terminal("exec top");
}

#[test]
fn top_ends_when_its_terminal_is_closed_and_no_signal_says_so() {
    // The shell leads the session. No frame, which would find the terminal gone, is due.
    ends_with_its_terminal("trap '' HUP; top --interval 1m; :");
}

#[test]
fn a_key_at_once_after_a_change_of_the_size_is_not_lost() {
    let (_folder, recording) = recording();
    let mut top = Top::of("exec top", &recording);
    top.shows("QUEUES", Duration::from_secs(60)).expect("its tables");
    // While crossterm waited edge-triggered, one of a few dozen was lost.
    for turn in 0..100 {
        // Until keys are waited for.
        sleep(Duration::from_millis(20));
        resize(&top.terminal, 31 + turn % 2);
        // Between the signal and the return of who waits.
        let then = Instant::now() + Duration::from_micros(u64::from(turn % 20) * 5);
        while Instant::now() < then {}
        top.press(b"?");
        top.shows("Shift-Tab", Duration::from_secs(20))
            .unwrap_or_else(|screen| panic!("key {turn}: {screen}"));
        top.press(b"?");
        top.shows("QUEUES", Duration::from_secs(20))
            .unwrap_or_else(|screen| panic!("tables {turn}: {screen}"));
    }
}

#[test]
fn what_is_awaited_is_shown_and_keys_are_heard_before_there_is_anything() {
    // It accepts connections, and answers none.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = silent.local_addr().expect("its address");
    for key in [&b"q"[..], b"\x03"] {
        let mut top = Top::with("exec top", &format!("--url http://{address} --max-time 100"));
        top.shows("asking", Duration::from_secs(60)).expect("what is awaited");
        top.press(key);
        assert_eq!(top.child.wait().expect("its end").code(), Some(0), "{key:?}");
    }
}
