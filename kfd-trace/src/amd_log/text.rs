//! The report as text.

use super::join::JoinResult;
use super::report::{ProcessReport, QueueReport, Report, ShapeReport};
use crate::text::clock::span;
use crate::text::count::counted;
use crate::text::escape;
use crate::text::table::plain;
use std::io::{self, Write};

mod crash;

/// Kernel names that are shown, and the letters of each.
const KERNELS: usize = 10;
const KERNEL: usize = 100;
/// Dispatch shapes that are shown per queue.
const SHAPES: usize = 5;

impl Report {
    /// Writes the report with control characters escaped, safe for a terminal.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn text(&self, out: &mut impl Write) -> io::Result<()> {
        self.head(out)?;
        self.queues(out)?;
        self.shapes(out)?;
        self.commands(out)?;
        self.copies(out)?;
        self.kernels(out)?;
        self.trouble(out)?;
        for note in &self.notes {
            writeln!(out, "note: {}", escape::terminal(note))?;
        }
        Ok(())
    }

    fn head(&self, out: &mut impl Write) -> io::Result<()> {
        for input in &self.inputs {
            let of = input.compression.map(|name| format!(" ({name})")).unwrap_or_default();
            let bytes = counted(input.bytes, "byte", "bytes");
            writeln!(out, "log        {}{of}: {bytes}", escape::terminal(&input.name))?;
        }
        let lines = &self.lines;
        let damaged: u64 = lines.damaged.iter().map(|kind| kind.count).sum();
        let styles: Vec<String> =
            lines.prefixes.iter().map(|style| format!("{} of {}", style.count, style.name)).collect();
        writeln!(
            out,
            "lines      {}: {} read, {} unrelated, {} without prefix, {} blank, {damaged} damaged, {} too long",
            lines.total, lines.read, lines.other, lines.without_prefix, lines.blank, lines.overlong
        )?;
        if lines.crash + lines.partial > 0 {
            writeln!(
                out,
                "           {} of crashes, without prefix; {} cut by a container's runtime and joined",
                lines.crash, lines.partial
            )?;
        }
        writeln!(out, "prefixes   {}", or_dash(styles.join(", ")))?;
        if let (Some(first), Some(last), Some(duration)) =
            (self.first_mono_us, self.last_mono_us, self.duration_us)
        {
            let duration = span(duration.saturating_mul(1000));
            writeln!(out, "time       {duration} (CLOCK_MONOTONIC {} to {})", seconds(first), seconds(last))?;
        }
        let pids: Vec<String> = self.processes.iter().take(10).map(process).collect();
        let more = self.processes.len().saturating_sub(pids.len());
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        writeln!(out, "PIDs       {}{more}", or_dash(pids.join(", ")))?;
        let gfx: Vec<String> = self
            .gpus
            .gfx
            .iter()
            .map(|gfx| format!("{} ({})", gfx.name, counted(gfx.count, "line", "lines")))
            .collect();
        let found = self.gpus.found.map_or_else(|| "-".to_owned(), |found| found.to_string());
        writeln!(out, "GPUs       {found}; {}", or_dash(gfx.join(", ")))?;
        if let Some(pool) = self.pool {
            writeln!(
                out,
                "pool       queues of low priority {}, normal {}, high {}; at most {} of each",
                pool.low, pool.normal, pool.high, pool.maximum
            )?;
        }
        if let Some(streams) = self.streams {
            let (most, queues) = (streams.most, counted(streams.queues, "queue", "queues"));
            writeln!(out, "streams    at most {most} at once, on {queues}")?;
        }
        Ok(())
    }

    fn queues(&self, out: &mut impl Write) -> io::Result<()> {
        if self.queues.is_empty() {
            return writeln!(out, "queues     none");
        }
        const HEADER: [&str; 18] = [
            "SOURCE",
            "PID",
            "ID",
            "HWQ",
            "SWQ",
            "HOST QUEUE",
            "PRIO",
            "CREATED",
            "ACQUIRED",
            "RELEASED",
            "STREAMS",
            "DELETED",
            "DISPATCHES",
            "BARRIERS",
            "BACKLOG",
            "MEAN",
            "JOIN",
            "KFD",
        ];
        let rows = self.queues.iter().map(|queue| {
            let cells = [
                label(queue.source.as_ref()),
                shown(queue.pid),
                shown(queue.id),
                shown(queue.hwq.as_ref()),
                shown(queue.swq.as_ref().or(queue.address.as_ref())),
                or_dash(queue.host_queues.join(" ")),
                shown(queue.priority),
                queue.created.to_string(),
                (queue.acquired + queue.selected).to_string(),
                queue.released.to_string(),
                queue.streams.to_string(),
                queue.deleted.to_string(),
                queue.dispatches.to_string(),
                (queue.barriers_and + queue.barriers_or + queue.barrier_values).to_string(),
                shown(queue.backlog.map(|backlog| backlog.most)),
                shown(queue.backlog.map(|backlog| format!("{:.1}", backlog.mean))),
                shown(queue.join.map(JoinResult::name)),
                kfd(queue),
            ];
            cells.to_vec()
        });
        const RIGHT: [usize; 12] = [1, 2, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];
        writeln!(out, "\n{}", self.table(&HEADER, rows.collect(), &RIGHT))
    }

    /// A table whose first column is the label of the rank or container, which most logs do not have.
    fn table(&self, header: &[&str], mut rows: Vec<Vec<String>>, right: &[usize]) -> String {
        let has_labels = self.queues.iter().any(|queue| queue.source.is_some())
            || self.commands.iter().any(|command| command.source.is_some());
        if has_labels {
            return plain(header, rows, right);
        }
        for row in &mut rows {
            row.remove(0);
        }
        let right: Vec<usize> = right.iter().map(|column| column - 1).collect();
        plain(&header[1..], rows, &right)
    }

    fn shapes(&self, out: &mut impl Write) -> io::Result<()> {
        let mut rows = Vec::new();
        for queue in &self.queues {
            for shape in queue.shapes.iter().take(SHAPES) {
                rows.push(shape_cells(queue, shape));
            }
            let more = queue.shapes.len().saturating_sub(SHAPES);
            if more > 0 {
                let mut cells = vec![shown(queue.hwq.as_ref()), format!("{more} more")];
                cells.resize(7, String::new());
                rows.push(cells);
            }
        }
        if rows.is_empty() {
            return Ok(());
        }
        const HEADER: [&str; 7] =
            ["HWQ", "HEADER", "BARRIER", "ACQUIRE", "RELEASE", "GRID / WORKGROUP", "DISPATCHES"];
        writeln!(out, "\n{}", plain(&HEADER, rows, &[6]))
    }

    fn commands(&self, out: &mut impl Write) -> io::Result<()> {
        if !self.commands.is_empty() {
            let rows = self.commands.iter().map(|of| {
                vec![
                    label(of.source.as_ref()),
                    shown(of.pid),
                    escape::terminal(&of.kind),
                    of.count.to_string(),
                    self.mean_time(of.count),
                ]
            });
            writeln!(
                out,
                "\n{}",
                self.table(&["SOURCE", "PID", "COMMAND", "COUNT", "ONE IN"], rows.collect(), &[1, 3, 4])
            )?;
        }
        let intervals = &self.rate.intervals;
        if let (Some(most), true) =
            (intervals.iter().max_by_key(|of| of.commands + of.dispatches), intervals.len() > 1)
        {
            let least = intervals[..intervals.len() - 1].iter().skip(1).map(|of| of.dispatches).min();
            writeln!(
                out,
                "\nrate       in {} intervals of {}: at most {} and {} (from {}), at least {} but for the first and last",
                intervals.len(),
                span(self.rate.interval_us.saturating_mul(1000)),
                counted(most.commands, "command", "commands"),
                counted(most.dispatches, "dispatch", "dispatches"),
                seconds(most.from_mono_us),
                least.map_or_else(|| "-".to_owned(), |least| counted(least, "dispatch", "dispatches")),
            )?;
        }
        if self.completed.count > 0 {
            let of = &self.completed;
            writeln!(
                out,
                "completed  {}, {} of them profiled: {} us on GPUs",
                counted(of.count, "command", "commands"),
                of.profiled,
                of.gpu_us
            )?;
        }
        if self.signals.count > 0 {
            let of = &self.signals;
            let signals = counted(of.count, "signal", "signals");
            writeln!(out, "signals    {signals} with times of the GPU: {} ns in sum", of.gpu_ns)?;
        }
        Ok(())
    }

    /// Mean time per count, over the time of the log.
    fn mean_time(&self, count: u64) -> String {
        let mean = self.duration_us.and_then(|us| us.saturating_mul(1000).checked_div(count));
        mean.map_or_else(|| "-".to_owned(), span)
    }

    fn copies(&self, out: &mut impl Write) -> io::Result<()> {
        for copies in &self.copies {
            let engine = copies.engine.as_deref().unwrap_or("unknown");
            let (sized, unsized_) = (copies.count - copies.without_size, copies.without_size);
            if sized > 0 {
                let bytes = counted(copies.bytes, "byte", "bytes");
                writeln!(out, "copies     {sized} of {bytes}, engine {engine}")?;
            }
            if unsized_ > 0 {
                writeln!(out, "copies     {unsized_} whose lines have no size, engine {engine}")?;
            }
        }
        Ok(())
    }

    fn kernels(&self, out: &mut impl Write) -> io::Result<()> {
        if self.kernels.is_empty() {
            return Ok(());
        }
        writeln!(out, "\nkernels    {}", counted(self.kernels.len(), "name", "names"))?;
        for kernel in self.kernels.iter().take(KERNELS) {
            let mut name: String = kernel.name.chars().take(KERNEL).collect();
            if name.len() < kernel.name.len() {
                name.push_str("...");
            }
            writeln!(out, "{:>10} {}", kernel.count, escape::terminal(&name))?;
        }
        Ok(())
    }

    fn trouble(&self, out: &mut impl Write) -> io::Result<()> {
        let errors = &self.errors;
        let full = counted(self.queue_full, "time", "times");
        writeln!(
            out,
            "\nqueue full {full}; queues aborted: {}; reports of faults: {}",
            errors.queue_aborts, errors.fault_reports
        )?;
        self.crash(out)?;
        for error in &self.errors.returned {
            writeln!(out, "returned   {} {}", error.count, escape::terminal(&error.name))?;
        }
        for line in &self.errors.lines {
            writeln!(out, "error      {}", escape::terminal(line))?;
        }
        Ok(())
    }
}

/// `4300 of rank3 (7 lines)`.
fn process(of: &ProcessReport) -> String {
    let lines = counted(of.lines, "line", "lines");
    format!("{}{} ({lines})", shown(of.pid), of_source(of.source.as_ref()))
}

fn shape_cells(queue: &QueueReport, shape: &ShapeReport) -> Vec<String> {
    let size = |of: [u64; 3]| format!("{} x {} x {}", of[0], of[1], of[2]);
    let grid = match (shape.grid, shape.clusters) {
        (Some(grid), _) => size(grid),
        (None, Some(clusters)) => format!("{} clusters", size(clusters)),
        (None, None) => "-".to_owned(),
    };
    let header = &shape.header;
    vec![
        shown(queue.hwq.as_ref()),
        format!("{:#x} {}", header.raw, header.kind),
        header.barrier.to_string(),
        header.acquire.to_owned(),
        header.release.to_owned(),
        format!("{grid} / {}", size(shape.workgroup)),
        shape.count.to_string(),
    ]
}

/// `PID 3934101 (python3) queue 1 on gpu 3 (...)`.
fn kfd(queue: &QueueReport) -> String {
    let Some(kfd) = &queue.kfd else { return "-".to_owned() };
    let comm = kfd.comm.as_deref().map(|comm| format!(" ({})", escape::terminal(comm))).unwrap_or_default();
    let gpu = match (&kfd.gpu, kfd.gpu_id) {
        (Some(gpu), _) => format!(" on {}", escape::terminal(gpu)),
        (None, Some(id)) => format!(" on gpu_id={id}"),
        (None, None) => String::new(),
    };
    format!("PID {}{comm} queue {}{gpu}", shown(kfd.pid), shown(kfd.queue_id))
}

pub(super) fn shown(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

fn label(source: Option<&String>) -> String {
    source.map_or_else(|| "-".to_owned(), |source| escape::terminal(source))
}

/// ` of rank3`, or nothing.
pub(super) fn of_source(source: Option<&String>) -> String {
    source.map_or_else(String::new, |source| format!(" of {}", escape::terminal(source)))
}

fn or_dash(text: String) -> String {
    if text.is_empty() { "-".to_owned() } else { text }
}

pub(super) fn seconds(us: u64) -> String {
    format!("{}.{:06} s", us / 1_000_000, us % 1_000_000)
}
