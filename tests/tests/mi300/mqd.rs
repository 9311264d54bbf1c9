//! MQD writes over several XCCs: the driver calls its functions once per XCC, the tracer reports one write.

use anyhow::Result;
use kfd_trace_tests::harness::events;
use kfd_trace_tests::harness::mqd_calls::MqdCalls;
use kfd_trace_tests::harness::{Steered, Stream};
use serde_json::{Value, json};

const XCCS: usize = 8;

#[test]
fn a_write_over_eight_xccs_is_one() -> Result<()> {
    let mut stream = Stream::tracing(&[])?;
    let witness = MqdCalls::start()?;
    let mut workload =
        Steered::having(&["create aql", "update 0 50", "cu-mask 0", "create sdma", "update 1 30"])?;
    let lines = events::so_far(&stream, &mut workload)?;
    let reported = witness.reported()?;

    let writes: Vec<Value> =
        events::all(&lines, "mqd_write").iter().map(|line| json!([line["queue_id"], line["op"]])).collect();
    let expected = [(0, "init"), (0, "update"), (0, "update"), (1, "init"), (1, "update")];
    assert_eq!(writes, expected.map(|(queue, op)| json!([queue, op])));
    let outermost: Vec<Value> =
        reported.writes.iter().map(|write| json!([write.queue_id, write.op])).collect();
    assert_eq!(outermost, writes, "the witness has the same outermost calls");
    // An init ends with an update, for each XCC; SDMA has no XCCs.
    assert!(reported.nested >= 2 * XCCS + 2 * XCCS, "each XCC was written: {reported:?}");
    assert_eq!(stream.finish()?["lost"], json!({}));
    Ok(())
}
