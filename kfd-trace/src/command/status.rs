//! `kfd-trace status`: this kernel, each probe with its verdict, and what that means for what can be seen.

use crate::events::decode::decode;
use crate::events::tables::Tables;
use crate::events::undecoded::Undecoded;
use crate::kernel::types::TypesReport;
use crate::kernel::{Finding, FindingSeverity, Preflight, Roots, findings};
use crate::model::missed::Missed;
use crate::model::verdict::ProbeStatus;
use crate::output::status::{self, Losses, Status};
use crate::probes::error::LoadError;
use crate::probes::events::{self, ReturnEvents};
use crate::probes::load::Options;
use crate::probes::plan::{Attach, Choice, PlanRequest};
use crate::probes::session::Session;
use crate::runtime::exit::{self, Stop};
use crate::text::count;
use crate::tracer::types::{self, Known};
use kfd_trace_common::counter::ProbeId;
use kfd_trace_common::limits::RING_BYTES;
use kfd_trace_common::record::Header;
use std::collections::BTreeMap;
use std::io::{self, ErrorKind};

/// Tries every probe, detaches it again, and prints the results. The exit code is that of a tracer here.
///
/// # Errors
/// If nothing can be traced, after the report was printed.
pub fn run(roots: &Roots, json: bool) -> Result<(), Stop> {
    let preflight = Preflight::read(roots);
    let mut found = findings(&preflight);
    let blocked = matches!(found.first(), Some(f) if f.severity <= FindingSeverity::Blocks);
    let probes = if blocked { Ok(Tried::default()) } else { tried(roots, &mut found) };
    let (tried, refused) = match probes {
        Ok(tried) => (tried, None),
        Err(stop) => (Tried::default(), Some(stop)),
    };
    let mut facts = status::facts(&preflight);
    facts.extend(tried.types.iter().map(|types| ("types of the driver", types.to_string())));
    let Tried { probes, missed, losses, lost, .. } = &tried;
    let report = Status { facts: &facts, findings: &found, probes, missed, losses, lost };
    let mut out = io::stdout().lock();
    let written = if json { status::json(&mut out, &report) } else { status::text(&mut out, &report) };
    if let Err(error) = written
        && error.kind() != ErrorKind::BrokenPipe
    {
        return Err(Stop::failed(error));
    }
    match found.first() {
        Some(Finding { severity: FindingSeverity::NothingToTrace, .. }) => {
            Err(Stop::reported(exit::NOTHING_TO_TRACE))
        }
        Some(Finding { severity: FindingSeverity::Blocks, .. }) => Err(Stop::reported(exit::FAILED)),
        _ => refused.map_or(Ok(()), Err),
    }
}

/// Probes, and what the kernel skipped of each while it was attached.
#[derive(Default)]
struct Tried {
    types: Option<TypesReport>,
    probes: Vec<ProbeStatus>,
    missed: BTreeMap<ProbeId, Missed>,
    /// Other losses of each, by cause.
    losses: BTreeMap<ProbeId, Losses>,
    /// The same for all of them, by name.
    lost: BTreeMap<String, u64>,
}

fn tried(roots: &Roots, found: &mut Vec<Finding>) -> Result<Tried, Stop> {
    let known = types::known(roots).map_err(|error| Stop::failed(crate::tracer::preflight::chain(&error)))?;
    found.extend(known.findings());
    let report = known.report();
    let Known { kernel, facts, .. } = known;
    found.extend(Some(kernel.symbols.malformed_lines()).filter(|lines| *lines > 0).map(|lines| Finding {
        severity: FindingSeverity::Limits,
        what: format!("{} no symbols", count::counted(lines, "line of kallsyms is", "lines of kallsyms are")),
        consequence: "functions in them are not found",
        remedy: "report them as a bug of kfd-trace or of the kernel",
    }));
    let mut facts = facts.with_tracepoints(&roots.sysfs);
    let events = ReturnEvents::of(roots, &kernel, &events::wanted(Attach::Tried));
    facts.return_events = events.functions();
    found.extend(events.why_not().map(|why| Finding {
        severity: FindingSeverity::Limits,
        what: format!("the return of kfd_ioctl has no event: {why}"),
        consequence: "returns are those of the handlers: results of WAIT_EVENTS and of crowds of callers are not seen, and those of \
                      refused calls are derived",
        remedy: "run it as root, or the daemon by its unit, with tracefs mounted at /sys/kernel/tracing",
    }));
    let choice = Choice { tracepoints: true, runlists: true, attach: Attach::Tried, ..Choice::default() };
    let options = Options {
        request: PlanRequest { ioctl_records: true, choice },
        possible_cpus: kernel.preflight.possible_cpus.unwrap_or(1),
        cpu_ids: kernel.preflight.cpu_ids,
        procfs: roots.procfs.clone(),
        ..Options::default()
    };
    let session = Session::load(&kernel.symbols, &facts, &options, events);
    let mut session = session.map_err(|error| Stop::failed(crate::tracer::preflight::chain(&error)))?;
    session.attach();
    let counted =
        counted(&mut session).map_err(|error| Stop::failed(crate::tracer::preflight::chain(&error)))?;
    let (missed, (tables, undecoded)) = (session.missed(), counted);
    let losses = missed.keys().map(|probe| (*probe, tables.losses_of(*probe, &undecoded))).collect();
    Ok(Tried {
        types: Some(report),
        probes: session.probes().to_vec(),
        missed,
        losses,
        lost: tables.missing(&undecoded),
    })
}

/// What the programs could not do or send, and which of their records cannot be decoded. What the kernel
/// skipped of a probe is counted separately.
fn counted(session: &mut Session) -> Result<(Tables, Undecoded), LoadError> {
    let (mut ring, mut undecoded) = (session.take_ring()?, Undecoded::default());
    // As many as it holds at most: others may continue to produce records.
    for _ in 0..RING_BYTES as usize / size_of::<Header>() {
        let Some(record) = ring.next() else { break };
        if let Err(error) = decode(&record, session.maker()) {
            undecoded.count(&error);
        }
    }
    Ok((session.tables()?, undecoded))
}
