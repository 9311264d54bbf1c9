//! What `record`, `replay` and `timeline` do to files and to the terminal, as separate processes. None needs a driver or
//! a privilege.

use kfd_trace::recording::compress;
use serde_json::{Value, json};
use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Output};

const LINES: &str = include_str!("golden/recording-1.jsonl");
/// With an initial state.
const PARTS: &str = include_str!("golden/recording-2.jsonl");

fn kfd_trace(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_kfd-trace")).args(words).output().expect("the program")
}

/// Records where there is no driver; returns the exit code and standard error.
fn records(file: &Path) -> (Option<i32>, String) {
    let output = kfd_trace(&["record", "--path.sysfs=/nowhere", "-o", file.to_str().expect("a name")]);
    (output.status.code(), String::from_utf8(output.stderr).expect("text"))
}

#[test]
fn what_a_file_has_stays_where_nothing_can_be_traced() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("last.rec");
    fs::write(&file, "of last night").expect("a file");
    let (code, why) = records(&file);
    assert_eq!(code, Some(3), "{why}");
    let output =
        kfd_trace(&["run", "--path.sysfs=/nowhere", "-o", file.to_str().expect("a name"), "--", "true"]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert_eq!(fs::read(&file).expect("the file"), b"of last night");
}

/// A zone that is two hours ahead, as zic writes it (RFC 9636).
fn two_hours_ahead() -> Vec<u8> {
    let mut file = Vec::new();
    for _ in 0..2 {
        file.extend(b"TZif2");
        file.extend([0; 15]);
        // One type of local time, and four bytes of its name.
        for count in [0_u32, 0, 0, 0, 1, 4] {
            file.extend(count.to_be_bytes());
        }
        file.extend(7200_i32.to_be_bytes());
        file.extend([0, 0]);
        file.extend(b"XST\0");
    }
    file.extend(b"\nXST-2\n");
    file
}

#[test]
fn times_are_of_the_zone_that_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::create_dir(folder.path().join("Ocean")).expect("a folder");
    fs::write(folder.path().join("Ocean/Xanadu"), two_hours_ahead()).expect("a file");
    let recording = folder.path().join("a.rec");
    fs::write(&recording, compress(LINES.as_bytes()).expect("a block")).expect("a file");
    let replayed = |zone: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kfd-trace"));
        command.arg("replay").arg(&recording).env("TZ", zone).env("TZDIR", folder.path());
        String::from_utf8(command.output().expect("the program").stdout).expect("text")
    };
    let hours = |text: &str| {
        let hours = text.lines().find_map(|line| line.get(..2)?.parse::<u32>().ok());
        hours.expect("a line begins with its time")
    };
    let (utc, there) = (replayed("UTC0"), replayed("Ocean/Xanadu"));
    assert_eq!(hours(&there), (hours(&utc) + 2) % 24, "{utc}{there}");
}

#[test]
fn only_a_regular_file_that_nobody_records_into_is_taken() {
    let folder = tempfile::tempdir().expect("a folder");
    let (pipe, taken) = (folder.path().join("pipe"), folder.path().join("taken"));
    assert!(Command::new("mkfifo").arg(&pipe).status().expect("coreutils").success());
    let held = File::create(&taken).expect("a file");
    held.lock().expect("a lock");
    let cases = [
        (Path::new("/dev/null"), "it is no regular file"),
        (Path::new("-"), "a recording is written to a file"),
        (&pipe, "cannot write"),
        (&taken, "another kfd-trace does"),
    ];
    for (file, expected) in cases {
        let (code, why) = records(file);
        assert!(code == Some(1) && why.contains(expected), "{}: {why}", file.display());
    }
}

#[test]
fn a_timeline_writes_over_nothing_but_an_older_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let named = |name: &str| folder.path().join(name).to_str().expect("a name").to_owned();
    let (recording, trace) = (named("a.rec"), named("a.pftrace"));
    fs::write(&recording, compress(LINES.as_bytes()).expect("a block")).expect("a file");
    let before = fs::read(&recording).expect("the recording");
    let none = named("none.rec");
    for words in [&["replay", &none][..], &["replay", &none, "--at", "+1s"], &["timeline", &none]] {
        let refused = kfd_trace(words);
        let why = String::from_utf8_lossy(&refused.stderr);
        assert!(refused.status.code() == Some(1) && why.contains("none.rec"), "{words:?}: {why}");
    }
    let refused = kfd_trace(&["timeline", &recording, "-o", &recording]);
    assert_eq!(refused.status.code(), Some(2));
    assert_eq!(fs::read(&recording).expect("the recording"), before);

    assert!(kfd_trace(&["timeline", &recording]).status.success());
    let made = fs::read(&trace).expect("a trace");
    assert!(made.len() > 4_000, "{} bytes", made.len());
    // As by a slip: the trace in the place of the recording.
    assert_eq!(kfd_trace(&["timeline", &trace]).status.code(), Some(1));
    assert_eq!(fs::read(&trace).expect("the trace"), made);
}

#[test]
fn a_recording_of_anybody_cannot_steer_the_terminal() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("hostile.rec");
    let hostile = LINES.replace("0000:c1:00.0", r"\u001b[2J").replace("a table", r"\u001b]0;title\u0007");
    assert!(hostile.matches(r"\u001b").count() > 2, "names of GPUs and the summary");
    fs::write(&file, compress(hostile.as_bytes()).expect("a block")).expect("a file");
    let file = file.to_str().expect("a name");
    for words in [&["replay", file][..], &["replay", file, "--at", "2026-09-21T14:13:21Z", "--wide"]] {
        let output = kfd_trace(words);
        let text = String::from_utf8(output.stdout).expect("text") + &String::from_utf8_lossy(&output.stderr);
        assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text:?}");
    }
    let text = String::from_utf8(kfd_trace(&["replay", file]).stdout).expect("text");
    assert!(text.contains(r"\u{1b}[2J") && text.ends_with("\\u{1b}]0;title\\u{7}\n"), "{text}");
}

#[test]
fn what_its_tracer_had_lost_is_said_where_no_summary_says_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("cut.rec");
    let lost = "until then its tracer had lost something (records lost, queue_create, queue_add: 7)";
    let whole = LINES.lines().filter(|line| !line.starts_with("{\"end\"")).collect::<Vec<_>>().join("\n");
    let (begin, rest) = whole.split_once('\n').expect("lines");
    let losses = json!({"lost": {"at_ns": 5, "lost": {"records lost, queue_create, queue_add": 7}}});
    let cut = format!("{begin}\n{losses}\n{rest}");
    let file = file.to_str().expect("a name");
    let said = |text: &str, words: &[&str]| {
        fs::write(file, compress(text.as_bytes()).expect("a block")).expect("a file");
        let output = kfd_trace(&[&["replay", file], words].concat());
        (output.status.code(), String::from_utf8(output.stderr).expect("text"))
    };
    let (code, why) = said(&cut, &[]);
    assert!(code == Some(1) && why.contains(lost), "{why}");
    let (code, why) = said(&whole, &[]);
    assert!(code == Some(1) && why.ends_with("what came before is complete\n"), "{why}");
    let clock = LINES.lines().find(|line| line.starts_with("{\"clock\"")).expect("a clock");
    let expired = json!({"input": {"expired": {"at_ns": 60_000}}});
    let table = format!("{begin}\n{clock}\n{losses}\n\"existing\"\n{expired}\n");
    let (code, why) = said(&table, &["--at", "2026-09-21T14:13:20.00005Z"]);
    assert!(code == Some(0) && why.contains(lost), "{why}");
}

const S: u64 = 1_000_000_000;

/// A recording whose probes are attached half a second after its begin, whose driver is unloaded at 3 s, and another one
/// traced at 6.5 s.
fn attached_late(folder: &Path) -> String {
    let whole = |traces: bool| {
        let unseen = if traces { vec!["not seen: faults"] } else { vec![] };
        json!({"traces": traces, "queues": traces, "evictions": traces, "by_ioctl": false, "unseen": unseen})
    };
    let sight = |at_ns: u64, traces| json!({"sight": {"at_ns": at_ns, "sight": whole(traces)}});
    let expired = |at_ns: u64| json!({"input": {"expired": {"at_ns": at_ns}}});
    let loads = |at_ns: u64, loaded| json!({"loads": {"loaded": loaded, "at_ns": at_ns, "loads": 2}});
    let head = PARTS.lines().map(|line| serde_json::from_str::<Value>(line).expect(line));
    let head = head.filter(|line| ["begin", "driver", "gpus"].iter().any(|name| line.get(name).is_some()));
    let mut lines: Vec<Value> = head.collect();
    lines[0]["begin"]["at_ns"] = json!(0);
    lines[0]["begin"]["unix_ns"] = json!(1_790_000_000_000_000_000_u64);
    lines.extend([
        json!({"clock": {"wall_ns": 1_790_000_000_000_000_000_u64, "boot_ns": 0}}),
        sight(S / 2, true),
        json!("existing"),
        expired(2 * S),
        json!({"input": {"unloaded": {"at_ns": 3 * S}}}),
        loads(3 * S, false),
        sight(3 * S, false),
        loads(6 * S, true),
        sight(6 * S + S / 2, true),
        json!("existing"),
        expired(9 * S),
    ]);
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let path = folder.join("late.rec");
    fs::write(&path, compress(text.as_bytes()).expect("a block")).expect("a file");
    path.to_str().expect("a name").to_owned()
}

#[test]
fn a_time_at_which_nothing_was_traced_has_no_empty_table() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = attached_late(folder.path());
    for (at, since) in [("+100ms", "14:13:20.5"), ("+4s", "14:13:26.5"), ("+6200ms", "14:13:26.5")] {
        let output = kfd_trace(&["replay", &file, "--at", at]);
        let why = String::from_utf8(output.stderr).expect("text");
        assert!(output.status.code() == Some(1) && output.stdout.is_empty(), "{at}: {why}");
        assert!(why.contains("nothing was traced then") && why.contains(since), "{at}: {why}");
    }
    for at in ["+1s", "+7s"] {
        let output = kfd_trace(&["replay", &file, "--at", at]);
        let why = String::from_utf8(output.stderr).expect("text");
        assert!(output.status.success(), "{at}: {why}");
        assert!(why.contains("not seen: faults"), "{at}: what it does not see is shown: {why}");
    }
    for words in [&["replay", &file][..], &["timeline", &file]] {
        let why = String::from_utf8(kfd_trace(words).stderr).expect("text");
        assert_eq!(why.matches("not seen: faults").count(), 1, "{words:?}: once: {why}");
    }
}

/// Runs with a bound on its address space, KiB.
fn bounded(kib: u64, words: &[&str]) -> Output {
    let line = format!("ulimit -v {kib}; exec \"$0\" \"$@\"");
    let mut command = Command::new("sh");
    command.args(["-c", &line, env!("CARGO_BIN_EXE_kfd-trace")]).args(words).output().expect("sh(1)")
}

#[test]
fn a_small_file_does_not_fill_the_memory() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("bomb.rec");
    let begin = PARTS.lines().next().expect("a begin").to_owned() + "\n";
    // Blocks with many short lines, and with one long one.
    let short = begin.clone() + &"\"existing\"\n".repeat(5_000_000);
    let cgroup = "a".repeat(32 << 20);
    let details = json!({"input": {"details": {"key": {"adopted": 4}, "details": {
        "cmdline": null, "cgroup": cgroup, "belongs": {"container": null, "pod_uid": null, "slurm": null, "unit": null}, "pod": null}}}});
    let long = compress(format!("{details}\n").as_bytes()).expect("a block");
    let long = [compress(begin.as_bytes()).expect("a block"), long.repeat(60)].concat();
    for (what, bytes) in [("short", compress(short.as_bytes()).expect("a block")), ("long", long)] {
        assert!(bytes.len() < 1 << 20, "{what}: {} bytes", bytes.len());
        fs::write(&file, bytes).expect("a file");
        let output =
            bounded(1_000_000, &["replay", file.to_str().expect("a name"), "--at", "1960-01-01T00:00:00Z"]);
        let why = String::from_utf8(output.stderr).expect("text");
        assert!(output.status.code() == Some(1) && why.contains("begins later"), "{what}: {why}");
    }
}

/// One of a daemon's files: `number` in its run, and the changes that were lost before it. It begins so many seconds after
/// the first one.
fn part(folder: &Path, number: u64, lost: u64, seconds: u64) -> String {
    let lines = PARTS.lines().map(|line| serde_json::from_str::<Value>(line).expect(line));
    let head = ["begin", "driver", "gpus", "clock", "state", "row"];
    let (mut text, at_ns) = (String::new(), seconds * 1_000_000_000);
    let mut put = |line: Value| text = format!("{text}{line}\n");
    for mut line in lines.filter(|line| head.iter().any(|name| line.get(name).is_some())) {
        if let Some(begin) = line.get_mut("begin") {
            begin["part"] = json!({"run_unix_ns": 1, "number": number, "lost": lost});
            begin["at_ns"] = json!(at_ns);
            begin["unix_ns"] = json!(1_790_000_000_000_000_000 + at_ns);
        }
        put(line);
    }
    put(json!("existing"));
    put(json!({"input": {"expired": {"at_ns": at_ns + 500_000_000}}}));
    put(json!({"close": {"at_ns": at_ns + 1_000_000_000, "why": "rotated"}}));
    let path = folder.join(format!("kfd-trace-{number:08}-20260921T141320Z.rec"));
    fs::write(&path, compress(text.as_bytes()).expect("a block")).expect("a file");
    path.to_str().expect("a name").to_owned()
}

fn lines(output: &Output) -> Vec<Value> {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout.clone()).expect("text");
    text.lines().map(|line| serde_json::from_str(line).expect(line)).collect()
}

#[test]
fn a_folder_is_one_recording_without_the_states_between() {
    let folder = tempfile::tempdir().expect("a folder");
    let name = folder.path().to_str().expect("a name");
    let alone = lines(&kfd_trace(&["replay", &part(folder.path(), 1, 0, 10), "--json"]));
    let existing = alone.len();
    assert!(existing > 1 && alone[0]["event"] == "process_seen", "{alone:?}");
    part(folder.path(), 2, 0, 20);
    part(folder.path(), 3, 0, 30);
    fs::write(folder.path().join("other.rec"), "of somebody else").expect("a file");
    assert_eq!(lines(&kfd_trace(&["replay", name, "--json"])), alone, "the later ones go on");

    // What the tracer has lost since is in the fourth one's begin alone.
    let fourth = part(folder.path(), 4, 0, 40);
    let losses =
        json!({"lost": {"at_ns": 40_000_000_000_u64, "lost": {"records lost, evict, evict_gpu": 3}}});
    let text = zstd::decode_all(File::open(&fourth).expect("it")).expect("whole");
    let text = String::from_utf8(text).expect("text");
    let text = text.replace("\"existing\"", &format!("{losses}\n\"existing\""));
    fs::write(&fourth, compress(text.as_bytes()).expect("a block")).expect("a file");
    let output = kfd_trace(&["replay", name]);
    let why = String::from_utf8(output.stderr).expect("text");
    assert!(why.contains("had lost something (records lost, evict, evict_gpu: 3)"), "{why}");
    fs::remove_file(&fourth).expect("it is there");

    // The fifth follows one that was removed, and the sixth a loss.
    part(folder.path(), 5, 0, 50);
    part(folder.path(), 6, 7, 60);
    let all = lines(&kfd_trace(&["replay", name, "--json"]));
    let gaps: Vec<_> = all.iter().filter(|line| line["event"] == "recording_gap").collect();
    assert_eq!(all.len(), 3 * existing + 2);
    assert_eq!([&gaps[0]["lost_changes"], &gaps[1]["lost_changes"]], [&Value::Null, &json!(7)]);
    let text = String::from_utf8(kfd_trace(&["replay", name]).stdout).expect("text");
    assert!(text.contains("recording gap: 7 changes before this were lost"), "{text}");

    for (at, code) in [("+1s", 0), ("+12s", 0), ("+25s", 1), ("+40s", 0), ("+99s", 1)] {
        let output = kfd_trace(&["replay", name, "--at", at]);
        let why = String::from_utf8(output.stderr).expect("text");
        assert_eq!(output.status.code(), Some(code), "{at}: {why}");
    }
    let between = kfd_trace(&["replay", name, "--at", "+25s"]);
    let why = String::from_utf8(between.stderr).expect("text");
    assert!(why.contains("nothing was recorded then"), "{why}");
    let trace = folder.path().join("all.pftrace");
    let made = kfd_trace(&["timeline", name, "-o", trace.to_str().expect("a name")]);
    assert!(made.status.success() && fs::metadata(&trace).expect("a trace").len() > 500);
}

#[test]
fn a_folder_or_a_file_that_is_none_gets_one_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let name = folder.path().to_str().expect("a name");
    let file = folder.path().join("file");
    fs::write(&file, "").expect("a file");
    let cases: [(&[&str], i32, &str); 5] = [
        (&["replay", name], 1, "no recordings of a daemon are in this folder"),
        (&["timeline", name, "-o", "-"], 1, "no recordings of a daemon are in this folder"),
        (&["daemon", "--record", file.to_str().expect("a name")], 2, "is no folder"),
        (&["daemon", "--record.max-size=1GiB"], 2, "--record <DIR>"),
        (&["daemon", "--record", name, "--record.file-size=1"], 2, "must be 16KiB or more"),
    ];
    for (words, code, expected) in cases {
        let output = kfd_trace(&[words, &["--path.sysfs=/nowhere"]].concat());
        let why = String::from_utf8(output.stderr).expect("text");
        assert!(output.status.code() == Some(code) && why.contains(expected), "{words:?}: {why}");
    }
    let summary = kfd_trace(&["replay", &part(folder.path(), 1, 0, 10), "-c"]);
    let why = String::from_utf8(summary.stderr).expect("text");
    assert!(summary.status.code() == Some(1) && why.contains("has no summary"), "{why}");
}
