//! Calls of driver functions as tracefs sees them: a witness that shares nothing with the tracer.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

const TRACEFS: &str = "/sys/kernel/tracing";
const GROUP: &str = "kfd_witness";

/// One call, by the function's name and the task that made it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    pub function: String,
    pub comm: String,
    pub pid: u32,
}

/// kprobes of its own on the given functions, in a trace instance of its own; gone when dropped. One at a time.
#[derive(Debug)]
pub struct Calls {
    instance: PathBuf,
    functions: Vec<String>,
}

impl Calls {
    /// Names must be unique in the running kernel.
    ///
    /// # Errors
    /// When the kernel refuses a probe: no such function, or several of the name.
    pub fn of(functions: &[&str]) -> Result<Self> {
        let instance = Path::new(TRACEFS).join("instances").join(GROUP);
        let mut calls = Self { instance, functions: Vec::new() };
        for function in functions {
            command(&format!("p:{GROUP}/{function} {function}"))?;
            calls.functions.push((*function).to_owned());
        }
        fs::create_dir_all(&calls.instance).context("make a trace instance")?;
        calls.enable("1")?;
        Ok(calls)
    }

    fn enable(&self, value: &str) -> Result<()> {
        let path = self.instance.join("events").join(GROUP).join("enable");
        fs::write(&path, value).with_context(|| format!("write {value} to {}", path.display()))
    }

    /// All calls so far, in order.
    pub fn seen(&self) -> Result<Vec<Call>> {
        let text = fs::read_to_string(self.instance.join("trace")).context("read the trace")?;
        Ok(text.lines().filter_map(call).collect())
    }
}

impl Drop for Calls {
    fn drop(&mut self) {
        // What cannot be removed is found by the next `of`, which then fails.
        let _ = self.enable("0");
        let _ = fs::remove_dir(&self.instance);
        for function in &self.functions {
            let _ = command(&format!("-:{GROUP}/{function}"));
        }
    }
}

fn command(text: &str) -> Result<()> {
    let mut list = OpenOptions::new().append(true).open(Path::new(TRACEFS).join("kprobe_events"))?;
    list.write_all(text.as_bytes()).with_context(|| format!("tell kprobe_events `{text}`"))
}

/// `  kworker/0:1-123   [000] .....    12.345678: kfd_open: (kfd_open+0x0/0x90 [amdgpu])`
fn call(line: &str) -> Option<Call> {
    let (task, rest) = line.split_once(" [")?;
    // A command name may have dashes of its own.
    let (comm, pid) = task.trim().rsplit_once('-')?;
    let function = rest.split(": ").nth(1)?;
    Some(Call { function: function.to_owned(), comm: comm.to_owned(), pid: pid.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_trace_is_a_call() {
        let line =
            "     kfd-workload-217     [001] d..1.   163.043164: kfd_open: (kfd_open+0x0/0x90 [amdgpu])";
        let expected = Call { function: "kfd_open".to_owned(), comm: "kfd-workload".to_owned(), pid: 217 };
        assert_eq!(call(line), Some(expected));
        assert_eq!(call("# entries-in-buffer/entries-written: 2/2   #P:2"), None);
        assert_eq!(call("#           TASK-PID     CPU#  |||||  TIMESTAMP  FUNCTION"), None);
    }
}
