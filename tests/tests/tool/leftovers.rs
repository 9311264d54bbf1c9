//! A killed tracer leaves no probe and no program behind.

use anyhow::Result;
use kfd_trace_tests::harness::kernel::{bpf_programs, traced_functions};
use kfd_trace_tests::harness::tracer::FEW;
use kfd_trace_tests::harness::wait::SOON;
use kfd_trace_tests::harness::{Daemon, JsonProcess, Stream, shared, until};
use nix::sys::signal::Signal;
use std::collections::BTreeSet;

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
    for function in ["kfd_ioctl", "kfd_ioctl_create_queue", "kfd_procfs_add_queue", "kfd_process_wq_release"]
    {
        assert!(probes.contains(function) && !before.1.contains(function), "{function}: {probes:?}");
    }
    tracer.signal(Signal::SIGKILL)?;
    tracer.wait_exit(SOON)?;
    until("programs and probes to go", SOON, || Ok((attached()? == *before).then_some(())))
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
