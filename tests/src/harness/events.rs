//! Finds events among the lines of a stream.

use super::json_lines::JsonLines;
use super::steered::Steered;
use super::wait::SOON;
use anyhow::Result;
use serde_json::Value;

/// Events of one kind of one process, in order.
pub fn of(lines: &[Value], event: &str, pid: u32) -> Vec<Value> {
    lines.iter().filter(|line| line["event"] == event && line["pid"] == pid).cloned().collect()
}

/// Events of one kind, of any process, in order.
pub fn all(lines: &[Value], event: &str) -> Vec<Value> {
    lines.iter().filter(|line| line["event"] == event).cloned().collect()
}

/// [`of`], once there are at least `wanted`.
pub fn wait(stream: &JsonLines, event: &str, pid: u32, wanted: usize) -> Result<Vec<Value>> {
    stream.wait_lines(&format!("{wanted} {event} of process {pid}"), SOON, |lines| {
        Some(of(lines, event, pid)).filter(|found| found.len() >= wanted)
    })
}

/// All lines up to now: the ring buffer keeps the order, so all lines from before a call of `process` have
/// arrived once the call's line has. `process` must not have called GET_VERSION before the stream began.
pub fn so_far(stream: &JsonLines, process: &mut Steered) -> Result<Vec<Value>> {
    process.act("version")?;
    let (pid, wanted) = (process.pid(), process.operations("version").len());
    stream.wait_lines("a call as a mark", SOON, |lines| {
        let calls = of(lines, "ioctl", pid);
        let marks = calls.iter().filter(|call| call["ioctl"] == "GET_VERSION").count();
        (marks >= wanted).then(|| lines.to_vec())
    })
}

/// The command of an ioctl, which a line has in hex.
pub fn command(line: &Value) -> u32 {
    let hex = line["cmd"].as_str().and_then(|cmd| cmd.strip_prefix("0x"));
    hex.and_then(|hex| u32::from_str_radix(hex, 16).ok()).unwrap_or_else(|| panic!("no command: {line}"))
}

pub fn gpu_id(line: &Value) -> u64 {
    line["gpu_id"].as_u64().unwrap_or_else(|| panic!("no gpu_id: {line}"))
}

pub fn mono_ns(line: &Value) -> u64 {
    line["mono_ns"].as_u64().unwrap_or_else(|| panic!("no mono_ns: {line}"))
}
