//! Writes of MQDs as tracefs sees them, by probes of its own on the same functions: a witness that shares nothing with
//! the tracer. Takes in /proc/kallsyms and a trace; gives out the outermost calls, in order.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

const TRACEFS: &str = "/sys/kernel/tracing";
const GROUP: &str = "mqd_witness";

/// `KFD_QUEUE_TYPE_HIQ` of `enum kfd_queue_type` (kfd_priv.h), the same in every kernel of the matrix.
const HIQ: u32 = 2;

/// Functions by what they begin with, and the register of their `struct queue_properties *`: the third argument of an
/// update, the fifth of the others (`struct mqd_manager`, kfd_mqd_manager.h).
const FAMILIES: [(&str, &str, &str); 3] =
    [("init_mqd", "init", "%r8"), ("update_mqd", "update", "%dx"), ("restore_mqd", "restore", "%r8")];

/// One outermost call about a queue of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// The thread that made it: of the owner's in an ioctl.
    pub tid: u32,
    pub queue_id: u32,
    /// `init`, `update` or `restore`.
    pub op: String,
}

/// What a trace tells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Told {
    pub writes: Vec<Write>,
    /// Outermost calls about the scheduler's own queue.
    pub hiq: usize,
    /// Calls inside of others.
    pub nested: usize,
}

/// The probes, gone when dropped. One at a time.
#[derive(Debug)]
pub struct MqdCalls {
    instance: PathBuf,
    events: Vec<String>,
}

impl MqdCalls {
    /// Probes every copy of every function, by address: the copies share their names.
    ///
    /// # Errors
    /// When the kernel refuses one, or the driver has none.
    pub fn start() -> Result<Self> {
        let symbols = fs::read_to_string("/proc/kallsyms").context("read /proc/kallsyms")?;
        let instance = Path::new(TRACEFS).join("instances").join(GROUP);
        let mut calls = Self { instance, events: Vec::new() };
        for (number, (address, op, register)) in symbols.lines().filter_map(function).enumerate() {
            let arguments = format!("type=+0({register}):u32 id=+8({register}):u32");
            calls.probe('p', &format!("{op}_{number}"), address, &arguments)?;
            calls.probe('r', &format!("return_{number}"), address, "")?;
        }
        ensure!(!calls.events.is_empty(), "the driver has no MQD functions");
        fs::create_dir_all(&calls.instance).context("make a trace instance")?;
        calls.enable("1")?;
        Ok(calls)
    }

    fn probe(&mut self, kind: char, event: &str, address: &str, arguments: &str) -> Result<()> {
        command(&format!("{kind}:{GROUP}/{event} 0x{address} {arguments}"))?;
        self.events.push(event.to_owned());
        Ok(())
    }

    fn enable(&self, value: &str) -> Result<()> {
        let path = self.instance.join("events").join(GROUP).join("enable");
        fs::write(&path, value).with_context(|| format!("write {value} to {}", path.display()))
    }

    /// All that was called so far.
    pub fn told(&self) -> Result<Told> {
        let text = fs::read_to_string(self.instance.join("trace")).context("read the trace")?;
        told(&text)
    }
}

impl Drop for MqdCalls {
    fn drop(&mut self) {
        // what cannot be removed is found by the next `start`, which then fails
        let _ = self.enable("0");
        let _ = fs::remove_dir(&self.instance);
        for event in &self.events {
            let _ = command(&format!("-:{GROUP}/{event}"));
        }
    }
}

fn command(text: &str) -> Result<()> {
    let mut list = OpenOptions::new().append(true).open(Path::new(TRACEFS).join("kprobe_events"))?;
    list.write_all(text.as_bytes()).with_context(|| format!("tell kprobe_events `{text}`"))
}

/// `ffffffffc0a81234 t init_mqd_sdma\t[amdgpu]`: address, what it does, where its queue is. The compiler's parts of a
/// function (`.part.0`, `.cold`) are none.
fn function(line: &str) -> Option<(&str, &'static str, &'static str)> {
    let mut words = line.split_whitespace();
    let (address, kind, name) = (words.next()?, words.next()?, words.next()?);
    let own = words.next() == Some("[amdgpu]") && kind.eq_ignore_ascii_case("t");
    if !own || name.contains(".part.") || name.contains(".cold") {
        return None;
    }
    let family = FAMILIES.iter().find(|(prefix, _, _)| name.starts_with(prefix));
    family.map(|(_, op, register)| (address, *op, *register))
}

/// Follows entries and returns of each thread.
fn told(trace: &str) -> Result<Told> {
    let mut told = Told::default();
    let mut depths: BTreeMap<u32, usize> = BTreeMap::new();
    for line in trace.lines().filter(|line| !line.starts_with('#')) {
        ensure!(!line.contains("LOST"), "the trace is not whole: {line}");
        let (tid, event, rest) = parts(line).with_context(|| format!("not understood: {line}"))?;
        let depth = depths.entry(tid).or_default();
        let op = event.split('_').next().unwrap_or_default();
        if op == "return" {
            *depth = depth.checked_sub(1).with_context(|| format!("a return without a call: {line}"))?;
            continue;
        }
        *depth += 1;
        if *depth > 1 {
            told.nested += 1;
        } else if number(rest, "type=")? == HIQ {
            told.hiq += 1;
        } else {
            told.writes.push(Write { tid, queue_id: number(rest, "id=")?, op: op.to_owned() });
        }
    }
    Ok(told)
}

/// `  kfd-workload-217  [001] d..1.  163.04: update_3: (update_mqd+0x0/0x90 [amdgpu]) type=0 id=1`: thread, event, rest.
fn parts(line: &str) -> Option<(u32, &str, &str)> {
    let (task, rest) = line.split_once(" [")?;
    let (_, tid) = task.trim().rsplit_once('-')?;
    let (_, rest) = rest.split_once(": ")?;
    let (event, rest) = rest.split_once(": ")?;
    Some((tid.parse().ok()?, event, rest))
}

fn number(text: &str, key: &str) -> Result<u32> {
    let found = text.split_whitespace().find_map(|word| word.strip_prefix(key));
    found.and_then(|value| value.parse().ok()).with_context(|| format!("no {key} in {text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_found_by_family_and_parts_are_left_out() {
        assert_eq!(function("ffffc0a8 t init_mqd_sdma\t[amdgpu]"), Some(("ffffc0a8", "init", "%r8")));
        assert_eq!(function("ffffc0a9 t update_mqd\t[amdgpu]"), Some(("ffffc0a9", "update", "%dx")));
        for other in [
            "ffffc0a8 t init_mqd.cold\t[amdgpu]",
            "ffffc0a8 t update_mqd",
            "ffffc0a8 t mqd_manager_init_v9\t[amdgpu]",
            "ffffc0a8 d init_mqd_table\t[amdgpu]",
        ] {
            assert_eq!(function(other), None, "{other}");
        }
    }

    #[test]
    fn only_the_outermost_call_of_a_thread_is_a_write() {
        let trace = "# tracer: nop\n\
            a-b-7   [000] d....  1.1: init_0: (init_mqd+0x0/0x90 [amdgpu]) type=0 id=3\n\
            kworker/0:1-9   [001] d....  1.2: init_5: (init_mqd_hiq+0x0/0x90 [amdgpu]) type=2 id=0\n\
            a-b-7   [000] d....  1.2: update_1: (update_mqd+0x0/0x90 [amdgpu]) type=0 id=3\n\
            a-b-7   [000] d....  1.3: return_1: (init_mqd+0x10/0x90 [amdgpu] <- update_mqd)\n\
            a-b-7   [000] d....  1.4: return_0: (x+0x10/0x90 [amdgpu] <- init_mqd)\n\
            a-b-7   [000] d....  1.5: update_1: (update_mqd+0x0/0x90 [amdgpu]) type=1 id=4\n";
        let write = |queue_id, op: &str| Write { tid: 7, queue_id, op: op.to_owned() };
        let expected = Told { writes: vec![write(3, "init"), write(4, "update")], hiq: 1, nested: 1 };
        assert_eq!(told(trace).unwrap(), expected);
    }

    #[test]
    fn a_trace_that_is_not_whole_is_refused() {
        assert!(told("CPU:1 [LOST 12 EVENTS]\n").is_err());
        assert!(told("a-7 [000] d.. 1.4: return_0: (x <- init_mqd)\n").is_err());
    }
}
