//! `kfd-trace ps`: current processes and queues, each with the sources that have it.

use crate::attribute::Topology;
use crate::kernel::{Finding, Kernel, Preflight, Roots, Severity, findings};
use crate::model::event::QueueCreate;
use crate::output::ps::{self, PsRow};
use crate::probes::facts::Facts;
use crate::runtime::clock;
use crate::runtime::exit::Stop;
use crate::runtime::stderr::say;
use crate::state::{Activity, Process, Queue, Source, Sources, State, StateLimits};
use crate::tracer::engine;
use crate::tracer::inventory::{self, Found};
use crate::tracer::sample::pass::Sampler;
use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::thread::{sleep, spawn};
use std::time::Duration;

/// What exists now.
pub(super) struct Listed {
    pub(super) rows: Vec<PsRow>,
    /// The sources that could be read.
    pub(super) asked: Sources,
    pub(super) topology: Topology,
}

/// Whether to wait for the activity of queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Measure {
    Nothing,
    Activity,
}

/// Activity of queues, by tgid, context and queue id.
pub(super) type Did = BTreeMap<(u32, Option<u32>, u32), Activity>;

/// Interval between the two readings that make a rate.
const BETWEEN: Duration = Duration::from_millis(500);

/// Timeout for both readings.
const PATIENCE: Duration = Duration::from_secs(5);

/// Prints the table.
///
/// # Errors
/// If there is no driver, or the output cannot be written.
pub fn run(roots: &Roots, json: bool) -> Result<(), Stop> {
    let (Listed { rows, asked, topology }, problem) = list(roots, Measure::Activity)?;
    if let Some(why) = problem {
        say(format_args!("only what sysfs tells is shown, without addresses: {why}"));
    }
    let mut out = io::stdout().lock();
    let written = if json {
        let ts = engine::wall_clock().rfc3339(clock::mono_ns());
        ps::json(&mut out, &rows, asked, &topology, ts)
    } else {
        ps::text(&mut out, &rows, asked, &topology)
    };
    match written {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(Stop::failed(error)),
        _ => Ok(()),
    }
}

/// Reads every available source; besides the rows, returns why the kernel's own table could not be read.
///
/// # Errors
/// If there is no driver.
pub(super) fn list(roots: &Roots, measure: Measure) -> Result<(Listed, Option<String>), Stop> {
    let found = findings(&Preflight::read(roots));
    if let Some(finding) = found.iter().find(|finding| finding.severity == Severity::NothingToTrace) {
        return Err(Stop { code: crate::runtime::exit::NOTHING_TO_TRACE, line: finding.to_string() });
    }
    let mut asked = Sources::from(Source::Sysfs);
    let kernel = Kernel::read(roots);
    let facts = kernel.as_ref().map(Facts::gather).unwrap_or_default();
    let mut lists = Vec::new();
    let mut problem = None;
    match walk(roots, kernel.as_ref().ok(), &facts, &found) {
        Ok(standing) => {
            asked = asked.with(Source::Kernel);
            let did = if measure == Measure::Activity { measured(roots, &standing) } else { Did::new() };
            lists.push(rows(&standing, Source::Kernel, &did));
        }
        Err(why) => problem = Some(why),
    }
    lists.push(rows(&inventory::sysfs(roots, &facts.layout).0, Source::Sysfs, &Did::new()));
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
    inventory::walk(roots, kernel, facts)
}

/// Reads the pointers of all queues twice.
pub(super) fn measured(roots: &Roots, standing: &[Found]) -> Did {
    let mut state = State::new(StateLimits::default());
    inventory::adopt(&mut state, standing, Source::Kernel, clock::mono_ns().into());
    let targets = state.sought();
    let mut sampler = Sampler::new(roots.procfs.clone());
    let reads = sampler.reads();
    let (told, samples) = mpsc::channel();
    // In a thread of its own: a memory read may block, and the table must be shown all the same.
    spawn(move || {
        let first = sampler.pass(&targets).samples;
        let rest = if first.iter().any(|sample| sample.reading.is_ok()) {
            sleep(BETWEEN);
            sampler.pass(&targets).samples
        } else {
            // If nothing can be read there is no rate to wait for.
            Vec::new()
        };
        // The receiver may be gone.
        let _ = told.send([first, rest].concat());
    });
    match samples.recv_timeout(PATIENCE) {
        Ok(samples) => samples.iter().for_each(|sample| {
            state.sampled(sample);
        }),
        Err(_) => say(format_args!(
            "what queues do is not shown: reading the memory of process {} takes too long",
            reads.load(Ordering::Relaxed)
        )),
    }
    let of = |(process, queue): (&Process, &Queue)| {
        Some(((process.tgid?, process.context_id, queue.queue_id), queue.activity.clone()))
    };
    state.snapshot().queues().filter_map(of).collect()
}

fn rows(found: &[Found], source: Source, did: &Did) -> Vec<PsRow> {
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
        let activity =
            |queue: &QueueCreate| did.get(&(process.tgid, process.context_id, queue.queue_id?)).cloned();
        let with = |queue: &QueueCreate| PsRow {
            queue: Some(queue.clone()),
            activity: activity(queue),
            ..own.clone()
        };
        if queues.is_empty() { vec![own.clone()] } else { queues.iter().map(with).collect() }
    });
    rows.collect()
}
