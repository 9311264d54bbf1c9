//! Preemptions of GPUs, and the lists of queues that they run.

use super::context::Context;
use crate::model::runlist::{Preemption, Reason, Runlist};
use crate::text::clock::latency;
use crate::text::errno::{failure, result};
use serde::Serialize;

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct PreemptFields<'a> {
    errno: Option<String>,
    gpu_id: Option<u32>,
    /// tgids of the other processes that have active queues on the GPU.
    hit_pids: &'a [u32],
    latency_ns: u64,
    /// Of the list that ends.
    oversubscribed: Option<bool>,
    reason: Option<&'static str>,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct RunlistFields<'a> {
    cp_queues: Option<u32>,
    errno: Option<String>,
    gpu_id: Option<u32>,
    hit_pids: &'a [u32],
    oversubscribed: Option<bool>,
    processes: Option<u32>,
    queues: Option<u32>,
    reason: Option<&'static str>,
    unmapped_ns: Option<u64>,
}

pub(super) fn preempt_fields<'a>(preemption: &Preemption, context: &Context<'a>) -> PreemptFields<'a> {
    PreemptFields {
        errno: failure(preemption.errno),
        gpu_id: preemption.gpu_id,
        hit_pids: context.hit,
        latency_ns: preemption.latency_ns,
        oversubscribed: preemption.oversubscribed,
        reason: preemption.reason.map(Reason::name),
    }
}

pub(super) fn runlist_fields<'a>(list: &Runlist, context: &Context<'a>) -> RunlistFields<'a> {
    RunlistFields {
        cp_queues: list.cp_queues,
        errno: failure(list.errno),
        gpu_id: list.gpu_id,
        hit_pids: context.hit,
        oversubscribed: list.oversubscribed,
        processes: list.processes,
        queues: list.queues,
        reason: list.reason.map(Reason::name),
        unmapped_ns: list.unmapped_ns,
    }
}

pub(super) fn preempt(preemption: &Preemption, context: &Context<'_>) -> String {
    let (gpu, why) = (context.gpu(preemption.gpu_id), why(preemption.reason));
    let over = if preemption.oversubscribed == Some(true) { ", was oversubscribed" } else { "" };
    let (took, result) = (latency(preemption.latency_ns), result(preemption.errno));
    format!("{gpu} {why} <{took}>{result}{over}{}", waiting(context))
}

pub(super) fn runlist(list: &Runlist, context: &Context<'_>) -> String {
    let (gpu, why) = (context.gpu(list.gpu_id), why(list.reason));
    let count = |count: Option<u32>, one: &str, more: &str| match count {
        Some(1) => format!("1 {one}"),
        Some(count) => format!("{count} {more}"),
        None => format!("? {more}"),
    };
    let queues = count(list.queues, "queue", "queues");
    let processes = count(list.processes, "process", "processes");
    let over = if list.oversubscribed == Some(true) { ", oversubscribed" } else { "" };
    let unmapped = list.unmapped_ns.map_or_else(String::new, |ns| format!(" unmapped={}", latency(ns)));
    format!("{gpu} {why} {queues} of {processes}{over}{unmapped}{}", result(list.errno))
}

fn why(reason: Option<Reason>) -> String {
    format!("reason={}", reason.map_or("?", Reason::name))
}

/// The other processes with active queues on the GPU.
fn waiting(context: &Context<'_>) -> String {
    if context.hit.is_empty() {
        return String::new();
    }
    let pids: Vec<String> = context.hit.iter().map(u32::to_string).collect();
    format!(", pid {} waits", pids.join(" "))
}
