//! Processes with more than one life, and one with hardly any.

use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::json;

use super::until::Finish;
use super::{cgroup, queues, report, script};
use crate::kfd::uapi::QueueType;

/// One PID, two lives: the first one's queue dies in exec, the second one opens the device anew.
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

/// Parent and child with a queue each; both say ready, with their PID, in any order.
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
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(child.id().cast_signed()), nix::sys::signal::SIGTERM)
        .ok();
    let status = child.wait().context("wait for the child")?;
    queues::destroy(&mut client, queue.queue_id)?;
    report::counts(&client.tally)?;
    ensure!(status.success(), "the child: {status}");
    Ok(())
}

/// A process that is gone before anybody can read its /proc entry.
pub(crate) fn short(cgroup: Option<&str>) -> Result<()> {
    cgroup.map_or(Ok(()), cgroup::join)?;
    let gpus = queues::gpus()?;
    let mut client = queues::open()?;
    let queue = queues::make(&mut client, QueueType::ComputeAql, &gpus[0])?;
    queues::destroy(&mut client, queue.queue_id)?;
    report::counts(&client.tally)
}
