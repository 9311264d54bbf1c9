//! The daemon waits for the driver, answers meanwhile, and stops when told to.

use kfd_trace_tests::harness::Daemon;
use kfd_trace_tests::harness::tracer::run;
use kfd_trace_tests::harness::wait::SOON;

#[test]
fn the_daemon_waits_and_says_so() {
    let mut daemon = Daemon::spawn(&[]).expect("a daemon");
    daemon.wait_stderr("the amdgpu driver is not loaded", SOON).expect("its reason");
    assert_eq!(daemon.get("/-/healthy").expect("healthy").status, 200);
    let ready = daemon.get("/-/ready").expect("ready");
    assert_eq!(ready.status, 503);
    assert!(ready.body.contains("the amdgpu driver is not loaded"), "{}", ready.body);
    let metrics = daemon.scrape().expect("metrics");
    assert_eq!(metrics.sum("kfd_trace_build_info", &[]), Some(1.0));
    assert_eq!(metrics.sum("kfd_queues", &[]), None, "not measured is not 0");
    daemon.stop().expect("a clean stop");
}

#[test]
fn an_address_in_use_is_one_line() {
    let mut first = Daemon::spawn(&[]).expect("a daemon");
    first.wait_stderr("serving", SOON).expect("its address");
    let listen = format!("--web.listen-address={}", first.address);
    let second = run(&["daemon", &listen]).expect("a second daemon");
    let errors = String::from_utf8_lossy(&second.stderr);
    assert_eq!((second.status.code(), errors.lines().count()), (Some(1), 1), "{errors}");
    assert!(
        errors.contains(&first.address.to_string()) && errors.contains("--web.listen-address"),
        "{errors}"
    );
    first.stop().expect("a clean stop");
}
