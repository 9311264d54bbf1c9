//! `kfd-trace amd-log`, checked against the ledgers of synthetic logs (tests/amd-logs).
#![expect(clippy::unwrap_used, reason = "a test")]

use flate2::write::GzEncoder;
use kfd_trace_amd_logs::{Format, Ledger, Plan, write};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

mod formats;
mod ledger;
mod wrapped;
use ledger::equal;

fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_kfd-trace")).arg("amd-log").args(arguments).output().unwrap()
}

fn reported(out: &Output) -> Value {
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    serde_json::from_slice(&out.stdout).unwrap()
}

fn report(path: &Path) -> Value {
    reported(&run(&["--json", path.to_str().unwrap()]))
}

fn made(folder: &Path, format: Format, plan: &Plan) -> (std::path::PathBuf, Ledger) {
    let path = folder.join(format!("{format:?}.log"));
    let ledger = write(File::create(&path).unwrap(), format, plan).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().len(), ledger.bytes);
    (path, ledger)
}

fn hex(value: u64) -> Value {
    json!(format!("{value:#x}"))
}

#[test]
fn reports_of_each_format_equal_the_ledger() {
    let folder = tempfile::tempdir().unwrap();
    for format in Format::ALL {
        let (path, ledger) = made(folder.path(), format, &Plan::MIXED);
        equal(&report(&path), &ledger, format);
    }
}

#[test]
fn pointers_of_32_bits_wrap() {
    let folder = tempfile::tempdir().unwrap();
    let plan = Plan { before: u64::from(u32::MAX) - 100, ..Plan::MIXED };
    for format in [Format::Rocm62, Format::Rocm72, Format::Rocm2026] {
        let (path, ledger) = made(folder.path(), format, &plan);
        equal(&report(&path), &ledger, format);
    }
}

#[test]
fn the_reports_own_questions_are_answered() {
    let folder = tempfile::tempdir().unwrap();
    let plan = Plan { filler: 2, ..Plan::REPORTED };
    let (path, ledger) = made(folder.path(), Format::Rocm72, &plan);
    assert_eq!(ledger.with_hwq, 127_644 + 1, "and the line of the birth");
    let report = report(&path);
    equal(&report, &ledger, Format::Rocm72);
    let text = String::from_utf8(run(&[path.to_str().unwrap()]).stdout).unwrap();
    for figure in
        ["127644", "0x7fad66c00000", "0x7faf945b8000", "0xbe00d60", "157801", "20480 x 1 x 1 / 256 x 1 x 1"]
    {
        assert!(text.contains(figure), "{figure} in {text}");
    }
    let queues = report["queues"].as_array().unwrap();
    assert_eq!((queues.len(), &queues[0]["id"]), (1, &json!(1)));
    let header = json!({"raw": 0xb02, "type": "kernel_dispatch", "barrier": true, "acquire": "agent", "release": "agent"});
    assert_eq!(queues[0]["shapes"][0]["header"], header);
}

#[test]
fn compressed_logs_and_pipes_tell_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let (path, ledger) = made(folder.path(), Format::Rocm72, &Plan { kernels: 500, ..Plan::MIXED });
    let text = fs::read(&path).unwrap();
    let mut gzip = GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&text).unwrap();
    let gzip = gzip.finish().unwrap();
    let zstd =
        ruzstd::encoding::compress_to_vec(text.as_slice(), ruzstd::encoding::CompressionLevel::Fastest);
    for (bytes, name) in [(&gzip, json!("gzip")), (&zstd, json!("zstd")), (&text, json!(null))] {
        let packed = folder.path().join("packed");
        fs::write(&packed, bytes).unwrap();
        let of_file = report(&packed);
        equal(&of_file, &ledger, Format::Rocm72);
        assert_eq!(of_file["inputs"][0]["compression"], name);
        let mut child = Command::new(env!("CARGO_BIN_EXE_kfd-trace"));
        let child = child.args(["amd-log", "--json", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = child.spawn().unwrap();
        let mut pipe = child.stdin.take().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(move || pipe.write_all(bytes).unwrap());
            let of_pipe = reported(&child.wait_with_output().unwrap());
            assert_eq!(of_pipe["queues"], of_file["queues"]);
            assert_eq!(of_pipe["inputs"][0]["bytes"], json!(text.len()));
        });
    }
    let cut = folder.path().join("cut.gz");
    fs::write(&cut, &gzip[..gzip.len() / 2]).unwrap();
    let output = run(&["--json", cut.to_str().unwrap()]);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), stderr.lines().count()), (Some(1), 1), "{stderr}");
    assert!(
        stderr.contains("cut.gz: the end of the compressed data is missing; the report is of what"),
        "{stderr}"
    );
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(report["lines"]["total"].as_u64().unwrap() > ledger.lines / 4);
    assert!(report["notes"].to_string().contains("the end of the compressed data is missing"));
}

#[test]
fn a_log_that_is_cut_in_its_middle_loses_what_is_cut_alone() {
    let folder = tempfile::tempdir().unwrap();
    let (path, ledger) = made(folder.path(), Format::Rocm72, &Plan { kernels: 500, ..Plan::MIXED });
    let text = fs::read(&path).unwrap();
    let (first, last) = text.split_at(text.len() / 2);
    let hole = folder.path().join("hole");
    fs::write(&hole, [&first[..first.len() - 1000], &[0; 100_000], &last[1000..]].concat()).unwrap();
    let report = report(&hole);
    let total = report["lines"]["total"].as_u64().unwrap();
    assert!(total < ledger.lines && total > ledger.lines - 40, "{total} of {}", ledger.lines);
    let bytes = fs::read(&hole).unwrap();
    let newlines = bytes.iter().filter(|byte| **byte == b'\n').count() as u64;
    assert_eq!(total, newlines);
    let part = folder.path().join("part");
    fs::write(&part, &text[..text.len() - 10]).unwrap();
    assert_eq!(self::report(&part)["inputs"][0]["cut"], json!(true));
}

#[test]
fn a_log_that_grows_and_begins_anew_is_followed() {
    let folder = tempfile::tempdir().unwrap();
    let (path, ledger) = made(folder.path(), Format::Rocm72, &Plan { kernels: 500, ..Plan::MIXED });
    let text = fs::read(&path).unwrap();
    let grows = folder.path().join("grows");
    let half = text.len() / 2;
    fs::write(&grows, &text[..half]).unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_kfd-trace"));
    let child =
        child.args(["amd-log", "--json", "--follow"]).arg(&grows).stdout(Stdio::piped()).spawn().unwrap();
    let pid = nix::unistd::Pid::from_raw(child.id().cast_signed());
    let is_read = |bytes: usize| {
        let place = format!("/proc/{}/fdinfo", child.id());
        let wanted = format!("pos:\t{bytes}\n");
        for _ in 0..300 {
            let infos = fs::read_dir(&place).into_iter().flatten().flatten();
            if infos
                .into_iter()
                .any(|info| fs::read_to_string(info.path()).is_ok_and(|text| text.contains(&wanted)))
            {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        nix::sys::signal::kill(pid, nix::sys::signal::SIGKILL).unwrap();
        panic!("{bytes} bytes were not read");
    };
    is_read(half);
    File::options().append(true).open(&grows).unwrap().write_all(&text[half..]).unwrap();
    is_read(text.len());
    // As clr does at AMD_LOG_LEVEL_SIZE: truncates to 0, and continues.
    let again: &[u8] = b"one more line\n";
    fs::write(&grows, again).unwrap();
    is_read(again.len());
    nix::sys::signal::kill(pid, nix::sys::signal::SIGINT).unwrap();
    let report = reported(&child.wait_with_output().unwrap());
    let whole = Ledger { lines: ledger.lines + 1, without_prefix: ledger.without_prefix + 1, ..ledger };
    equal(&report, &whole, Format::Rocm72);
    assert_eq!(report["inputs"][0]["restarts"], json!(1));
}

#[test]
fn queues_are_joined_with_a_recorded_stream() {
    let folder = tempfile::tempdir().unwrap();
    let stream = folder.path().join("stream");
    let mut lines = String::new();
    for (number, format) in [Format::Rocm72, Format::Rocm57].into_iter().enumerate() {
        let (path, ledger) = made(folder.path(), format, &Plan { kernels: 200, ..Plan::MIXED });
        let own = json!({"event": "queue_create", "mono_ns": 1, "pid": 9000, "kfd_process": "7", "queue_id": 0,
            "queue_type": "compute_aql", "ring_address": "0x10", "write_pointer_address": "0x20", "origin": "ioctl"});
        lines.clear();
        lines.push_str(&format!("{own}\n"));
        // All but the last queue, which the stream has at another time.
        for (index, queue) in ledger.queues.iter().enumerate() {
            let late = index + 1 == ledger.queues.len();
            let at = if late { u64::MAX / 2 } else { 7_000_000_000_000 };
            let event = json!({"event": "queue_create", "mono_ns": at, "pid": 9000, "comm": "python3", "kfd_process": "7",
                "queue_id": index + 1, "gpu_id": 5, "queue_type": "compute_aql", "ring_address": hex(queue.hwq),
                "write_pointer_address": hex(queue.swq + 0x38), "origin": "ioctl"});
            lines.push_str(&format!("{event}\n"));
        }
        fs::write(&stream, &lines).unwrap();
        let report =
            reported(&run(&["--json", "--stream", stream.to_str().unwrap(), path.to_str().unwrap()]));
        equal(&report, &ledger, format);
        let rows = report["queues"].as_array().unwrap();
        for (index, queue) in ledger.queues.iter().enumerate() {
            for row in rows.iter().filter(|row| row["hwq"] == hex(queue.hwq) || row["swq"] == hex(queue.swq))
            {
                if index + 1 == ledger.queues.len() {
                    assert_eq!((&row["join"], &row["kfd"]), (&json!("other_time"), &json!(null)));
                } else {
                    assert_eq!(row["join"], json!("joined"));
                    assert_eq!(
                        (&row["kfd"]["pid"], &row["kfd"]["queue_id"]),
                        (&json!(9000), &json!(index + 1))
                    );
                }
            }
        }
        let aborted = rows.iter().find(|row| row["address"] == hex(0x7f00_00de_ad00));
        assert!(aborted.is_none_or(|row| row["join"] == json!("not_found")));
        assert_eq!(
            report["join"]["not_in_log"],
            json!([{"pid": 9000, "queues": 2}]),
            "{number}: ROCr's own, and the late one"
        );
        assert!(report["notes"].to_string().contains("lived at another time"));
    }
}

#[test]
fn what_cannot_be_read_is_reported_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let empty = folder.path().join("empty.gz");
    fs::write(&empty, [0x1f, 0x8b, 8, 0]).unwrap();
    let other = folder.path().join("other");
    fs::write(&other, "no log\n").unwrap();
    let (empty, other, here) =
        (empty.to_str().unwrap(), other.to_str().unwrap(), folder.path().to_str().unwrap());
    for (arguments, code, expected) in [
        (vec!["/no/such/log"], 1, "cannot read /no/such/log"),
        (vec![here], 1, "is a folder"),
        (vec!["--follow", "-"], 2, "omit --follow"),
        (vec!["--follow", empty], 2, "is compressed (gzip)"),
        (vec!["--stream", other, other], 1, "it is no event stream"),
        (vec![], 2, "FILE"),
    ] {
        let out = run(&arguments);
        let line = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(out.status.code(), Some(code), "{line}");
        assert!(line.contains(expected), "{line}");
    }
    let report = report(Path::new(other));
    assert_eq!(report["lines"]["without_prefix"], json!(1));
    assert!(report["notes"].to_string().contains("no line of it is of clr"));
}

/// Names of all members, at any depth.
fn members(value: &Value, names: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) => map.iter().for_each(|(name, value)| {
            names.insert(name.clone());
            members(value, names);
        }),
        Value::Array(all) => all.iter().for_each(|value| members(value, names)),
        _ => {}
    }
}

#[test]
fn every_field_is_documented() {
    let folder = tempfile::tempdir().unwrap();
    let (path, ledger) = made(folder.path(), Format::Rocm72, &Plan { kernels: 200, ..Plan::MIXED });
    let stream = folder.path().join("stream");
    let queue = &ledger.queues[0];
    let event =
        json!({"queues": [{"pid": 1, "ring_address": hex(queue.hwq)}, {"pid": 1, "ring_address": "0x1"}]});
    // It was deleted in the log: another queue is now at its address.
    let event = event.to_string().replace("\"queues\"", "\"event\":\"other\",\"queues\"");
    let seen = json!({"event": "queue_create", "pid": 1, "origin": "ioctl", "mono_ns": 1,
        "ring_address": hex(ledger.queues[1].hwq)});
    fs::write(&stream, format!("{event}\n{seen}\n")).unwrap();
    let report = reported(&run(&["--json", "--stream", stream.to_str().unwrap(), path.to_str().unwrap()]));
    let verdicts: Vec<_> =
        report["queues"].as_array().unwrap().iter().map(|row| row["join"].clone()).collect();
    assert!(verdicts.contains(&json!("other_time")) && verdicts.contains(&json!("joined")), "{verdicts:?}");
    let mut names = BTreeSet::new();
    members(&report, &mut names);
    let page = include_str!("../../../docs/amd-log.md");
    let lacking: Vec<_> = names.iter().filter(|name| !page.contains(&format!("`{name}`"))).collect();
    assert!(names.len() > 80 && lacking.is_empty(), "docs/amd-log.md lacks {lacking:?}");
}

#[test]
fn where_there_is_no_driver_a_join_with_live_queues_says_so_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    fs::write(&log, "no log\n").unwrap();
    let sysfs = folder.path().to_str().unwrap();
    let out = run(&["--live", "--path.sysfs", sysfs, log.to_str().unwrap()]);
    let line = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!((out.status.code(), out.stdout.is_empty()), (Some(3), true), "{line}");
}
