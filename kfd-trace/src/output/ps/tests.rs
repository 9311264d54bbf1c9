use super::*;
use crate::attribute::Belongs;
use crate::model::event::Origin;
use crate::model::incident::CuMask;
use crate::output::samples::{clock, topology, traced};
use crate::state::Source;
use serde_json::{Value, json};

const NOW: u64 = 303_000_020_000;

fn rows() -> Vec<PsRow> {
    let sysfs = PsRow {
        pid: Some(99),
        comm: Some("p\x1b".into()),
        queue: Some(QueueFacts { queue_id: Some(0), gpu_id: Some(7), ..unknown() }),
        sources: Source::Sysfs.into(),
        ..PsRow::default()
    };
    merge(
        vec![PsRow::from_snapshot(&traced().snapshot(), NOW, 900_000_000_000), vec![sysfs]],
        &Topology::default(),
    )
}

fn unknown() -> QueueFacts {
    QueueFacts::unknown(Origin::Standing)
}

fn asked() -> Sources {
    Sources::from(Source::Probe).with(Source::Sysfs)
}

fn view(topology: &Topology) -> PsView<'_> {
    PsView { asked: asked(), all_queues: true, topology, columns: Columns::All }
}

fn tabled(rows: &[PsRow], columns: Columns) -> (Vec<&'static str>, Vec<Vec<String>>) {
    let topology = topology();
    table(rows, &PsView { asked: asked(), all_queues: true, topology: &topology, columns })
}

fn lines(rows: &[PsRow], asked: Sources, columns: Columns) -> Vec<String> {
    let topology = topology();
    let mut out = Vec::new();
    text(&mut out, rows, &PsView { asked, all_queues: true, topology: &topology, columns }).expect("memory");
    String::from_utf8(out).expect("UTF-8").lines().map(str::to_owned).collect()
}

#[test]
fn the_wide_table_as_a_whole() {
    let text = lines(&rows(), asked(), Columns::All);
    let cells: Vec<Vec<&str>> = text
        .iter()
        .map(|line| line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect())
        .collect();
    let header = "PID,NSPID,COMM,GPU,QUEUE,TYPE,RING,SIZE,WPTR,RPTR,STATE,VRAM,PRIO,AGE,SOURCE";
    assert_eq!(cells[0], header.split(',').collect::<Vec<_>>());
    assert_eq!(cells[1].join("|"), "99|-|p\\u{1b}|gpu_id=7|0|-|-|-|-|-|-|-|-|-|sysfs only");
    let probe = "4321|7|train|gpu 0 (0000:c1:00.0, gfx942)|3|compute_aql|0x7fad66c00000|1.0M|0x7faf945b8038|0x7faf945b8080|active|-|7 (normal)|5m 3s|probe only";
    assert_eq!(cells[2].join("|"), probe);
    assert_eq!(cells[3], Vec::<&str>::new());
    assert_eq!(cells[4].join("|"), "gpu 0 (0000:c1:00.0, gfx942): 1 of 24 compute slots, 0 of 16 SDMA slots");
    assert_eq!(cells.len(), 5);
    assert_eq!(text[0].find("SOURCE"), text[1].find("sysfs"), "columns are under their names");
}

#[test]
fn the_wide_table_shows_who_changed_a_priority_and_has_masks_where_there_are_any() {
    let mut rows = rows();
    assert!(!tabled(&rows, Columns::All).0.contains(&"CUS"), "no queue has a mask");
    rows[1].controls = Controls {
        priority_created: Some(11),
        priority_changed_by: Some(4321),
        priority_changed_ns: Some(5_000_000_000),
        cu_mask: Some(CuMask { words: vec![0x00ff_ffff] }),
    };
    let (header, cells) = tabled(&rows, Columns::All);
    let shown = |name: &str| {
        let column = header.iter().position(|column| *column == name).expect(name);
        cells.iter().map(|row| row[column].as_str()).collect::<Vec<_>>()
    };
    assert_eq!(shown("PRIO"), ["-", "7 (normal), created 11 (high), set by 4321 5s ago"]);
    assert_eq!(shown("CUS"), ["-", "24 of 228 CUs (per SE of XCC 0-5 1+1+1+1)"]);
    assert!(!tabled(&rows, Columns::Usual { width: None }).0.contains(&"CUS"));
}

#[test]
fn the_usual_table_is_narrow_and_shows_sources_only_where_they_differ() {
    let own = PsRow::from_snapshot(&traced().snapshot(), NOW, 900_000_000_000);
    let text = lines(&own, Source::Probe.into(), Columns::Usual { width: None });
    assert_eq!(text[0], " PID  COMM   GPU    QUEUE  TYPE         STATE     AGE");
    assert_eq!(text[1], "4321  train  gpu 0      3  compute_aql  active  5m 3s");
    let (header, cells) = tabled(&rows(), Columns::Usual { width: None });
    assert_eq!(header.last(), Some(&"SOURCE"));
    assert_eq!(cells[1].last().map(String::as_str), Some("probe only"));
}

#[test]
fn an_age_that_only_the_process_limits_is_marked() {
    let queue = Some(QueueFacts { queue_id: Some(0), ..unknown() });
    let row = |queue, age_ns, process_age_ns| PsRow { queue, age_ns, process_age_ns, ..PsRow::default() };
    let age = |row: PsRow| row.age().unwrap_or_else(dash);
    let second = Some(1_000_000_000);
    assert_eq!(age(row(queue.clone(), second, Some(5_000_000_000))), "1s");
    assert_eq!(age(row(queue.clone(), None, second)), "<1s");
    assert_eq!(age(row(None, None, second)), "1s", "of the process itself");
    assert_eq!(age(row(queue, None, None)), "-");
}

#[test]
fn a_table_is_cut_to_the_terminal_the_owner_first() {
    let belongs =
        Belongs { unit: Some("a-very-long-name-of-a-training-job.service".into()), ..Belongs::default() };
    let details = ProcessDetails { belongs, ..ProcessDetails::default() };
    let queue = QueueFacts { queue_id: Some(3), gpu_id: Some(58270), ..unknown() };
    let comm = Some("fifteen-letters".to_owned());
    let row =
        PsRow { pid: Some(4_000_321), comm, details: details.into(), queue: Some(queue), ..PsRow::default() };
    let widest = |width| {
        let lines = lines(std::slice::from_ref(&row), Sources::default(), Columns::Usual { width });
        (lines[..2].iter().map(|line| line.chars().count()).max().unwrap(), lines[1].clone())
    };
    assert!(widest(None).1.contains("a-very-long-name-of-a-training-job.service"));
    let (columns, line) = widest(Some(80));
    assert!(columns <= 80 && line.contains("fifteen-letters") && line.contains('…'), "{columns}: {line}");
    let (columns, line) = widest(Some(60));
    assert!(columns <= 60 && line.contains("a-very-…") && line.contains("fift"), "{columns}: {line}");
    assert!(widest(Some(20)).1.contains("4000321"), "numbers are never cut");
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
    let stopped = |evicted| QueueFacts {
        evicted: Some(evicted),
        active: Some(false),
        suspended: Some(true),
        ..unknown()
    };
    assert_eq!([state(&stopped(false)), state(&stopped(true))], ["suspended", "evicted+suspended"]);
    for (evicted, active, percent, shown) in states {
        assert_eq!(state(&QueueFacts { evicted, active, percent, ..unknown() }), shown);
    }
    let second = PsRow { pid: Some(99), context_id: Some(5), ..PsRow::default() };
    let (header, cells) = tabled(&[rows(), vec![second]].concat(), Columns::All);
    assert_eq!(header[2], "CONTEXT");
    assert_eq!([cells[0][2].as_str(), cells[2][2].as_str()], ["-", "5"]);
    assert_eq!(cells[2][11], "-", "a process without queues has no state");
}

#[test]
fn the_owner_has_a_column_where_one_is_reported() {
    let owned = |unit: Option<&str>| {
        let belongs = Belongs { unit: unit.map(str::to_owned), ..Belongs::default() };
        let details = ProcessDetails { belongs, ..ProcessDetails::default() };
        PsRow { pid: Some(5), details: details.into(), ..PsRow::default() }
    };
    let (header, _) = tabled(&[owned(None)], Columns::All);
    assert!(!header.contains(&"OWNER"), "{header:?}");
    let (header, cells) = tabled(&[owned(None), owned(Some("train.service"))], Columns::All);
    assert_eq!(header[..4], ["PID", "NSPID", "COMM", "OWNER"]);
    assert_eq!([&*cells[0][3], &*cells[1][3]], ["-", "train.service"]);
}

/// A daemon that does not see queues: others may hold slots, too.
#[test]
fn where_queues_are_not_all_known_no_slots_are_counted() {
    let topology = topology();
    let partial = PsView { all_queues: false, asked: Sources::default(), ..view(&topology) };
    let mut out = Vec::new();
    text(&mut out, &rows(), &partial).expect("memory");
    let out = String::from_utf8(out).expect("UTF-8");
    assert!(out.contains(": ? of 24 compute slots, ? of 16 SDMA slots (not all queues are known)"), "{out}");
    let mut out = Vec::new();
    let unknown = PsRow { pid: Some(5), ..PsRow::default() };
    json(&mut out, &[unknown], &partial, None).expect("memory");
    let value: Value = serde_json::from_slice(&out).expect("JSON");
    assert_eq!(value["gpus"][0]["queues"]["cp"], Value::Null, "{value}");
    assert_eq!((&value["asked"], &value["processes"][0]["sources"]), (&Value::Null, &Value::Null));
}

#[test]
fn json_has_its_fields_in_one_order() {
    let process = PsRow { pid: Some(5), sources: Source::Sysfs.into(), ..PsRow::default() };
    let mut rows = PsRow::from_snapshot(&traced().snapshot(), NOW, 900_000_000_000);
    rows.push(process);
    let mut out = Vec::new();
    json(&mut out, &rows, &view(&topology()), None).expect("memory");
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
            r#""read_pointer_address":"0x7faf945b8080","doorbell_offset":16,"priority":7,"priority_level":"normal","percent":100,"#,
            r#""sdma_engine_id":null,"of_runtime":null,"priority_created":7,"priority_changed_by":null,"priority_changed_ns":null,"#,
            r#""cu_mask":null,"cus_per_engine":null,"active":true,"evicted":false,"suspended":false,"age_ns":303000000000,"process_age_ns":899000000000,"vram_bytes":null,"activity":null,"sources":["probe"]}],"#,
            r#""processes":[{"pid":5,"ns_pid":null,"uid":null,"comm":null,"cmdline":null,"cgroup":null,"#,
            r#""container_id":null,"runtime":null,"pod_uid":null,"namespace":null,"pod":null,"container":null,"#,
            r#""slurm_job":null,"slurm_step":null,"slurm_uid":null,"unit":null,"#,
            r#""kfd_process":null,"context_id":null,"gpu":null,"node":null,"pci":null,"gpu_id":null,"#,
            r#""queue_id":null,"queue_type":null,"ring_address":null,"ring_size":null,"#,
            r#""write_pointer_address":null,"read_pointer_address":null,"doorbell_offset":null,"priority":null,"priority_level":null,"#,
            r#""percent":null,"sdma_engine_id":null,"of_runtime":null,"priority_created":null,"priority_changed_by":null,"priority_changed_ns":null,"#,
            r#""cu_mask":null,"cus_per_engine":null,"active":null,"evicted":null,"suspended":null,"age_ns":null,"process_age_ns":null,"vram_bytes":null,"activity":null,"#,
            r#""sources":["sysfs"]}]"#
        ))
    );
}

#[test]
fn json_holds_queues_apart_from_processes_without_any() {
    let mut rows = rows();
    rows.push(PsRow { pid: Some(5), sources: Source::Sysfs.into(), ..PsRow::default() });
    let mut out = Vec::new();
    json(&mut out, &rows, &view(&topology()), clock().rfc3339(1)).expect("memory");
    let value: Value = serde_json::from_slice(&out).expect("JSON");
    assert_eq!(value["asked"], json!(["probe", "sysfs"]));
    assert_eq!(value["processes"].as_array().map(Vec::len), Some(1));
    let mut expected = json!({
            "pid": 4321, "ns_pid": 7, "uid": 1000, "comm": "train", "cmdline": "python train.py",
            "cgroup": "/slurm/job.scope", "container_id": null, "runtime": null, "pod_uid": null,
            "namespace": null, "pod": null, "container": null, "slurm_job": null, "slurm_step": null,
            "slurm_uid": null, "unit": null, "kfd_process": "1", "context_id": null,
            "gpu": "gpu 0 (0000:c1:00.0, gfx942)", "node": 1, "pci": "0000:c1:00.0", "gpu_id": 58270,
            "queue_id": 3, "queue_type": "compute_aql", "ring_address": "0x7fad66c00000", "ring_size": 1048576,
            "write_pointer_address": "0x7faf945b8038", "read_pointer_address": "0x7faf945b8080",
            "doorbell_offset": 16, "priority": 7, "priority_level": "normal", "percent": 100, "sdma_engine_id": null, "of_runtime": false,
            "active": true, "evicted": false, "age_ns": 303_000_000_000_u64, "process_age_ns": 899_000_000_000_u64, "activity": null, "sources": ["probe"],
    });
    expected["suspended"] = json!(false);
    for field in ["priority_changed_by", "priority_changed_ns", "cu_mask", "cus_per_engine", "vram_bytes"] {
        expected[field] = Value::Null;
    }
    expected["priority_created"] = json!(7);
    assert_eq!(value["queues"][1], expected);
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
