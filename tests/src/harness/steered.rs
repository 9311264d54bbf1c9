//! `kfd-workload script`, steered line by line: each operation is over when [`Steered::act`] comes back.

use std::ops::{Deref, DerefMut};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;
use serde_json::Value;

use super::sysfs;
use super::wait::{SOON, until};
use super::workload::Workload;

#[derive(Debug)]
pub struct Steered(Workload);

impl Steered {
    pub fn start() -> Result<Self> {
        Workload::ready(&["script"]).map(Self)
    }

    /// [`Self::start`], and operations that must succeed.
    pub fn having(operations: &[&str]) -> Result<Self> {
        let mut steered = Self::start()?;
        operations.iter().try_for_each(|operation| steered.must(operation))?;
        Ok(steered)
    }

    /// [`Self::act`], which must succeed.
    pub fn must(&mut self, operation: &str) -> Result<()> {
        let said = self.act(operation)?;
        ensure!(said["errno"].is_null(), "`{operation}`: {said}");
        Ok(())
    }

    /// Kills it, and waits until the driver has freed what it had.
    pub fn kill(mut self) -> Result<()> {
        let pid = self.pid();
        self.signal(Signal::SIGKILL)?;
        self.wait_exit(SOON)?;
        until(&format!("process {pid} to go"), SOON, || {
            Ok((!sysfs::processes(Path::new("/sys"))?.contains(&pid)).then_some(()))
        })
    }

    /// One operation of one ioctl, and the line that it gave.
    pub fn act(&mut self, operation: &str) -> Result<Value> {
        let op = operation.split(' ').next().context("no operation")?;
        let before = self.0.operations(op).len();
        self.0.send_line(operation)?;
        self.0.wait_lines(operation, SOON, |lines| {
            lines.iter().filter(|line| line["op"] == op).nth(before).cloned()
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
