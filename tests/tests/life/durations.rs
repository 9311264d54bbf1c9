//! How long queues were evicted and how long a reset took: each end event reports it, from the times of its
//! two events.

use anyhow::{Context, Result};
use kfd_trace_tests::harness::events::{self, all, gpu_id, mono_ns, of};
use kfd_trace_tests::harness::tracer::NO_MQD;
use kfd_trace_tests::harness::wait::SOON;
use kfd_trace_tests::harness::workload::kfdsim;
use kfd_trace_tests::harness::{Steered, Stream};
use serde_json::Value;

#[test]
fn a_restore_shows_how_long_the_queues_were_evicted() -> Result<()> {
    let stream = Stream::shared()?;
    let workload = Steered::having(&["create aql", "create aql gpu=1"])?;
    let pid = workload.pid();
    kfdsim("evict", pid)?;
    let restores = events::wait(&stream, "restore", pid, 2)?;
    let evicts = of(&stream.lines(), "evict", pid);
    for restore in &restores {
        let evict = evicts.iter().find(|line| line["gpu_id"] == restore["gpu_id"]).context("its eviction")?;
        assert_eq!(restore["evicted_ns"], mono_ns(restore) - mono_ns(evict), "{evict} {restore}");
    }
    stream.end()
}

/// A tracer that started after the eviction does not know how long it lasted.
#[test]
fn an_eviction_before_the_tracer_has_no_duration() -> Result<()> {
    let mut workload = Steered::having(&["create aql"])?;
    kfdsim("quiesce", workload.pid())?;
    let mut stream = Stream::tracing(&NO_MQD)?;
    kfdsim("resume", workload.pid())?;
    let lines = events::so_far(&stream, &mut workload)?;
    let restores = of(&lines, "restore", workload.pid());
    assert!(!restores.is_empty() && restores.iter().all(|line| line["evicted_ns"].is_null()), "{restores:?}");
    let standing = of(&lines, "queue_create", workload.pid());
    assert_eq!((standing.len(), &standing[0]["evicted"]), (1, &Value::Bool(true)), "{standing:?}");
    stream.interrupt()
}

#[test]
fn a_reset_shows_how_long_it_took() -> Result<()> {
    let stream = Stream::shared()?;
    for number in [0, 1] {
        kfdsim("reset", number)?;
        let wanted = usize::try_from(number)? + 1;
        let (begins, ends) = stream.wait_lines("the end of the reset", SOON, |lines| {
            let (begins, ends) = (all(lines, "gpu_reset_begin"), all(lines, "gpu_reset_end"));
            (ends.len() == wanted).then_some((begins, ends))
        })?;
        let (begin, end) = (begins.last().context("its begin")?, &ends[wanted - 1]);
        assert_eq!(gpu_id(begin), gpu_id(end));
        assert_eq!(end["reset_ns"], mono_ns(end) - mono_ns(begin), "{begin} {end}");
    }
    stream.end()
}
