//! What can be seen on each kernel of the matrix.

use kfd_trace_tests::harness::VmKernel;
use kfd_trace_tests::harness::tracer::run_json;
use std::collections::BTreeMap;

/// Probes that need the driver's own BTF.
const WITH_TYPES: [&str; 5] =
    ["queue_add", "queue_del", "notifier_release", "wq_release", "wq_release_return"];

/// Probes that need no more than the kernel's.
const WITHOUT: [&str; 6] = ["ioctl", "ioctl_handler", "ioctl_return", "open", "create_process", "release"];

#[test]
fn every_probe_has_its_verdict() {
    let report = run_json(&["status", "--json"]).expect("a report").remove(0);
    let probes = report["probes"].as_array().expect("probes");
    let verdicts: BTreeMap<&str, &str> = probes
        .iter()
        .map(|probe| {
            (probe["probe"].as_str().expect("a name"), probe["verdict"].as_str().expect("a verdict"))
        })
        .collect();
    let without_types = VmKernel::from_env().expect("the kernel").series == "5.10";
    let with_types = if without_types { "missing_fields" } else { "attached" };
    let expected = WITHOUT.map(|name| (name, "attached")).into_iter();
    let expected: BTreeMap<_, _> = expected.chain(WITH_TYPES.map(|name| (name, with_types))).collect();
    assert_eq!(verdicts, expected);
}
