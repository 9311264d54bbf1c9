//! `kfd-trace ps`: processes and queues now, each with the sources that have it.

use super::say::say;
use super::standing::{self, Found};
use super::stop::Stop;
use super::{clock, tracer};
use crate::attribute::Topology;
use crate::events::event::QueueCreate;
use crate::kernel::{Finding, Kernel, Preflight, Roots, Severity, findings};
use crate::output::ps::{self, PsRow};
use crate::probes::facts::Facts;
use crate::state::{Source, Sources};
use std::io::{self, ErrorKind};

/// What stands now.
pub(super) struct Listed {
    pub(super) rows: Vec<PsRow>,
    /// The sources that could be asked.
    pub(super) asked: Sources,
    pub(super) topology: Topology,
}

/// Prints the table.
///
/// # Errors
/// When there is no driver, or the output cannot be written.
pub fn run(roots: &Roots, json: bool) -> Result<(), Stop> {
    let (Listed { rows, asked, topology }, problem) = list(roots)?;
    if let Some(why) = problem {
        say(format_args!("only what sysfs tells is shown, without addresses: {why}"));
    }
    let mut out = io::stdout().lock();
    let written = if json {
        let ts = tracer::wall_clock().rfc3339(clock::mono_ns());
        ps::json(&mut out, &rows, asked, &topology, ts)
    } else {
        ps::text(&mut out, &rows, asked, &topology)
    };
    match written {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(Stop::failed(error)),
        _ => Ok(()),
    }
}

/// Asks every source at hand; beside the rows, why the kernel's own table could not be asked.
///
/// # Errors
/// When there is no driver.
pub(super) fn list(roots: &Roots) -> Result<(Listed, Option<String>), Stop> {
    let found = findings(&Preflight::read(roots));
    if let Some(finding) = found.iter().find(|finding| finding.severity == Severity::NothingToTrace) {
        return Err(Stop { code: super::stop::NOTHING_TO_TRACE, line: finding.to_string() });
    }
    let mut asked = Sources::from(Source::Sysfs);
    let kernel = Kernel::read(roots);
    let facts = kernel.as_ref().map(Facts::gather).unwrap_or_default();
    let mut lists = Vec::new();
    let mut problem = None;
    match walk(roots, kernel.as_ref().ok(), &facts, &found) {
        Ok(standing) => {
            asked = asked.with(Source::Kernel);
            lists.push(rows(&standing, Source::Kernel));
        }
        Err(why) => problem = Some(why),
    }
    lists.push(rows(&standing::sysfs(roots, &facts.layout).0, Source::Sysfs));
    let topology = Topology::read(&roots.sysfs);
    Ok((Listed { rows: ps::merge(lists), asked, topology }, problem))
}

fn walk(
    roots: &Roots,
    kernel: Option<&Kernel>,
    facts: &Facts,
    found: &[Finding],
) -> Result<Vec<Found>, String> {
    if let Some(finding) = found.iter().find(|finding| finding.severity == Severity::Blocks) {
        return Err(finding.what.clone());
    }
    let kernel = kernel.ok_or("the kernel's symbols cannot be read")?;
    standing::walk(roots, kernel, facts)
}

fn rows(found: &[Found], source: Source) -> Vec<PsRow> {
    let rows = found.iter().flat_map(|Found { process, details, queues }| {
        let details = details.clone().unwrap_or_default();
        let own = PsRow {
            pid: Some(process.tgid),
            ns_pid: process.ns_tgid,
            uid: process.uid,
            comm: process.comm.clone(),
            details,
            context_id: process.context_id,
            sources: source.into(),
            ..PsRow::default()
        };
        let with = |queue: &QueueCreate| PsRow { queue: Some(queue.clone()), ..own.clone() };
        if queues.is_empty() { vec![own.clone()] } else { queues.iter().map(with).collect() }
    });
    rows.collect()
}
