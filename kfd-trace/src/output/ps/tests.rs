use super::*;
use crate::attribute::Belongs;
use crate::model::event::Origin;
use crate::output::samples::{clock, topology, traced};
use crate::state::Source;
use serde_json::{Value, json};

const NOW: u64 = 303_000_020_000;

fn rows() -> Vec<PsRow> {
    let sysfs = PsRow {
        pid: Some(99),
        comm: Some("p\x1b".into()),
        queue: Some(QueueCreate { queue_id: Some(0), gpu_id: Some(7), ..untold() }),
        sources: Source::Sysfs.into(),
        ..PsRow::default()
    };
    merge(vec![PsRow::from_snapshot(&traced().snapshot(), NOW), vec![sysfs]])
}

fn untold() -> QueueCreate {
    QueueCreate::untold(Origin::Standing)
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
    let header = "PID,INSIDE,COMM,GPU,QUEUE,TYPE,RING,SIZE,WPTR,RPTR,STATE,PRIO,AGE,SOURCE";
    assert_eq!(lines[0], header.split(',').collect::<Vec<_>>());
    assert_eq!(lines[1].join("|"), "99|-|p\\u{1b}|gpu_id=7|0|-|-|-|-|-|-|-|-|sysfs only");
    let probe = "4321|7|train|gpu 0 (0000:c1:00.0, gfx942)|3|compute_aql|0x7fad66c00000|1.0M|0x7faf945b8038|0x7faf945b8080|active|7|5m 3s|probe only";
    assert_eq!(lines[2].join("|"), probe);
    assert_eq!(lines[3], Vec::<&str>::new());
    assert_eq!(lines[4].join("|"), "gpu 0 (0000:c1:00.0, gfx942): 1 of 24 compute slots, 0 of 16 SDMA slots");
    assert_eq!(lines.len(), 5);
    assert!(text.lines().all(|line| line.len() <= 160), "{text}");
    let column = |name: &str, line: usize| text.lines().nth(line).and_then(|line| line.find(name));
    assert_eq!(column("SOURCE", 0), column("sysfs", 1), "columns stand under their names");
}

#[test]
fn the_state_is_a_word_and_contexts_have_a_column_when_there_are_any() {
    let states = [
        (Some(true), Some(false), Some(100), "evicted"),
        (Some(false), Some(true), Some(50), "active 50%"),
        (Some(false), Some(false), Some(0), "inactive 0%"),
        (None, Some(true), None, "active"),
        (None, None, Some(100), "-"),
    ];
    for (evicted, active, percent, shown) in states {
        assert_eq!(state(&QueueCreate { evicted, active, percent, ..untold() }), shown);
    }
    let second = PsRow { pid: Some(99), context_id: Some(5), ..PsRow::default() };
    let (header, cells) = table(&[rows(), vec![second]].concat(), asked(), &topology());
    assert_eq!(header[2], "CONTEXT");
    assert_eq!([cells[0][2].as_str(), cells[2][2].as_str()], ["-", "5"]);
    assert_eq!(cells[2][11], "-", "a process without queues has no state");
}

#[test]
fn the_owner_has_a_column_where_one_is_told() {
    let owned = |unit: Option<&str>| {
        let belongs = Belongs { unit: unit.map(str::to_owned), ..Belongs::default() };
        let details = ProcessDetails { belongs, ..ProcessDetails::default() };
        PsRow { pid: Some(5), details, ..PsRow::default() }
    };
    let (header, _) = table(&[owned(None)], asked(), &topology());
    assert!(!header.contains(&"OWNER"), "{header:?}");
    let (header, cells) = table(&[owned(None), owned(Some("train.service"))], asked(), &topology());
    assert_eq!(header[..4], ["PID", "INSIDE", "COMM", "OWNER"]);
    assert_eq!([&*cells[0][3], &*cells[1][3]], ["-", "train.service"]);
}

#[test]
fn json_has_its_fields_in_one_order() {
    let process = PsRow { pid: Some(5), sources: Source::Sysfs.into(), ..PsRow::default() };
    let mut rows = PsRow::from_snapshot(&traced().snapshot(), NOW);
    rows.push(process);
    let mut out = Vec::new();
    json(&mut out, &rows, asked(), &topology(), None).expect("memory");
    let text = String::from_utf8(out).expect("UTF-8");
    assert_eq!(
        text.split(r#","gpus":"#).next(),
        Some(concat!(
            r#"{"schema":1,"ts":null,"asked":["probe","sysfs"],"queues":[{"pid":4321,"ns_pid":7,"uid":1000,"#,
            r#""comm":"train","cmdline":"python train.py","cgroup":"/slurm/job.scope","#,
            r#""container_id":null,"runtime":null,"pod_uid":null,"namespace":null,"pod":null,"container":null,"#,
            r#""slurm_job":null,"slurm_step":null,"slurm_uid":null,"unit":null,"#,
            r#""kfd_process":"1","context_id":null,"gpu":"gpu 0 (0000:c1:00.0, gfx942)","node":1,"pci":"0000:c1:00.0","#,
            r#""gpu_id":58270,"queue_id":3,"queue_type":"compute_aql","ring_address":"0x7fad66c00000","#,
            r#""ring_size":1048576,"write_pointer_address":"0x7faf945b8038","#,
            r#""read_pointer_address":"0x7faf945b8080","doorbell_offset":16,"priority":7,"percent":100,"#,
            r#""sdma_engine_id":null,"active":true,"evicted":false,"age_ns":303000000000,"activity":null,"sources":["probe"]}],"#,
            r#""processes":[{"pid":5,"ns_pid":null,"uid":null,"comm":null,"cmdline":null,"cgroup":null,"#,
            r#""container_id":null,"runtime":null,"pod_uid":null,"namespace":null,"pod":null,"container":null,"#,
            r#""slurm_job":null,"slurm_step":null,"slurm_uid":null,"unit":null,"#,
            r#""kfd_process":null,"context_id":null,"gpu":null,"node":null,"pci":null,"gpu_id":null,"#,
            r#""queue_id":null,"queue_type":null,"ring_address":null,"ring_size":null,"#,
            r#""write_pointer_address":null,"read_pointer_address":null,"doorbell_offset":null,"priority":null,"#,
            r#""percent":null,"sdma_engine_id":null,"active":null,"evicted":null,"age_ns":null,"activity":null,"#,
            r#""sources":["sysfs"]}]"#
        ))
    );
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
            "cgroup": "/slurm/job.scope", "container_id": null, "runtime": null, "pod_uid": null,
            "namespace": null, "pod": null, "container": null, "slurm_job": null, "slurm_step": null,
            "slurm_uid": null, "unit": null, "kfd_process": "1", "context_id": null,
            "gpu": "gpu 0 (0000:c1:00.0, gfx942)", "node": 1, "pci": "0000:c1:00.0", "gpu_id": 58270,
            "queue_id": 3, "queue_type": "compute_aql", "ring_address": "0x7fad66c00000", "ring_size": 1048576,
            "write_pointer_address": "0x7faf945b8038", "read_pointer_address": "0x7faf945b8080",
            "doorbell_offset": 16, "priority": 7, "percent": 100, "sdma_engine_id": null,
            "active": true, "evicted": false, "age_ns": 303_000_000_000_u64, "activity": null, "sources": ["probe"],
        })
    );
    assert_eq!(value["queues"][0]["ring_address"], Value::Null);
    assert_eq!(
        value["gpus"],
        json!([{
            "gpu": "gpu 0 (0000:c1:00.0, gfx942)", "index": 0, "gpu_id": 58270, "node": 1, "pci": "0000:c1:00.0",
            "partition": null, "slots": {"cp": 24, "sdma": 16, "sdma_xgmi": 0},
            "queues": {"cp": 1, "sdma": 0, "sdma_xgmi": 0},
        }])
    );
}
