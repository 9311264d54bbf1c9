//! `kfd-trace top` without a terminal, with one that changes its size, and with one that is closed, as a separate process. It needs neither privilege nor
//! driver.

use kfd_trace::recording::compress;
use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread::{sleep, spawn};
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

/// `line` starts `top`. script(1) is in Debian's essential packages.
fn ends_with_its_terminal(line: &str) {
    let (_folder, recording) = recording();
    let top = format!("'{}' top --recording '{}'", env!("CARGO_BIN_EXE_kfd-trace"), recording.display());
    let line = format!("stty cols 120 rows 40; {}", line.replace("top", &top));
    let mut terminal = Command::new("script");
    terminal.args(["-qfc", &line, "/dev/null"]).env("TERM", "xterm").stdin(Stdio::piped());
    let mut terminal = terminal.stdout(Stdio::piped()).spawn().expect("script(1)");
    let (mut output, (shows, shown)) = (terminal.stdout.take().expect("piped"), channel());
    let reader = spawn(move || {
        let (mut screen, mut part) = (Vec::new(), [0; 4096]);
        while let Ok(read @ 1..) = output.read(&mut part) {
            screen.extend_from_slice(&part[..read]);
            if String::from_utf8_lossy(&screen).contains("QUEUES") {
                let _ = shows.send(());
            }
        }
        String::from_utf8_lossy(&screen).into_owned()
    });
    let appears = shown.recv_timeout(Duration::from_secs(60));
    let top = last_child(terminal.id());
    terminal.kill().expect("it has not been waited for");
    terminal.wait().expect("a child");
    let screen = reader.join().expect("no panic");
    assert_eq!(appears, Ok(()), "{screen}");
    let top = top.expect("a child");
    let ended = (0..600).any(|_| {
        sleep(Duration::from_millis(50));
        !runs(&top)
    });
    if !ended {
        Command::new("kill").args(["-KILL", &top]).status().expect("kill(1)");
    }
    assert!(ended, "{line}: it still ran half a minute after its terminal was closed");
}

#[test]
fn top_ends_when_its_terminal_is_closed() {
    ends_with_its_terminal("exec top");
}

#[test]
fn top_ends_when_its_terminal_is_closed_and_no_signal_says_so() {
    // The shell leads the session.
    ends_with_its_terminal("trap '' HUP; top; :");
}

/// `top` in a terminal whose other side is here.
struct Top {
    child: Child,
    terminal: File,
    output: Receiver<Vec<u8>>,
}

impl Top {
    /// setsid(1) is in Debian's essential packages; it makes the terminal that of a session of its own.
    fn of(recording: &PathBuf) -> Self {
        let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("/dev/ptmx");
        grantpt(&terminal).and_then(|()| unlockpt(&terminal)).expect("a terminal");
        resize(&terminal, 30);
        let name = ptsname(&terminal, Vec::new()).expect("its name");
        let side =
            rustix::fs::open(name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).expect("its other side");
        let copy = side.try_clone().expect("a descriptor");
        let mut command = Command::new("setsid");
        command
            .args(["--ctty", "--wait", env!("CARGO_BIN_EXE_kfd-trace"), "top", "--recording"])
            .arg(recording);
        command.env("TERM", "xterm").stdin(side).stdout(copy).stderr(Stdio::null());
        let child = command.spawn().expect("setsid(1)");
        let terminal = File::from(terminal);
        let mut input = terminal.try_clone().expect("a descriptor");
        let (shows, output) = channel();
        spawn(move || {
            let mut part = [0; 4096];
            while let Ok(read @ 1..) = input.read(&mut part) {
                if shows.send(part[..read].to_vec()).is_err() {
                    break;
                }
            }
        });
        Top { child, terminal, output }
    }

    fn press(&mut self, key: &[u8]) {
        self.terminal.write_all(key).expect("the terminal");
    }

    /// Whether it shows this from now on; else all that it has shown meanwhile.
    fn shows(&self, wanted: &str, limit: Duration) -> Result<(), String> {
        let (end, mut screen) = (Instant::now() + limit, Vec::new());
        while let Ok(part) = self.output.recv_timeout(end.saturating_duration_since(Instant::now())) {
            screen.extend(part);
            if String::from_utf8_lossy(&screen).contains(wanted) {
                return Ok(());
            }
        }
        Err(String::from_utf8_lossy(&screen).into_owned())
    }
}

impl Drop for Top {
    fn drop(&mut self) {
        self.press(b"q");
        // It is killed below if it does not end by this.
        let _ = self.shows("\u{1b}[?1049l", Duration::from_secs(10));
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn resize(terminal: impl rustix::fd::AsFd, rows: u16) {
    let size = Winsize { ws_row: rows, ws_col: 100, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(terminal, size).expect("a terminal");
}

#[test]
fn a_key_at_once_after_a_change_of_the_size_is_not_lost() {
    let (_folder, recording) = recording();
    let mut top = Top::of(&recording);
    top.shows("QUEUES", Duration::from_secs(60)).expect("its tables");
    // One of four was lost while crossterm waited by epoll.
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
