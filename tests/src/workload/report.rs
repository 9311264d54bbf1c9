//! The JSON lines on standard output. Each is flushed at once: a reader waits for them.

use crate::kfd::client::Call;
use crate::kfd::{Client, Errno, Queue, Tally, uapi};
use anyhow::{Context, Result};
use serde_json::{Map, Value, json};
use std::io::{Write, stdout};

pub(crate) fn line(value: &Value) -> Result<()> {
    let mut out = stdout().lock();
    writeln!(out, "{value}").and_then(|()| out.flush()).context("write to standard output")
}

/// `{"ready":true,"pid":P}`, with the PID in the workload's own namespace.
pub(crate) fn ready() -> Result<()> {
    line(&json!({"ready": true, "pid": std::process::id()}))
}

/// `{"counts":[...],"pid":P}`: everything this process issued, the last line of its life.
pub(crate) fn counts(tally: &Tally) -> Result<()> {
    line(&json!({"counts": tally.to_json(), "total": tally.total(), "pid": std::process::id()}))
}

/// An operation that was one ioctl: its outcome as the client saw it, and its result.
pub(crate) fn call(op: &str, client: &Client, detail: Value) -> Result<()> {
    let mut object = Map::new();
    object.insert("op".to_owned(), op.into());
    if let Some(Call { cmd, outcome, elapsed }) = client.last {
        object.insert("nr".to_owned(), uapi::nr(cmd).into());
        object.insert("cmd".to_owned(), cmd.into());
        object.insert("errno".to_owned(), outcome.err().map(Errno::name).into());
        object.insert("ns".to_owned(), u64::try_from(elapsed.as_nanos())?.into());
    }
    if let Value::Object(detail) = detail {
        object.extend(detail);
    }
    line(&object.into())
}

/// An operation that was no ioctl.
pub(crate) fn done(op: &str, detail: &Value) -> Result<()> {
    let mut value = json!({"op": op, "pid": std::process::id()});
    if let (Some(object), Value::Object(detail)) = (value.as_object_mut(), detail) {
        object.extend(detail.clone());
    }
    line(&value)
}

/// Identification of a queue, with the names of kfd-trace's own JSON.
pub(crate) fn queue(queue: &Queue, queue_type: uapi::QueueType) -> Value {
    let hex = |address: u64| format!("{address:#x}");
    json!({
        "pid": std::process::id(),
        "gpu_id": queue.gpu_id,
        "queue_id": queue.queue_id,
        "queue_type": queue_type,
        "ring": hex(queue.memory.ring()),
        "ring_size": queue.memory.ring_size(),
        "wptr": hex(queue.memory.pointers.write_address()),
        "rptr": hex(queue.memory.pointers.read_address()),
        "doorbell": hex(queue.doorbell_offset),
    })
}
