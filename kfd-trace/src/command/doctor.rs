//! `kfd-trace doctor`: diagnoses this node, or prints the diagnosis of a daemon's.

use crate::doctor::DoctorOutcome;
use crate::doctor::progress::Progress;
use crate::doctor::reported::Report;
use crate::doctor::text::{self, MadeBy};
use crate::kernel::Roots;
use crate::output::reported::{self, NotRead};
use crate::remote::{Access, Client};
use crate::runtime::exit::{self, Stop};
use crate::runtime::stderr::say;
use crate::text::escape;
use crate::tracer::doctor::{Node, OwnProgram, process_of};
use std::io::{self, ErrorKind, Write as _};

/// What is printed.
#[derive(Clone, Debug)]
pub struct DoctorOptions {
    /// `None`: the node.
    pub pid: Option<u32>,
    pub json: bool,
}

/// Prints the diagnosis of this node; the exit code is the result.
///
/// # Errors
/// If there is no driver, `pid` is no process, something is hidden or wrong, or the output cannot be written.
pub fn run(roots: &Roots, options: &DoctorOptions) -> Result<(), Stop> {
    let bad_pid = |pid: u32, why: String| Stop::usage(format!("--pid {pid}: {why}"));
    let node = Node::read(roots)
        .map_err(|finding| Stop { code: exit::NOTHING_TO_TRACE, line: finding.to_string() })?;
    let process = |pid| process_of(roots, pid).map_err(|why| bad_pid(pid, why));
    let pid = options.pid.map(process).transpose()?;
    say_whose(options.pid, pid);
    let mut driver = OwnProgram::new(&node);
    let progress = Progress::default();
    let examination = node.examine(&mut driver, pid, &progress);
    let document = examination.document(pid, &progress).map_err(|why| bad_pid(pid.unwrap_or(0), why))?;
    let report = read(&document)?;
    show(&report, &document, options.json, MadeBy::ThisProcess)?;
    result(report.outcome, "")
}

/// Prints the diagnosis that a daemon makes of its node; the exit code is the result.
///
/// # Errors
/// If the daemon gives no answer, or as [`run`].
pub async fn run_remote(access: &Access, options: &DoctorOptions) -> Result<(), Stop> {
    let mut client = Client::new(access.clone());
    let (report, document) = client.doctor(options.pid).await.map_err(|failure| failure.stop(access))?;
    say_whose(options.pid, report.pid);
    show(&report, &document, options.json, MadeBy::Daemon)?;
    result(report.outcome, &format!("{}: ", access.target))
}

/// A thread means its process.
fn say_whose(requested: Option<u32>, reported: Option<u32>) {
    if let Some((pid, tgid)) = requested.zip(reported).filter(|(pid, tgid)| pid != tgid) {
        say(format_args!("{pid} is a thread of process {tgid}: looking at that process"));
    }
}

fn read(document: &str) -> Result<Report, Stop> {
    reported::read(document.as_bytes()).map_err(|why| match why {
        NotRead::Foreign(why) => Stop::failed(format!("the report cannot be shown: {why}")),
        NotRead::Version(version) => Stop::failed(format!("the report has version {version}")),
    })
}

/// Both forms are of the same document.
fn show(report: &Report, document: &str, as_json: bool, by: MadeBy) -> Result<(), Stop> {
    let mut out = io::stdout().lock();
    let written = if as_json {
        writeln!(out, "{}", escape::json_document(document))
    } else {
        text::text(&mut out, report, by)
    };
    match written {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(Stop::failed(error)),
        _ => Ok(()),
    }
}

fn result(outcome: DoctorOutcome, place: &str) -> Result<(), Stop> {
    let (code, what) = match outcome {
        DoctorOutcome::Well => return Ok(()),
        DoctorOutcome::Hidden => (exit::HIDDEN, "something is hidden from the usual checks"),
        DoctorOutcome::Wrong => (exit::WRONG, "something is wrong"),
    };
    Err(Stop { code, line: format!("{place}{what}") })
}
