use crate::model::event::{Body, Event, Outcome, QueueFacts};
use crate::model::incident::{CuMask, QueueUpdate};
use crate::model::ioctl::Mismatch;
use crate::output::event::context::Context;
use crate::output::event::json;
use crate::output::samples::{CREATE, DESTROY, PID, WAIT, clock, ioctl_event, shown, topology};
use crate::state::samples::{create, destroy, event, facts, seen};
use serde_json::{Value, json};

fn line(event: &Event) -> String {
    shown(event, |event, context| {
        let mut out = Vec::new();
        json::event(&mut out, event, context).expect("memory");
        String::from_utf8(out).expect("UTF-8")
    })
}

fn parsed(event: &Event) -> Value {
    serde_json::from_str(&line(event)).expect("JSON")
}

#[test]
fn the_birth_of_a_queue_as_a_whole() {
    let text = line(&event(1_500_000, 1, PID, create(9)));
    assert_eq!(
        text,
        concat!(
            r#"{"schema":1,"ts":"2026-09-21T14:13:20.001500000Z","mono_ns":1500000,"event":"queue_create","#,
            r#""pid":4321,"tid":4322,"task_pid":4321,"comm":"train","kfd_process":"1","gpu_id":58270,"#,
            r#""queue_id":9,"queue_type":"compute_aql","ring_address":"0x7fad66c00000","ring_size":1048576,"#,
            r#""write_pointer_address":"0x7faf945b8038","read_pointer_address":"0x7faf945b8080","#,
            r#""doorbell_offset":16,"priority":7,"priority_level":"normal","percent":100,"sdma_engine_id":null,"active":true,"evicted":false,"suspended":false,"origin":"ioctl"}"#,
            "\n"
        )
    );
}

#[test]
fn the_update_of_a_queue_as_a_whole() {
    let cu_mask = Some(CuMask { words: vec![0xff, 1] });
    let update = QueueUpdate { now: facts(3), cu_mask, mask_unread: false, errno: Some(110) };
    assert_eq!(
        line(&event(1_500_000, 1, PID, Body::QueueUpdate(update))),
        concat!(
            r#"{"schema":1,"ts":"2026-09-21T14:13:20.001500000Z","mono_ns":1500000,"event":"queue_update","#,
            r#""pid":4321,"tid":4322,"task_pid":4321,"comm":"train","kfd_process":"1","gpu_id":58270,"queue_id":3,"#,
            r#""queue_type":"compute_aql","ring_address":"0x7fad66c00000","ring_size":1048576,"#,
            r#""write_pointer_address":"0x7faf945b8038","read_pointer_address":"0x7faf945b8080","doorbell_offset":16,"#,
            r#""priority":7,"priority_level":"normal","percent":100,"sdma_engine_id":null,"active":true,"evicted":false,"#,
            r#""suspended":false,"cu_mask":["0x000000ff","0x00000001"],"#,
            r#""cus_per_engine":[[1,1,0,0],[1,1,0,0],[1,1,0,0],[1,0,0,0],[1,0,0,0],[1,0,0,0]],"priority_before":null,"#,
            r#""priority_before_level":null,"result":-110,"errno":"ETIMEDOUT"}"#,
            "\n"
        )
    );
}

#[test]
fn what_is_not_reported_is_null() {
    let queue = QueueFacts { ring_address: None, queue_type: None, gpu_id: None, ..facts(1) };
    let value = parsed(&Event { tgid: None, ..event(1, 1, PID, Body::QueueCreate(queue)) });
    for field in ["ring_address", "queue_type", "gpu_id", "pid"] {
        assert_eq!(value.get(field), Some(&Value::Null), "{field}");
    }
}

#[test]
fn an_update_shows_the_priority_before_where_it_is_another_one() {
    let update = |priority| {
        let now = QueueFacts { priority: Some(priority), ..facts(3) };
        QueueUpdate { now, cu_mask: None, mask_unread: false, errno: Some(0) }
    };
    let shown = |priority| {
        let value = parsed(&event(50_000, 1, PID, Body::QueueUpdate(update(priority))));
        ["priority_before", "priority_before_level", "priority", "priority_level"]
            .map(|name| value[name].clone())
    };
    assert_eq!(shown(11), [json!(7), json!("normal"), json!(11), json!("high")]);
    assert_eq!(shown(7), [Value::Null, Value::Null, json!(7), json!("normal")]);
}

#[test]
fn an_ioctl_that_failed_in_its_handler() {
    let outcome = Outcome::Returned { result: -22, latency_ns: 777 };
    let value = parsed(&ioctl_event(DESTROY, outcome, &[9, 0, 0, 0, 0, 0, 0, 0]));
    let expected = json!({
        "schema": 1, "ts": "2026-09-21T14:13:20.000030000Z", "mono_ns": 30000, "event": "ioctl", "pid": PID,
        "tid": PID + 1, "task_pid": PID, "comm": "train", "kfd_process": "1", "ioctl": "DESTROY_QUEUE", "nr": 3,
        "cmd": "0xc0084b03", "size": 8, "args": {"queue_id": 9}, "entered_mono_ns": 29000,
        "outcome": "returned", "measured": true, "result": -22, "errno": "EINVAL", "latency_ns": 777,
        "abi_mismatch": null,
    });
    assert_eq!(value, expected);
}

#[test]
fn what_was_not_measured_is_no_zero() {
    let check = |cmd, outcome: Outcome, expected: Value| {
        let value = parsed(&ioctl_event(cmd, outcome, &[]));
        let found = json!([
            value["outcome"],
            value["measured"],
            value["result"],
            value["errno"],
            value["latency_ns"]
        ]);
        assert_eq!(found, expected, "{outcome:?}");
        assert_eq!(value["args"], Value::Null);
    };
    check(WAIT, Outcome::NotMeasured, json!(["not_measured", false, null, null, null]));
    check(CREATE, Outcome::NoReturnSeen, json!(["no_return_seen", false, null, null, null]));
    check(0x4028_4bfe, Outcome::Refused { errno: 25 }, json!(["refused", true, -25, "ENOTTY", null]));
    let fine = Outcome::Returned { result: 0, latency_ns: 5 };
    check(CREATE, fine, json!(["returned", true, 0, null, 5]));
}

#[test]
fn addresses_in_arguments_are_hexadecimal_and_two_abis_are_reported() {
    let (clock, topology) = (clock(), topology());
    let mismatch = Some(Mismatch { user_size: 88, kernel_size: 96 });
    let context = Context {
        named: crate::model::ioctl::Named::default(),
        clock: &clock,
        process: None,
        ended: &[],
        lasted_ns: None,
        priority_before: None,
        hit: &[],
        mismatch,
        topology: &topology,
    };
    let outcome = Outcome::Returned { result: 0, latency_ns: 1 };
    let mut out = Vec::new();
    json::event(&mut out, &ioctl_event(0xc058_4b02, outcome, &[0x10, 0, 0, 0, 0, 0, 0, 0]), &context)
        .expect("memory");
    let value: Value = serde_json::from_slice(&out).expect("JSON");
    assert_eq!(value["args"], json!({"ring_base_address": "0x10"}));
    assert_eq!(value["abi_mismatch"], json!({"user_size": 88, "kernel_size": 96}));
}

#[test]
fn an_end_shows_cause_and_lifetime_and_stays_with_the_owner() {
    let worker = Event { task_tgid: 77, tid: 77, ..event(120_000, 1, PID, destroy(3)) };
    let value = parsed(&worker);
    assert_eq!((&value["pid"], &value["tid"]), (&json!(PID), &json!(77)));
    assert_eq!((&value["cause"], &value["lifetime_ns"]), (&json!("process_death"), &json!(100_000)));
    assert_eq!(parsed(&event(1, 1, PID, destroy(8)))["cause"], Value::Null);
    let failed = Body::QueueDestroyFailed { queue_id: 3, gpu_id: None, errno: 62 };
    let value = parsed(&event(1, 1, PID, failed));
    assert_eq!((&value["result"], &value["errno"]), (&json!(-62), &json!("ETIME")));
}

#[test]
fn processes_and_opens() {
    let value = parsed(&event(5, 1, PID, seen(false)));
    assert_eq!(value["cgroup"], "/slurm/job.scope");
    assert_eq!(
        (&value["ns_pid"], &value["uid"], &value["standing"]),
        (&json!(7), &json!(1000), &json!(false))
    );
    let open = |errno| Event { process: None, ..event(5, 1, PID, Body::Open { errno, comm: "sh".into() }) };
    let value = parsed(&open(0));
    assert_eq!(json!([value["result"], value["errno"], value["kfd_process"]]), json!([0, null, "1"]));
    let value = parsed(&Event { tgid: Some(99), ..open(22) });
    assert_eq!(json!([value["result"], value["errno"], value["comm"]]), json!([-22, "EINVAL", "sh"]));
}
