//! The report as one JSON object (docs/hw.md).

use super::Names;
use super::hqds::Place;
use super::mqds::MqdKind;
use super::progress::Unit;
use super::report::{Fault, HwReport, QueueRow, Slot, Source, State};
use crate::text::escape;
use serde_json::{Value, json};
use std::io::{self, Write};

/// Version of the format.
pub const SCHEMA: u32 = 1;

/// # Errors
/// Those of `out`.
pub fn json(out: &mut impl Write, report: &HwReport, names: &impl Names) -> io::Result<()> {
    let gpus: Vec<Value> = report
        .gpus
        .iter()
        .map(|gpu| {
            json!({
                "gpu": names.gpu(gpu.gpu_id), "gpu_id": gpu.gpu_id, "stopped": gpu.stopped, "compute_queues": gpu.compute_queues,
                "sdma_queues": gpu.sdma_queues, "xccs": gpu.xccs, "slots_per_xcc": gpu.slots_each,
                "active_hqds": gpu.active_hqds, "active_sdma": gpu.active_sdma,
                "compute_slots_missing": gpu.compute_missing, "sdma_slots_missing": gpu.sdma_missing,
            })
        })
        .collect();
    let queues: Vec<Value> = report.queues.iter().map(|row| queue(row, names)).collect();
    let document = json!({
        "schema": SCHEMA, "gpus": gpus, "queues": queues, "idle_processes": report.idle_processes,
        "faults": report.faults.iter().map(|one| fault(one, names)).collect::<Vec<_>>(),
        "unknown_queues": report.unknown_queues, "interval_seconds": report.interval.map(|interval| interval.as_secs_f64()),
        "mqds": report.mqds.as_ref().map(source), "hqds": report.hqds.as_ref().map(source),
    });
    escape::json(&mut *out, &document)?;
    writeln!(out)
}

fn source(source: &Source) -> Value {
    let strange = &source.strange;
    json!({ "lines_left_out": strange.lines, "first": strange.first, "missing": source.missing })
}

fn fault(fault: &Fault, names: &impl Names) -> Value {
    json!({
        "gpu": names.gpu(fault.gpu_id), "gpu_id": fault.gpu_id, "pid": fault.pid,
        "ring_address": format!("{:#x}", fault.ring), "slot": slot(&fault.slot),
    })
}

fn queue(row: &QueueRow, names: &impl Names) -> Value {
    let hex = |address: u64| format!("{address:#x}");
    let kind = row.kind.map(|kind| match kind {
        MqdKind::Compute => "compute",
        MqdKind::Sdma => "sdma",
        MqdKind::Diq => "debugger",
    });
    let (state, on) = match row.state {
        State::Active { on, .. } => ("active", Some(on)),
        State::Unknown => ("unknown", None),
        State::Stale => ("stale", Some(0)),
        State::NotMapped => ("not_mapped", Some(0)),
        State::Saved { active: true } => ("saved_active", None),
        State::Saved { active: false } => ("saved_inactive", None),
        State::Damaged => ("damaged", None),
    };
    let unread_xccs = if let State::Active { unread, .. } = row.state { Some(unread) } else { None };
    json!({
        "pid": row.pid, "comm": row.pid.and_then(|pid| names.process(pid)), "gpu": names.gpu(row.gpu_id), "gpu_id": row.gpu_id, "type": kind.unwrap_or("hiq"),
        "state": state, "active_xccs": on, "unread_xccs": unread_xccs, "xccs": row.xccs,
        "ring_address": row.ring.map(hex), "ring_size": row.ring_bytes, "vmid": row.vmid,
        "slots": row.slots.iter().map(slot).collect::<Vec<_>>(),
        "read_pointers": row.pointers.iter().map(|pointers| pointers.rptr).collect::<Vec<_>>(),
        "write_pointer": row.wptr(), "unread": row.unread(), "unread_unit": row.unit.map(Unit::name), "moved": row.moved,
        "pipe_priority": row.pipe_priority, "queue_priority": row.queue_priority,
        "doorbell_offset": row.doorbell_offset, "cu_masks": row.cu_masks,
        "sdma_engine": row.engine.map(|(engine, _)| engine), "sdma_queue": row.engine.map(|(_, queue)| queue),
        "mqd_addresses": row.mqds.iter().copied().map(hex).collect::<Vec<_>>(),
    })
}

fn slot(slot: &Slot) -> Value {
    let (inst, active) = (slot.inst, slot.active);
    let (error, dequeue_request) = (slot.error, slot.dequeue_request);
    match slot.place {
        Place::Cp { pipe, queue } => json!({
            "xcc": inst, "pipe": pipe, "queue": queue, "active": active, "error": error, "dequeue_request": dequeue_request,
        }),
        Place::Hiq { mec, pipe, queue } => json!({
            "xcc": inst, "mec": mec, "pipe": pipe, "queue": queue, "active": active, "error": error,
            "dequeue_request": dequeue_request,
        }),
        Place::Sdma { engine, rlc } => json!({ "engine": engine, "rlc": rlc, "active": active }),
    }
}
