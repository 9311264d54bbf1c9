//! Evictions and restores of a process.

use super::context::Context;
use crate::model::incident::{Eviction, Trigger};
use crate::state::Change;
use crate::text::clock::{latency, span};
use crate::text::errno::{failure, result};
use serde::Serialize;

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct EvictFields {
    errno: Option<String>,
    gpu_id: Option<u32>,
    latency_ns: u64,
    trigger: Option<&'static str>,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct RestoreFields {
    errno: Option<String>,
    evicted_ns: Option<u64>,
    gpu_id: Option<u32>,
    latency_ns: u64,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct EvictFailedFields {
    errno: Option<String>,
    latency_ns: u64,
    trigger: Option<&'static str>,
}

pub(super) fn evict_fields(eviction: &Eviction) -> EvictFields {
    EvictFields {
        errno: failure(eviction.errno),
        gpu_id: eviction.gpu_id,
        latency_ns: eviction.latency_ns,
        trigger: eviction.trigger.map(Trigger::name),
    }
}

pub(super) fn restore_fields(eviction: &Eviction, context: &Context<'_>) -> RestoreFields {
    RestoreFields {
        errno: failure(eviction.errno),
        evicted_ns: context.lasted_ns,
        gpu_id: eviction.gpu_id,
        latency_ns: eviction.latency_ns,
    }
}

pub(super) fn failed_fields(eviction: &Eviction) -> EvictFailedFields {
    EvictFailedFields {
        errno: failure(eviction.errno),
        latency_ns: eviction.latency_ns,
        trigger: eviction.trigger.map(Trigger::name),
    }
}

pub(super) fn evict(eviction: &Eviction, context: &Context<'_>) -> String {
    format!("{} {}", context.gpu(eviction.gpu_id), reason(eviction))
}

pub(super) fn restore(eviction: &Eviction, context: &Context<'_>) -> String {
    let after = context.lasted_ns.map_or_else(|| "after ?".to_owned(), |ns| format!("after {}", span(ns)));
    let (gpu, result) = (context.gpu(eviction.gpu_id), result(eviction.errno));
    format!("{gpu} {after} <{}>{result}", latency(eviction.latency_ns))
}

pub(super) fn failed(eviction: &Eviction) -> String {
    reason(eviction)
}

fn reason(eviction: &Eviction) -> String {
    let trigger = eviction.trigger.map_or("?", Trigger::name);
    format!("trigger={trigger} <{}>{}", latency(eviction.latency_ns), result(eviction.errno))
}

pub(super) fn evict_brief(eviction: &Eviction) -> Vec<Option<String>> {
    let trigger = eviction.trigger.map_or("not seen", Trigger::name);
    vec![Some(format!("trigger {trigger}")), failure(eviction.errno)]
}

pub(super) fn restore_brief(eviction: &Eviction, change: &Change) -> Vec<Option<String>> {
    vec![change.lasted_ns.map(|ns| format!("after {}", span(ns))), failure(eviction.errno)]
}
