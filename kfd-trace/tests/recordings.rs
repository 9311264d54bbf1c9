//! What `record`, `replay` and `timeline` do to files and to the terminal, as separate processes. None needs a driver or
//! a privilege.

use kfd_trace::recording::compress;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Output};

const LINES: &str = include_str!("golden/recording-1.jsonl");

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
    assert_eq!(fs::read(&file).expect("the file"), b"of last night");
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
    let cut = LINES.lines().filter(|line| !line.starts_with("{\"end\"")).collect::<Vec<_>>().join("\n");
    let whole = cut.lines().filter(|line| !line.starts_with("{\"lost\"")).collect::<Vec<_>>().join("\n");
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
    let (code, why) = said(&cut, &["--at", "2026-09-21T14:13:20.00005Z"]);
    assert!(code == Some(0) && why.contains(lost), "{why}");
}
