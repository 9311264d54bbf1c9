//! Queues that a debugger suspends and resumes.

use crate::model::event::Event;
use crate::model::suspension::{NamedQueue, QueueResult, Queues, Suspension};
use crate::text::clock::latency;
use crate::text::errno::{failure, result};
use crate::text::escape;
use serde::Serialize;

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct SuspendFields<'a> {
    by_comm: Option<&'a str>,
    /// tgid of the debugger.
    by_pid: u32,
    /// Queues that the driver suspended; those that were already count, too.
    count: Option<u32>,
    errno: Option<String>,
    /// As the debugger passed it.
    grace_period: Option<u32>,
    latency_ns: u64,
    /// Queues that the debugger named and that are not in `queues`.
    more_queues: u32,
    queues: Vec<QueueFields>,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct ResumeFields<'a> {
    /// All queues of the process: `queues` is empty.
    all: bool,
    by_comm: Option<&'a str>,
    by_pid: u32,
    count: Option<u32>,
    errno: Option<String>,
    latency_ns: u64,
    more_queues: u32,
    queues: Vec<QueueFields>,
}

/// A queue that the debugger named.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct QueueFields {
    queue_id: u32,
    /// `ok`, `invalid` or `error`; `null` when the driver reported none.
    result: Option<&'static str>,
}

pub(super) fn suspend_fields<'a>(call: &'a Suspension, event: &Event) -> SuspendFields<'a> {
    SuspendFields {
        by_comm: call.by_comm.as_deref(),
        by_pid: event.task_tgid,
        count: call.count,
        errno: failure(call.errno),
        grace_period: call.grace_period,
        latency_ns: call.latency_ns,
        more_queues: more(call),
        queues: queues(call),
    }
}

pub(super) fn resume_fields<'a>(call: &'a Suspension, event: &Event) -> ResumeFields<'a> {
    ResumeFields {
        all: call.queues == Queues::All,
        by_comm: call.by_comm.as_deref(),
        by_pid: event.task_tgid,
        count: call.count,
        errno: failure(call.errno),
        latency_ns: call.latency_ns,
        more_queues: more(call),
        queues: queues(call),
    }
}

fn more(call: &Suspension) -> u32 {
    match call.queues {
        Queues::All => 0,
        Queues::Named { more, .. } => more,
    }
}

fn queues(call: &Suspension) -> Vec<QueueFields> {
    let Queues::Named { listed, .. } = &call.queues else { return Vec::new() };
    let fields = |named: &NamedQueue| QueueFields {
        queue_id: named.queue_id,
        result: named.result.map(QueueResult::name),
    };
    listed.iter().map(fields).collect()
}

/// Who did it is the debugger, not the thread of the process.
pub(super) fn suspension(call: &Suspension, event: &Event) -> String {
    let grace = call.grace_period.map_or_else(String::new, |grace| format!(" grace={grace}"));
    let comm = call.by_comm.as_deref().map_or_else(|| "?".to_owned(), escape::terminal);
    let (took, result) = (latency(call.latency_ns), result(call.errno));
    format!("{}{grace} <{took}>{result} by={comm}[{}]", words(call), event.task_tgid)
}

pub(super) fn brief(call: &Suspension, event: &Event) -> Vec<Option<String>> {
    let by = call.by_comm.as_deref().map_or_else(String::new, |comm| format!("{} ", escape::terminal(comm)));
    vec![Some(words(call)), Some(format!("by {by}({})", event.task_tgid)), failure(call.errno)]
}

/// `queues 3 4 99:invalid +2 more`
fn words(call: &Suspension) -> String {
    let Queues::Named { listed, more } = &call.queues else {
        return "all queues".to_owned();
    };
    let word = |named: &NamedQueue| match named.result {
        Some(QueueResult::Ok) => named.queue_id.to_string(),
        Some(other) => format!("{}:{}", named.queue_id, other.name()),
        None => format!("{}:?", named.queue_id),
    };
    let mut words: Vec<String> = vec!["queues".to_owned()];
    words.extend(listed.iter().map(word));
    if *more > 0 {
        words.push(format!("+{more} more"));
    }
    words.join(" ")
}
