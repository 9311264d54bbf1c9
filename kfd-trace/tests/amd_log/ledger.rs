//! Compares a report with a ledger.

use super::hex;
use kfd_trace_amd_logs::{Format, Ledger, OfQueue};
use serde_json::{Value, json};
use std::collections::BTreeMap;

fn counted(list: &Value, key: &str) -> BTreeMap<String, u64> {
    let one = |of: &Value| (of[key].as_str().unwrap_or("null").to_owned(), of["count"].as_u64().unwrap());
    list.as_array().unwrap().iter().map(one).collect()
}

/// Every figure of the ledger, and no additional queue.
pub(super) fn equal(report: &Value, ledger: &Ledger, format: Format) {
    let lines = &report["lines"];
    let reported: Vec<_> =
        ["total", "read", "other", "without_prefix", "crash", "blank", "overlong", "partial", "appended"]
            .map(|name| &lines[name])
            .into();
    let wanted =
        [ledger.lines, ledger.read, ledger.other, ledger.without_prefix, ledger.crash, ledger.blank, 0, 0, 0];
    assert_eq!(json!(reported), json!(wanted));
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
        .filter(|of| !of["engine"].is_null())
        .map(|of| {
            let engine = u64::from_str_radix(&of["engine"].as_str().unwrap()[2..], 16).unwrap();
            (engine, [of["count"].as_u64().unwrap(), of["bytes"].as_u64().unwrap()])
        })
        .collect();
    assert_eq!(copies, ledger.copies);
    let without = report["copies"].as_array().unwrap().iter().map(|of| of["without_size"].as_u64().unwrap());
    assert_eq!(without.sum::<u64>(), ledger.without_size);
    let [count, gpu_ns] = ledger.signals;
    assert_eq!(report["signals"], json!({"count": count, "gpu_ns": gpu_ns}));
    let errors = &report["errors"];
    assert_eq!(counted(&errors["returned"], "name"), ledger.returned);
    assert_eq!(errors["returned_success"], json!(ledger.returned_success));
    assert_eq!(
        (&errors["queue_aborts"], &report["queue_full"]),
        (&json!(ledger.aborts), &json!(ledger.queue_full))
    );
    assert_eq!(errors["fault_reports"], json!(ledger.fault_reports));
    let lists =
        ["aborts", "faults", "hang_analysis"].map(|name| errors[name].as_array().unwrap().len() as u64);
    assert_eq!(lists, [ledger.aborts, ledger.fault_reports, ledger.analyzed]);
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
    let reported: BTreeMap<u64, [u64; 2]> = rate["intervals"].as_array().unwrap().iter().map(one).collect();
    let reported: BTreeMap<_, _> = reported.into_iter().filter(|(_, both)| *both != [0, 0]).collect();
    assert_eq!(reported, wanted);
}

fn queues(report: &Value, ledger: &Ledger, format: Format) {
    let rows: Vec<&Value> = report["queues"].as_array().unwrap().iter().collect();
    // No other line names the queue of the abort.
    let aborted = usize::from(ledger.aborts > 0);
    let apart = if format.has_software_queue() { 1 } else { 2 };
    assert_eq!(rows.len(), ledger.queues.len() * apart + aborted);
    for queue in &ledger.queues {
        let by = |name: &str, value: u64| {
            let found: Vec<_> = rows.iter().filter(|row| row[name] == hex(value)).collect();
            assert_eq!(found.len(), 1, "{name} {value:#x}");
            *found[0]
        };
        let (packets, life) = (by("hwq", queue.hwq), by("swq", queue.swq));
        assert_eq!((&packets["pid"], &life["pid"]), (&json!(queue.pid), &json!(queue.pid)));
        assert_eq!(packets == life, format.has_software_queue());
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
        ("aborted", queue.aborted),
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
    if format.has_software_queue() {
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
