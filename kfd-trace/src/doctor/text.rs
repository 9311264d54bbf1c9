//! The report as text. Names from outside the tracer are escaped.

use super::finding::Weight;
use super::report::{ChipRow, Diagnosis, DoctorOutcome, ProcessRow, RocmSmi, Standing, View};
use super::sampled::Sampled;
use crate::kernel::Finding;
use crate::output::status;
use crate::text::{escape, table};
use std::io::{self, Write};

/// Facts and findings about this kernel, as `kfd-trace status` shows them.
#[derive(Clone, Copy, Debug)]
pub struct KernelSummary<'a> {
    pub facts: &'a [(&'static str, String)],
    pub findings: &'a [Finding],
}

/// Writes the report. `only`: it is for one process; node-wide parts are omitted.
///
/// # Errors
/// Those of `out`.
pub fn text(
    out: &mut impl Write,
    report: &Diagnosis,
    kernel: KernelSummary<'_>,
    only: bool,
) -> io::Result<()> {
    if !only {
        status::kernel_summary(out, kernel.facts, kernel.findings)?;
        writeln!(out, "\nprobes are not tried here: see `kfd-trace status`\n")?;
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
    for line in limits(report) {
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
        vec![view.view.words().to_owned(), saw, view.can_miss.to_owned()]
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
    parts.extend(row.owner.clone());
    parts.push(standing(row.standing).to_owned());
    if row.kfd == Some(true) {
        parts.push(format!("{} {}", row.queues, if row.queues == 1 { "queue" } else { "queues" }));
        parts.extend(
            row.vram_bytes.filter(|bytes| *bytes > 0).map(|bytes| format!("{} of VRAM", size(bytes))),
        );
        parts.extend(row.activity.as_ref().map(Sampled::words));
        parts.extend(row.rocm_smi.map(|seen| rocm_smi(seen).to_owned()));
    }
    writeln!(out, "{}", parts.join(", "))?;
    row.findings.iter().try_for_each(|kind| {
        let mark = if kind.weight() == Weight::Wrong { "wrong: " } else { "" };
        writeln!(out, "  {mark}{}", kind.sentence())
    })?;
    writeln!(out)
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
fn limits(report: &Diagnosis) -> Vec<String> {
    let mut lines = Vec::new();
    if report.not_permitted > 0 {
        lines.push(format!(
            "cannot look into {} of {} processes, of other users or guarded by a security module: run as root, or with CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH",
            report.not_permitted, report.looked_at
        ));
    }
    if report.hidepid {
        lines.push(
            "/proc hides other users' processes (hidepid): run as root, or with CAP_SYS_PTRACE".to_owned(),
        );
    }
    lines
}

fn verdict(report: &Diagnosis, only: bool) -> &'static str {
    match (report.outcome, report.complete, only) {
        (DoctorOutcome::Wrong, _, true) => "something is wrong: KFD keeps resources without an owner",
        (DoctorOutcome::Wrong, _, false) => {
            "something is wrong: see above what KFD or a GPU keeps without an owner"
        }
        (DoctorOutcome::Hidden, ..) => "something is hidden from the usual checks: see above",
        (DoctorOutcome::Well, true, true) => "the usual checks show all of it",
        (DoctorOutcome::Well, true, false) => "all is well: lsof, fuser and rocm-smi show what KFD has",
        (DoctorOutcome::Well, false, _) => "nothing wrong was found, but not all could be checked",
    }
}
