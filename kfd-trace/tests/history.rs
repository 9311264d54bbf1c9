//! A daemon that finds the recordings of an earlier one, as a separate process. It waits for a driver that does not exist: it
//! needs no privilege.

use kfd_trace::recording::compress;
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;
use tempfile::TempDir;

/// A daemon's recording, with an initial state.
const LINES: &str = include_str!("golden/recording-2.jsonl");

const SOON: Duration = Duration::from_secs(20);

/// Ended when it is dropped.
struct Daemon {
    child: Child,
    lines: Receiver<String>,
    address: String,
}

impl Daemon {
    fn recording_to(folder: &Path) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kfd-trace"));
        command.args(["daemon", "--web.listen-address=127.0.0.1:0", "--path.sysfs=/nowhere", "--record"]);
        let mut child = command.arg(folder).stderr(Stdio::piped()).spawn().expect("the daemon");
        let read = BufReader::new(child.stderr.take().expect("a pipe")).lines();
        let (sender, lines) = channel();
        std::thread::spawn(move || read.map_while(Result::ok).try_for_each(|line| sender.send(line)));
        let mut daemon = Daemon { child, lines, address: String::new() };
        let line = daemon.shows("serving http://");
        let (_, address) = line.split_once("http://").expect("a URL");
        daemon.address = address.trim_end_matches("/metrics").to_owned();
        daemon
    }

    /// Waits for the line that contains this.
    fn shows(&self, words: &str) -> String {
        loop {
            match self.lines.recv_timeout(SOON) {
                Ok(line) if line.contains(words) => return line,
                Ok(_) => {}
                Err(error) => panic!("there is no line with `{words}`: {error}"),
            }
        }
    }

    fn json(&self, path: &str) -> Value {
        let mut stream = TcpStream::connect(&self.address).expect("the daemon");
        write!(stream, "GET {path} HTTP/1.0\r\nHost: {}\r\n\r\n", self.address).expect("sent");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("an answer");
        let (_, body) = text.split_once("\r\n\r\n").expect("a body");
        serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {text}"))
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A folder with this file of a daemon.
fn folder(bytes: &[u8]) -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("kfd-trace-00000001-20260921T141320Z.rec"), bytes).expect("a file");
    folder
}

/// 2026-09-21T14:13:20Z
const WALL: u64 = 1_790_000_000_000_000_000;

/// Recorded since this machine was started: a queue that lived from 3 ms to 4 ms after CLOCK_MONOTONIC began.
fn of_this_boot() -> TempDir {
    let own = fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("the boot's id");
    let lines: Vec<Value> = LINES.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    let event = |name: &str, ms: u64| {
        let is = |line: &&Value| line["input"]["event"]["body"].get(name).is_some();
        let mut line = lines.iter().find(is).expect(name).clone();
        let event = &mut line["input"]["event"];
        event["mono_ns"] = json!(ms * 1_000_000);
        if name != "process_seen" {
            event["body"][name]["queue_id"] = json!(4);
        }
        line
    };
    let mut begin = lines[0].clone();
    begin["begin"]["boot_id"] = json!(own.trim());
    begin["begin"]["at_ns"] = json!(1_000_000);
    begin["begin"]["unix_ns"] = json!(WALL + 1_000_000);
    let items = [
        begin,
        json!({"clock": {"wall_ns": WALL, "boot_ns": 0}}),
        json!("existing"),
        event("process_seen", 2),
        event("queue_create", 3),
        event("queue_destroy", 4),
        json!({"close": {"at_ns": 5_000_000, "why": "stopped"}}),
    ];
    let text: String = items.iter().map(|item| format!("{item}\n")).collect();
    folder(&compress(text.as_bytes()).expect("a block"))
}

fn names(document: &Value) -> Vec<&str> {
    let events = document["events"].as_array().expect("events");
    events.iter().filter_map(|event| event["event"].as_str()).collect()
}

#[test]
fn the_history_is_there_before_anything_is_traced() {
    let recorded = of_this_boot();
    let daemon = Daemon::recording_to(recorded.path());
    let line = daemon.shows("the history goes on: ");
    assert!(line.contains("from 1 recording in "), "{line}");
    let document = daemon.json("/api/v1/events");
    assert_eq!(names(&document), ["process_seen", "queue_create", "queue_destroy"]);
    assert_eq!(document["known_since"], "2026-09-21T14:13:20.001000000Z");
    assert!(document["began"].as_str() > document["known_since"].as_str(), "{document}");
    let held = |ms: &str| {
        let held = daemon.json(&format!("/api/v1/queues?at=2026-09-21T14:13:20.{ms}Z"));
        (held["queues"].as_array().map(Vec::len), held["complete"] == true, held["traced"] == true)
    };
    assert_eq!(held("0005"), (Some(0), false, false), "before it was recorded");
    assert_eq!(held("0035"), (Some(1), true, true));
    assert_eq!(held("0045"), (Some(0), true, true));
    assert_eq!(held("0055"), (Some(0), false, false), "that daemon had ended");
}

#[test]
fn what_is_of_another_boot_or_no_recording_is_no_history() {
    let other = folder(&compress(LINES.as_bytes()).expect("a block"));
    let daemon = Daemon::recording_to(other.path());
    daemon.shows("waiting for it");
    assert!(names(&daemon.json("/api/v1/events")).is_empty());
    let newer = compress(br#"{"begin":{"kfd_trace_recording":99}}"#).expect("a block");
    for (bytes, why) in
        [(&b"else"[..], "it is no recording of kfd-trace"), (&newer, "version 99 of the format")]
    {
        let damaged = folder(bytes);
        let daemon = Daemon::recording_to(damaged.path());
        let line = daemon.shows("the history begins anew: ");
        assert!(line.contains(why) && line.contains("-00000001-"), "{line}");
        assert!(names(&daemon.json("/api/v1/events")).is_empty());
    }
}
