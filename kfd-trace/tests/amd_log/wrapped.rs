//! Logs as users have them: behind what collectors put before lines, in other encodings, cut, of several ranks.

use super::ledger::equal;
use super::{made, report, run};
use kfd_trace_amd_logs::{Format, Ledger, Plan};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

const SMALL: Plan = Plan { kernels: 400, filler: 1, ..Plan::MIXED };

/// Twelve usual forms; whether a blank line stays one, since the text before a line is no part of it.
const FORMS: [(&str, bool); 12] = [
    ("trainer-1  | ", false),
    ("2026-09-01T08:00:00.000000001Z stderr F ", true),
    ("2026-09-01T08:00:00.0000001Z ", false),
    ("Sep 01 08:00:00 node7 train.sh[991]: ", false),
    ("Sep 01 08:00:00 ", false),
    ("    ", true),
    ("> ", false),
    ("3: ", false),
    ("[1,3]<stderr>:", false),
    ("(Worker pid=4300) ", false),
    ("[rank3]:", false),
    ("json", true),
];

fn wrap(form: &str, line: &str) -> String {
    if form != "json" {
        return format!("{form}{line}\n");
    }
    let object =
        json!({"log": format!("{line}\n"), "stream": "stderr", "time": "2026-09-01T08:00:00.000000001Z"});
    format!("{object}\n")
}

fn wrapped(text: &str, form: &str) -> String {
    text.lines().map(|line| wrap(form, line)).collect()
}

fn of_text(folder: &Path, text: impl AsRef<[u8]>) -> Value {
    let path = folder.join("wrapped.log");
    fs::write(&path, text).unwrap();
    report(&path)
}

#[test]
fn text_before_the_prefix_changes_no_figure() {
    let folder = tempfile::tempdir().unwrap();
    for format in [Format::Rocm56, Format::Rocm72, Format::Rocm2026] {
        let (path, ledger) = made(folder.path(), format, &SMALL);
        let text = fs::read_to_string(path).unwrap();
        for (form, keeps_blank) in FORMS {
            let report = of_text(folder.path(), wrapped(&text, form));
            let Ledger { blank, without_prefix, .. } = ledger;
            let moved = if keeps_blank { 0 } else { blank };
            let ledger =
                Ledger { blank: blank - moved, without_prefix: without_prefix + moved, ..ledger.clone() };
            equal(&report, &ledger, format);
        }
    }
}

#[test]
fn other_encodings_and_ends_of_lines_change_no_figure() {
    let folder = tempfile::tempdir().unwrap();
    let (path, ledger) = made(folder.path(), Format::Rocm72, &SMALL);
    let text = fs::read_to_string(path).unwrap();
    let crlf = text.replace('\n', "\r\n");
    let utf16 = |bytes: fn(u16) -> [u8; 2]| -> Vec<u8> {
        ["\u{feff}", &crlf].concat().encode_utf16().flat_map(bytes).collect()
    };
    for bytes in [
        format!("\u{feff}{text}").into_bytes(),
        text.replace('\n', "\r").into_bytes(),
        crlf.clone().into_bytes(),
        utf16(u16::to_le_bytes),
        utf16(u16::to_be_bytes),
        text.replace("rocdevice.cpp            ", r"C:\src\compute\rocdevice.cpp").into_bytes(),
    ] {
        let report = of_text(folder.path(), bytes);
        equal(&report, &ledger, Format::Rocm72);
        assert_eq!(report["inputs"][0]["nuls"], json!(0));
    }
}

/// A container's runtime cuts lines at 16 KiB; here at 100 bytes, which every line of a packet exceeds.
#[test]
fn lines_that_a_runtime_cut_are_read_whole() {
    let folder = tempfile::tempdir().unwrap();
    let (path, ledger) = made(folder.path(), Format::Rocm72, &SMALL);
    let text = fs::read_to_string(path).unwrap();
    let cut = |line: &str, json: bool| -> String {
        let parts: Vec<&[u8]> = line.as_bytes().chunks(100).collect();
        let last = parts.len().saturating_sub(1);
        let mut all: Vec<String> = Vec::new();
        for (index, part) in parts.iter().enumerate() {
            let part = std::str::from_utf8(part).unwrap();
            all.push(match json {
                true => {
                    let end = if index == last { "\n" } else { "" };
                    format!("{}\n", json!({"log": format!("{part}{end}"), "stream": "stderr"}))
                }
                false => {
                    format!("2026-09-01T08:00:00Z stderr {} {part}\n", if index == last { "F" } else { "P" })
                }
            });
        }
        if all.is_empty() { "2026-09-01T08:00:00Z stderr F \n".to_owned() } else { all.concat() }
    };
    for json in [false, true] {
        let wrapped: String = text.lines().map(|line| cut(line, json)).collect();
        let mut report = of_text(folder.path(), &wrapped);
        let partial = report["lines"]["partial"].as_u64().unwrap();
        assert_eq!(report["lines"]["total"].as_u64().unwrap() - partial, ledger.lines);
        assert!(partial > ledger.lines, "{partial}");
        report["lines"]["total"] = json!(ledger.lines);
        report["lines"]["partial"] = json!(0);
        equal(&report, &ledger, Format::Rocm72);
    }
    let report = of_text(folder.path(), "2026-09-01T08:00:00Z stderr P :3:a.cpp:1: 7 us:  hipMa\n");
    assert!(
        report["notes"].to_string().contains("1 line was cut by the container's runtime"),
        "{}",
        report["notes"]
    );
}

/// Two containers whose processes have the same PID, addresses and times, line by line.
#[test]
fn ranks_of_one_pid_are_kept_apart() {
    let folder = tempfile::tempdir().unwrap();
    let (path, ledger) = made(folder.path(), Format::Rocm72, &SMALL);
    let text = fs::read_to_string(path).unwrap();
    let both: String =
        text.lines().map(|line| format!("trainer-0  | {line}\ntrainer-1  | {line}\n")).collect();
    let report = of_text(folder.path(), both);
    for rank in ["trainer-0", "trainer-1"] {
        for (list, key, wanted) in [
            ("processes", "pid", ledger.processes.len()),
            ("commands", "kind", ledger.commands.len()),
            ("queues", "id", ledger.queues.len()),
        ] {
            let own = |of: &&Value| of["source"] == json!(rank) && !of[key].is_null();
            assert_eq!(
                report[list].as_array().unwrap().iter().filter(own).count(),
                wanted,
                "{list} of {rank}"
            );
        }
    }
    for queue in &ledger.queues {
        let rows = report["queues"].as_array().unwrap().iter();
        let dispatches =
            rows.filter(|row| row["hwq"] == super::hex(queue.hwq)).map(|row| row["dispatches"].clone());
        assert_eq!(dispatches.collect::<Vec<_>>(), [json!(queue.dispatches), json!(queue.dispatches)]);
    }
    let text = String::from_utf8(run(&[folder.path().join("wrapped.log").to_str().unwrap()]).stdout).unwrap();
    assert!(text.contains("157801 of trainer-0 (") && text.contains("SOURCE"), "{text}");
}

/// What a crash leaves on a terminal without AMD_LOG_LEVEL: no level would show more.
#[test]
fn a_crash_gives_no_advice_on_levels() {
    let folder = tempfile::tempdir().unwrap();
    let abort = ":0:rocdevice.cpp            :2990: 0070000123 us:  Callback: Queue 0x7f2200000000 aborting with error : HSA_STATUS_ERROR_EXCEPTION: text. code: 0x1016\n";
    let fault = "Memory access fault by GPU node-3 (Agent handle: 0x5) on address 0x7f00. Reason: Unknown.\n";
    for (crash, aborts, faults) in [(abort, 1, 0), (fault, 0, 1)] {
        let report = of_text(folder.path(), format!("model loaded, 1 device\n{crash}"));
        let errors = &report["errors"];
        assert_eq!((&errors["queue_aborts"], &errors["fault_reports"]), (&json!(aborts), &json!(faults)));
        assert_eq!(errors["lines"].as_array().unwrap().len(), 1);
        assert_eq!(report["notes"], json!([]));
    }
    let internal =
        of_text(folder.path(), ":0:hip_internal.hpp         :136 : 7 us:  An internal error has occurred.\n");
    assert_eq!(
        (&internal["errors"]["lines"], &internal["notes"]),
        (&json!(["An internal error has occurred."]), &json!([]))
    );
    let report = of_text(folder.path(), ":3:hip_memory.cpp            :1: 7 us:  hipFree ( 0x1 )\n");
    assert!(report["notes"].to_string().contains("AMD_LOG_LEVEL=5 writes them"));
}

/// Text with figures of one thing: each noun agrees with its number.
#[test]
fn one_is_no_plural() {
    let folder = tempfile::tempdir().unwrap();
    let damaged = ":4:rocvirtual.cpp           :1200: 7 us: [pid:7 tid: 0x1] SWq=0x1, HW";
    let path = folder.path().join("one.log");
    fs::write(&path, format!("\0{damaged}\n:3:a.cpp:1: 8 us:  ShaderName : k\n")).unwrap();
    let text = String::from_utf8(run(&[path.to_str().unwrap()]).stdout).unwrap();
    for expected in [
        "7 (1 line)",
        "1 line is not whole: its figures are missing",
        "1 NUL was left out",
        "kernels    1 name\n",
    ] {
        assert!(text.contains(expected), "{expected} in {text}");
    }
    assert!(!text.contains(" 1 lines") && !text.contains("(1 lines"), "{text}");
}
