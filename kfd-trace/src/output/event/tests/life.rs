//! Lines of queue and GPU events.

use super::stream::line;
use crate::model::event::{Body, Event, QueueFacts};
use crate::model::incident::{CuMask, Eviction, FaultAccess, MqdOp, QueueUpdate, Trigger, VmFault};
use crate::output::samples::PID;
use crate::state::samples::{event, facts};

const GPU: Option<u32> = Some(58270);
const LABEL: &str = "gpu 0 (0000:c1:00.0, gfx942)";

fn ends(event: &Event, end: &str) {
    let line = line(event);
    assert!(line.ends_with(&format!("{end}\n")), "{line}");
}

#[test]
fn what_happens_to_a_gpu_shows_whom_it_hits() {
    // No owner: the owner's columns are empty.
    let of_nobody = |body| Event { process: None, tgid: None, ..event(50_000, 1, 0, body) };
    let line = line(&of_nobody(Body::HwsHang { gpu_id: GPU }));
    assert!(line.contains("      ? ?               HWS_HANG       "), "{line}");
    assert!(line.ends_with(&format!("{LABEL} the scheduler does not answer, hits pid 4321\n")), "{line}");
    ends(&of_nobody(Body::GpuResetBegin { gpu_id: GPU }), &format!("{LABEL} begins, hits pid 4321"));
    ends(&of_nobody(Body::GpuResetEnd { gpu_id: GPU }), &format!("{LABEL} ends, hits pid 4321"));
    let other = of_nobody(Body::GpuResetBegin { gpu_id: Some(9) });
    ends(&other, "GPU_RESET      gpu_id=9 begins, no process has queues on it");
}

#[test]
fn a_fault_shows_whose_where_and_why() {
    let access =
        Some(FaultAccess { address: 0x7f00_1000, not_present: true, read_only: false, no_execute: true });
    let fault = Body::VmFault(VmFault { gpu_id: GPU, access });
    let worker = Event { task_tgid: 77, tid: 77, ..event(50_000, 1, PID, fault) };
    let text = format!("VM_FAULT       {LABEL} address=0x7f001000, not present, no execute by=tid 77");
    ends(&worker, &text);
    assert!(line(&worker).contains("   4321 train "), "the owner, not the kworker");
}

#[test]
fn evictions_updates_and_writes() {
    let reported = Eviction { gpu_id: GPU, trigger: Some(Trigger::Ttm), errno: 0, latency_ns: 1_500 };
    ends(
        &event(50_000, 1, PID, Body::Evict(reported)),
        &format!("EVICT          {LABEL} trigger=ttm <1.5us>"),
    );
    let restore = Eviction { trigger: None, ..reported };
    ends(&event(50_000, 1, PID, Body::Restore(restore)), &format!("RESTORE        {LABEL} after ? <1.5us>"));
    let cu_mask = Some(CuMask { words: vec![0xff, 0] });
    let update = QueueUpdate { now: facts(3), cu_mask, mask_unread: false, errno: Some(22) };
    ends(
        &event(50_000, 1, PID, Body::QueueUpdate(update)),
        " cu_mask=8 of 228 CUs (per SE of XCC 0-1 1+1+0+0, of XCC 2-5 1+0+0+0) = -EINVAL",
    );
    let raised = QueueFacts { priority: Some(11), ..facts(3) };
    let update = QueueUpdate { now: raised, cu_mask: None, mask_unread: false, errno: Some(0) };
    ends(&event(50_000, 1, PID, Body::QueueUpdate(update)), " prio=7 (normal) -> 11 (high) percent=100");
    let unseen = QueueUpdate { now: facts(3), cu_mask: None, mask_unread: true, errno: None };
    ends(&event(50_000, 1, PID, Body::QueueUpdate(unseen)), " cu_mask=? no return seen");
    let write = Body::MqdWrite { queue_id: 3, gpu_id: GPU, op: MqdOp::Update };
    ends(&event(50_000, 1, PID, write), &format!("MQD            {LABEL} id=3 update"));
}
