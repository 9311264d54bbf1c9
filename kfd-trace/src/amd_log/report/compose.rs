//! Builds the report from a tally.

use super::queue::{ends, hex};
use super::trouble::{errors, names, source, text, unfinished};
use super::*;
use crate::amd_log::join::{self, JoinResult};
use crate::amd_log::message::Damaged;
use crate::amd_log::prefix::Style;
use crate::amd_log::tally::{COMMANDS, DISPATCHES, Tally};
use crate::amd_log::{notes, rows};

impl Report {
    /// `kfd`: `None` if no join was requested.
    #[must_use]
    pub fn new(tally: &Tally, inputs: Vec<LogInput>, kfd: Option<&Kfd>) -> Report {
        let rows = rows::rows(&tally.counts.queues);
        let joined = kfd.map(|kfd| join::join(&rows, &kfd.queues));
        let kernels = tally.counts.kernels.by_number();
        let queues: Vec<QueueReport> = rows
            .iter()
            .enumerate()
            .map(|(index, row)| {
                let join = joined.as_ref().and_then(|all| all.get(index)).copied();
                let recorded = kfd.zip(join.and_then(|(_, at)| at)).and_then(|(kfd, at)| kfd.queues.get(at));
                let named = |(number, at_us): (u32, Option<u64>)| Some((text(kernels.get(&number)?), at_us));
                let names = queue::Names {
                    source: source(tally, row.process),
                    last_kernel: row.packets.last_kernel.and_then(named),
                };
                QueueReport::new(row, names, join.map(|(verdict, _)| verdict), recorded)
            })
            .collect();
        let join = kfd.zip(joined.as_ref()).map(|(kfd, joined)| JoinReport {
            asked: kfd.asked.clone(),
            kfd_queues: kfd.queues.len(),
            joined: joined.iter().filter(|(verdict, _)| *verdict == JoinResult::Joined).count(),
            not_in_log: join::unnamed(&kfd.queues, joined)
                .into_iter()
                .map(|(pid, queues)| NotInLog { pid, queues })
                .collect(),
            unreadable_lines: kfd.unreadable,
        });
        let (first_mono_us, last_mono_us) = ends(tally.counts.span);
        let mut report = Report {
            schema: SCHEMA,
            inputs,
            lines: lines(tally),
            first_mono_us,
            last_mono_us,
            duration_us: tally.counts.span.0.map(|(first, last)| last - first),
            processes: processes(tally),
            gpus: gpus(tally),
            pool: tally.counts.pool,
            streams: tally.counts.queues.most_streams,
            queues,
            barrier_values_without_queue: tally.counts.queues.barrier_values_without_queue,
            commands: commands(tally),
            host_queues: host_queues(tally),
            completed: completed(tally),
            unfinished: unfinished(tally),
            signals: SignalsReport { count: tally.counts.signals.count, gpu_ns: tally.counts.signals.gpu_ns },
            rate: rate(tally),
            kernels: names(tally.counts.kernels.sorted()),
            copies: copies(tally),
            queue_full: tally.counts.queue_full,
            errors: errors(tally),
            left_out: LeftOut { recorded_queues: kfd.map_or(0, |kfd| kfd.left_out), ..left_out(tally) },
            join,
            notes: Vec::new(),
        };
        report.notes = notes::of(&report, tally.entries.unfinished());
        report
    }
}

/// Entries with a count above 0.
fn counted(all: impl Iterator<Item = (&'static str, u64)>) -> Vec<NameReport> {
    all.filter(|(_, count)| *count > 0)
        .map(|(name, count)| NameReport { name: name.to_owned(), count })
        .collect()
}

fn lines(tally: &Tally) -> LinesReport {
    let lines = &tally.counts.lines;
    LinesReport {
        total: lines.total,
        read: lines.read,
        other: lines.other,
        without_prefix: lines.without_prefix,
        crash: lines.crash,
        partial: lines.partial,
        appended: tally.entries.appended,
        blank: lines.blank,
        overlong: lines.overlong,
        damaged: counted(Damaged::ALL.into_iter().map(Damaged::name).zip(lines.damaged)),
        by_level: lines.by_level,
        prefixes: counted(Style::ALL.into_iter().map(Style::name).zip(lines.styles)),
    }
}

fn processes(tally: &Tally) -> Vec<ProcessReport> {
    let of = tally.counts.processes.all().iter().map(|process| {
        let (first_mono_us, last_mono_us) = ends(process.span);
        let (source, pid) = (source(tally, process.process), process.process.pid);
        ProcessReport { source, pid, lines: process.lines, first_mono_us, last_mono_us }
    });
    of.collect()
}

/// `gfx942`: major in decimal, minor and stepping in hex.
fn gpus(tally: &Tally) -> GpusReport {
    let gfx = tally.counts.gfx.sorted().into_iter().map(|([major, minor, stepping], count)| NameReport {
        name: format!("gfx{major}{minor:x}{stepping:x}"),
        count: *count,
    });
    GpusReport { found: tally.counts.agents, gfx: gfx.collect() }
}

fn commands(tally: &Tally) -> Vec<CommandReport> {
    let all = tally.counts.commands.sorted().into_iter();
    all.map(|((process, kind), count)| {
        let (source, pid) = (source(tally, process), process.pid);
        CommandReport { source, pid, kind: kind.name(), count: *count }
    })
    .collect()
}

fn host_queues(tally: &Tally) -> Vec<HostQueueReport> {
    let all = tally.counts.host_queues.sorted().into_iter();
    all.map(|((process, at), commands)| {
        let (source, pid) = (source(tally, process), process.pid);
        HostQueueReport { source, pid, address: hex(at), commands: *commands }
    })
    .collect()
}

fn completed(tally: &Tally) -> CompletedReport {
    let of = tally.counts.completed;
    CompletedReport { count: of.count, profiled: of.profiled, cpu_us: of.cpu_us, gpu_us: of.gpu_us }
}

fn rate(tally: &Tally) -> RateReport {
    let intervals = tally.counts.rate.intervals().map(|(from_mono_us, both)| IntervalReport {
        from_mono_us,
        commands: both[COMMANDS],
        dispatches: both[DISPATCHES],
    });
    RateReport { interval_us: tally.counts.rate.interval_us(), intervals: intervals.collect() }
}

fn copies(tally: &Tally) -> Vec<CopiesReport> {
    let all = tally.counts.copies.sorted().into_iter().map(|(engine, copies)| CopiesReport {
        engine: engine.map(hex),
        count: copies.count,
        bytes: copies.bytes,
        without_size: copies.without_size,
    });
    all.collect()
}

fn left_out(tally: &Tally) -> LeftOut {
    let queues = &tally.counts.queues;
    LeftOut {
        processes: tally.counts.processes.left_out(),
        queues: queues.packets.left_out() + queues.births.left_out(),
        shapes: queues.shapes.left_out(),
        addresses: queues.steps.left_out(),
        commands: tally.counts.commands.left_out(),
        host_queues: tally.counts.host_queues.left_out(),
        kernels: tally.counts.kernels.left_out(),
        copies: tally.counts.copies.left_out(),
        gfx: tally.counts.gfx.left_out(),
        errors: tally.counts.trouble.returned.left_out(),
        sources: tally.entries.sources.left_out,
        analysis: tally.counts.trouble.analysis.left_out,
        unfinished: tally.counts.under_way.left_out(),
        recorded_queues: 0,
    }
}
