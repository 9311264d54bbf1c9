//! A driver file whose read hangs: neither the stream nor the daemon waits for it.

use anyhow::{Result, ensure};
use kfd_trace_tests::harness::other_sysfs::{flag, lacking};
use kfd_trace_tests::harness::tracer::FEW;
use kfd_trace_tests::harness::wait::SOON;
use kfd_trace_tests::harness::{Daemon, Stream, Workload};
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use std::fs::{self, OpenOptions};
use std::time::Duration;

/// Until the next scan of the driver's lists (10 s), and the 30 s after which it is reported.
const REPORTED: Duration = Duration::from_secs(100);

#[test]
fn of_the_lists_is_reported_and_keeps_nobody() -> Result<()> {
    let root = lacking(&["class/kfd/kfd/proc"])?;
    let queue = root.path().join("class/kfd/kfd/proc/1/queues/0");
    fs::create_dir(root.path().join("class/kfd/kfd/proc"))?;
    let flag = flag(&root);
    let options = [&FEW[..], &[&flag]].concat();
    let (mut stream, mut daemon) = (Stream::tracing(&options)?, Daemon::quick(&options)?);
    fs::create_dir_all(&queue)?;
    mkfifo(&queue.join("gpuid"), Mode::S_IRUSR)?;
    // a reader waits until a writer may write
    let _writer = OpenOptions::new().read(true).write(true).open(queue.join("gpuid"))?;
    let line = "s, and is at the driver's processes in sysfs";
    stream.wait_stderr(line, REPORTED)?;
    daemon.wait_stderr(line, REPORTED)?;

    let (workload, _) = Workload::run(&["script", "create aql", "destroy 0"])?;
    stream.wait_lines("the end of the queue", SOON, |lines| {
        let ends =
            |line: &&serde_json::Value| line["event"] == "queue_destroy" && line["pid"] == workload.pid();
        lines.iter().find(ends).map(drop)
    })?;
    daemon.scrape_until("a queue", |metrics| {
        metrics.sum("kfd_queues_created_total", &[]).filter(|count| *count > 0.0)
    })?;
    for (who, stderr) in [("stream", stream.stderr()), ("daemon", daemon.stderr())] {
        ensure!(stderr.matches(line).count() == 1, "reported once by the {who}: {stderr}");
    }
    stream.finish()?;
    daemon.stop()
}
