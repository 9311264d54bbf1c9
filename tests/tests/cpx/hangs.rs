//! A hang is that of one partition: the reset that it leads to is the whole chip's.

use anyhow::{Result, ensure};
use kfd_trace_tests::harness::events::{self, all, gpu_id, mono_ns};
use kfd_trace_tests::harness::wait::SOON;
use kfd_trace_tests::harness::workload::kfdsim_at;
use kfd_trace_tests::harness::{Steered, Stream};
use kfd_trace_tests::kfd::topology::gpu_id as gpu;
use serde_json::json;

/// The firmware gives up a queue (kfdsim's control `give_up`), and the driver cannot reset it.
#[test]
fn a_queue_that_cannot_be_taken_off_hangs_its_partition() -> Result<()> {
    let stream = Stream::shared()?;
    let mut workload = Steered::having(&["create aql gpu=3"])?;
    kfdsim_at("give_up", 0, 1)?;
    let reply = workload.act("update 0 50")?;
    ensure!(reply["errno"].is_string(), "{reply}");
    stream.wait_lines("the resets of all partitions", SOON, |lines| {
        (all(lines, "gpu_reset_end").len() == 8).then_some(())
    })?;
    let lines = events::so_far(&stream, &mut workload)?;
    let hangs = all(&lines, "hws_hang");
    let [hang] = &*hangs else { panic!("one hang: {hangs:?}") };
    assert_eq!((gpu_id(hang), &hang["hit_pids"]), (gpu(3)?, &json!([workload.pid()])), "{hang}");
    let begins = all(&lines, "gpu_reset_begin");
    assert!(begins.iter().all(|begin| mono_ns(hang) < mono_ns(begin)), "{hang} {begins:?}");
    workload.kill()?;
    stream.end()
}
