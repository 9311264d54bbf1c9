//! bpf(2) calls of a process, from the kernel's own tracepoint.
//!
//! In: a process. Out: the commands it has called since, each once. Uses a separate trace instance, removed
//! when dropped.

use anyhow::{Context, Result, ensure};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

const INSTANCE: &str = "/sys/kernel/tracing/instances/kfd_trace_bpf_calls";

/// `BPF_PROG_TEST_RUN` (include/uapi/linux/bpf.h).
const PROG_TEST_RUN: u64 = 10;

/// Commands that read, change or remove entries of maps, each with programs kept from running
/// (kernel/bpf/syscall.c): look-up, update, delete, look-up and delete, and those of many entries.
const ON_ENTRIES: [u64; 8] = [1, 2, 3, 21, 24, 25, 26, 27];

#[derive(Debug)]
pub struct BpfCalls {
    instance: PathBuf,
}

impl BpfCalls {
    /// Covers all present and future threads of the process.
    pub fn of(pid: u32) -> Result<Self> {
        let calls = Self { instance: Path::new(INSTANCE).to_owned() };
        fs::create_dir_all(&calls.instance).context("make a trace instance")?;
        let tasks = fs::read_dir(format!("/proc/{pid}/task"))?;
        let tids: Vec<String> =
            tasks.map(|task| Ok(task?.file_name().to_string_lossy().into_owned())).collect::<Result<_>>()?;
        calls.write("options/event-fork", "1")?;
        calls.write("set_event_pid", &tids.join(" "))?;
        calls.write("events/syscalls/sys_enter_bpf/enable", "1")?;
        Ok(calls)
    }

    fn write(&self, file: &str, value: &str) -> Result<()> {
        fs::write(self.instance.join(file), value).with_context(|| format!("write {value} to {file}"))
    }

    /// Checks that it has run a program of its own, and touched no map entry itself.
    pub fn touched_no_entry(&self) -> Result<()> {
        let trace = fs::read_to_string(self.instance.join("trace")).context("read the trace")?;
        let called = commands(&trace);
        ensure!(called.contains(&PROG_TEST_RUN), "it has read no map: {called:?}");
        let touched: Vec<_> = ON_ENTRIES.iter().filter(|command| called.contains(command)).collect();
        ensure!(touched.is_empty(), "bpf(2) commands {touched:?}: {trace}");
        Ok(())
    }
}

impl Drop for BpfCalls {
    fn drop(&mut self) {
        let _ = self.write("events/syscalls/sys_enter_bpf/enable", "0");
        let _ = fs::remove_dir(&self.instance);
    }
}

/// `  kfd-trace-217 [001] ..... 163.043164: sys_bpf(cmd: a, uattr: 7ffc0, size: 50)`
fn commands(trace: &str) -> BTreeSet<u64> {
    let command = |line: &str| {
        let (_, call) = line.split_once("sys_bpf(cmd: ")?;
        let number = call.split([',', ' ', ')']).next()?;
        u64::from_str_radix(number.trim_start_matches("0x"), 16).ok()
    };
    trace.lines().filter_map(command).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_read_from_the_trace() {
        let trace = "# tracer: nop\n kfd-trace-217 [001] ..... 163.04: sys_bpf(cmd: a, uattr: 7ffc0, size: 50)\n\
                     kfd-trace-9 [000] ..... 163.05: sys_bpf(cmd: 0x1, uattr: 7f, size: 50)\n";
        assert_eq!(commands(trace), BTreeSet::from([1, PROG_TEST_RUN]));
    }
}
