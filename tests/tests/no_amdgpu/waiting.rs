//! The daemon waits for the driver, serves its pages meanwhile, and stops on request.

use kfd_trace_tests::harness::Daemon;
use kfd_trace_tests::harness::tracer::run;
use kfd_trace_tests::harness::wait::SOON;
use std::thread::sleep;
use std::time::Duration;

#[test]
fn the_daemon_waits_and_says_so() {
    let mut daemon = Daemon::spawn(&[]).expect("a daemon");
    daemon.wait_stderr("the amdgpu driver is not loaded", SOON).expect("its reason");
    assert_eq!(daemon.get("/-/healthy").expect("healthy").status, 200);
    for path in ["/-/ready", "/api/v1/queues"] {
        let page = daemon.get(path).expect("a page");
        assert_eq!(page.status, 503, "{path}");
        assert!(page.body.contains("the amdgpu driver is not loaded"), "{path}: {}", page.body);
    }
    let landing = daemon.get("/").expect("the landing page").body;
    assert!(
        landing.contains("the amdgpu driver is not loaded") && !landing.contains("No process"),
        "{landing}"
    );
    let metrics = daemon.scrape().expect("metrics");
    let sum = |name| metrics.sum(name, &[]);
    assert_eq!(sum("kfd_trace_build_info"), Some(1.0));
    assert_eq!((sum("kfd_queues"), sum("kfd_opens_total")), (None, None), "not measured is not 0");
    assert_eq!((sum("kfd_trace_driver_loads_total"), sum("kfd_trace_driver_loaded")), (Some(0.0), Some(0.0)));
    let of_open = |name, key| metrics.sum(name, &[(key, "open")]);
    assert_eq!(of_open("kfd_trace_records_total", "kind"), None, "nor here");
    assert_eq!(of_open("kfd_trace_probe_hits_total", "probe"), None, "nor here");
    daemon.stop().expect("a clean stop");
}

/// Longer than what is awaited elsewhere may take: nothing hangs while nothing is there.
#[test]
fn a_daemon_that_waits_for_long_is_healthy() {
    let mut daemon = Daemon::spawn(&[]).expect("a daemon");
    daemon.wait_stderr("the amdgpu driver is not loaded", SOON).expect("its reason");
    sleep(Duration::from_secs(330));
    let health = daemon.get("/-/healthy").expect("an answer");
    assert_eq!(health.status, 200, "{}", health.body);
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
