//! MQD writes as seen by separate tracefs probes on the same functions: a witness that shares nothing with
//! the tracer. In: /proc/kallsyms and a trace. Out: the outermost calls, in order.

use super::tracefs::{At, Line, TracefsProbes};
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;

/// `KFD_QUEUE_TYPE_HIQ` of `enum kfd_queue_type` (kfd_priv.h), the same in every kernel of the matrix.
const HIQ: u32 = 2;

/// Functions by prefix, and the register of their `struct queue_properties *`: the third argument of an
/// update, the fifth of the others (`struct mqd_manager`, kfd_mqd_manager.h).
const FAMILIES: [(&str, &str, &str); 3] =
    [("init_mqd", "init", "%r8"), ("update_mqd", "update", "%dx"), ("restore_mqd", "restore", "%r8")];

/// One outermost call about a queue of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// The calling thread: in an ioctl, one of the owner's.
    pub tid: u32,
    pub queue_id: u32,
    /// `init`, `update` or `restore`.
    pub op: String,
}

/// Contents of a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reported {
    pub writes: Vec<Write>,
    /// Outermost calls about the scheduler's own queue.
    pub hiq: usize,
    /// Calls nested in others.
    pub nested: usize,
}

impl Reported {
    /// Thread, queue and function of each write, comparable to the tracer's from [`traced`].
    pub fn writes(&self) -> Vec<Value> {
        self.writes.iter().map(|write| json!([write.tid, write.queue_id, write.op])).collect()
    }
}

/// Thread, queue and function of `mqd_write` events.
pub fn traced(lines: &[Value]) -> Vec<Value> {
    lines.iter().map(|line| json!([line["tid"], line["queue_id"], line["op"]])).collect()
}

/// The probes. One at a time.
#[derive(Debug)]
pub struct MqdCalls(TracefsProbes);

impl MqdCalls {
    /// Probes every copy of every function, by address: the copies share their names.
    ///
    /// # Errors
    /// When the kernel refuses one, or the driver has none.
    pub fn start() -> Result<Self> {
        let symbols = fs::read_to_string("/proc/kallsyms").context("read /proc/kallsyms")?;
        let mut probes = TracefsProbes::new("mqd_witness");
        let functions: Vec<_> = symbols.lines().filter_map(function).collect();
        ensure!(!functions.is_empty(), "the driver has no MQD functions");
        for (number, (address, op, register)) in functions.into_iter().enumerate() {
            let place = format!("0x{address}");
            let fetchargs = format!("type=+0({register}):u32 id=+8({register}):u32");
            probes.add(At::Entry, &format!("{op}_{number}"), &place, &fetchargs)?;
            probes.add(At::Return, &format!("return_{number}"), &place, "")?;
        }
        probes.enable()?;
        Ok(Self(probes))
    }

    /// All calls so far.
    pub fn reported(&self) -> Result<Reported> {
        reported(&self.0.trace()?)
    }
}

/// `ffffffffc0a81234 t init_mqd_sdma\t[amdgpu]`: address, operation, register of the queue.
/// Compiler-generated parts of a function (`.part.0`, `.cold`) are not functions.
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
fn reported(trace: &str) -> Result<Reported> {
    let mut reported = Reported::default();
    let mut depths: BTreeMap<u32, usize> = BTreeMap::new();
    for line in trace.lines().filter(|line| !line.starts_with('#')) {
        ensure!(!line.contains("LOST"), "the trace is not whole: {line}");
        let Line { tid, event, rest, .. } =
            Line::parse(line).with_context(|| format!("not understood: {line}"))?;
        let depth = depths.entry(tid).or_default();
        let op = event.split('_').next().unwrap_or_default();
        if op == "return" {
            *depth = depth.checked_sub(1).with_context(|| format!("a return without a call: {line}"))?;
            continue;
        }
        *depth += 1;
        if *depth > 1 {
            reported.nested += 1;
        } else if number(rest, "type=")? == HIQ {
            reported.hiq += 1;
        } else {
            reported.writes.push(Write { tid, queue_id: number(rest, "id=")?, op: op.to_owned() });
        }
    }
    Ok(reported)
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
        let expected = Reported { writes: vec![write(3, "init"), write(4, "update")], hiq: 1, nested: 1 };
        assert_eq!(reported(trace).unwrap(), expected);
    }

    #[test]
    fn a_trace_that_is_not_whole_is_refused() {
        assert!(reported("CPU:1 [LOST 12 EVENTS]\n").is_err());
        assert!(reported("a-7 [000] d.. 1.4: return_0: (x <- init_mqd)\n").is_err());
    }
}
