//! Sends records to the daemon. The only owner of the ring buffer `EVENTS`.

use crate::words::zero_after;
use crate::{counters, in_flight, losses, processes::Owner};
use aya_ebpf::helpers::bpf_get_current_pid_tgid;
use aya_ebpf::helpers::generated::{bpf_get_smp_processor_id, bpf_ktime_get_ns};
use aya_ebpf::{macros::map, maps::RingBuf};
use kfd_trace_common::counter::ProbeId;
use kfd_trace_common::kind::Kind;
use kfd_trace_common::limits::RING_BYTES;
use kfd_trace_common::record::{Header, Record, VERSION};

#[map]
static EVENTS: RingBuf = RingBuf::with_byte_size(RING_BYTES, 0);

/// Reserves a record about `owner`, zeroed except for its header, lets `fill` write the rest, and sends it; a
/// full buffer is counted. `probe`: the probe of the running program.
#[inline(always)]
pub(crate) fn emit<T: Record>(
    probe: ProbeId,
    kind: Kind,
    owner: impl Into<Owner>,
    fill: impl FnOnce(&mut T),
) {
    emit_in(probe, kind, owner, in_flight::current_cmd(), fill);
}

/// The same where the thread's current ioctl is known.
#[inline(always)]
pub(crate) fn emit_in<T: Record>(
    probe: ProbeId,
    kind: Kind,
    owner: impl Into<Owner>,
    ioctl: u32,
    fill: impl FnOnce(&mut T),
) {
    let Some(mut entry) = EVENTS.reserve::<T>(0) else {
        losses::lost(probe, kind);
        return;
    };
    let record = entry.as_mut_ptr();
    // SAFETY: reserved memory of this size, and a record begins with its header.
    unsafe { record.cast::<Header>().write(header::<T>(probe, kind, owner.into(), ioctl)) };
    // SAFETY: the rest of it, which is whole words, and all zeros is a valid body.
    unsafe { zero_after::<Header, T>(record) };
    // SAFETY: all zeros is a valid record, and so it is with a header.
    fill(unsafe { &mut *record });
    entry.submit(0);
    counters::sent(kind);
}

/// The header of a record sent by the thread that runs.
#[inline(always)]
fn header<T>(probe: ProbeId, kind: Kind, owner: Owner, ioctl: u32) -> Header {
    let pid_tgid = bpf_get_current_pid_tgid();
    Header {
        size: size_of::<T>() as u32,
        kind: kind as u16,
        version: VERSION,
        // SAFETY: no arguments.
        mono_ns: unsafe { bpf_ktime_get_ns() },
        process: owner.id,
        tgid: owner.tgid,
        tid: pid_tgid as u32,
        task_tgid: (pid_tgid >> 32) as u32,
        // SAFETY: no arguments.
        cpu: unsafe { bpf_get_smp_processor_id() },
        ioctl,
        probe: probe as u32,
    }
}
