//! KFD processes: seen, opened /dev/kfd, released.

use super::context::Context;
use crate::model::event::ProcessSeen;
use crate::output::belongs::BelongsFields;
use crate::state::Process;
use crate::text::errno::{failure, result};
use crate::text::escape;
use serde::Serialize;
use std::fmt::Write as _;

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct ProcessFields<'a> {
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

/// `result` is 0 or a negative errno.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct OpenFields {
    result: i32,
    errno: Option<String>,
}

pub(super) fn seen_fields<'a>(seen: &'a ProcessSeen, context: &Context<'a>) -> ProcessFields<'a> {
    let details = context.process.map(|process| &process.details);
    let path = details.and_then(|details| details.cgroup.as_deref());
    ProcessFields {
        standing: seen.standing,
        context_id: seen.context_id,
        start_boottime_ns: seen.start_boottime_ns,
        ns_pid: seen.ns_tgid,
        uid: seen.uid,
        cgroup: path.or(seen.cgroup_leaf.as_deref()),
        belongs: details.map(BelongsFields::from).unwrap_or_default(),
        cmdline: details.and_then(|details| details.cmdline.as_deref()),
    }
}

pub(super) fn open_fields(errno: i32) -> OpenFields {
    OpenFields { result: errno.saturating_neg(), errno: failure(errno) }
}

pub(super) fn seen(seen: &ProcessSeen, process: Option<&Process>) -> String {
    let mut text = String::from(if seen.standing { "existed before the trace" } else { "new" });
    if let Some(context_id) = seen.context_id {
        let _ = write!(text, " context={context_id}");
    }
    if let Some(uid) = seen.uid {
        let _ = write!(text, " uid={uid}");
    }
    if let Some(inner) = seen.ns_tgid {
        let _ = write!(text, " pid_inside={inner}");
    }
    if let Some(cgroup) = process.and_then(|row| row.details.cgroup.as_ref()).or(seen.cgroup_leaf.as_ref()) {
        let _ = write!(text, " cgroup={}", escape::terminal(cgroup));
    }
    let owner = process.and_then(|row| BelongsFields::from(&row.details).owner());
    if let Some(owner) = owner {
        let _ = write!(text, " owner={owner}");
    }
    if let Some(cmdline) = process.and_then(|row| row.details.cmdline.as_ref()) {
        let _ = write!(text, " cmdline={}", escape::terminal(cmdline));
    }
    text
}

pub(super) fn open(errno: i32) -> String {
    if errno == 0 { "/dev/kfd = 0".to_owned() } else { format!("/dev/kfd{}", result(errno)) }
}

pub(super) fn release(context: &Context<'_>) -> String {
    let mut text = "released by the driver".to_owned();
    for queue in context.ended {
        let _ = write!(text, "; queue {} was left", queue.queue_id);
    }
    text
}
