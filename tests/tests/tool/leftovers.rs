//! A killed tracer leaves no armed probe and no program behind, and one that ends no event in tracefs.

use anyhow::Result;
use kfd_trace_tests::harness::kernel::{bpf_programs, traced_functions};
use kfd_trace_tests::harness::tracer::FEW;
use kfd_trace_tests::harness::wait::SOON;
use kfd_trace_tests::harness::{Daemon, JsonProcess, Stream, shared, until};
use nix::sys::signal::Signal;
use std::collections::BTreeSet;
use std::fs;

/// Ids of BPF programs, and functions that are traced.
type Attached = (BTreeSet<u32>, BTreeSet<String>);

fn attached() -> Result<Attached> {
    Ok((bpf_programs()?.into_keys().collect(), traced_functions()?.into_iter().collect()))
}

/// What is attached without the tests' shared tracers, so that the rest belongs to this test.
fn without_shared() -> Result<Attached> {
    shared::end()?;
    attached()
}

fn none_is_left(tracer: &mut JsonProcess, before: &Attached) -> Result<()> {
    let (programs, probes) = attached()?;
    let ours = programs.difference(&before.0).count();
    assert!(ours >= 8, "{ours} programs are loaded");
    for function in ["kfd_ioctl", "update_queue", "kfd_procfs_add_queue", "kfd_process_wq_release"] {
        assert!(probes.contains(function) && !before.1.contains(function), "{function}: {probes:?}");
    }
    tracer.signal(Signal::SIGKILL)?;
    tracer.wait_exit(SOON)?;
    until("programs and probes to go", SOON, || Ok((attached()? == *before).then_some(())))
}

/// Definitions of return probes that are a tracer's.
fn events() -> Result<usize> {
    let defined = fs::read_to_string("/sys/kernel/tracing/kprobe_events")?;
    Ok(defined.lines().filter(|line| line.contains(":kfd_trace_of_")).count())
}

#[test]
fn events_of_a_killed_tracer_go_with_the_next_one() -> Result<()> {
    let before = without_shared()?;
    assert_eq!(events()?, 0);
    let mut killed = Daemon::ready(&FEW)?;
    let defined = events()?;
    assert!(defined >= 5, "{defined} events");
    none_is_left(&mut killed, &before)?;
    assert_eq!(events()?, defined, "disarmed, and still defined");
    let mut next = Daemon::ready(&FEW)?;
    assert_eq!(events()?, defined, "its own, and no others");
    let mut other = Stream::tracing(&["--attach=single"])?;
    assert_eq!(events()?, 2 * defined, "each tracer has its own");
    next.stop()?;
    assert_eq!(events()?, defined, "the stream's");
    other.interrupt()?;
    assert_eq!(events()?, 0);
    assert_eq!(attached()?, before);
    Ok(())
}

#[test]
fn of_a_killed_stream() -> Result<()> {
    let before = without_shared()?;
    let mut stream = Stream::tracing(&[])?;
    none_is_left(&mut stream, &before)
}

#[test]
fn of_a_killed_daemon() -> Result<()> {
    let before = without_shared()?;
    let mut daemon = Daemon::ready(&FEW)?;
    none_is_left(&mut daemon, &before)
}

#[test]
fn of_a_stream_that_ends() -> Result<()> {
    let before = without_shared()?;
    let mut stream = Stream::tracing(&[])?;
    assert_ne!(attached()?, before);
    stream.interrupt()?;
    until("programs and probes to go", SOON, || Ok((attached()? == before).then_some(())))
}
