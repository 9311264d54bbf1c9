//! The report as text. All of it may come from another node: it is escaped.

use super::report::{ChipRow, DoctorOutcome, RocmSmi, Standing};
use super::reported::{Finding, Known, Limit, ProcessRow, Report, Sampled, View};
use crate::output::status;
use crate::text::count::counted;
use crate::text::{escape, table};
use std::io::{self, Write};

/// Whose report it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MadeBy {
    ThisProcess,
    /// What it may not see, the daemon may not.
    Daemon,
}

/// Writes the report. For one process, node-wide parts are omitted.
///
/// # Errors
/// Those of `out`.
pub fn text(out: &mut impl Write, report: &Report, by: MadeBy) -> io::Result<()> {
    let only = report.pid.is_some();
    if !only {
        let limits = report.limits.iter().map(|limit: &Limit| (limit.severity(), limit.line()));
        status::kernel_summary(out, &report.facts, limits)?;
        let place = if by == MadeBy::Daemon { " there" } else { "" };
        writeln!(out, "\nprobes are not tried here: see `kfd-trace status`{place}\n")?;
    }
    writeln!(out, "{}\n", views(&report.views, only))?;
    for row in &report.processes {
        process(out, row)?;
    }
    for chip in &report.chips {
        writeln!(out, "{}", memory(chip))?;
    }
    if !report.chips.is_empty() {
        writeln!(out)?;
    }
    for line in limits(report, by) {
        writeln!(out, "{line}")?;
    }
    writeln!(out, "{}", verdict(report, only))
}

fn views(views: &[View], only: bool) -> String {
    let rows = views.iter().map(|view| {
        let saw = match (&view.saw, &view.why) {
            (Some(pids), _) if only => if pids.is_empty() { "not it" } else { "it" }.to_owned(),
            (Some(pids), _) => listed(pids),
            (None, why) => escape::terminal(why.as_deref().unwrap_or("not requested")),
        };
        vec![escape::terminal(view.words()), saw, escape::terminal(&view.can_miss)]
    });
    table::plain(&["VIEW", "SAW", "CAN MISS"], rows.collect(), &[])
}

/// A short list of PIDs.
fn listed(pids: &[u32]) -> String {
    const SHOWN: usize = 8;
    let shown: Vec<String> = pids.iter().take(SHOWN).map(u32::to_string).collect();
    match pids.len() {
        0 => "nothing".to_owned(),
        many if many > SHOWN => format!("{} and {} more", shown.join(" "), many - SHOWN),
        _ => shown.join(" "),
    }
}

fn process(out: &mut impl Write, row: &ProcessRow) -> io::Result<()> {
    let name = row.comm.as_deref().map_or_else(|| "?".to_owned(), escape::terminal);
    let mut parts = vec![format!("process {} ({name})", row.pid)];
    parts.extend(row.owner.as_deref().map(escape::terminal));
    parts.push(known(&row.standing, standing));
    if row.kfd == Some(true) {
        parts.push(format!("{} {}", row.queues, if row.queues == 1 { "queue" } else { "queues" }));
        parts.extend(
            row.vram_bytes.filter(|bytes| *bytes > 0).map(|bytes| format!("{} of VRAM", size(bytes))),
        );
        parts.extend(row.activity.as_ref().map(Sampled::words));
        parts.extend(row.rocm_smi.as_ref().map(|seen| known(seen, rocm_smi)));
    }
    writeln!(out, "{}", parts.join(", "))?;
    row.findings.iter().try_for_each(|finding: &Finding| {
        let mark = if finding.is_wrong() { "wrong: " } else { "" };
        writeln!(out, "  {mark}{}", escape::terminal(&finding.text))
    })?;
    writeln!(out)
}

/// A name of a later version stands for itself.
fn known<T: Copy>(value: &Known<T>, words: fn(T) -> &'static str) -> String {
    match value {
        Known::Known(value) => words(*value).to_owned(),
        Known::Later(name) => escape::terminal(name),
    }
}

fn standing(standing: Standing) -> &'static str {
    match standing {
        Standing::Lives => "lives",
        Standing::WithoutLeader => "lives, its main thread has ended",
        Standing::Ended => "has ended",
        Standing::Gone => "is gone",
        Standing::Unknown => "is not shown by /proc",
    }
}

fn rocm_smi(seen: RocmSmi) -> &'static str {
    match seen {
        RocmSmi::Named => "rocm-smi has it",
        RocmSmi::Unknown => "rocm-smi shows UNKNOWN",
        RocmSmi::Missed => "rocm-smi misses it",
    }
}

fn memory(chip: &ChipRow) -> String {
    let pci = escape::terminal(&chip.pci);
    let owned = size(chip.vram_owned_bytes);
    let used = chip.vram_used_bytes.map_or_else(|| "unknown".to_owned(), size);
    let wrong = if chip.unowned { ": wrong: the rest has no owner among the processes" } else { "" };
    format!("{pci}: VRAM in use {used}, processes account for {owned}{wrong}")
}

fn size(bytes: u64) -> String {
    bytesize::ByteSize(bytes).display().iec().to_string()
}

/// What could not be inspected.
fn limits(report: &Report, by: MadeBy) -> Vec<String> {
    let (who, both, one) = match by {
        MadeBy::ThisProcess => (
            "",
            "run as root, or with CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH",
            "run as root, or with CAP_SYS_PTRACE",
        ),
        MadeBy::Daemon => {
            let there = "start it without --sample.interval=0, or run `kfd-trace doctor` there as root";
            ("the daemon ", there, there)
        }
    };
    let mut lines = Vec::new();
    if report.not_permitted > 0 {
        lines.push(format!(
            "{who}cannot look into {} of {}, of other users or guarded by a security module: {both}",
            report.not_permitted,
            counted(report.looked_at, "process", "processes")
        ));
    }
    if report.hidepid {
        let from = if by == MadeBy::Daemon { " from the daemon" } else { "" };
        lines.push(format!("/proc hides other users' processes{from} (hidepid): {one}"));
    }
    lines
}

fn verdict(report: &Report, only: bool) -> &'static str {
    match (report.outcome, report.complete, only) {
        (DoctorOutcome::Wrong, ..) => "something is wrong: see above",
        (DoctorOutcome::Hidden, ..) => "something is hidden from the usual checks: see above",
        (DoctorOutcome::Well, true, true) => "the usual checks show all of it",
        (DoctorOutcome::Well, true, false) => "all is well: lsof, fuser and rocm-smi show what KFD has",
        (DoctorOutcome::Well, false, _) => "nothing wrong was found, but not all could be checked",
    }
}
