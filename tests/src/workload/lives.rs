//! Processes with more than one life, and one with hardly any.

use super::until::Finish;
use super::{cgroup, queues, report, script};
use crate::kfd::uapi::QueueType;
use anyhow::{Context, Result, ensure};
use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::unistd::{ForkResult, Pid, fork, getpid, getppid, pause};
use serde_json::json;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// One PID, two lives: the first one's queue ends in exec, the second one opens the device anew.
pub(crate) fn exec_self() -> Result<()> {
    let gpus = queues::gpus()?;
    let mut client = queues::open()?;
    queues::make(&mut client, QueueType::ComputeAql, &gpus[0])?;
    report::counts(&client.tally)?;
    let error = Command::new(script::program()).args(["hold", "--aql=1", "--sdma=0"]).exec();
    Err(error).context("exec this program")
}

/// The rest of a script, after exec.
pub(crate) fn exec_script(operations: &[String]) -> Result<()> {
    let error = Command::new(script::program()).arg("script").args(operations).exec();
    Err(error).context("exec this program")
}

/// Parent and child with one queue each; both print ready, with their PID, in any order.
pub(crate) fn fork_child() -> Result<()> {
    let finish = Finish::on_signals()?;
    let gpus = queues::gpus()?;
    let mut client = queues::open()?;
    let queue = queues::make(&mut client, QueueType::ComputeAql, &gpus[0])?;
    let mut child = Command::new(script::program())
        .args(["hold", "--aql=1", "--sdma=0"])
        .spawn()
        .context("start the child")?;
    report::done("fork", &json!({"child": child.id()}))?;
    report::ready()?;
    finish.wait()?;
    nix::sys::signal::kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGTERM).ok();
    let status = child.wait().context("wait for the child")?;
    queues::destroy(&mut client, queue.queue_id)?;
    report::counts(&client.tally)?;
    ensure!(status.success(), "the child: {status}");
    Ok(())
}

/// A child that does nothing: it inherits this process's open descriptors, and ends with it.
pub(crate) fn fork_that_stays() -> Result<()> {
    let parent = getpid();
    // SAFETY: no other thread of script runs now; the child makes system calls and leaves by _exit or a
    // signal.
    let child = match unsafe { fork() }.context("fork")? {
        ForkResult::Child => stay(parent),
        ForkResult::Parent { child } => child,
    };
    report::done("fork", &json!({"child": child.as_raw()}))
}

fn stay(parent: Pid) -> ! {
    if prctl::set_pdeathsig(Signal::SIGKILL).is_ok() {
        // if the parent ended before that, no signal is sent
        while getppid() == parent {
            pause();
        }
    }
    // SAFETY: _exit runs no handler of the parent's copy.
    unsafe { libc::_exit(1) }
}

/// A process that ends before its /proc entry can be read.
pub(crate) fn short(cgroup: Option<&str>) -> Result<()> {
    cgroup.map_or(Ok(()), cgroup::join)?;
    let gpus = queues::gpus()?;
    let mut client = queues::open()?;
    let queue = queues::make(&mut client, QueueType::ComputeAql, &gpus[0])?;
    queues::destroy(&mut client, queue.queue_id)?;
    report::counts(&client.tally)
}
