//! What the driver refuses without a GPU: each operation with its errno, the same in the caller's return
//! value and in kfd-trace.

use kfd_trace_tests::harness::events::command;
use kfd_trace_tests::harness::tracer::NO_MQD;
use kfd_trace_tests::harness::wait::SOON;
use kfd_trace_tests::harness::{Stream, VmKernel, Workload, until};
use serde_json::Value;

const OPERATIONS: [&str; 8] = [
    "version",
    "clock gpu=none",
    "apertures",
    "create aql gpu=none",
    "create sdma gpu=none old",
    "destroy 0",
    "memory-policy gpu=none",
    "unknown 0x82",
];

/// Command and errno of one ioctl, which must be the same on both sides.
fn reported(cmd: u64, errno: &Value) -> (u64, Option<String>) {
    (cmd, errno.as_str().map(str::to_owned))
}

#[test]
fn each_refused_operation_is_reported_with_its_errno() {
    let kernel = VmKernel::from_env().expect("the kernel");
    let mut stream = Stream::tracing(&NO_MQD).expect("a stream");
    let words: Vec<&str> = ["script"].into_iter().chain(OPERATIONS).collect();
    let mut workload = Workload::spawn(&words).expect("a workload");
    if kernel.driver_is_from("7.2") {
        // kfd_open requires a GPU node since 7.x, so no other operation is reached.
        let opened =
            stream.wait_line("the failed open", SOON, |line| line["event"] == "open").expect("an open");
        println!("refused on {}: open {}", kernel.series, opened["errno"]);
        assert_eq!((opened["errno"].as_str(), opened["result"].as_i64()), (Some("EINVAL"), Some(-22)));
        assert_eq!(opened["pid"].as_u64(), Some(workload.pid().into()));
        stream.finish().expect("a summary");
        return;
    }
    workload.finish().expect("a workload that ends well");
    let own: Vec<_> = workload
        .ioctls()
        .iter()
        .map(|line| reported(line["cmd"].as_u64().expect("a command"), &line["errno"]))
        .collect();
    let pid = workload.pid();
    let seen = until("an event for each ioctl", SOON, || {
        let events = stream.events("ioctl").into_iter().filter(|event| event["pid"] == pid);
        let seen: Vec<_> = events.map(|event| reported(command(&event).into(), &event["errno"])).collect();
        Ok((seen.len() >= own.len()).then_some(seen))
    })
    .expect("an event for each ioctl");
    assert_eq!(seen, own);
    for line in workload.ioctls().iter().filter(|line| !line["errno"].is_null()) {
        println!("refused on {}: {} {}", kernel.series, line["op"], line["errno"]);
    }
    let refused = own.iter().filter(|(_, errno)| errno.is_some()).count();
    assert!(refused >= 5, "without a GPU the queue operations fail: {own:?}");
    stream.finish().expect("a summary");
}
