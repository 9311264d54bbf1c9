//! DRM user queues, which do not pass KFD. Traces: `amdgpu_userq_ioctl` (entry and return). Out: a record of
//! each call.

use crate::kernel::{self, read_at};
use crate::processes::{NO_OWNER, Owner};
use crate::{counters, emit, filter, losses, nested};
use aya_ebpf::helpers::bpf_get_current_pid_tgid;
use aya_ebpf::macros::{kprobe, kretprobe};
use aya_ebpf::programs::{ProbeContext, RetProbeContext};
use kfd_trace_common::counter::{ProbeId, Trouble};
use kfd_trace_common::kind::Kind;
use kfd_trace_common::nested::UserQueue as Slot;
use kfd_trace_common::record::UserQueue;

/// Offsets in `union drm_amdgpu_userq` (include/uapi/drm/amdgpu_drm.h): user space's own format.
mod arg {
    pub(super) const OP: u64 = 0;
    pub(super) const QUEUE_ID: u64 = 4;
    pub(super) const IP_TYPE: u64 = 8;
    pub(super) const QUEUE_VA: u64 = 24;
    pub(super) const QUEUE_SIZE: u64 = 32;
    /// In the result.
    pub(super) const OUT_QUEUE_ID: u64 = 0;
}

const OP_CREATE: u32 = 1;

/// `int amdgpu_userq_ioctl(struct drm_device *dev, void *data, struct drm_file *filp)`
#[kprobe]
pub(crate) fn user_queue(ctx: ProbeContext) -> u32 {
    const ID: ProbeId = ProbeId::UserQueue;
    counters::hit(ID);
    let args: u64 = ctx.arg(1).unwrap_or(0);
    let short = |offset| read_at::<u32>(args, offset).unwrap_or(0);
    let long = |offset| read_at::<u64>(args, offset).unwrap_or(0);
    let call = Slot {
        args,
        ring_address: long(arg::QUEUE_VA),
        ring_size: long(arg::QUEUE_SIZE),
        op: short(arg::OP),
        queue_id: short(arg::QUEUE_ID),
        ip_type: short(arg::IP_TYPE),
        pad: 0,
    };
    nested::enter(ID, &call);
    0
}

/// Its return: the result has overwritten the arguments.
#[kretprobe]
pub(crate) fn user_queue_return(ctx: RetProbeContext) -> u32 {
    counters::hit(RETURN);
    let Some(call) = nested::leave::<Slot>() else {
        losses::trouble(RETURN, Trouble::ReturnWithoutEntry);
        return 0;
    };
    let tgid = (bpf_get_current_pid_tgid() >> 32) as u32;
    if filter::wants_caller(tgid) {
        record(&call, tgid, ctx.ret::<u64>() as i32);
    }
    0
}

const RETURN: ProbeId = ProbeId::UserQueueReturn;

#[inline(always)]
fn record(call: &Slot, tgid: u32, result: i32) {
    let answered = call.op == OP_CREATE && result == 0;
    let owner = Owner { tgid, ..NO_OWNER };
    emit::emit(RETURN, Kind::UserQueue, owner, |record: &mut UserQueue| {
        record.ring_address = call.ring_address;
        record.ring_size = call.ring_size;
        record.op = call.op;
        record.queue_id =
            if answered { read_at(call.args, arg::OUT_QUEUE_ID).unwrap_or(0) } else { call.queue_id };
        record.ip_type = call.ip_type;
        record.result = result;
        kernel::current_comm(&mut record.comm);
    });
}
