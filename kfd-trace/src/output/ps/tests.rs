use super::*;
use crate::output::samples::{clock, topology, traced};
use crate::state::Source;
use serde_json::{Value, json};

const NOW: u64 = 303_000_020_000;

fn rows() -> Vec<PsRow> {
    let sysfs = PsRow {
        pid: Some(99),
        comm: Some("py\x1bthon".into()),
        queue_id: Some(0),
        gpu_id: Some(7),
        sources: Source::Sysfs.into(),
        ..PsRow::default()
    };
    merge(vec![PsRow::from_snapshot(&traced().snapshot(), NOW), vec![sysfs]])
}

fn asked() -> Sources {
    Sources::from(Source::Probe).with(Source::Sysfs)
}

#[test]
fn the_table_as_a_whole() {
    let mut out = Vec::new();
    text(&mut out, &rows(), asked(), &topology()).expect("memory");
    let text = String::from_utf8(out).expect("UTF-8");
    let lines: Vec<Vec<&str>> = text
        .lines()
        .map(|line| line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect())
        .collect();
    let header = "PID,PID INSIDE,COMM,NODE,PCI,GPU_ID,QUEUE,TYPE,RING,SIZE,WPTR,RPTR,AGE,SOURCE";
    assert_eq!(lines[0], header.split(',').collect::<Vec<_>>());
    assert_eq!(lines[1].join("|"), "99|-|py\\u{1b}thon|-|-|7|0|-|-|-|-|-|-|sysfs only");
    let probe = "4321|7|train|1|0000:c1:00.0|58270|3|compute_aql|0x7fad66c00000|1.0M|0x7faf945b8038|0x7faf945b8080|5m 3s|probe only";
    assert_eq!(lines[2].join("|"), probe);
    assert_eq!(lines.len(), 3);
    let column = |name: &str, line: usize| text.lines().nth(line).and_then(|line| line.find(name));
    assert_eq!(column("SOURCE", 0), column("sysfs", 1), "columns stand under their names");
}

#[test]
fn json_holds_queues_apart_from_processes_without_any() {
    let mut rows = rows();
    rows.push(PsRow { pid: Some(5), sources: Source::Sysfs.into(), ..PsRow::default() });
    let mut out = Vec::new();
    json(&mut out, &rows, asked(), &topology(), clock().rfc3339(1)).expect("memory");
    let value: Value = serde_json::from_slice(&out).expect("JSON");
    assert_eq!(value["asked"], json!(["probe", "sysfs"]));
    assert_eq!(value["processes"].as_array().map(Vec::len), Some(1));
    assert_eq!(
        value["queues"][1],
        json!({
            "pid": 4321, "ns_pid": 7, "uid": 1000, "comm": "train", "cmdline": "python train.py",
            "cgroup": "/slurm/job.scope", "kfd_process": "1", "node": 1, "pci": "0000:c1:00.0", "gpu_id": 58270,
            "queue_id": 3, "queue_type": "compute_aql", "ring_address": "0x7fad66c00000", "ring_size": 1048576,
            "write_pointer_address": "0x7faf945b8038", "read_pointer_address": "0x7faf945b8080",
            "age_ns": 303_000_000_000_u64, "sources": ["probe"],
        })
    );
    assert_eq!(value["queues"][0]["ring_address"], Value::Null);
}
