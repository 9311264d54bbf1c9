//! Return probes in tracefs, which the unit defines before the daemon and removes after it.

use crate::installed;
use crate::package::waits;
use anyhow::{Context, Result, ensure};
use kfd_trace_tests::harness::service::{
    SERVICE_PROBES, UNIT, command, journal, logged, main_pid, property, signal,
};
use kfd_trace_tests::harness::tracefs::{At, TracefsProbes, defined};
use kfd_trace_tests::harness::until;
use kfd_trace_tests::harness::wait::ATTACH;
use nix::sys::signal::Signal;

/// Those of functions that every driver has, since none is loaded.
const FUNCTIONS: [&str; 5] =
    ["kfd_ioctl", "kfd_open", "kfd_create_process", "kfd_process_wq_release", "update_queue"];

/// Each is defined once.
fn all_defined() -> Result<()> {
    let mut found = defined(SERVICE_PROBES)?;
    let mut expected = FUNCTIONS.map(str::to_owned);
    found.sort();
    expected.sort();
    ensure!(found == expected, "{found:?}\n{}", journal()?);
    Ok(())
}

fn systemctl(what: &str) -> Result<()> {
    command("systemctl", &[what, UNIT]).map(drop)
}

/// Another tracer's probe, which nothing of this may touch.
fn of_another() -> Result<TracefsProbes> {
    let mut probes = TracefsProbes::new("of_another_tracer");
    probes.add(At::Return, "opened", "vfs_open", "")?;
    Ok(probes)
}

fn stays(_other: &TracefsProbes) -> Result<()> {
    let found = defined("of_another_tracer")?;
    ensure!(found == ["opened"], "{found:?}");
    Ok(())
}

#[test]
fn are_there_while_the_unit_runs_and_no_longer() -> Result<()> {
    installed()?;
    let other = of_another()?;
    waits()?;
    all_defined()?;
    systemctl("stop")?;
    let left = defined(SERVICE_PROBES)?;
    ensure!(left.is_empty(), "after the stop: {left:?}\n{}", journal()?);
    stays(&other)?;

    systemctl("start")?;
    let pid = waits()?;
    signal(Signal::SIGKILL)?;
    until("systemd to start it again", ATTACH, || Ok(main_pid()?.filter(|now| *now != pid)))?;
    waits()?;
    all_defined()?;
    systemctl("stop")?;
    let left = defined(SERVICE_PROBES)?;
    ensure!(left.is_empty(), "after a kill and a stop: {left:?}\n{}", journal()?);
    stays(&other)?;
    systemctl("start")
}

/// A kill that ends in no restart, as with Restart=no.
#[test]
fn are_removed_after_a_kill() -> Result<()> {
    const DROP_IN: &str = "/run/systemd/system/kfd-trace.service.d";
    installed()?;
    waits()?;
    std::fs::create_dir_all(DROP_IN)?;
    std::fs::write(format!("{DROP_IN}/restart.conf"), "[Service]\nRestart=no\n")?;
    command("systemctl", &["daemon-reload"])?;
    let killed = signal(Signal::SIGKILL).and_then(|()| {
        until("the unit to end", ATTACH, || Ok((property("ActiveState")? == "failed").then_some(())))?;
        defined(SERVICE_PROBES)
    });
    std::fs::remove_dir_all(DROP_IN)?;
    command("systemctl", &["daemon-reload"])?;
    let left = killed?;
    ensure!(left.is_empty(), "{left:?}\n{}", journal()?);
    systemctl("reset-failed")?;
    systemctl("start")
}

/// The kernel refuses to remove a probe that is in use: it stays, and the next stop removes it.
#[test]
fn that_another_tracer_uses_stay_until_the_next_stop() -> Result<()> {
    installed()?;
    waits()?;
    let user = TracefsProbes::new(SERVICE_PROBES);
    user.enable()?;
    systemctl("stop")?;
    all_defined().context("in use")?;
    let log = logged(&["--unit", UNIT])?;
    ensure!(log.contains("5 return probes left in kfd_trace_service, which a tracer has open"), "{log}");
    ensure!(property("Result")? == "success", "{log}");
    drop(user);
    systemctl("start")?;
    waits()?;
    all_defined()?;
    systemctl("stop")?;
    let left = defined(SERVICE_PROBES)?;
    ensure!(left.is_empty(), "{left:?}");
    systemctl("start")
}
