//! `kfd-workload` as a child.

use super::driver::processes_gone;
use super::json_process::JsonProcess;
use super::wait::SOON;
use anyhow::{Context, Result};
use serde_json::Value;
use std::ops::{Deref, DerefMut};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// The workload; `KFD_WORKLOAD` overrides it.
pub fn program() -> String {
    std::env::var("KFD_WORKLOAD").unwrap_or_else(|_| "/bin/kfd-workload".to_owned())
}

#[derive(Debug)]
pub struct Workload(JsonProcess);

impl Workload {
    /// The arguments are described in `kfd_trace_tests::workload::cli`.
    pub fn spawn(args: &[&str]) -> Result<Self> {
        JsonProcess::spawn(&program(), args).map(Self)
    }

    /// [`Self::spawn`] as another user, without any capability.
    pub fn spawn_as(uid: u32, args: &[&str]) -> Result<Self> {
        JsonProcess::start(Command::new(program()).args(args).uid(uid).gid(uid)).map(Self)
    }

    /// Starts it and waits until its queues exist.
    pub fn ready(args: &[&str]) -> Result<Self> {
        Self::ready_by(Command::new(program()).args(args))
    }

    /// The same of a prepared command.
    pub fn ready_by(command: &mut Command) -> Result<Self> {
        let workload = JsonProcess::start(command).map(Self)?;
        workload.wait_line("the workload to be ready", SOON, |line| line["ready"] == true)?;
        Ok(workload)
    }

    /// Starts it, lets it run to its end, and returns its counts.
    pub fn run(args: &[&str]) -> Result<(Self, Vec<Count>)> {
        let mut workload = Self::spawn(args)?;
        let counts = workload.finish()?;
        Ok((workload, counts))
    }

    /// Makes it finish; returns the counts, of its last life if it had several.
    pub fn finish(&mut self) -> Result<Vec<Count>> {
        self.finish_within(SOON)
    }

    /// [`Self::finish`] for a workload that needs longer.
    pub fn finish_within(&mut self, limit: Duration) -> Result<Vec<Count>> {
        self.0.close_stdin();
        self.0.wait_success(limit)?;
        self.counts()
    }

    pub fn counts(&self) -> Result<Vec<Count>> {
        let lines = self.0.lines();
        let line = lines.iter().rfind(|line| line.get("counts").is_some()).context("it gave no counts")?;
        line["counts"].as_array().context("counts")?.iter().map(Count::from_json).collect()
    }

    /// The PID of the owner as the host sees it: for a hidden workload, its child's.
    pub fn host_pid(&self) -> u32 {
        let reported = self.0.lines().iter().find_map(|line| line["host_pid"].as_u64());
        reported.and_then(|pid| pid.try_into().ok()).unwrap_or_else(|| self.0.pid())
    }

    /// The lines of one operation, in order.
    pub fn operations(&self, op: &str) -> Vec<Value> {
        self.0.lines().into_iter().filter(|line| line["op"] == op).collect()
    }

    /// The lines of its ioctls, in order, for all operations.
    pub fn ioctls(&self) -> Vec<Value> {
        self.0
            .lines()
            .into_iter()
            .filter(|line| line.get("op").is_some() && line.get("cmd").is_some())
            .collect()
    }

    /// The lines of its queues.
    pub fn queues(&self) -> Vec<Value> {
        self.operations("create").into_iter().filter(|line| line["errno"].is_null()).collect()
    }
}

impl Deref for Workload {
    type Target = JsonProcess;
    fn deref(&self) -> &JsonProcess {
        &self.0
    }
}

impl DerefMut for Workload {
    fn deref_mut(&mut self) -> &mut JsonProcess {
        &mut self.0
    }
}

/// A workload's count of one command with one outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Count {
    pub nr: u64,
    pub cmd: u64,
    /// Size of the arguments in bytes, as encoded in the command.
    pub size: u64,
    /// By name; `None` is success.
    pub errno: Option<String>,
    pub count: u64,
}

impl Count {
    fn from_json(value: &Value) -> Result<Self> {
        let number = |key: &str| value[key].as_u64().with_context(|| format!("{key} in {value}"));
        Ok(Self {
            nr: number("nr")?,
            cmd: number("cmd")?,
            size: number("size")?,
            errno: value["errno"].as_str().map(ToOwned::to_owned),
            count: number("count")?,
        })
    }
}

/// Writes a number to one of kfdsim's controls, see `tests/kfdsim/control.c`.
pub fn kfdsim(control: &str, value: u32) -> Result<()> {
    write_control(control, &value.to_string())
}

/// Writes two numbers: a PID and the trigger of its eviction, or the node of its fault, a PID and whether it is debugged, a GPU and whether
/// it sleeps, 1 and the GPU to hang.
pub fn kfdsim_at(control: &str, value: u32, more: u32) -> Result<()> {
    write_control(control, &format!("{value} {more}"))
}

/// Makes a write of a process fault: on its `node`-th GPU, at this page number.
pub fn vm_fault(pid: u32, node: u32, page: u64) -> Result<()> {
    write_control("vmfault", &format!("{pid} {node} {page}"))
}

/// Removes kfdsim's GPUs and adds others, see `tests/kfdsim/README.md`, once the ending processes have been
/// released.
pub fn reshape(shape: &str) -> Result<()> {
    processes_gone()?;
    write_control("shape", shape)
}

fn write_control(control: &str, text: &str) -> Result<()> {
    let path = Path::new("/sys/kernel/debug/kfdsim").join(control);
    std::fs::write(&path, text).with_context(|| format!("write {text} to {}", path.display()))
}
