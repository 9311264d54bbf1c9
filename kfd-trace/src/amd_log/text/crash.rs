//! Aborts, faults and what was in flight, as text: what a reader of a crash wants first.

use super::{of_source, seconds, shown};
use crate::amd_log::report::{AbortReport, AnalyzedReport, FaultReport, QueueReport, Report};
use crate::text::count::{counted, verb};
use crate::text::escape;
use std::io::{self, Write};

/// Queues whose last dispatch is shown.
const QUEUES: usize = 16;

impl Report {
    pub(super) fn crash(&self, out: &mut impl Write) -> io::Result<()> {
        let errors = &self.errors;
        for abort in &errors.aborts {
            writeln!(out, "abort      {}", aborted(abort))?;
        }
        for fault in &errors.faults {
            writeln!(out, "fault      {}", faulted(fault))?;
        }
        for queue in &errors.hang_analysis {
            writeln!(out, "in flight  {}", analyzed(queue))?;
        }
        if errors.queue_aborts == 0 && errors.fault_reports == 0 {
            return Ok(());
        }
        for queue in self.queues.iter().filter(|queue| queue.last_kernel.is_some()).take(QUEUES) {
            writeln!(out, "last       {}", last(queue))?;
        }
        let Some(unfinished) = self.unfinished.as_ref().filter(|unfinished| unfinished.count > 0) else {
            return Ok(());
        };
        let count = unfinished.count;
        writeln!(
            out,
            "unfinished {} of which the log has no end; the oldest {}:",
            counted(count, "command", "commands"),
            verb(&unfinished.oldest.len(), "is", "are")
        )?;
        for command in &unfinished.oldest {
            let since = command.since_mono_us.map_or_else(|| "-".to_owned(), seconds);
            writeln!(
                out,
                "           {} of PID {}{}, queued at {since}",
                escape::terminal(&command.kind),
                shown(command.pid),
                of_source(command.source.as_ref())
            )?;
        }
        Ok(())
    }
}

fn aborted(abort: &AbortReport) -> String {
    let queue = abort.address.as_ref().map_or_else(|| "a queue".to_owned(), |at| format!("queue {at}"));
    let error = abort.error.as_deref().map_or_else(|| "error unknown".to_owned(), escape::terminal);
    let code = abort.code.as_ref().map(|code| format!(" ({code})")).unwrap_or_default();
    format!("{queue}: {error}{code}{}{}", of_source(abort.source.as_ref()), at(abort.mono_us))
}

fn faulted(fault: &FaultReport) -> String {
    let mut parts = vec![fault.kind.replace('_', " ")];
    let mut add = |name: &str, value: Option<String>| {
        parts.extend(value.map(|value| format!("{name} {}", escape::terminal(&value))));
    };
    add("GPU index", fault.gpu_index.map(|index| index.to_string()));
    add("node", fault.node.map(|node| node.to_string()));
    let inexact = if fault.inexact { " (may not be exact)" } else { "" };
    add("address", fault.address.as_ref().map(|at| format!("{at}{inexact}")));
    add("queue", fault.queue.clone());
    add("kernel", fault.kernel.clone());
    add("reason:", fault.reason.clone());
    format!("{}{}{}", parts.join(", "), of_source(fault.source.as_ref()), at(fault.mono_us))
}

fn analyzed(queue: &AnalyzedReport) -> String {
    let name = match (&queue.hwq, &queue.swq) {
        (Some(hwq), _) => format!("HWq {hwq}"),
        (None, Some(swq)) => format!("SWq {swq}"),
        (None, None) => "a queue".to_owned(),
    };
    let source = of_source(queue.source.as_ref());
    if queue.head == "idle" {
        return format!("{name}{source}: idle");
    }
    let head = match queue.head {
        "unknown" => "its head was not found".to_owned(),
        head => format!("a {head} at its head"),
    };
    let packets = queue
        .not_retired
        .map(|packets| format!(", {} not retired", counted(packets, "packet", "packets")))
        .unwrap_or_default();
    let size = |of: [u64; 3]| format!("{} x {} x {}", of[0], of[1], of[2]);
    let shape = match (queue.grid, queue.workgroup) {
        (Some(grid), Some(workgroup)) => format!(", grid {} / {}", size(grid), size(workgroup)),
        _ => String::new(),
    };
    format!("{name}{source}: {head}{packets}{shape}")
}

/// The last dispatch of a queue.
fn last(queue: &QueueReport) -> String {
    let kernel = queue.last_kernel.as_deref().map_or_else(|| "-".to_owned(), escape::terminal);
    let packets = queue.backlog.map(|backlog| {
        format!(", {} not retired at its last line", counted(backlog.last, "packet", "packets"))
    });
    format!(
        "HWq {}{}: {kernel}{}{}",
        shown(queue.hwq.as_ref()),
        of_source(queue.source.as_ref()),
        packets.unwrap_or_default(),
        at(queue.last_kernel_mono_us)
    )
}

fn at(mono_us: Option<u64>) -> String {
    mono_us.map(|us| format!(", at {}", seconds(us))).unwrap_or_default()
}
