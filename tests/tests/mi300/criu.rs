//! CRIU's restore over several XCCs: what the driver does, reported unchanged.

use anyhow::Result;
use kfd_trace_tests::harness::events::{self, of};
use kfd_trace_tests::harness::mqd_calls::{MqdCalls, traced};
use kfd_trace_tests::harness::{Steered, Stream, VmKernel};
use serde_json::{Value, json};

const SAVED: [&str; 5] =
    ["create aql", "create sdma", "criu info", "criu checkpoint /tmp/checkpoint", "criu unpause"];

/// 6.12 saves and restores the MQD of the first XCC alone. 7.2 saves as many as there are XCCs
/// (get_queue_checkpoint_info)
/// and refuses what is not the size of one (kfd_criu_restore_queue). ROCm's drivers refuse a process without buffers.
#[test]
fn a_restore_over_eight_xccs_is_reported_as_the_driver_does_it() -> Result<()> {
    let mut stream = Stream::tracing(&[])?;
    let witness = MqdCalls::start()?;
    Steered::having(&SAVED)?.kill()?;
    let mut second = Steered::start()?;
    let reply = second.act("criu restore /tmp/checkpoint")?;
    let lines = events::so_far(&stream, &mut second)?;
    let reported = witness.reported()?;

    let pid = second.pid();
    let kernel = VmKernel::from_env()?;
    let refused = kernel.driver_is_from("7.2") || !kernel.restores;
    assert_eq!(reply["errno"], if refused { json!("EINVAL") } else { Value::Null }, "{reply}");
    let call = of(&lines, "ioctl", pid).into_iter().find(|call| call["ioctl"] == "CRIU_OP");
    assert_eq!(call.map(|call| call["errno"].clone()), Some(reply["errno"].clone()));
    let row = |line: &Value| json!([line["queue_id"], line["origin"]]);
    let births: Vec<Value> = of(&lines, "queue_create", pid).iter().map(row).collect();
    let writes = traced(&of(&lines, "mqd_write", pid));
    let mut outermost = reported.writes();
    outermost.retain(|write| write[0] == pid);
    assert_eq!(writes, outermost, "the witness has the same outermost calls");
    let made = if refused { 0 } else { 2 };
    // the driver saves the newest first
    assert_eq!(writes, [json!([pid, 1, "restore"]), json!([pid, 0, "restore"])][..made]);
    assert_eq!(births, [json!([1, "criu"]), json!([0, "criu"])][..made]);
    assert_eq!(stream.finish()?["lost"], json!({}));
    Ok(())
}
