//! Notes that the reader needs to interpret the figures of the report.

use super::join::JoinResult;
use super::report::Report;
use crate::text::count::{counted, verb};

/// The notes, one sentence each.
///
/// `unfinished`: lines of containers that were cut, and whose rest is missing.
pub(super) fn of(report: &Report, unfinished: usize) -> Vec<String> {
    let mut notes = Vec::new();
    for input in &report.inputs {
        let name = &input.name;
        if let Some(problem) = &input.problem {
            notes.push(format!("{name}: {problem}; figures are of what is before"));
        }
        if input.cut {
            notes.push(format!("{name}: the last line has no newline, and was ignored"));
        }
        if input.nuls > 0 {
            notes.push(format!(
                "{name}: {} left out; what was there is lost",
                counted(input.nuls, "NUL was", "NULs were")
            ));
        }
        if input.restarts > 0 {
            notes.push(format!(
                "{name}: it was truncated or replaced {}; what was not read before is lost",
                counted(input.restarts, "time", "times")
            ));
        }
    }
    let damaged: u64 = report.lines.damaged.iter().map(|kind| kind.count).sum();
    if damaged > 0 {
        notes.push(format!(
            "{} not whole: {} figures are missing",
            counted(damaged, "line is", "lines are"),
            verb(&damaged, "its", "their")
        ));
    }
    if unfinished > 0 {
        notes.push(format!(
            "{} cut by the container's runtime, and the rest is not in the log",
            counted(unfinished, "line was", "lines were")
        ));
    }
    let appended = report.lines.appended;
    if appended > 0 {
        notes.push(format!(
            "{} behind another one on the same line: {} counted beside the total",
            counted(appended, "line of the log is", "lines of the log are"),
            verb(&appended, "it is", "they are")
        ));
    }
    missing(report, &mut notes);
    let left_out = report.left_out;
    if left_out != super::report::LeftOut::default() {
        notes.push("there was no room for all: what is in left_out is missing".to_owned());
    }
    joins(report, &mut notes);
    notes
}

fn missing(report: &Report, notes: &mut Vec<String>) {
    let first = report.queues.iter().filter_map(|queue| queue.backlog.map(|of| of.first_write_index));
    let before: u128 = first.map(u128::from).sum();
    if before > 0 {
        notes.push(format!(
            "{} before the first ones in the log: counts are lower bounds",
            counted(before, "packet came", "packets came")
        ));
    }
    advice(report, notes);
    let apart = |queue: &&super::report::QueueReport| queue.created > 0 && queue.hwq.is_none();
    if report.queues.iter().any(|queue| apart(&queue)) {
        notes.push(
            "up to ROCm 6.1 a queue's birth names its SWq and its packets name its HWq: only a join shows that they are the same queue"
                .to_owned(),
        );
    }
}

/// What to set to see more. After a crash there is none: clr writes aborts, faults and all else of level 0 in any case.
fn advice(report: &Report, notes: &mut Vec<String>) {
    let (errors, lines) = (&report.errors, &report.lines);
    if lines.by_level[0] > 0 || errors.fault_reports > 0 || !errors.hang_analysis.is_empty() {
        return;
    }
    let packets: u64 = report.queues.iter().map(|queue| queue.dispatches).sum();
    let kernels = report.commands.iter().filter(|command| command.kind == "KernelExecution");
    let kernels: u64 = kernels.map(|command| command.count).sum();
    if lines.read == 0 && lines.without_prefix > 0 && lines.by_level == [0; 10] {
        notes.push(
            "no line of it is of clr: name the file that AMD_LOG_LEVEL_FILE gives, or what the process wrote to standard error"
                .to_owned(),
        );
    } else if lines.read == 0 {
        notes.push("nothing of it is of queues or commands: AMD_LOG_LEVEL=5 writes them".to_owned());
    } else if packets == 0 && kernels > 0 {
        notes
            .push("no line of a dispatch: AMD_LOG_LEVEL=4 and AMD_LOG_MASK with bit 8 write them".to_owned());
    } else if packets > 0 && kernels == 0 {
        notes.push("no line of a command: AMD_LOG_LEVEL=5 and AMD_LOG_MASK with bit 2 write them".to_owned());
    }
}

fn joins(report: &Report, notes: &mut Vec<String>) {
    let count = |verdict| report.queues.iter().filter(|queue| queue.join == Some(verdict)).count();
    for (verdict, why) in [
        (
            JoinResult::NotFound,
            "KFD had no queue of that address: it belongs to a profiler's intercept queue, or to a time, a machine or a boot that was not read",
        ),
        (
            JoinResult::PointerDiffers,
            "KFD's write pointer is not at SWq + 0x38: not a queue of ROCr, or of another process",
        ),
        (JoinResult::OtherTime, "KFD's queue of that address lived at another time"),
        (JoinResult::Ambiguous, "several queues of KFD have that address, and may have lived then"),
    ] {
        let queues = count(verdict);
        if queues > 0 {
            notes.push(format!("{queues} of the log's queues not joined: {why}"));
        }
    }
    if let Some(join) = &report.join {
        let not_in_log: usize = join.not_in_log.iter().map(|of| of.queues).sum();
        if not_in_log > 0 {
            notes.push(format!(
                "{} of the joined processes {} not in the log: ROCr's own and those of copies never are",
                counted(not_in_log, "queue", "queues"),
                verb(&not_in_log, "is", "are")
            ));
        }
        if join.unreadable_lines > 0 {
            let unreadable = join.unreadable_lines;
            notes.push(format!(
                "{} of the stream {} no JSON",
                counted(unreadable, "line", "lines"),
                verb(&unreadable, "is", "are")
            ));
        }
    }
}
