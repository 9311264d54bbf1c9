//! `kfd-workload script`, steered line by line: each operation is over when [`Steered::act`] returns.

use super::sysfs;
use super::wait::{SOON, until};
use super::workload::Workload;
use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;
use serde_json::Value;
use std::fs;
use std::ops::{Deref, DerefMut};
use std::path::Path;
use std::process::Command;

/// The kernel searches for a free PID from the one after this on (kernel/pid.c).
const LAST_PID: &str = "/proc/sys/kernel/ns_last_pid";

#[derive(Debug)]
pub struct Steered(Workload);

/// An operation that was sent.
#[derive(Debug)]
pub struct Begun {
    op: String,
    /// Number of earlier lines of the same operation.
    before: usize,
}

impl Steered {
    pub fn start() -> Result<Self> {
        Workload::ready(&["script"]).map(Self)
    }

    /// A debugger of this process, which has nothing enabled yet.
    pub fn debugger_of(pid: u32) -> Result<Self> {
        Workload::ready(&["debugger", &pid.to_string()]).map(Self)
    }

    /// A prepared command that becomes `kfd-workload script`.
    pub fn start_by(command: &mut Command) -> Result<Self> {
        Workload::ready_by(command).map(Self)
    }

    /// A process with exactly this PID; `None` if a long-lived task has taken it.
    pub fn with_pid(pid: u32) -> Result<Option<Self>> {
        Self::started_with_pid(pid, Self::start)
    }

    /// [`Self::with_pid`] of what `start` makes by one fork.
    pub fn started_with_pid(pid: u32, start: impl Fn() -> Result<Self>) -> Result<Option<Self>> {
        for _ in 0..20 {
            fs::write(LAST_PID, (pid - 1).to_string()).with_context(|| format!("write {LAST_PID}"))?;
            // another task may have been quicker: then this one is dropped, and the PID requested again
            let steered = start()?;
            if steered.pid() == pid {
                return Ok(Some(steered));
            }
        }
        let taker = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        eprintln!("PID {pid} was not to be had: `{}` has it", taker.trim_end());
        Ok(None)
    }

    /// [`Self::start`], and operations that must succeed.
    pub fn having(operations: &[&str]) -> Result<Self> {
        let mut steered = Self::start()?;
        operations.iter().try_for_each(|operation| steered.must(operation))?;
        Ok(steered)
    }

    /// [`Self::act`], which must succeed.
    pub fn must(&mut self, operation: &str) -> Result<()> {
        let reply = self.act(operation)?;
        ensure!(reply["errno"].is_null(), "`{operation}`: {reply}");
        Ok(())
    }

    /// The id of its queue with this number, counted from its first one: as operations count them.
    pub fn queue_id(&self, number: u64) -> Result<u64> {
        let made = self.operations("create");
        let first = made.iter().find_map(|line| line["queue_id"].as_u64()).context("it has made no queue")?;
        Ok(first + number)
    }

    /// Kills it, and waits until the driver has freed its resources.
    pub fn kill(mut self) -> Result<()> {
        let pid = self.pid();
        self.signal(Signal::SIGKILL)?;
        self.wait_exit(SOON)?;
        until(&format!("process {pid} to go"), SOON, || {
            Ok((!sysfs::processes(Path::new("/sys"))?.contains(&pid)).then_some(()))
        })
    }

    /// Performs one operation of one ioctl; returns its line.
    pub fn act(&mut self, operation: &str) -> Result<Value> {
        let begun = self.begin(operation)?;
        self.answer(&begun)
    }

    /// The same without waiting for the line: see [`Self::answer`].
    pub fn begin(&mut self, operation: &str) -> Result<Begun> {
        let op = operation.split(' ').next().context("no operation")?.to_owned();
        let before = self.0.operations(&op).len();
        self.0.send_line(operation)?;
        Ok(Begun { op, before })
    }

    /// Waits for the line of an operation.
    pub fn answer(&self, Begun { op, before }: &Begun) -> Result<Value> {
        self.0.wait_lines(op, SOON, |lines| {
            lines.iter().filter(|line| line["op"] == **op).nth(*before).cloned()
        })
    }
}

impl Deref for Steered {
    type Target = Workload;
    fn deref(&self) -> &Workload {
        &self.0
    }
}

impl DerefMut for Steered {
    fn deref_mut(&mut self) -> &mut Workload {
        &mut self.0
    }
}
