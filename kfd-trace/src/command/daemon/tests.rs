use super::*;
use crate::runtime::beat::Beat;
use crate::runtime::signals;
use crate::runtime::systemd::tests::listening;
use crate::serve::question::PageSource;
use std::fs;
use std::path::Path;
use std::time::Duration;
use tempfile::TempDir;
use tokio::time::timeout;

/// A driver that is loaded and cannot be probed: it has no known symbols.
fn driver() -> TempDir {
    let root = tempfile::tempdir().unwrap();
    for folder in ["sys/module/amdgpu", "sys/class/kfd"] {
        fs::create_dir_all(root.path().join(folder)).unwrap();
    }
    root
}

fn detail(linger_seconds: u64) -> Detail {
    Detail {
        processes: Some(10),
        new_processes: 1000,
        queues: None,
        linger: Duration::from_secs(linger_seconds),
    }
}

/// Waits for a second, after this many loadings of the driver. Returns how the waiting ended, if it did, and
/// what the pages show.
async fn waited(root: &Path, driver_loads: u64) -> (Option<Result<(), Stop>>, Result<(), String>) {
    let roots = Roots::under(root);
    let mut tracer = Tracer::idle(&roots);
    tracer.driver_loads = driver_loads;
    let page = SharedPage::new(roots, detail(0));
    let _turn = signals::tests::TURN.lock().await;
    let (mut signals, mut supervisor) =
        (Signals::of_a_daemon().unwrap(), Supervisor::from_env(page.turned(), Beat::default()));
    let past = &mut PastReading::default();
    let waiting = wait(tracer, None, Waiting::default(), &page, &mut signals, &mut supervisor, past);
    let ended = timeout(Duration::from_secs(1), waiting).await.ok();
    (ended.map(|ended| ended.map(drop)), page.ready())
}

#[tokio::test]
async fn a_driver_that_cannot_be_traced_is_waited_for_by_who_traced_one_before() {
    let root = driver();
    let (ended, ready) = waited(root.path(), 0).await;
    let stop = ended.expect("it ends at its first start").unwrap_err();
    assert_ne!(stop.code, NOTHING_TO_TRACE);
    assert_eq!(ready, Err("starting".to_owned()));
    assert_eq!(waited(root.path(), 1).await, (None, Err(stop.line)));
}

#[tokio::test]
async fn who_waits_for_a_driver_is_up() {
    let root = tempfile::tempdir().unwrap();
    let _turn = signals::tests::TURN.lock().await;
    let (page, mut signals) =
        (SharedPage::new(Roots::under(root.path()), detail(0)), Signals::of_a_daemon().unwrap());
    let (mut supervisor, reported) = listening();
    let tracer = Tracer::idle(&Roots::under(root.path()));
    let past = &mut PastReading::default();
    let waiting = wait(tracer, None, Waiting::default(), &page, &mut signals, &mut supervisor, past);
    assert!(timeout(Duration::from_secs(3), waiting).await.is_err(), "it goes on waiting");
    let reported = reported.borrow();
    assert!(reported.iter().any(|line| line == "READY=1"), "{reported:?}");
    assert!(
        reported.iter().any(|line| line.starts_with("STATUS=") && line.ends_with("; waiting for it")),
        "{reported:?}"
    );
    assert_eq!(reported.iter().filter(|line| *line == "WATCHDOG=1").count(), 1, "{reported:?}");
}

#[test]
fn the_state_remembers_at_least_as_long_as_series_linger() {
    let default = StateLimits::default();
    assert_eq!(limits(&detail(0)), default, "its own rules want that");
    let longer = limits(&detail(3600));
    assert_eq!(longer, StateLimits { linger_ns: 3_600_000_000_000, ..default });
    assert_eq!(limits(&detail(u64::MAX)).linger_ns, u64::MAX);
}
