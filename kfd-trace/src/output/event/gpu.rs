//! VM faults, and resets and hangs of whole GPUs.

use super::context::Context;
use crate::model::incident::VmFault;
use crate::output::names::hex;
use crate::state::Change;
use crate::text::clock::span;
use serde::Serialize;
use std::fmt::Write as _;

/// `null` beside a known `gpu_id`: the driver did not learn where.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct FaultFields {
    address: Option<String>,
    gpu_id: Option<u32>,
    no_execute: Option<bool>,
    not_present: Option<bool>,
    read_only: Option<bool>,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct GpuFields<'a> {
    gpu_id: Option<u32>,
    /// tgids of the processes that have queues on the GPU.
    hit_pids: &'a [u32],
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct ResetEndFields<'a> {
    gpu_id: Option<u32>,
    hit_pids: &'a [u32],
    reset_ns: Option<u64>,
}

pub(super) fn fault_fields(fault: &VmFault) -> FaultFields {
    let access = fault.access;
    FaultFields {
        address: access.map(|access| hex(access.address)),
        gpu_id: fault.gpu_id,
        no_execute: access.map(|access| access.no_execute),
        not_present: access.map(|access| access.not_present),
        read_only: access.map(|access| access.read_only),
    }
}

pub(super) fn fields<'a>(gpu_id: Option<u32>, context: &Context<'a>) -> GpuFields<'a> {
    GpuFields { gpu_id, hit_pids: context.hit }
}

pub(super) fn reset_end_fields<'a>(gpu_id: Option<u32>, context: &Context<'a>) -> ResetEndFields<'a> {
    ResetEndFields { gpu_id, hit_pids: context.hit, reset_ns: context.lasted_ns }
}

pub(super) fn fault(fault: &VmFault, context: &Context<'_>) -> String {
    let mut text = context.gpu(fault.gpu_id);
    let Some(access) = fault.access else { return text + " address not known" };
    let _ = write!(text, " address={:#x}", access.address);
    for (is_so, reason) in [
        (access.not_present, "not present"),
        (access.read_only, "read only"),
        (access.no_execute, "no execute"),
    ] {
        if is_so {
            let _ = write!(text, ", {reason}");
        }
    }
    text
}

pub(super) fn reset_begin(gpu_id: Option<u32>, context: &Context<'_>) -> String {
    format!("{} begins{}", context.gpu(gpu_id), hit(context))
}

pub(super) fn reset_end(gpu_id: Option<u32>, context: &Context<'_>) -> String {
    let after = context.lasted_ns.map_or_else(String::new, |ns| format!(" after {}", span(ns)));
    format!("{} ends{after}{}", context.gpu(gpu_id), hit(context))
}

pub(super) fn hang(gpu_id: Option<u32>, context: &Context<'_>) -> String {
    format!("{} the scheduler does not answer{}", context.gpu(gpu_id), hit(context))
}

/// The processes that have queues on the GPU.
fn hit(context: &Context<'_>) -> String {
    if context.hit.is_empty() {
        return ", no process has queues on it".to_owned();
    }
    let pids: Vec<String> = context.hit.iter().map(u32::to_string).collect();
    format!(", hits pid {}", pids.join(" "))
}

pub(super) fn fault_brief(fault: &VmFault) -> Vec<Option<String>> {
    vec![fault.access.map(|access| format!("at {}", hex(access.address)))]
}

pub(super) fn brief(change: &Change) -> Vec<Option<String>> {
    let processes = match change.hit.len() {
        1 => "1 process on it".to_owned(),
        count => format!("{count} processes on it"),
    };
    vec![change.lasted_ns.map(|ns| format!("after {}", span(ns))), Some(processes)]
}
