//! The scan in progress, separate from the thread that follows the ring buffer.
//!
//! In: a tick once a second, and what [`Tracer::look`] begins. Out: the result of the scan when it is done,
//! and one log line if it takes long. sysfs and procfs may be slow or hang: a caller that awaits
//! [`BackgroundScan::seen`] beside the ring buffer and the signals serves those meanwhile.

use super::progress::Progress;
use super::scan::{Begun, Scan};
use crate::runtime::timeout::Timeout;
use crate::tracer::engine::Tracer;
use std::future::pending;
use std::time::Instant;
use tokio::task::{JoinError, JoinHandle, spawn_blocking};

/// At most one scan.
#[derive(Debug, Default)]
pub(crate) struct BackgroundScan(Option<RunningScan>);

#[derive(Debug)]
struct RunningScan {
    seen: JoinHandle<Scan>,
    progress: Progress,
    timeout: Timeout,
}

impl BackgroundScan {
    /// Begins a scan when it is due and none is in progress, and checks whether records were lost; must be
    /// called once a second.
    pub(crate) fn tick(&mut self, tracer: &mut Tracer) {
        if let Some(begun) = tracer.look(self.0.is_none()) {
            self.begin(begun, Instant::now());
        }
        if let Some(line) = self.overdue(Instant::now()) {
            log::warn!("{line}");
        }
    }

    fn begin(&mut self, begun: Begun, now: Instant) {
        let (progress, timeout) = (begun.progress.clone(), Timeout::new(now));
        self.0 = Some(RunningScan { seen: spawn_blocking(|| begun.finish()), progress, timeout });
    }

    /// A log line, once per scan that takes long.
    fn overdue(&mut self, now: Instant) -> Option<String> {
        let RunningScan { progress, timeout, .. } = self.0.as_mut()?;
        let took = timeout.ends(now)?;
        Some(format!(
            "reading the driver's lists has taken {} s, and is at {}: until it ends, what was missed is not corrected, \
             and GPUs are not read again",
            took.as_secs(),
            progress.now(),
        ))
    }

    /// Waits for the scan in progress, forever if there is none. Called again, it continues the same wait.
    ///
    /// # Errors
    /// If the scan panicked.
    pub(crate) async fn seen(&mut self) -> Result<Scan, JoinError> {
        let Some(running) = &mut self.0 else { return pending().await };
        let seen = (&mut running.seen).await;
        self.0 = None;
        seen
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::timeout::LONG;
    use crate::tracer::reconcile::progress::SourceProgress;
    use crate::tracer::reconcile::scan::samples::{begun, put};
    use std::process::Command;
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;
    use tokio::time::timeout;

    const SECOND: Duration = Duration::from_secs(1);

    /// A file whose reading hangs until it is written: a FIFO.
    #[test]
    fn a_scan_that_hangs_blocks_nothing_and_reports_where_it_is() {
        let root = tempfile::tempdir().unwrap();
        put(root.path(), "4711/pasid", "0");
        std::fs::create_dir_all(root.path().join("proc/4711")).unwrap();
        let fifo = root.path().join("proc/4711/stat");
        assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        // Written at the latest when the other end is dropped: a failing test ends, too.
        let (write, wait) = mpsc::channel::<()>();
        thread::spawn(move || {
            let _ = wait.recv_timeout(SECOND * 10);
            std::fs::write(&fifo, "0")
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (mut under_way, begin) = (BackgroundScan::default(), Instant::now());
            assert_eq!(under_way.overdue(begin + LONG * 2), None, "none is under way");
            under_way.begin(begun(root.path(), true, &[]), begin);
            let reads =
                |under_way: &BackgroundScan| under_way.0.as_ref().map(|running| running.progress.now());
            while reads(&under_way) != Some(SourceProgress::Process(4711)) {
                assert!(timeout(SECOND / 50, under_way.seen()).await.is_err(), "it begins");
            }
            assert!(timeout(SECOND / 5, under_way.seen()).await.is_err(), "it hangs");
            assert_eq!(under_way.overdue(begin + SECOND), None);
            let line = under_way.overdue(begin + LONG + SECOND).expect("it takes long");
            assert!(line.contains("has taken 31 s, and is at process 4711 in procfs"), "{line}");
            assert_eq!(under_way.overdue(begin + LONG * 2), None);
            drop(write);
            let seen = under_way.seen().await.unwrap();
            assert!(seen.look.and_then(|look| look.sysfs).is_some_and(|list| list.has((4711, None))));
            assert!(timeout(SECOND / 5, under_way.seen()).await.is_err(), "and none is under way any more");
        });
    }
}
