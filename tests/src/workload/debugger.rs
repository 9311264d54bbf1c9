//! `debugger`: traces another process, and suspends and resumes its queues as rocgdb does.

use super::{queues, report};
use crate::kfd::{Client, debug};
use anyhow::{Context, Result, bail};
use nix::sys::ptrace;
use nix::unistd::{Pid, pipe};
use serde_json::{Value, json};
use std::fs::File;
use std::io::stdin;

/// One line of standard input.
enum Step {
    Enable,
    Snapshot,
    Suspend { grace_period: u32, ids: Vec<u32> },
    Resume { ids: Vec<u32> },
    Disable,
}

impl Step {
    fn parse(line: &str) -> Result<(&str, Self)> {
        let (name, rest) = line.trim().split_once(' ').unwrap_or((line.trim(), ""));
        let numbers: Vec<u32> = rest.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
        let step = match (name, numbers.as_slice()) {
            ("enable", []) => Self::Enable,
            ("snapshot", []) => Self::Snapshot,
            ("suspend", [grace_period, ids @ ..]) => {
                Self::Suspend { grace_period: *grace_period, ids: ids.to_vec() }
            }
            ("resume", ids) => Self::Resume { ids: ids.to_vec() },
            ("disable", []) => Self::Disable,
            _ => bail!("`{line}` is not enable, snapshot, suspend GRACE ID..., resume ID... or disable"),
        };
        Ok((name, step))
    }

    /// Issues one ioctl, whose failure the client stores.
    fn take(self, client: &mut Client, pid: u32, events: &File) -> Value {
        match self {
            Self::Enable => {
                let _ = debug::enable(client, pid, events);
                json!({})
            }
            Self::Snapshot => json!({"queues": debug::snapshot(client, pid).ok()}),
            Self::Suspend { grace_period, mut ids } => {
                let _ = debug::suspend(client, pid, grace_period, &mut ids);
                json!({ "words": ids })
            }
            Self::Resume { mut ids } => {
                let _ = debug::resume(client, pid, &mut ids);
                json!({ "words": ids })
            }
            Self::Disable => {
                let _ = debug::disable(client, pid);
                json!({})
            }
        }
    }
}

/// Takes steps until standard input ends; the driver then lets go of the process.
pub(crate) fn run(pid: u32) -> Result<()> {
    // the driver admits the thread that traces the leader
    let leader = Pid::from_raw(pid.cast_signed());
    ptrace::seize(leader, ptrace::Options::empty()).with_context(|| format!("trace process {pid}"))?;
    let mut client = queues::open()?;
    // an event file of a kind that the kernel can write to
    let (_reader, writer) = pipe().context("pipe")?;
    let events = File::from(writer);
    report::ready()?;
    for line in stdin().lines() {
        let line = line.context("read standard input")?;
        let (name, step) = Step::parse(&line)?;
        let detail = step.take(&mut client, pid, &events);
        report::call(name, &client, detail)?;
    }
    report::counts(&client.tally)
}
