//! `kfd-trace top` without a terminal, and with one that goes, as a separate process. It needs neither privilege nor
//! driver.

use kfd_trace::recording::compress;
use std::fs;
use std::io::{Read as _, Write as _};
use std::process::{Command, Stdio};
use std::thread::sleep;
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

/// script(1) is in Debian's essential packages.
#[test]
fn top_ends_with_its_terminal() {
    let program = env!("CARGO_BIN_EXE_kfd-trace");
    let lines = include_bytes!("golden/recording-2.jsonl");
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    file.write_all(&compress(lines).expect("zstd")).expect("a file");
    let recording = file.path().display();
    let line = format!("stty cols 120 rows 40; exec '{program}' top --recording '{recording}'");
    let mut terminal = Command::new("script");
    terminal.args(["-qfc", &line, "/dev/null"]).env("TERM", "xterm").stdin(Stdio::piped());
    let mut terminal = terminal.stdout(Stdio::piped()).spawn().expect("script(1)");
    let (mut output, mut screen, mut part) = (terminal.stdout.take().expect("piped"), Vec::new(), [0; 4096]);
    while !String::from_utf8_lossy(&screen).contains("QUEUES") {
        let read = output.read(&mut part).expect("a terminal");
        assert_ne!(read, 0, "{}", String::from_utf8_lossy(&screen));
        screen.extend_from_slice(&part[..read]);
    }
    let script = terminal.id();
    let children = fs::read_to_string(format!("/proc/{script}/task/{script}/children")).expect("procfs");
    let top = children.split_whitespace().next().expect("a child").to_owned();
    assert!(runs(&top));
    terminal.kill().expect("it runs");
    terminal.wait().expect("a child");
    drop(output);
    for _ in 0..600 {
        if !runs(&top) {
            return;
        }
        sleep(Duration::from_millis(50));
    }
    panic!("it still runs, half a minute after its terminal went");
}
