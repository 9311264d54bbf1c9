//! The report as a table (docs/hw.md).

use super::Names;
use super::hqds::Place;
use super::join::{Gpu, HwReport, QueueRow, Slot, State};
use super::mqds::MqdKind;
use super::rows::Strange;
use crate::text::escape;
use crate::text::table;
use bytesize::ByteSize;
use std::collections::BTreeSet;
use std::io::{self, Write};

const HEADER: [&str; 12] =
    ["GPU", "PID", "NAME", "TYPE", "RING", "SIZE", "XCCS", "SLOT", "VMID", "STATE", "RPTR", "WPTR"];
const RIGHT: [usize; 5] = [1, 5, 6, 8, 10];

/// # Errors
/// Those of `out`.
pub fn text(out: &mut impl Write, report: &HwReport, names: &impl Names) -> io::Result<()> {
    for one in &report.gpus {
        writeln!(out, "{}", totals(one, &names.gpu_in_full(one.gpu_id)))?;
    }
    if !report.queues.is_empty() {
        writeln!(out)?;
        let rows = report.queues.iter().map(|queue| cells(queue, names)).collect();
        writeln!(out, "{}", table::plain(&HEADER, rows, &RIGHT))?;
    } else if report.gpus.is_empty() {
        writeln!(out, "no queues")?;
    }
    for line in notes(report) {
        writeln!(out, "{line}")?;
    }
    Ok(())
}

fn plural(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

fn totals(gpu: &Gpu, name: &str) -> String {
    if gpu.stopped {
        return format!("{name}: the driver has stopped it");
    }
    let mut line = format!("{name}: {}", plural(gpu.compute_queues, "compute queue"));
    if let (Some(xccs), Some(slots)) = (gpu.xccs, gpu.slots_each) {
        line += &format!(
            " = {} on {}, {slots} slots each",
            plural(gpu.active_hqds, "active HQD"),
            plural(xccs, "XCC")
        );
    }
    line += &format!("; {}", plural(gpu.sdma_queues, "SDMA queue"));
    if gpu.xccs.is_some() {
        line += &format!(", {} active", gpu.active_sdma);
    }
    line
}

fn cells(queue: &QueueRow, names: &impl Names) -> Vec<String> {
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let rptr: BTreeSet<u64> = queue.rptr.iter().copied().collect();
    let kind = match queue.kind {
        Some(MqdKind::Compute) => "compute",
        Some(MqdKind::Sdma) => "sdma",
        Some(MqdKind::Diq) => "debugger",
        None => "kernel (HIQ)",
    };
    let size = |bytes: u64| ByteSize::b(bytes).display().iec().to_string();
    vec![
        names.gpu(queue.gpu_id),
        or_dash(queue.pid.map(|pid| pid.to_string())),
        or_dash(queue.pid.and_then(|pid| names.process(pid)).map(|name| escape::terminal(&name))),
        kind.to_owned(),
        or_dash(queue.ring.map(|ring| format!("{ring:#x}"))),
        or_dash(queue.ring_bytes.map(size)),
        queue.xccs.to_string(),
        or_dash(places(&queue.slots)),
        or_dash(queue.vmid.map(|vmid| vmid.to_string())),
        state(queue.state),
        // The XCCs of a queue read one ring, each at its own pace.
        match (rptr.first(), rptr.last()) {
            (Some(first), Some(last)) if first != last => format!("{first} to {last}"),
            (Some(one), _) => one.to_string(),
            (None, _) => "-".to_owned(),
        },
        or_dash(queue.wptr.map(|wptr| wptr.to_string())),
    ]
}

/// `pipe 0 queue 2`, of several XCCs the same once.
fn places(slots: &[Slot]) -> Option<String> {
    let place = |place: Place| match place {
        Place::Cp { pipe, queue } => format!("pipe {pipe} queue {queue}"),
        Place::Hiq { mec, pipe, queue } => format!("MEC {mec} pipe {pipe} queue {queue}"),
        Place::Sdma { engine, rlc } => format!("engine {engine} RLC {rlc}"),
    };
    let first = slots.first()?;
    if slots.iter().all(|slot| slot.place == first.place) {
        return Some(place(first.place));
    }
    let each = slots.iter().map(|slot| format!("XCC {} {}", slot.inst, place(slot.place)));
    Some(each.collect::<Vec<_>>().join(", "))
}

fn state(state: State) -> String {
    match state {
        State::Active { on, of } if on == of => "active".to_owned(),
        State::Active { on, of } => format!("active on {on} of {of} XCCs"),
        State::Stale => "left in its slot".to_owned(),
        State::NotMapped => "in no slot".to_owned(),
        State::Saved { active: true } => "active when saved".to_owned(),
        State::Saved { active: false } => "inactive when saved".to_owned(),
        State::Damaged => "damaged".to_owned(),
    }
}

/// What else is to be said.
fn notes(report: &HwReport) -> Vec<String> {
    let mut notes = Vec::new();
    if report.hqds.is_none() && !report.queues.is_empty() {
        notes.push("The hardware's slots were not read (--hqds): a state is that of the last save, which may be long ago.".to_owned());
    }
    if report.mqds.is_none() && !report.queues.is_empty() {
        notes.push("MQDs were not read: the process of a queue is unknown.".to_owned());
    }
    if !report.idle_processes.is_empty() {
        let pids: Vec<String> = report.idle_processes.iter().map(u32::to_string).collect();
        notes.push(format!("Processes without a queue: {}.", pids.join(", ")));
    }
    if report.unknown_queues > 0 {
        notes.push(format!(
            "Queues of a type that the driver itself does not know: {}.",
            report.unknown_queues
        ));
    }
    for (file, strange) in [("mqds", &report.mqds), ("hqds", &report.hqds)] {
        if let Some(Strange { lines, first }) = strange.as_ref().filter(|strange| strange.lines > 0) {
            let shown: Vec<String> = first
                .iter()
                .map(|(number, line)| format!("line {number}: {}", escape::terminal(line)))
                .collect();
            notes.push(format!(
                "{lines} lines of {file} are not understood, and left out: {}",
                shown.join("; ")
            ));
        }
    }
    notes
}
