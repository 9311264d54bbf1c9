//! Our own probes through tracefs: driver calls, observed in a way that shares nothing with the tracer. The
//! only owner of `kprobe_events`.
//!
//! In: places in the kernel. Out: a trace, and the number of hits of each.

use anyhow::{Context, Result};
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};

const TRACEFS: &str = "/sys/kernel/tracing";

/// Where in a function a probe is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    Entry,
    Return,
}

/// Some probes under one name, in a separate trace instance; removed when dropped. One of a name at a time.
#[derive(Debug)]
pub struct TracefsProbes {
    group: &'static str,
    instance: PathBuf,
    events: Vec<String>,
}

impl TracefsProbes {
    #[must_use]
    pub fn new(group: &'static str) -> Self {
        let instance = Path::new(TRACEFS).join("instances").join(group);
        Self { group, instance, events: Vec::new() }
    }

    /// Adds a disabled probe on a symbol or a `0x` address, with `fetchargs`
    /// (Documentation/trace/kprobetrace.rst).
    ///
    /// # Errors
    /// When the kernel refuses it: no such function, several of the name, or one that cannot be probed.
    pub fn add(&mut self, at: At, event: &str, place: &str, fetchargs: &str) -> Result<()> {
        let kind = if at == At::Entry { 'p' } else { 'r' };
        command(&format!("{kind}:{}/{event} {place} {fetchargs}", self.group))?;
        self.events.push(event.to_owned());
        Ok(())
    }

    /// Enables all of them.
    pub fn enable(&self) -> Result<()> {
        fs::create_dir_all(&self.instance).context("make a trace instance")?;
        self.write_enable("1")
    }

    fn write_enable(&self, value: &str) -> Result<()> {
        let path = self.instance.join("events").join(self.group).join("enable");
        fs::write(&path, value).with_context(|| format!("write {value} to {}", path.display()))
    }

    /// The trace so far.
    pub fn trace(&self) -> Result<String> {
        fs::read_to_string(self.instance.join("trace")).context("read the trace")
    }

    /// How often a probe was hit since it was added.
    pub fn hits(&self, event: &str) -> Result<u64> {
        let path = Path::new(TRACEFS).join("kprobe_profile");
        let profile = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        hits(&profile, event).with_context(|| format!("no {event} in {profile}"))
    }
}

impl Drop for TracefsProbes {
    fn drop(&mut self) {
        // A probe that cannot be removed makes `add` of the next one with the name fail.
        let _ = self.write_enable("0");
        let _ = fs::remove_dir(&self.instance);
        for event in &self.events {
            let _ = command(&format!("-:{}/{event}", self.group));
        }
    }
}

/// The probes of a group that are defined, whoever defined them, in their order.
///
/// # Errors
/// When the list cannot be read.
pub fn defined(group: &str) -> Result<Vec<String>> {
    let path = Path::new(TRACEFS).join("kprobe_events");
    let list = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    Ok(in_group(&list, group))
}

/// `r4096:group/event amdgpu:kfd_ioctl`
fn in_group(list: &str, group: &str) -> Vec<String> {
    let named = list.lines().filter_map(|line| line.split_whitespace().next()?.split_once(':'));
    let of = named.filter_map(|(_, name)| name.split_once('/')).filter(|(of, _)| *of == group);
    of.map(|(_, event)| event.to_owned()).collect()
}

fn command(text: &str) -> Result<()> {
    let mut list = OpenOptions::new().append(true).open(Path::new(TRACEFS).join("kprobe_events"))?;
    list.write_all(text.as_bytes()).with_context(|| format!("write kprobe_events `{text}`"))
}

/// `  call_0    17    0`: hits and misses.
fn hits(profile: &str, event: &str) -> Option<u64> {
    let mut lines = profile.lines().map(str::split_whitespace);
    lines.find_map(|mut words| (words.next() == Some(event)).then(|| words.next()?.parse().ok())?)
}

/// One line of a trace: `  kworker/0:1-9  [001] d..1.  163.04: update_3: (update_mqd+0x0/0x90 [amdgpu])
/// type=0 id=1`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line<'a> {
    pub tid: u32,
    pub event: &'a str,
    /// The place, and the fetched values.
    pub rest: &'a str,
}

impl<'a> Line<'a> {
    /// `None` for a line that is no event.
    pub fn parse(line: &'a str) -> Option<Self> {
        let (task, rest) = line.split_once(" [")?;
        // A command name may itself contain dashes.
        let (_, tid) = task.trim().rsplit_once('-')?;
        let (_, rest) = rest.split_once(": ")?;
        let (event, rest) = rest.split_once(": ")?;
        Some(Self { tid: tid.parse().ok()?, event, rest })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_trace_is_taken_apart() {
        let line =
            "     kfd-workload-217     [001] d..1.   163.043164: up_3: (update_mqd+0x0/0x90 [amdgpu]) type=0";
        let rest = "(update_mqd+0x0/0x90 [amdgpu]) type=0";
        let expected = Line { tid: 217, event: "up_3", rest };
        assert_eq!(Line::parse(line), Some(expected));
        assert_eq!(Line::parse("# entries-in-buffer/entries-written: 2/2   #P:2"), None);
        assert_eq!(Line::parse("#           TASK-PID     CPU#  |||||  TIMESTAMP  FUNCTION"), None);
    }

    #[test]
    fn the_probes_of_a_group_are_listed() {
        let list = "r4096:kfd_trace_service/kfd_ioctl amdgpu:kfd_ioctl\np:kprobes/kfd_open kfd_open\nr4096:kfd_trace/kfd_open \
                    amdgpu:kfd_open\n";
        assert_eq!(in_group(list, "kfd_trace_service"), ["kfd_ioctl"]);
        assert_eq!(in_group(list, "kfd_trace"), ["kfd_open"]);
        assert!(in_group("", "kfd_trace").is_empty());
    }

    #[test]
    fn hits_are_read_from_the_profile() {
        let profile = "  call_1                    5               0\n  call_11        17   2\n";
        assert_eq!((hits(profile, "call_11"), hits(profile, "call_1")), (Some(17), Some(5)));
        assert_eq!(hits(profile, "call_2"), None);
    }
}
