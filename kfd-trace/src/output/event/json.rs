//! Events as JSON, one object per line. The format is stable: a change that breaks a reader raises
//! [`SCHEMA`].
//!
//! Every field of an event kind is always present; `null` is "not known" or "not measured", never 0.
//! Addresses, commands and [`Line::kfd_process`] are strings, because readers hold numbers as doubles.

use super::context::Context;
use crate::model::event::{Body, Event, IoctlCall, Outcome, QueueCreate, QueueType};
use crate::model::ioctl;
use crate::output::activity::ActivityFields;
use crate::output::belongs::BelongsFields;
use crate::output::names::{self, hex};
use crate::output::queue_fields::QueueFields;
use crate::text::{errno, escape};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{self, Write};

/// Version of the format.
pub const SCHEMA: u32 = 1;

/// One line.
#[derive(Debug, Serialize)]
struct Line<'a> {
    schema: u32,
    /// Wall clock, RFC 3339 in UTC.
    ts: Option<String>,
    /// CLOCK_MONOTONIC, nanoseconds.
    mono_ns: u64,
    event: &'static str,
    /// tgid of the owner in the initial PID namespace.
    pid: Option<u32>,
    /// The thread that ran; a kworker's at teardown.
    tid: u32,
    /// tgid of the thread that ran.
    task_pid: u32,
    comm: Option<&'a str>,
    /// The tracer's number of the `kfd_process`, decimal: a PID can have several, and PIDs are reused.
    kfd_process: Option<String>,
    #[serde(flatten)]
    body: BodyFields<'a>,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum BodyFields<'a> {
    Process(ProcessFields<'a>),
    /// `result` is 0 or a negative errno.
    Open {
        result: i32,
        errno: Option<String>,
    },
    Create(CreateFields),
    Destroy(DestroyFields),
    DestroyFailed {
        gpu_id: Option<u32>,
        queue_id: u32,
        result: i32,
        errno: Option<String>,
    },
    Ioctl(Box<IoctlFields>),
    Life(serde_json::Value),
    Bare {},
}

#[derive(Debug, Serialize)]
struct ProcessFields<'a> {
    standing: bool,
    /// Of a further context of its PID (7.2); `null` for the first one.
    context_id: Option<u32>,
    /// CLOCK_BOOTTIME, nanoseconds.
    start_boottime_ns: Option<u64>,
    ns_pid: Option<u32>,
    uid: Option<u32>,
    cgroup: Option<&'a str>,
    #[serde(flatten)]
    belongs: BelongsFields<'a>,
    cmdline: Option<&'a str>,
}

#[derive(Debug, Serialize)]
struct CreateFields {
    gpu_id: Option<u32>,
    #[serde(flatten)]
    queue: QueueFields,
    active: Option<bool>,
    evicted: Option<bool>,
    /// `ioctl`, `criu`, `standing` or `other`.
    origin: &'static str,
}

#[derive(Debug, Serialize)]
struct DestroyFields {
    gpu_id: Option<u32>,
    queue_id: u32,
    queue_type: Option<&'static str>,
    /// `null` for a queue that was not known before.
    cause: Option<&'static str>,
    lifetime_ns: Option<u64>,
    activity: Option<ActivityFields>,
}

#[derive(Debug, Serialize)]
struct IoctlFields {
    ioctl: String,
    nr: u8,
    cmd: String,
    /// Size in bytes that user space passed.
    size: u32,
    /// `null` if no handler was entered, or its arguments could not be read.
    args: Option<BTreeMap<&'static str, Value>>,
    entered_mono_ns: u64,
    /// `returned`, `refused`, `not_measured` or `no_return_seen`.
    outcome: &'static str,
    /// Whether `result` is known.
    measured: bool,
    /// Return value of the call: 0 or more, or a negative errno.
    result: Option<i32>,
    /// Name of the error; only for a failed call.
    errno: Option<String>,
    /// Only for a call whose handler returned.
    latency_ns: Option<u64>,
    abi_mismatch: Option<AbiMismatch>,
}

#[derive(Debug, Serialize)]
struct AbiMismatch {
    user_size: u32,
    kernel_size: u32,
}

/// Writes one event as one line.
///
/// # Errors
/// Those of `out`.
pub fn event(out: &mut impl Write, event: &Event, context: &Context<'_>) -> io::Result<()> {
    escape::json(&mut *out, &line(event, context))?;
    writeln!(out)
}

/// The object of one line.
pub(crate) fn line<'a>(event: &'a Event, context: &'a Context<'a>) -> impl Serialize {
    Line {
        schema: SCHEMA,
        ts: context.clock.rfc3339(event.mono_ns),
        mono_ns: event.mono_ns,
        event: event.body.kind().name(),
        pid: event.tgid,
        tid: event.tid,
        task_pid: event.task_tgid,
        comm: context.comm(event),
        kfd_process: event
            .process
            .or_else(|| context.process.and_then(crate::state::Process::id))
            .map(|id| id.0.to_string()),
        body: body(event, context),
    }
}

fn body<'a>(event: &'a Event, context: &Context<'a>) -> BodyFields<'a> {
    match &event.body {
        Body::ProcessSeen(seen) => {
            let details = context.process.map(|process| &process.details);
            let path = details.and_then(|details| details.cgroup.as_deref());
            BodyFields::Process(ProcessFields {
                standing: seen.standing,
                context_id: seen.context_id,
                start_boottime_ns: seen.start_boottime_ns,
                ns_pid: seen.ns_tgid,
                uid: seen.uid,
                cgroup: path.or(seen.cgroup_leaf.as_deref()),
                belongs: details.map(BelongsFields::from).unwrap_or_default(),
                cmdline: details.and_then(|details| details.cmdline.as_deref()),
            })
        }
        Body::Open { errno, .. } => {
            BodyFields::Open { result: errno.saturating_neg(), errno: failed(*errno) }
        }
        Body::QueueCreate(queue) => BodyFields::Create(create(queue)),
        Body::QueueDestroy { queue_id, gpu_id, .. } => {
            let ended = context.ended(*queue_id);
            BodyFields::Destroy(DestroyFields {
                gpu_id: gpu_id.or(ended.and_then(|queue| queue.facts.gpu_id)),
                queue_id: *queue_id,
                queue_type: ended.and_then(|queue| queue.facts.queue_type).map(QueueType::name),
                cause: ended.and_then(|queue| queue.end).map(|end| end.cause.name()),
                lifetime_ns: ended.and_then(|queue| queue.age_ns(event.mono_ns)),
                activity: ended.and_then(|queue| ActivityFields::of(&queue.facts, &queue.activity)),
            })
        }
        Body::QueueDestroyFailed { queue_id, gpu_id, errno } => BodyFields::DestroyFailed {
            gpu_id: *gpu_id,
            queue_id: *queue_id,
            result: errno.saturating_neg(),
            errno: failed(*errno),
        },
        Body::Ioctl(call) => BodyFields::Ioctl(Box::new(ioctl_fields(call, context))),
        other => life::fields(other, context).map_or(BodyFields::Bare {}, BodyFields::Life),
    }
}

fn failed(errno: i32) -> Option<String> {
    (errno != 0).then(|| errno::name(errno))
}

fn create(queue: &QueueCreate) -> CreateFields {
    CreateFields {
        gpu_id: queue.gpu_id,
        queue: queue.into(),
        active: queue.active,
        evicted: queue.evicted,
        origin: names::origin(queue.origin),
    }
}

fn ioctl_fields(call: &IoctlCall, context: &Context<'_>) -> IoctlFields {
    let (outcome, result, latency_ns) = match call.outcome {
        Outcome::Returned { result, latency_ns } => ("returned", Some(result), Some(latency_ns)),
        Outcome::Refused { errno } => ("refused", Some(errno.saturating_neg()), None),
        Outcome::NotMeasured => ("not_measured", None, None),
        Outcome::NoReturnSeen => ("no_return_seen", None, None),
    };
    let args = ioctl::decode_args(call.cmd, &call.args).into_iter().map(|arg| {
        let value = if arg.hex { Value::from(hex(arg.value)) } else { Value::from(arg.value) };
        (arg.name, value)
    });
    IoctlFields {
        ioctl: ioctl::name(call.cmd),
        nr: ioctl::nr(call.cmd),
        cmd: format!("{:#010x}", call.cmd),
        size: ioctl::size(call.cmd),
        args: (!call.args.is_empty()).then(|| args.collect()),
        entered_mono_ns: call.entered_ns,
        outcome,
        measured: result.is_some(),
        result,
        errno: call.outcome.errno().and_then(failed),
        latency_ns,
        abi_mismatch: context
            .mismatch
            .map(|found| AbiMismatch { user_size: found.user_size, kernel_size: found.kernel_size }),
    }
}

mod driver;
mod life;
pub(crate) use driver::line as driver_line;
pub use driver::{Driver, driver};
#[cfg(test)]
mod tests;
