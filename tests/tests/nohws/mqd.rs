//! MQD writes without the hardware scheduler: the driver also loads an MQD into a hardware slot and removes
//! it (`load_mqd`, `destroy_mqd`), which is not a write.

use anyhow::Result;
use kfd_trace_tests::harness::events::{self, of};
use kfd_trace_tests::harness::mqd_calls::{MqdCalls, traced};
use kfd_trace_tests::harness::workload::kfdsim;
use kfd_trace_tests::harness::{Steered, Stream};
use serde_json::{Value, json};

/// Each operation with queue and function of the resulting write: both types, both GPUs, queues that get a
/// slot, lose it, and have none.
const OPERATIONS: [(&str, Option<(u32, &str)>); 11] = [
    ("create aql", Some((0, "init"))),
    ("create sdma", Some((1, "init"))),
    ("create aql gpu=1", Some((2, "init"))),
    ("create sdma gpu=1", Some((3, "init"))),
    ("update 0 50", Some((0, "update"))),
    ("update 1 30", Some((1, "update"))),
    ("update 2 0", Some((2, "update"))),
    ("update 2 60", Some((2, "update"))),
    ("cu-mask 0", Some((0, "update"))),
    ("create aql bad", None),
    ("destroy 3", None),
];

/// The same while all of them are evicted.
const EVICTED: [(&str, Option<(u32, &str)>); 4] = [
    ("update 0 80", Some((0, "update"))),
    ("create sdma gpu=1", Some((3, "init"))),
    ("cu-mask 2", Some((2, "update"))),
    ("destroy 1", None),
];

#[test]
fn as_many_as_the_witness_counts() -> Result<()> {
    let stream = Stream::shared()?;
    let witness = MqdCalls::start()?;
    let mut workload = Steered::start()?;
    let pid = workload.pid();
    for (operation, _) in OPERATIONS {
        workload.act(operation)?;
    }
    kfdsim("quiesce", pid)?;
    for (operation, _) in EVICTED {
        workload.act(operation)?;
    }
    kfdsim("resume", pid)?;
    let lines = events::so_far(&stream, &mut workload)?;
    let reported = witness.reported()?;

    let made = OPERATIONS.iter().chain(&EVICTED).filter_map(|(_, write)| *write);
    let made: Vec<Value> = made.map(|(queue_id, op)| json!([pid, queue_id, op])).collect();
    assert_eq!(reported.writes(), made, "what the driver wrote");
    let writes = events::all(&lines, "mqd_write");
    assert_eq!(traced(&writes), reported.writes());
    assert!(writes.iter().all(|write| write["pid"] == pid), "{writes:?}");
    assert_eq!(reported.hiq, 0, "the scheduler's own queue is not written");
    assert_eq!((of(&lines, "evict", pid).len(), of(&lines, "restore", pid).len()), (2, 2));
    stream.end()
}
