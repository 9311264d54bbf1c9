//! Calls of driver functions, by name.

use super::tracefs::{At, Line, TracefsProbes};
use anyhow::Result;

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
            // Before the line the trace has names from a cache that has occasionally lost one.
            probes.add(At::Entry, function, function, "comm=$comm")?;
        }
        probes.enable()?;
        Ok(Self(probes))
    }

    /// All calls so far, in order.
    pub fn seen(&self) -> Result<Vec<Call>> {
        let call = |line: Line<'_>| Call {
            function: line.event.to_owned(),
            comm: comm(line.rest).unwrap_or_default().to_owned(),
            pid: line.tid,
        };
        Ok(self.0.trace()?.lines().filter_map(Line::parse).map(call).collect())
    }
}

/// `(kfd_ioctl+0x0/0x4d0 [amdgpu]) comm="kworker/0:1"`: the fetched name. It may itself contain quotes.
fn comm(rest: &str) -> Option<&str> {
    rest.split_once(" comm=\"")?.1.strip_suffix('"')
}

#[cfg(test)]
mod tests {
    use super::comm;

    #[test]
    fn a_fetched_name_is_read() {
        let rest = "(kfd_process_restore_queues+0x0/0x90 [amdgpu]) comm=\"a \"b\" [c]\"";
        assert_eq!(comm(rest), Some("a \"b\" [c]"));
        assert_eq!(comm("(kfd_process_restore_queues+0x0/0x90 [amdgpu])"), None);
    }
}
