//! `ps --url`, `top --url` and `doctor --url` of a daemon, as separate processes. The daemon waits for a driver that does not exist: it needs
//! no privilege.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::Duration;

/// Ended when it is dropped.
struct Daemon {
    child: Child,
    url: String,
}

impl Daemon {
    fn waiting_for_a_driver() -> Self {
        let mut command = kfd_trace(&["daemon", "--web.listen-address=127.0.0.1:0", "--path.sysfs=/nowhere"]);
        let mut child = command.stderr(Stdio::piped()).spawn().expect("the daemon");
        let mut lines = BufReader::new(child.stderr.take().expect("a pipe")).lines().map_while(Result::ok);
        let url = |line: String| {
            line.split_whitespace().find(|word| word.starts_with("http://")).map(str::to_owned)
        };
        let url = lines.find_map(url).expect("it says where it listens");
        let url = url.trim_end_matches(|c: char| !c.is_ascii_digit()).to_owned();
        std::thread::spawn(move || lines.for_each(drop));
        Daemon { child, url }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn kfd_trace(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kfd-trace"));
    command.args(args).stdin(Stdio::null()).env_remove("KFD_TRACE_PASSWORD");
    command
}

/// Its exit code and its line on standard error; there is nothing else.
fn refused(command: &mut Command) -> (Option<i32>, String) {
    let Output { status, stdout, stderr } = command.output().expect("the program");
    let line = String::from_utf8(stderr).expect("text");
    assert!(stdout.is_empty() && line.lines().count() == 1, "{line}");
    (status.code(), line)
}

#[test]
fn a_daemon_without_a_driver_is_told_from_one_that_is_not_there() {
    let daemon = Daemon::waiting_for_a_driver();
    let (code, line) = refused(&mut kfd_trace(&["ps", "--url", &daemon.url]));
    assert_eq!(code, Some(3), "{line}");
    assert!(line.contains(&format!("{}: nothing is traced there: ", daemon.url)), "{line}");
    let url = daemon.url.clone();
    drop(daemon);
    // The process that serves has its sockets until it has ended, too.
    while TcpStream::connect(url.trim_start_matches("http://")).is_ok() {
        sleep(Duration::from_millis(10));
    }
    let (code, line) = refused(&mut kfd_trace(&["ps", "--json", "--url", &url]));
    assert!(code == Some(1) && line.contains("it refuses the connection; "), "{line}");
}

#[test]
fn a_password_without_a_terminal_comes_from_elsewhere_or_is_missed() {
    let (code, line) = refused(&mut kfd_trace(&["ps", "--url", "http://ann@127.0.0.1:9"]));
    assert!(code == Some(2) && line.contains("the password of ann is missing"), "{line}");
    let mut command = kfd_trace(&["ps", "--url", "http://ann@127.0.0.1:9"]);
    let (code, line) = refused(command.env("KFD_TRACE_PASSWORD", "s3cret"));
    assert!(code == Some(1) && line.contains("http://127.0.0.1:9: it refuses"), "{line}");
    assert!(!line.contains("s3cret") && !line.contains("ann"), "{line}");
}

#[test]
fn top_of_a_daemon_takes_a_terminal() {
    let (code, line) = refused(&mut kfd_trace(&["top", "--url", "http://127.0.0.1:9"]));
    assert!(code == Some(2) && line.contains("`top` needs a terminal"), "{line}");
}

/// Answers requests with these documents, by the end of their paths. Returns its URL.
fn serving(documents: &'static [(&'static str, &'static str)]) -> String {
    let body = |rest: &str| format!(r#"{{"schema": 1, "ts": "2026-09-21T14:13:20Z", {rest}}}"#);
    answering(documents.iter().map(|(end, rest)| (*end, "200 OK", body(rest))).collect())
}

/// The same with a status and a whole body each.
fn answering(answers: Vec<(&'static str, &'static str, String)>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    std::thread::spawn(move || {
        // A connection is made again after an error.
        listener.incoming().map_while(Result::ok).for_each(|stream| answer(stream, &answers));
    });
    url
}

fn answer(mut stream: TcpStream, answers: &[(&str, &str, String)]) {
    let lines = BufReader::new(stream.try_clone().expect("the same")).lines().map_while(Result::ok);
    for path in lines.filter_map(|line| Some(line.strip_prefix("GET ")?.split(' ').next()?.to_owned())) {
        let found = answers.iter().find(|(end, ..)| path.ends_with(end));
        let (_, status, body) = found.unwrap_or_else(|| panic!("{path} is not expected"));
        let length = body.len();
        write!(stream, "HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n{body}").expect("sent");
    }
}

#[test]
fn what_a_daemon_does_not_see_is_said_and_its_slots_are_not_counted() {
    const DOCUMENTS: &[(&str, &str)] = &[
        (
            "/status",
            r#""tracing": true, "meaning": ["queues: not seen"], "unreadable": [], "probes": [], "lost": {"events": 3}"#,
        ),
        ("/queues", r#""queues": [{"pid": 7, "queue_id": 1, "gpu_id": 9, "queue_type": "compute"}]"#),
        ("/processes", r#""processes": []"#),
        ("/gpus", r#""gpus": [{"gpu_id": 9, "pci": "0000:c1:00.0", "slots": {"cp": 24}}]"#),
    ];
    let run = |more: &[&str]| {
        let url = serving(DOCUMENTS);
        let output = kfd_trace(&["ps", "--url", &url]).args(more).output().expect("the program");
        assert!(output.status.success(), "{output:?}");
        let stderr = String::from_utf8(output.stderr).expect("text");
        let said: Vec<&str> =
            stderr.lines().filter_map(|line| line.split_once(&url)).map(|(_, said)| said).collect();
        assert_eq!(said, [": not seen: queues: not seen", ": lost: 3 (events)"], "{stderr}");
        String::from_utf8(output.stdout).expect("text")
    };
    let text = run(&[]);
    assert!(text.contains(": ? of 24 compute slots (not all queues are known)"), "{text}");
    let json = run(&["--json"]);
    assert!(json.contains(r#""asked":null"#) && json.contains(r#""sources":null"#), "{json}");
}

/// Of one process, with a field of a later version.
const DIAGNOSIS: &str = r#"{"schema": 1, "pid": 318, "facts": {"kernel": "6.12.0"}, "limits": [], "outcome": "hidden",
    "complete": true, "looked_at": 90, "not_permitted": 0, "hidepid": false, "views": [{"view": "lsof", "saw": [], "why": null,
    "can_miss": "closed descriptors"}], "processes": [{"pid": 318, "comm": "a\u001bb", "owner": null, "standing": "lives",
    "kfd": true, "queues": 2, "vram_bytes": 0, "activity": null, "rocm_smi": "named", "findings": [{"kind": "closed_descriptor",
    "weight": "hidden", "text": "Hidden from lsof and fuser."}]}], "chips": [], "later": 18446744073709551615}"#;

#[test]
fn a_diagnosis_of_a_daemon_is_printed_as_one_of_this_machine() {
    let run = |args: &[&str]| {
        let url = answering(vec![("/api/v1/doctor?pid=319", "200 OK", DIAGNOSIS.to_owned() + "\n")]);
        let output = kfd_trace(&["doctor", "--pid", "319", "--url", &url]).args(args).output().expect("run");
        assert_eq!(output.status.code(), Some(4), "{output:?}");
        let said = String::from_utf8(output.stderr).expect("text");
        let thread = "kfd-trace: 319 is a thread of process 318: looking at that process\n";
        assert_eq!(said, format!("{thread}kfd-trace: {url}: something is hidden from the usual checks\n"));
        String::from_utf8(output.stdout).expect("text")
    };
    let expected = "\
VIEW                   SAW     CAN MISS
lsof, fuser: by inode  not it  closed descriptors

process 318 (a\\u{1b}b), lives, 2 queues, rocm-smi has it
  Hidden from lsof and fuser.

something is hidden from the usual checks: see above
";
    assert_eq!(run(&[]), expected);
    let json = run(&["--json"]);
    assert!(json.lines().count() == 1 && json.contains(r#""later": 18446744073709551615"#), "{json}");
    let value = |text: &str| serde_json::from_str::<serde_json::Value>(text).expect("JSON");
    assert_eq!(value(&json), value(DIAGNOSIS));
}

#[test]
fn why_there_is_no_diagnosis_is_one_line() {
    const STATUS: &str = r#"{"schema": 1, "ts": "2026-09-21T14:13:20Z", "tracing": true, "meaning": [], "unreadable": [],
        "probes": [], "lost": {}}"#;
    let error = |line: &str| format!(r#"{{"error": "{line}", "schema": 1}}"#);
    let none = || ("/status", "404 Not Found", String::new());
    let old = || ("/status", "200 OK", STATUS.to_owned());
    for (status, body, other, code, words) in [
        (
            "404 Not Found",
            String::new(),
            old(),
            1,
            "its version of kfd-trace has no /api/v1/doctor; upgrade it, or run this command there",
        ),
        (
            "404 Not Found",
            String::new(),
            none(),
            1,
            "no kfd-trace daemon is there (404); check port and path",
        ),
        (
            "401 Unauthorized",
            String::new(),
            none(),
            1,
            "it refuses the login (401); give a user by --user NAME",
        ),
        ("503 x", error("no amdgpu driver"), none(), 3, "nothing is traced there: no amdgpu driver; "),
        (
            "400 x",
            error("pid 318: no such process"),
            none(),
            2,
            "it refuses the request: pid 318: no such process; ",
        ),
        ("500 x", error("it hangs"), none(), 1, "it answers with status 500: it hangs; the daemon's log may"),
        (
            "200 OK",
            STATUS.to_owned(),
            none(),
            1,
            "its answer is no document of kfd-trace's API: missing field",
        ),
    ] {
        let url = answering(vec![("/doctor", status, body), other]);
        let (exit, line) = refused(&mut kfd_trace(&["doctor", "--json", "--url", &url]));
        assert!(exit == Some(code) && line.contains(&format!("{url}: {words}")), "{exit:?} {line}");
    }
    let (code, line) = refused(&mut kfd_trace(&["doctor", "--url", "http://127.0.0.1:9"]));
    assert!(code == Some(1) && line.contains("it refuses the connection; start the daemon there"), "{line}");
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", silent.local_addr().expect("an address"));
    let (code, line) = refused(&mut kfd_trace(&["doctor", "--max-time", "0.3", "--url", &url]));
    assert!(code == Some(1) && line.contains("it does not answer within 0.3s; raise --max-time"), "{line}");
    let daemon = Daemon::waiting_for_a_driver();
    let (code, line) = refused(&mut kfd_trace(&["doctor", "--url", &daemon.url]));
    assert!(code == Some(3) && line.contains("nothing is traced there: the amdgpu driver is not"), "{line}");
}

#[test]
fn a_fleet_is_one_table_and_who_does_not_answer_is_named() {
    const DOCUMENTS: &[(&str, &str)] = &[
        (
            "/status",
            r#""tracing": true, "queues_by_ioctl": true, "meaning": [], "unreadable": [], "probes": [], "lost": {}"#,
        ),
        (
            "/queues",
            r#""queues": [{"pid": 7, "comm": "train", "queue_id": 1, "gpu_id": 9, "queue_type": "compute", "active": true},
                          {"pid": 7, "comm": "train", "queue_id": 2, "gpu_id": 9, "queue_type": "compute", "active": true}]"#,
        ),
        ("/processes", r#""processes": []"#),
        ("/gpus", r#""gpus": [{"gpu_id": 9, "pci": "0000:c1:00.0", "slots": {"cp": 1}}]"#),
    ];
    let folder = tempfile::tempdir().expect("a folder");
    let (file, silent) = (folder.path().join("nodes.yml"), TcpListener::bind("127.0.0.1:0").expect("a port"));
    let hangs = silent.local_addr().expect("an address").to_string();
    let run = |more: &[&str]| {
        let up = [serving(DOCUMENTS), serving(DOCUMENTS)].map(|url| url.replace("http://", ""));
        let [one, two] = &up;
        let text = format!("- targets: ['{one}', '127.0.0.1:9', '{two}']\n- targets: ['{hangs}']\n");
        std::fs::write(&file, text).expect("written");
        let targets = file.to_str().expect("text");
        let mut command = kfd_trace(&["fleet", "ps", "--max-time", "2", "--targets", targets]);
        let output = command.args(more).output().expect("the program");
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let said = String::from_utf8(output.stderr).expect("text");
        assert_eq!(said, "kfd-trace: 2 of 4 nodes gave no answer: the list says which\n");
        (up, String::from_utf8(output.stdout).expect("text"))
    };
    let ([one, two], text) = run(&[]);
    let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().take(3).collect()).collect();
    let expected = [["NODE", "PID", "COMM"], [&one, "7", "train"], [&one, "7", "train"]];
    assert_eq!(rows[..3], expected.map(|row| row.to_vec()), "{text}");
    assert_eq!(rows.iter().filter(|row| row[0] == two && row[1] == "7").count(), 2, "{text}");
    assert!(text.contains("\n127.0.0.1:9: it refuses the connection; "), "{text}");
    assert!(text.contains(&format!("\n{hangs}: it does not answer within 2s; ")), "{text}");
    let over = format!("{two}: gpu 0 (0000:c1:00.0): 2 of 1 compute slots (oversubscribed)");
    assert!(text.contains(&over), "{text}");
    let ([one, two], text) = run(&["--json", "--connections", "1"]);
    let all: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let nodes: Vec<_> = all["nodes"].as_array().expect("nodes").iter().collect();
    assert_eq!(nodes.len(), 4, "{all}");
    let is_said =
        |number: usize, what| nodes[number]["error"].as_str().is_some_and(|why| why.starts_with(what));
    let queues = |number: usize| nodes[number]["ps"]["queues"].as_array().map(Vec::len);
    assert_eq!((nodes[0]["node"].as_str(), queues(0)), (Some(&*one), Some(2)));
    assert_eq!((nodes[2]["node"].as_str(), queues(2)), (Some(&*two), Some(2)));
    assert!(nodes[1]["ps"].is_null() && is_said(1, "it refuses the connection; "), "{all}");
    assert!(nodes[3]["ps"].is_null() && is_said(3, "it does not answer within 2s; "), "{all}");
}

/// Rows without anything in them take 3 bytes of text each.
#[test]
fn hostile_nodes_of_a_fleet_do_not_fill_the_memory() {
    let rows = vec!["{}"; 60_000].join(",");
    let hostile = || {
        let body = |rest: &str| format!(r#"{{"schema": 1, "ts": "2026-09-21T14:13:20Z", {rest}}}"#);
        let status = r#""tracing": true, "meaning": [], "unreadable": [], "probes": [], "lost": {}"#;
        let queues = format!(r#""queues": [{}]"#, vec![r#"{"queue_id":1}"#; 60_000].join(","));
        let queues = queues.split(r#"{"queue_id":1}"#).enumerate().map(|(n, rest)| match n {
            0 => rest.to_owned(),
            n => format!(r#"{{"queue_id":{n},"pid":{n}}}{rest}"#),
        });
        answering(vec![
            ("/status", "200 OK", body(status)),
            ("/queues", "200 OK", body(&queues.collect::<String>())),
            ("/processes", "200 OK", body(&format!(r#""processes": [{}]"#, &rows[..3 * 19_000 - 1]))),
            ("/gpus", "200 OK", body(r#""gpus": []"#)),
        ])
    };
    let folder = tempfile::tempdir().expect("a folder");
    let targets = folder.path().join("targets.json");
    let nodes: Vec<String> = (0..8).map(|_| hostile().trim_start_matches("http://").to_owned()).collect();
    std::fs::write(&targets, serde_json::json!([{ "targets": nodes }]).to_string()).expect("a file");
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -v 1500000; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_kfd-trace")]);
    // An arena for each thread would count as memory.
    command.env("MALLOC_ARENA_MAX", "1");
    let output = command.args(["fleet", "ps", "--json", "--max-time", "100", "--targets"]).arg(&targets);
    let output = output.output().expect("sh(1)");
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
        panic!("{error}: {:?} {}", output.status, String::from_utf8_lossy(&output.stderr))
    });
    let errors: Vec<&str> = document["nodes"]
        .as_array()
        .expect("nodes")
        .iter()
        .filter_map(|node| node["error"].as_str())
        .collect();
    assert!((1..8).contains(&errors.len()), "{errors:?}");
    assert!(errors.iter().all(|error| error.contains("more than 512 MiB: ask fewer at once")), "{errors:?}");
}
