//! Renderings of events. Each topic's file has, side by side, what its kinds of events show in each output;
//! the three functions here choose among them. [`json`] and [`stream`] write whole lines.
//!
//! A new kind of event needs an arm in each of the three functions, and nothing else in this folder.

pub mod context;
mod driver;
mod eviction;
pub(crate) mod gap;
mod gpu;
mod ioctl;
pub mod json;
mod mes;
mod process;
mod queue;
mod runlist;
pub mod stream;
mod suspension;

use crate::model::event::{Body, Event};
use crate::state::{Change, Entry, What};
use context::Context;
use serde::Serialize;

/// The JSON fields of an event's kind. All are always present; `null` is "not known" or "not measured".
#[derive(Serialize)]
#[serde(untagged)]
enum EventFields<'a> {
    Process(Box<process::ProcessFields<'a>>),
    Open(process::OpenFields),
    Bare {},
    Create(queue::CreateFields),
    Destroy(Box<queue::DestroyFields>),
    DestroyFailed(queue::DestroyFailedFields),
    Update(Box<queue::UpdateFields>),
    MqdWrite(queue::MqdFields),
    UserQueue(queue::UserQueueFields),
    Ioctl(Box<ioctl::IoctlFields>),
    Evict(eviction::EvictFields),
    Restore(eviction::RestoreFields),
    EvictFailed(eviction::EvictFailedFields),
    VmFault(gpu::FaultFields),
    Gpu(gpu::GpuFields<'a>),
    ResetEnd(gpu::ResetEndFields<'a>),
    Preempt(runlist::PreemptFields<'a>),
    Runlist(runlist::RunlistFields<'a>),
    MesQueue(mes::MesQueueFields),
    Suspended(Box<suspension::SuspendFields<'a>>),
    Resumed(Box<suspension::ResumeFields<'a>>),
}

fn fields<'a>(event: &'a Event, context: &Context<'a>) -> EventFields<'a> {
    match &event.body {
        Body::ProcessSeen(seen) => EventFields::Process(Box::new(process::seen_fields(seen, context))),
        Body::Open { errno, .. } => EventFields::Open(process::open_fields(*errno)),
        Body::Close | Body::MmRelease | Body::ProcessRelease => EventFields::Bare {},
        Body::QueueCreate(queue) => EventFields::Create(queue::create_fields(queue)),
        Body::QueueDestroy { queue_id, gpu_id, .. } => {
            EventFields::Destroy(Box::new(queue::destroy_fields(*queue_id, *gpu_id, event.mono_ns, context)))
        }
        Body::QueueDestroyFailed { queue_id, gpu_id, errno } => {
            EventFields::DestroyFailed(queue::destroy_failed_fields(*queue_id, *gpu_id, *errno))
        }
        Body::Ioctl(call) => EventFields::Ioctl(Box::new(ioctl::fields(call, context))),
        Body::QueueUpdate(update) => EventFields::Update(Box::new(queue::update_fields(update, context))),
        Body::MqdWrite { queue_id, gpu_id, op } => {
            EventFields::MqdWrite(queue::mqd_fields(*queue_id, *gpu_id, *op))
        }
        Body::Evict(eviction) => EventFields::Evict(eviction::evict_fields(eviction)),
        Body::Restore(eviction) => EventFields::Restore(eviction::restore_fields(eviction, context)),
        Body::EvictFailed(eviction) => EventFields::EvictFailed(eviction::failed_fields(eviction)),
        Body::VmFault(fault) => EventFields::VmFault(gpu::fault_fields(fault)),
        Body::GpuResetBegin { gpu_id } | Body::HwsHang { gpu_id } => {
            EventFields::Gpu(gpu::fields(*gpu_id, context))
        }
        Body::GpuResetEnd { gpu_id } => EventFields::ResetEnd(gpu::reset_end_fields(*gpu_id, context)),
        Body::UserQueue(call) => EventFields::UserQueue(queue::user_queue_fields(call)),
        Body::Preempt(preemption) => EventFields::Preempt(runlist::preempt_fields(preemption, context)),
        Body::Runlist(list) => EventFields::Runlist(runlist::runlist_fields(list, context)),
        Body::MesQueue(change) => EventFields::MesQueue(mes::fields(change)),
        Body::QueuesSuspended(call) => {
            EventFields::Suspended(Box::new(suspension::suspend_fields(call, event)))
        }
        Body::QueuesResumed(call) => EventFields::Resumed(Box::new(suspension::resume_fields(call, event))),
    }
}

/// The stream's column DETAIL.
fn detail(event: &Event, context: &Context<'_>) -> String {
    let text = match &event.body {
        Body::ProcessSeen(seen) => return process::seen(seen, context.process),
        Body::Open { errno, .. } => return process::open(*errno),
        Body::Close => return "/dev/kfd, last reference".to_owned(),
        Body::MmRelease => return "address space released".to_owned(),
        Body::ProcessRelease => return process::release(context),
        Body::QueueCreate(queue) => return queue::create(queue, context),
        Body::QueuesSuspended(call) | Body::QueuesResumed(call) => {
            return suspension::suspension(call, event);
        }
        Body::QueueDestroyFailed { queue_id, gpu_id, errno } => {
            return queue::destroy_failed(*queue_id, *gpu_id, *errno, context);
        }
        Body::QueueDestroy { queue_id, gpu_id, .. } => queue::destroy(*queue_id, *gpu_id, context),
        Body::Ioctl(call) => ioctl::call(call, context),
        Body::QueueUpdate(update) => queue::update(update, context),
        Body::MqdWrite { queue_id, gpu_id, op } => queue::mqd(*queue_id, *gpu_id, *op, context),
        Body::Evict(eviction) => eviction::evict(eviction, context),
        Body::Restore(eviction) => eviction::restore(eviction, context),
        Body::EvictFailed(eviction) => eviction::failed(eviction),
        Body::VmFault(fault) => gpu::fault(fault, context),
        Body::GpuResetBegin { gpu_id } => gpu::reset_begin(*gpu_id, context),
        Body::GpuResetEnd { gpu_id } => gpu::reset_end(*gpu_id, context),
        Body::HwsHang { gpu_id } => gpu::hang(*gpu_id, context),
        Body::UserQueue(call) => queue::user_queue(call),
        Body::Preempt(preemption) => runlist::preempt(preemption, context),
        Body::Runlist(list) => runlist::runlist(list, context),
        Body::MesQueue(change) => mes::change(change, context),
    };
    text + &thread(event)
}

/// The thread that ran, if it is not the owner's: evictions run in kworkers, or in the task that frees
/// memory.
fn thread(event: &Event) -> String {
    let by_owner = event.tgid == Some(event.task_tgid);
    let unowned = event.tgid.is_none() && !matches!(event.body, Body::QueueDestroy { .. } | Body::Ioctl(_));
    if by_owner || unowned { String::new() } else { format!(" by=tid {}", event.tid) }
}

/// Details of an entry of the history, beside columns of GPU and process.
pub(super) fn remembered(entry: &Entry) -> String {
    if let What::Driver { loads, .. } = entry.what {
        return format!("loading {loads}");
    }
    if let What::Gap(gap) = entry.what {
        return gap::brief(gap);
    }
    let Some((event, change)) = entry.event() else { return String::new() };
    brief(&event, &change)
}

/// The page's column of details, beside its columns of GPU and process. Empty for kinds that are not kept.
fn brief(event: &Event, change: &Change) -> String {
    let parts: Vec<Option<String>> = match &event.body {
        Body::ProcessSeen(seen) => vec![seen.standing.then(|| "existing".to_owned())],
        Body::QueueCreate(queue) => queue::create_brief(queue),
        Body::QueueDestroy { queue_id, .. } => queue::destroy_brief(*queue_id, event.mono_ns, change),
        Body::QueueDestroyFailed { queue_id, errno, .. } => queue::destroy_failed_brief(*queue_id, *errno),
        Body::UserQueue(call) => queue::user_queue_brief(call),
        Body::Evict(eviction) | Body::EvictFailed(eviction) => eviction::evict_brief(eviction),
        Body::Restore(eviction) => eviction::restore_brief(eviction, change),
        Body::VmFault(fault) => gpu::fault_brief(fault),
        Body::QueuesSuspended(call) | Body::QueuesResumed(call) => suspension::brief(call, event),
        Body::GpuResetBegin { .. } | Body::GpuResetEnd { .. } | Body::HwsHang { .. } => gpu::brief(change),
        Body::ProcessRelease
        | Body::Open { .. }
        | Body::Close
        | Body::MmRelease
        | Body::Ioctl(_)
        | Body::QueueUpdate(_)
        | Body::MqdWrite { .. }
        | Body::Preempt(_)
        | Body::Runlist(_)
        | Body::MesQueue(_) => Vec::new(),
    };
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests;
