use super::*;
use crate::output::http::Site;
use std::fs;
use std::path::Path;
use tempfile::TempDir;
use tokio::time::timeout;

/// A driver that stands and cannot be probed: nothing is told of its symbols.
fn driver() -> TempDir {
    let root = tempfile::tempdir().unwrap();
    for folder in ["sys/module/amdgpu", "sys/class/kfd"] {
        fs::create_dir_all(root.path().join(folder)).unwrap();
    }
    root
}

/// Waits for a second, after this many loadings of the driver. Gives how the waiting ended, if it did, and what the pages say.
async fn waited(root: &Path, driver_loads: u64) -> (Option<Result<(), Stop>>, Result<(), String>) {
    let roots = Roots::under(root);
    let mut tracer = Tracer::idle(&roots);
    tracer.driver_loads = driver_loads;
    let page = Page::new(roots, 10);
    let mut signals = Signals::new().unwrap();
    let waiting = wait(tracer, None, Waiting::default(), &page, &mut signals);
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
