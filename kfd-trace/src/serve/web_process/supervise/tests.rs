use super::*;
use crate::runtime::frames::write_frame;
use crate::serve::web_process::control::receive_files;
use crate::serve::web_process::tests::{Fake, SLOW};
use serde_json::json;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

fn files(text: &str) -> Files {
    serde_json::from_value(json!({ "path": "web.yml", "text": text, "pems": {} })).unwrap()
}

#[test]
fn a_configuration_that_comes_while_a_process_starts_reaches_it() {
    let shared = Shared::new().unwrap();
    shared.replace(&files("# 1\n"));
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    // Else it would wait for what is never sent.
    theirs.set_read_timeout(Some(WRITE_TIMEOUT)).unwrap();
    shared.replace(&files("# 2\n"));
    shared.keeps(0, ours, Some(files("# 1\n"))).unwrap();
    assert_eq!(receive_files(&mut theirs).unwrap(), files("# 2\n"));
    shared.replace(&files("# 3\n"));
    assert_eq!(receive_files(&mut theirs).unwrap(), files("# 3\n"));
    assert!(shared.current().control.is_some());
}

/// Without sockets; a host's name of this many bytes is a part of its orders.
fn server() -> WebServer {
    WebServer {
        listeners: Vec::new(),
        health: Vec::new(),
        allowed_hosts: Vec::new(),
        configured: None,
        source: Arc::new(Fake),
        seccomp: Seccomp::Required,
    }
}

/// A process that neither reads nor reports its start.
fn stuck() -> Command {
    let mut command = Command::new("sleep");
    command.arg("1000");
    command
}

#[tokio::test]
async fn a_stop_ends_a_first_start() {
    let (began, begins) = mpsc::channel();
    let mut running = start_by(server(), move || {
        began.send(()).unwrap();
        stuck()
    })
    .unwrap();
    begins.recv().unwrap();
    let started = timeout(Duration::from_millis(100), running.started());
    assert!(started.await.is_err(), "it does not start");
    running.stop().await.unwrap();
}

#[tokio::test]
async fn a_stop_ends_a_restart() {
    let (began, begins) = mpsc::channel();
    let is_first = AtomicBool::new(true);
    let mut running = start_by(server(), move || {
        if !is_first.swap(false, Relaxed) {
            began.send(()).unwrap();
            return stuck();
        }
        // It reports its start once it has orders, and ends.
        let mut command = Command::new("sh");
        command.args(["-c", "head -c 40 >/dev/null; printf x >&0"]);
        command
    })
    .unwrap();
    running.started().await.unwrap();
    begins.recv().unwrap();
    running.stop().await.unwrap();
}

#[test]
fn neither_a_restart_nor_the_end_waits_for_a_diagnosis() {
    let supervisor = Supervisor {
        listeners: Vec::new(),
        health: Vec::new(),
        addresses: Vec::new(),
        allowed_hosts: Vec::new(),
        source: Arc::new(Fake),
        seccomp: Seccomp::Required,
        budgets: Arc::default(),
        shared: Arc::new(Shared::new().unwrap()),
        program: Box::new(|| unreachable!("nothing is started")),
    };
    let (lanes, mut theirs) = lane::pairs().unwrap();
    let (pulse, _their_pulse) = UnixStream::pair().unwrap();
    let (log, stderr) = confine::log::pipe("sleep").unwrap();
    let child = Command::new("sleep").arg("0.1").stderr(stderr).spawn().unwrap();
    write_frame(&mut theirs[3], br#"{"Api":["Doctor",[]]}"#).unwrap();
    drop(theirs);
    let begin = Instant::now();
    let ended = supervisor.serve(Started { child, lanes, pulse, log }).unwrap();
    assert_eq!(ended.to_string(), "ended: exit status: 0");
    assert!(begin.elapsed() < SLOW, "it waited for the diagnosis");
}

#[test]
fn a_process_that_has_ended_or_has_to_keeps_no_control() {
    let shared = Shared::new().unwrap();
    shared.current().process = 2;
    for stopping in [false, true] {
        shared.current().stopping = stopping;
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        shared.keeps(if stopping { 2 } else { 1 }, ours, None).unwrap();
        let end = receive_files(&mut theirs).unwrap_err();
        assert_eq!(end.kind(), io::ErrorKind::UnexpectedEof, "it was closed");
        assert!(shared.current().control.is_none());
    }
}
