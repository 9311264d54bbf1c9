//! The same measurements with bpftrace and strace, as Debian ships them.

use super::sites;
use super::subject::{HANDLERS, Whom};
use crate::harness::child::OwnChild;
use crate::harness::until;
use crate::harness::wait::ATTACH;
use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// `struct kfd_ioctl_create_queue_args` (uapi/linux/kfd_ioctl.h): `ring_size`, `gpu_id`, `queue_type`.
const CREATE_ARGS: &str =
    "*(uint64*)arg2, *(uint32*)(arg2 + 32), *(uint32*)(arg2 + 36), *(uint32*)(arg2 + 40)";

/// bpftrace's program for a latency histogram per process.
pub(super) fn histogram(whom: Whom) -> String {
    let mut program = String::new();
    for function in HANDLERS {
        program += &format!("kprobe:{function} {} {{ @start[tid] = nsecs; }}\n", filter(whom));
        program += &format!(
            "kretprobe:{function} /@start[tid]/ {{ @ns[pid] = hist(nsecs - @start[tid]); delete(@start[tid]); }}\n"
        );
    }
    program
}

/// bpftrace's program for one line with arguments per call.
pub(super) fn events(whom: Whom) -> String {
    let [create, destroy] = HANDLERS;
    let filter = filter(whom);
    format!(
        "kprobe:{create} {filter} {{ printf(\"call %d %s %llx %u %u %u\\n\", pid, comm, {CREATE_ARGS}); }}\n\
         kprobe:{destroy} {filter} {{ printf(\"call %d %s %u\\n\", pid, comm, *(uint32*)arg2); }}\n"
    )
}

fn filter(whom: Whom) -> String {
    if whom.only { format!("/pid == {}/", whom.pid) } else { String::new() }
}

/// A running tracer, with its output in a file.
#[derive(Debug)]
pub(super) struct Foreign {
    child: OwnChild,
    out: PathBuf,
}

/// How many calls it reported, and how many it reported as lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Reported {
    pub(super) calls: u64,
    pub(super) lost: u64,
}

impl Foreign {
    /// Starts bpftrace; returns once its probes are attached.
    pub(super) fn bpftrace(program: &str) -> Result<Self> {
        let before = sites::read()?.len();
        let mut started = Self::start("bpftrace", &["-e", program])?;
        let wanted = before + program.matches("probe:").count();
        until("bpftrace's probes", ATTACH, || {
            started.alive()?;
            Ok((sites::read()?.len() == wanted).then_some(()))
        })?;
        Ok(started)
    }

    /// Starts strace on the ioctls of a process; returns once it is attached.
    pub(super) fn strace(pid: u32) -> Result<Self> {
        let mut started = Self::start("strace", &["-f", "-e", "trace=ioctl", "-p", &pid.to_string()])?;
        let status = format!("/proc/{pid}/status");
        until("strace to attach", ATTACH, || {
            started.alive()?;
            let text = fs::read_to_string(&status).with_context(|| format!("read {status}"))?;
            Ok((!text.contains("TracerPid:\t0\n")).then_some(()))
        })?;
        Ok(started)
    }

    fn start(program: &str, words: &[&str]) -> Result<Self> {
        let out = std::env::temp_dir().join(format!("kfd-cost.{program}"));
        let file = File::create(&out).with_context(|| format!("write {}", out.display()))?;
        let errors = file.try_clone().context("share a file")?;
        let mut command = Command::new(program);
        command.args(words).stdin(Stdio::null()).stdout(file).stderr(errors);
        let child = command.spawn().with_context(|| format!("start {program}"))?;
        Ok(Self { child: OwnChild(child), out })
    }

    fn alive(&mut self) -> Result<()> {
        if let Some(status) = self.child.try_wait().context("look after it")? {
            bail!("it ended: {status}: {}", self.output()?);
        }
        Ok(())
    }

    fn output(&self) -> Result<String> {
        let bytes = fs::read(&self.out).with_context(|| format!("read {}", self.out.display()))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Sends Ctrl-C; returns what it reported.
    pub(super) fn stop(mut self) -> Result<Reported> {
        kill(Pid::from_raw(i32::try_from(self.child.id())?), Signal::SIGINT).context("stop it")?;
        until("its end", ATTACH, || Ok(self.child.try_wait()?))?;
        let text = self.output()?;
        ensure!(!text.contains("ERROR"), "{text}");
        Ok(reported(&text))
    }
}

/// One line per call (`call ...` of [`events`], strace's `ioctl(...`), or bars of a histogram:
/// `[512, 1K)   123 |@@@ |`.
fn reported(text: &str) -> Reported {
    let mut reported = Reported::default();
    for line in text.lines() {
        let line = line.trim_start();
        if line.starts_with("call ") || line.contains("ioctl(") {
            reported.calls += 1;
        } else if let Some((_, bar)) = line.strip_prefix('[').and_then(|line| line.split_once([')', ']'])) {
            reported.calls += bar.split_whitespace().next().and_then(|count| count.parse().ok()).unwrap_or(0);
        } else if let Some(rest) = line.strip_prefix("Lost ") {
            reported.lost += rest.split_whitespace().next().and_then(|count| count.parse().ok()).unwrap_or(0);
        }
    }
    reported
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_they_reported_is_counted() {
        let text = "Attaching 3 probes...\n@ns[99]: \n[256, 512)             1 |     |\n[512, 1K)            412 |@@@@@|\n[2M, 4M]   7 |@|\n";
        assert_eq!(reported(text), Reported { calls: 420, lost: 0 });
        let text = "call 7 kfd-cost 7f00 1 2 3\nLost 12 events\ncall 7 kfd-cost 4\n";
        assert_eq!(reported(text), Reported { calls: 2, lost: 12 });
        let text = "strace: Process 9 attached\nioctl(3, AMDKFD_IOC_DESTROY_QUEUE, 0x7f) = 0\n[pid 9] ioctl(3, 1) = -1\nstrace: Process 9 detached\n";
        assert_eq!(reported(text).calls, 2);
    }

    #[test]
    fn only_the_process_asked_for_is_watched() {
        let (all, one) = (Whom { pid: 7, only: false }, Whom { pid: 7, only: true });
        assert!(!histogram(all).contains("pid == ") && !events(all).contains("pid == "));
        assert_eq!(histogram(one).matches("/pid == 7/").count(), HANDLERS.len());
        assert_eq!(events(one).matches("/pid == 7/").count(), HANDLERS.len());
        assert_eq!(histogram(all).matches("probe:").count(), 2 * HANDLERS.len());
    }
}
