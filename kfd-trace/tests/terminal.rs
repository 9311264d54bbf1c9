//! `kfd-trace top` without a terminal, and with one that is closed, as a separate process. It needs neither privilege nor
//! driver.

use kfd_trace::recording::compress;
use std::fs;
use std::io::Read as _;
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::thread::{sleep, spawn};
use std::time::Duration;

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

/// `line` starts `top`. script(1) is in Debian's essential packages.
fn ends_with_its_terminal(line: &str) {
    let file = tempfile::tempdir().expect("a folder");
    let recording = file.path().join("recording");
    let lines = include_bytes!("golden/recording-2.jsonl");
    fs::write(&recording, compress(lines).expect("zstd")).expect("a file");
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
