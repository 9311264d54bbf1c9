//! Runs in the VM with two gfx 9.0.1 and amdgpu's `sched_policy=2`: the driver itself puts queues on hardware
//! slots.

mod eviction;
mod mqd;
mod scheduler;

/// The stage that is run on each kernel: its verifier takes every program, its driver has every place.
#[test]
fn no_probe_is_refused() {
    let report = kfd_trace_tests::harness::tracer::run_json(&["status", "--json"]).expect("a report");
    let probes = report[0]["probes"].as_array().expect("probes");
    let with = |verdicts: &[&str]| {
        let of = |probe: &&serde_json::Value| verdicts.iter().any(|verdict| probe["verdict"] == *verdict);
        probes.iter().filter(of).collect::<Vec<_>>()
    };
    assert_eq!(with(&["refused", "partly", "missing_fields"]), Vec::<&serde_json::Value>::new());
    assert!(with(&["attached"]).len() > 30, "{probes:?}");
}
