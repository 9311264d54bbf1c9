//! Calls of driver functions, by name.

use anyhow::Result;

use super::tracefs::{At, Line, TracefsProbes};

/// One call, by the function's name and the task that made it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    pub function: String,
    pub comm: String,
    pub pid: u32,
}

/// Probes on the given functions. One at a time.
#[derive(Debug)]
pub struct Calls(TracefsProbes);

impl Calls {
    /// Names must be unique in the running kernel.
    ///
    /// # Errors
    /// When the kernel refuses a probe: no such function, or several of the name.
    pub fn of(functions: &[&str]) -> Result<Self> {
        let mut probes = TracefsProbes::new("kfd_witness");
        for function in functions {
            probes.add(At::Entry, function, function, "")?;
        }
        probes.enable()?;
        Ok(Self(probes))
    }

    /// All calls so far, in order.
    pub fn seen(&self) -> Result<Vec<Call>> {
        let call = |line: Line<'_>| Call {
            function: line.event.to_owned(),
            comm: line.comm.to_owned(),
            pid: line.tid,
        };
        Ok(self.0.trace()?.lines().filter_map(Line::parse).map(call).collect())
    }
}
