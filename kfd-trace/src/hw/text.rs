//! The report as a table (docs/hw.md).

use super::Names;
use super::hqds::Place;
use super::mqds::MqdKind;
use super::report::{Fault, Gpu, HwReport, QueueRow, Slot, State};
use super::rows::Strange;
use crate::text::escape;
use crate::text::table;
use bytesize::ByteSize;
use std::collections::BTreeSet;
use std::io::{self, Write};

const HEADER: [&str; 14] = [
    "GPU", "PID", "NAME", "TYPE", "RING", "SIZE", "XCCS", "SLOT", "VMID", "STATE", "RPTR", "WPTR", "UNREAD",
    "MOVED",
];
const RIGHT: [usize; 7] = [1, 5, 6, 8, 10, 11, 12];

/// Faults that are shown; the JSON has all.
const FAULTS: usize = 16;

/// # Errors
/// Those of `out`.
pub fn text(out: &mut impl Write, report: &HwReport, names: &impl Names) -> io::Result<()> {
    for one in &report.gpus {
        writeln!(out, "{}", totals(one, &names.gpu_in_full(one.gpu_id)))?;
    }
    if !report.queues.is_empty() {
        writeln!(out)?;
        // MOVED is of two samples.
        let columns = HEADER.len() - usize::from(report.interval.is_none());
        let row = |queue| cells(queue, names).into_iter().take(columns).collect();
        let rows = report.queues.iter().map(row).collect();
        writeln!(out, "{}", table::plain(&HEADER[..columns], rows, &RIGHT))?;
    } else if report.gpus.is_empty() {
        writeln!(out, "no queues")?;
    }
    for line in faults(report, names).into_iter().chain(notes(report)) {
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
    let at_least = |missing: bool| if missing { "at least " } else { "" };
    let mut line = format!("{name}: {}", plural(gpu.compute_queues, "compute queue"));
    if let (Some(active), Some(xccs), Some(slots)) = (gpu.active_hqds, gpu.xccs, gpu.slots_each) {
        line += &format!(
            " = {}{} on {}, {slots} slots each",
            at_least(gpu.compute_missing),
            plural(active, "active HQD"),
            plural(xccs, "XCC")
        );
    }
    line += &format!("; {}", plural(gpu.sdma_queues, "SDMA queue"));
    if let Some(active) = gpu.active_sdma {
        line += &format!(", {}{active} active", at_least(gpu.sdma_missing));
    }
    line
}

fn cells(queue: &QueueRow, names: &impl Names) -> Vec<String> {
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
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
        or_dash(range(&queue.pointers.iter().map(|pointers| pointers.rptr).collect())),
        or_dash(queue.wptr().map(|wptr| wptr.to_string())),
        unread(queue).unwrap_or_else(unknown),
        match queue.moved {
            Some(true) => "yes".to_owned(),
            Some(false) => "no".to_owned(),
            None => unknown(),
        },
    ]
}

fn unknown() -> String {
    "?".to_owned()
}

/// `32 packets`, `0 to 32 packets`; `None`: not known.
fn unread(queue: &QueueRow) -> Option<String> {
    let (each, unit) = (range(&queue.unread()?.into_iter().collect())?, queue.unit?.name());
    Some(if each == "1" { format!("1 {}", unit.trim_end_matches('s')) } else { format!("{each} {unit}") })
}

/// The XCCs of a queue read one ring, each at its own pace.
fn range(all: &BTreeSet<u64>) -> Option<String> {
    match (all.first()?, all.last()?) {
        (first, last) if first == last => Some(first.to_string()),
        (first, last) => Some(format!("{first} to {last}")),
    }
}

fn place(place: Place) -> String {
    match place {
        Place::Cp { pipe, queue } => format!("pipe {pipe} queue {queue}"),
        Place::Hiq { mec, pipe, queue } => format!("MEC {mec} pipe {pipe} queue {queue}"),
        Place::Sdma { engine, rlc } => format!("engine {engine} RLC {rlc}"),
    }
}

/// `pipe 0 queue 2`, of several XCCs the same once.
fn places(slots: &[Slot]) -> Option<String> {
    let first = slots.first()?;
    if slots.iter().all(|slot| slot.place == first.place) {
        return Some(place(first.place));
    }
    let each = slots.iter().map(|slot| format!("XCC {} {}", slot.inst, place(slot.place)));
    Some(each.collect::<Vec<_>>().join(", "))
}

fn state(state: State) -> String {
    match state {
        State::Active { on, of, .. } if on == of => "active".to_owned(),
        State::Active { on, of, unread: 0 } => format!("active on {on} of {of} XCCs"),
        State::Active { on, of, unread } => format!("active on {on} of {of} XCCs, {unread} not read"),
        State::Stale => "left in its slot".to_owned(),
        State::NotMapped => "in no slot".to_owned(),
        State::Unknown => unknown(),
        State::Saved { active: true } => "active when saved".to_owned(),
        State::Saved { active: false } => "inactive when saved".to_owned(),
        State::Damaged => "damaged".to_owned(),
    }
}

/// One line per slot with an error or a dequeue request.
fn faults(report: &HwReport, names: &impl Names) -> Vec<String> {
    let line = |fault: &Fault| {
        let (slot, ring) = (&fault.slot, fault.ring);
        let whose = fault.pid.map_or_else(|| "in no MQD".to_owned(), |pid| format!("of PID {pid}"));
        let registers = [
            slot.error.filter(|error| *error != 0).map(|error| format!("CP_HQD_ERROR {error:#x}")),
            slot.dequeue_request.filter(|request| *request != 0).map(|request| match request {
                0..=9 => format!("CP_HQD_DEQUEUE_REQUEST {request}"),
                _ => format!("CP_HQD_DEQUEUE_REQUEST {request:#x}"),
            }),
        ];
        format!(
            "{}, XCC {} {}, ring {ring:#x} {whose}{}: {}",
            names.gpu_in_full(fault.gpu_id),
            slot.inst,
            place(slot.place),
            if slot.active { "" } else { ", not active" },
            registers.into_iter().flatten().collect::<Vec<_>>().join(", ")
        )
    };
    let mut lines: Vec<String> = report.faults.iter().take(FAULTS).map(line).collect();
    if report.faults.len() > FAULTS {
        lines.push(format!(
            "and {} more slots with an error or a dequeue request (--json)",
            report.faults.len() - FAULTS
        ));
    }
    lines
}

/// What a reader has to know of the figures.
fn notes(report: &HwReport) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(interval) = report.interval {
        notes.push(format!(
            "MOVED: between two readings {:.1} s apart; the rest is of the second one.",
            interval.as_secs_f64()
        ));
    }
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
    for (file, source) in [("mqds", &report.mqds), ("hqds", &report.hqds)] {
        let Some(source) = source else { continue };
        notes.extend(source.missing.iter().map(|reason| format!("{reason}.")));
        if let Strange { lines: lines @ 1.., first } = &source.strange {
            let shown: Vec<String> = first
                .iter()
                .map(|(number, line)| format!("line {number}: {}", escape::terminal(line)))
                .collect();
            let count = if *lines == 1 { "1 line".to_owned() } else { format!("{lines} lines") };
            let verb = if *lines == 1 { "is" } else { "are" };
            notes
                .push(format!("{count} of {file} {verb} not understood, and left out: {}", shown.join("; ")));
        }
    }
    notes
}
