//! MQD writes: the tracer reports as many, of the same queues and in the same order, as tracefs probes on the
//! same functions.

use anyhow::Result;
use kfd_trace_tests::harness::events::{self, of};
use kfd_trace_tests::harness::mqd_calls::{MqdCalls, traced};
use kfd_trace_tests::harness::workload::kfdsim;
use kfd_trace_tests::harness::{Steered, Stream};
use serde_json::{Value, json};
use std::process::Command;

/// Every operation that writes an MQD, and some that do not, on both types and both GPUs. Queue 0 is made
/// twice.
const OPERATIONS: [&str; 16] = [
    "create aql",
    "create sdma",
    "create aql gpu=1",
    "create sdma gpu=1",
    "update 0 50",
    "update 1 30",
    "update 2 0",
    "update 3 100",
    "cu-mask 0",
    "cu-mask 2",
    "create aql bad",
    "destroy 0",
    "create sdma gpu=1",
    "update 0 70",
    "destroy 3",
    "destroy 0",
];

#[test]
fn as_many_as_the_witness_counts() -> Result<()> {
    let stream = Stream::shared()?;
    let witness = MqdCalls::start()?;
    let (mut workload, mut other) = (Steered::start()?, Steered::start()?);
    for operation in OPERATIONS {
        workload.act(operation)?;
        if operation.starts_with("create") {
            other.act(operation)?;
        }
    }
    kfdsim("quiesce", other.pid())?;
    kfdsim("resume", other.pid())?;
    let lines = events::so_far(&stream, &mut workload)?;
    let reported = witness.reported()?;

    let writes = events::all(&lines, "mqd_write");
    assert_eq!(traced(&writes), reported.writes());
    for workload in [&workload, &other] {
        let pid = workload.pid();
        let births = of(&lines, "queue_create", pid);
        let writes = of(&lines, "mqd_write", pid);
        assert!(writes.iter().all(|line| line["tid"] == pid), "a script has one thread: {writes:?}");
        let count = |op: &str| writes.iter().filter(|line| line["op"] == op).count();
        // each creation initialises one, whatever is called inside it
        assert_eq!((count("init"), count("restore")), (births.len(), 0), "{writes:?}");
        assert_eq!(count("update"), of(&lines, "queue_update", pid).len(), "{writes:?}");
        for write in &writes {
            let birth = births
                .iter()
                .find(|birth| birth["queue_id"] == write["queue_id"] && birth["gpu_id"] == write["gpu_id"]);
            assert!(birth.is_some(), "a queue of another GPU: {write}");
        }
    }
    assert_eq!((of(&lines, "queue_create", workload.pid()).len(), reported.hiq), (5, 0));
    assert_eq!(of(&lines, "queue_update", workload.pid()).len(), 7);
    assert!(reported.nested >= reported.writes.iter().filter(|write| write.op == "init").count());
    stream.end()
}

#[test]
fn the_schedulers_own_queue_is_nobodys() -> Result<()> {
    let stream = Stream::shared()?;
    let witness = MqdCalls::start()?;
    let mut workload = Steered::having(&["create aql"])?;
    kfdsim("reset", 1)?;
    stream.wait_line("the end of the reset", kfd_trace_tests::harness::wait::SOON, |line| {
        line["event"] == "gpu_reset_end"
    })?;
    let lines = events::so_far(&stream, &mut workload)?;
    let reported = witness.reported()?;
    assert!(reported.hiq > 0, "a reset makes it anew: {reported:?}");
    assert_eq!(reported.writes(), [json!([workload.pid(), 0, "init"])]);
    assert_eq!(traced(&events::all(&lines, "mqd_write")), reported.writes());
    stream.end()
}

/// Has the device open while it resets the second GPU itself.
const MAKER: &str = "exec 3<>/dev/kfd && echo '1 1' > /sys/kernel/debug/kfdsim/reset";

/// As when an ioctl wakes up a GPU: up to 6.12 the driver takes the caller for the owner of the driver's own
/// queue (kfd_kernel_queue.c:kq_initialize).
#[test]
fn the_schedulers_own_queue_is_not_its_makers() -> Result<()> {
    let mut stream = Stream::tracing(&[])?;
    let witness = MqdCalls::start()?;
    let mut maker = Command::new("sh").args(["-c", MAKER]).spawn()?;
    assert!(maker.wait()?.success());
    let mut mark = Steered::start()?;
    let lines = events::so_far(&stream, &mut mark)?;
    assert_eq!(of(&lines, "process_seen", maker.id()).len(), 1, "it is a process of the driver's");
    assert_eq!(events::all(&lines, "gpu_reset_end").len(), 1);
    let reported = witness.reported()?;
    assert!(reported.hiq > 0, "a reset makes it anew: {reported:?}");
    assert_eq!(events::all(&lines, "mqd_write"), Vec::<Value>::new());
    stream.interrupt()
}
