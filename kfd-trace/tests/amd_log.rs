//! `kfd-trace amd-log`, held against the ledgers of made-up logs (tests/amd-logs).
#![expect(clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use flate2::write::GzEncoder;
use kfd_trace_amd_logs::{Format, Ledger, OfQueue, Plan, write};
use serde_json::{Value, json};

fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_kfd-trace")).arg("amd-log").args(arguments).output().unwrap()
}

fn told(out: &Output) -> Value {
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    serde_json::from_slice(&out.stdout).unwrap()
}

fn report(path: &Path) -> Value {
    told(&run(&["--json", path.to_str().unwrap()]))
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

fn counted(list: &Value, key: &str) -> BTreeMap<String, u64> {
    let one = |of: &Value| (of[key].as_str().unwrap_or("null").to_owned(), of["count"].as_u64().unwrap());
    list.as_array().unwrap().iter().map(one).collect()
}

/// Every figure of the ledger, and no queue more.
fn equal(report: &Value, ledger: &Ledger, format: Format) {
    let lines = &report["lines"];
    let told: Vec<_> =
        ["total", "read", "other", "without_prefix", "blank", "overlong"].map(|name| &lines[name]).into();
    let wanted = [ledger.lines, ledger.read, ledger.other, ledger.without_prefix, ledger.blank, 0];
    assert_eq!(json!(told), json!(wanted));
    assert_eq!(counted(&lines["damaged"], "name").values().sum::<u64>(), ledger.damaged);
    assert_eq!(lines["by_level"], json!(ledger.by_level));
    assert_eq!(
        (&report["first_mono_us"], &report["last_mono_us"]),
        (&json!(ledger.first_us), &json!(ledger.last_us))
    );
    let of_pid = |of: &Value| (of["pid"].as_u64().unwrap(), of["lines"].as_u64().unwrap());
    let pids: BTreeMap<u64, u64> = report["processes"].as_array().unwrap().iter().map(of_pid).collect();
    assert_eq!(pids, ledger.processes.iter().map(|(pid, lines)| (u64::from(*pid), *lines)).collect());
    assert_eq!(report["gpus"]["found"], json!(ledger.agents));
    assert_eq!(counted(&report["gpus"]["gfx"], "name"), [("gfx942".to_owned(), ledger.gfx_lines)].into());
    let mut commands = BTreeMap::new();
    for of in report["commands"].as_array().unwrap() {
        let pid = u32::try_from(of["pid"].as_u64().unwrap()).unwrap();
        commands.insert((pid, of["kind"].as_str().unwrap().to_owned()), of["count"].as_u64().unwrap());
    }
    assert_eq!(commands, ledger.commands);
    assert_eq!(report["completed"]["count"], json!(ledger.completed));
    assert_eq!(report["completed"]["gpu_us"], json!(ledger.gpu_us));
    assert_eq!(counted(&report["kernels"], "name"), ledger.kernels);
    let copies: BTreeMap<u64, [u64; 2]> = report["copies"]
        .as_array()
        .unwrap()
        .iter()
        .map(|of| {
            let engine = u64::from_str_radix(&of["engine"].as_str().unwrap()[2..], 16).unwrap();
            (engine, [of["count"].as_u64().unwrap(), of["bytes"].as_u64().unwrap()])
        })
        .collect();
    assert_eq!(copies, ledger.copies);
    let errors = &report["errors"];
    assert_eq!(counted(&errors["returned"], "name"), ledger.returned);
    assert_eq!(errors["returned_success"], json!(ledger.returned_success));
    assert_eq!(
        (&errors["queue_aborts"], &report["queue_full"]),
        (&json!(ledger.aborts), &json!(ledger.queue_full))
    );
    assert_eq!(report["barrier_values_without_queue"], json!(ledger.without_queue));
    rate(&report["rate"], ledger);
    queues(report, ledger, format);
}

fn rate(rate: &Value, ledger: &Ledger) {
    let length = rate["interval_us"].as_u64().unwrap() / 1_000_000;
    let mut wanted: BTreeMap<u64, [u64; 2]> = BTreeMap::new();
    for (second, both) in &ledger.by_second {
        let sum = wanted.entry(second / length * length * 1_000_000).or_default();
        *sum = [sum[0] + both[0], sum[1] + both[1]];
    }
    let one = |of: &Value| {
        let both = [of["commands"].as_u64().unwrap(), of["dispatches"].as_u64().unwrap()];
        (of["from_mono_us"].as_u64().unwrap(), both)
    };
    let told: BTreeMap<u64, [u64; 2]> = rate["intervals"].as_array().unwrap().iter().map(one).collect();
    let told: BTreeMap<_, _> = told.into_iter().filter(|(_, both)| *both != [0, 0]).collect();
    assert_eq!(told, wanted);
}

fn queues(report: &Value, ledger: &Ledger, format: Format) {
    let rows: Vec<&Value> = report["queues"].as_array().unwrap().iter().collect();
    // The queue of the abort is named by no other line.
    let aborted = usize::from(ledger.aborts > 0);
    let apart = if format.tells_software_queue() { 1 } else { 2 };
    assert_eq!(rows.len(), ledger.queues.len() * apart + aborted);
    for queue in &ledger.queues {
        let by = |name: &str, value: u64| {
            let found: Vec<_> = rows.iter().filter(|row| row[name] == hex(value)).collect();
            assert_eq!(found.len(), 1, "{name} {value:#x}");
            *found[0]
        };
        let (packets, life) = (by("hwq", queue.hwq), by("swq", queue.swq));
        assert_eq!((&packets["pid"], &life["pid"]), (&json!(queue.pid), &json!(queue.pid)));
        assert_eq!(packets == life, format.tells_software_queue());
        one_queue(packets, life, queue, format);
    }
}

fn one_queue(packets: &Value, life: &Value, queue: &OfQueue, format: Format) {
    for (name, wanted) in [
        ("dispatches", queue.dispatches),
        ("barriers_and", queue.barriers_and),
        ("barriers_or", 0),
        ("barrier_values", queue.barrier_values),
    ] {
        assert_eq!(packets[name], json!(wanted), "{name}");
    }
    for (name, wanted) in [
        ("created", queue.created),
        ("acquired", queue.acquired),
        ("selected", queue.selected),
        ("released", queue.released),
        ("deleted", queue.deleted),
        ("priority", 1),
        ("size_packets", 16384),
    ] {
        assert_eq!(life[name], json!(wanted), "{name}");
    }
    let mut shapes = BTreeMap::new();
    for of in packets["shapes"].as_array().unwrap() {
        let size = |name: &str| -> [u64; 3] { serde_json::from_value(of[name].clone()).unwrap() };
        let header = u16::try_from(of["header"]["raw"].as_u64().unwrap()).unwrap();
        shapes.insert((header, size("grid"), size("workgroup")), of["count"].as_u64().unwrap());
    }
    assert_eq!(shapes, queue.shapes);
    if format.tells_software_queue() {
        assert_eq!(packets["id"], json!(queue.id));
        let backlog = &packets["backlog"];
        assert_eq!(
            (&backlog["packets"], &backlog["most"]),
            (&json!(queue.with_pointers), &json!(queue.most))
        );
        #[expect(clippy::cast_precision_loss, reason = "a mean")]
        let mean = queue.sum as f64 / queue.with_pointers as f64;
        assert!((backlog["mean"].as_f64().unwrap() - mean).abs() < 1e-9);
        assert_eq!(backlog["first_write_index"], json!(queue.first_write));
        assert_eq!(backlog["last_write_index"], json!(queue.last_write));
    }
    let host = if format.is_7() { json!([hex(queue.host_queue)]) } else { json!([]) };
    assert_eq!(packets["host_queues"], host);
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
            let of_pipe = told(&child.wait_with_output().unwrap());
            assert_eq!(of_pipe["queues"], of_file["queues"]);
            assert_eq!(of_pipe["inputs"][0]["bytes"], json!(text.len()));
        });
    }
    let cut = folder.path().join("cut.gz");
    fs::write(&cut, &gzip[..gzip.len() / 2]).unwrap();
    let report = report(&cut);
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
        panic!("{bytes} bytes were not read");
    };
    is_read(half);
    File::options().append(true).open(&grows).unwrap().write_all(&text[half..]).unwrap();
    is_read(text.len());
    // As clr does at AMD_LOG_LEVEL_SIZE: to 0, and on.
    let again: &[u8] = b"one more line\n";
    fs::write(&grows, again).unwrap();
    is_read(again.len());
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(child.id().cast_signed()), nix::sys::signal::SIGINT)
        .unwrap();
    let report = told(&child.wait_with_output().unwrap());
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
        let report = told(&run(&["--json", "--stream", stream.to_str().unwrap(), path.to_str().unwrap()]));
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
fn what_cannot_be_read_is_said_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let empty = folder.path().join("empty.gz");
    fs::write(&empty, [0x1f, 0x8b, 8, 0]).unwrap();
    let other = folder.path().join("other");
    fs::write(&other, "no log\n").unwrap();
    let (empty, other, here) =
        (empty.to_str().unwrap(), other.to_str().unwrap(), folder.path().to_str().unwrap());
    for (arguments, code, said) in [
        (vec!["/no/such/log"], 1, "cannot read /no/such/log"),
        (vec![here], 1, "is a folder"),
        (vec!["--follow", "-"], 2, "leave --follow out"),
        (vec!["--follow", empty], 2, "is compressed (gzip)"),
        (vec!["--stream", other, other], 1, "it is no stream"),
        (vec![], 2, "FILE"),
    ] {
        let out = run(&arguments);
        let line = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(out.status.code(), Some(code), "{line}");
        assert!(line.contains(said), "{line}");
    }
    let report = report(Path::new(other));
    assert_eq!(report["lines"]["without_prefix"], json!(1));
    assert!(report["notes"].to_string().contains("nothing of it is of queues"));
}
