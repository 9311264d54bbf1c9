//! The history: `/api/v1/events`. Each event has the text that the daemon's own screen has.

use super::Document;
use super::list::{at_most, unix_ns};
use crate::output::event::gap;
use crate::state::Gap;
use crate::text::clock::span;
use crate::text::escape;
use kfd_trace_common::kind::Kind;
use serde::Deserialize;

/// Rows that are read at most.
const EVENTS: usize = 10_000;
/// Entries of a list of one row.
const OF_ONE: usize = 64;

/// The document.
#[derive(Debug, Deserialize)]
pub struct Events {
    schema: u64,
    #[serde(deserialize_with = "at_most::<_, _, EVENTS>")]
    events: Vec<EventRow>,
}

impl Document for Events {
    fn schema(&self) -> u64 {
        self.schema
    }
}

impl Events {
    /// The oldest first.
    #[must_use]
    pub fn reported(&self) -> Vec<ReportedEvent> {
        self.events.iter().map(EventRow::reported).collect()
    }
}

/// An event. Its texts are safe for a terminal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportedEvent {
    /// Nanoseconds of the Unix epoch.
    pub at_ns: u64,
    pub name: String,
    /// `None` of the driver's own, and of those of a later version.
    pub kind: Option<Kind>,
    /// It is about something that failed.
    pub failed: bool,
    pub gpu_id: Option<u32>,
    pub pid: Option<u32>,
    pub comm: Option<String>,
    pub detail: String,
}

/// As far as something is made of it.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct EventRow {
    #[serde(rename = "ts", deserialize_with = "unix_ns")]
    at_ns: u64,
    event: String,
    pid: Option<u32>,
    comm: Option<String>,
    gpu_id: Option<u32>,
    queue_id: Option<u32>,
    queue_type: Option<String>,
    origin: Option<String>,
    cause: Option<String>,
    op: Option<String>,
    trigger: Option<String>,
    address: Option<String>,
    errno: Option<String>,
    standing: bool,
    all: bool,
    lifetime_ns: Option<u64>,
    evicted_ns: Option<u64>,
    reset_ns: Option<u64>,
    driver_loads: Option<u64>,
    lost_changes: Option<u64>,
    gap_ns: Option<u64>,
    by_pid: Option<u32>,
    by_comm: Option<String>,
    #[serde(deserialize_with = "at_most::<_, _, EVENTS>")]
    hit_pids: Vec<u32>,
    #[serde(deserialize_with = "at_most::<_, _, OF_ONE>")]
    queues: Vec<NamedQueue>,
    more_queues: u32,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct NamedQueue {
    queue_id: u32,
    result: Option<String>,
}

impl EventRow {
    fn reported(&self) -> ReportedEvent {
        let detail: Vec<String> = self.parts().into_iter().flatten().collect();
        ReportedEvent {
            at_ns: self.at_ns,
            name: escape::terminal(&self.event),
            kind: Kind::ALL.iter().copied().find(|kind| kind.name() == self.event),
            failed: self.errno.is_some(),
            gpu_id: self.gpu_id,
            pid: self.pid,
            comm: self.comm.as_deref().map(escape::terminal),
            detail: escape::terminal(&detail.join(", ")),
        }
    }

    fn parts(&self) -> Vec<Option<String>> {
        let queue = || self.queue_id.map(|id| format!("queue {id}"));
        let after = |ns: Option<u64>| ns.map(|ns| format!("after {}", span(ns)));
        let errno = || self.errno.clone();
        match self.event.as_str() {
            "process_seen" => vec![self.standing.then(|| "existing".to_owned())],
            "queue_create" => {
                let origin = self.origin.as_ref().map(|origin| format!("origin {origin}"));
                vec![queue(), self.queue_type.clone(), origin]
            }
            "queue_destroy" => {
                let cause = self.cause.as_ref().map(|cause| format!("cause {cause}"));
                vec![queue(), self.queue_type.clone(), cause, after(self.lifetime_ns)]
            }
            "queue_destroy_failed" => vec![queue(), errno(), Some("it still exists".to_owned())],
            "user_queue" => {
                let op = self.op.as_deref().unwrap_or("another operation");
                vec![self.queue_id.map(|id| format!("{op}: DRM user queue {id}")), errno()]
            }
            "evict" | "evict_failed" => {
                let trigger = self.trigger.as_deref().unwrap_or("not seen");
                vec![Some(format!("trigger {trigger}")), errno()]
            }
            "restore" => vec![after(self.evicted_ns), errno()],
            "vm_fault" => vec![self.address.as_ref().map(|address| format!("at {address}"))],
            "gpu_reset_begin" | "gpu_reset_end" | "hws_hang" => {
                let processes = match self.hit_pids.len() {
                    1 => "1 process on it".to_owned(),
                    count => format!("{count} processes on it"),
                };
                vec![after(self.reset_ns), Some(processes)]
            }
            "queues_suspended" | "queues_resumed" => {
                let comm = self.by_comm.as_ref().map_or_else(String::new, |comm| format!("{comm} "));
                let by = self.by_pid.map(|pid| format!("by {comm}({pid})"));
                vec![Some(self.suspended_queues()), by, errno()]
            }
            "driver_loaded" | "driver_unloaded" => {
                vec![self.driver_loads.map(|loads| format!("loading {loads}"))]
            }
            "recording_gap" => {
                let gap = Gap { lasted_ns: self.gap_ns, lost_changes: self.lost_changes };
                vec![Some(gap::brief(gap))]
            }
            _ => Vec::new(),
        }
    }

    /// `queues 3 4 99:invalid +2 more`
    fn suspended_queues(&self) -> String {
        if self.all {
            return "all queues".to_owned();
        }
        let mut text = "queues".to_owned();
        for NamedQueue { queue_id, result } in &self.queues {
            match result.as_deref() {
                Some("ok") => text += &format!(" {queue_id}"),
                other => text += &format!(" {queue_id}:{}", other.unwrap_or("?")),
            }
        }
        if self.more_queues > 0 {
            text += &format!(" +{} more", self.more_queues);
        }
        text
    }
}
