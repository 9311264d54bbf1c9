//! All cases under all subjects, one after the other.

use super::caller::{Caller, Order, Took};
use super::case::{Case, Work};
use super::clock;
use super::figure::Figure;
use super::sites::Site;
use super::subject::{Running, Subject, Whom};
use anyhow::{Context, Result, bail};

/// Repeats of each order.
const REPEATS: usize = 3;

/// Our own tracer while its process is stopped: the cost in the caller itself.
const STOPPED: &str = "_caller";

/// Bursts that fit in the ring buffer while it is not read.
const HELD_BURSTS: u32 = 8;

/// Runs all cases and reports each figure as soon as it is known: under the subjects with these names, or
/// under all if none is named. `program` is this executable, for callers.
pub fn run(program: &str, names: &[String]) -> Result<()> {
    let subjects = wanted(names)?;
    clock::check()?;
    // where one process is selected, the tracer may have other probes
    let (mut all, mut one) = (Vec::new(), Vec::new());
    for subject in subjects {
        own(program, subject, &mut all).with_context(|| format!("{subject:?}"))?;
        another(program, subject, &mut one).with_context(|| format!("{subject:?} on another process"))?;
    }
    Ok(())
}

/// In the order of [`Subject::ALL`], with the subjects that others are compared with.
fn wanted(names: &[String]) -> Result<Vec<Subject>> {
    let known = |name: &str| Subject::ALL.iter().any(|subject| subject.name() == name);
    if let Some(name) = names.iter().find(|name| !known(name)) {
        bail!("no subject {name}");
    }
    let named = |subject: Subject| names.is_empty() || names.iter().any(|name| name == subject.name());
    let needed = |subject: Subject| match subject {
        Subject::Untraced => true,
        // the empty probes are attached where its probes were
        Subject::KfdTrace => named(Subject::EmptySame) || named(Subject::ClockSame),
        _ => false,
    };
    Ok(Subject::ALL.into_iter().filter(|subject| named(*subject) || needed(*subject)).collect())
}

/// Cases in which the caller is traced, alone or with all users of KFD.
fn own(program: &str, subject: Subject, same: &mut Vec<Site>) -> Result<()> {
    let mut caller = Caller::start(program, true)?;
    let mut stranger = Caller::start(program, false)?;
    let running = Running::start(subject, Whom { pid: caller.pid(), only: false }, same)?;
    let mut calls = 0;
    for case in [Case::IoctlNoEvent, Case::CreateDestroy] {
        calls += case_of(case, subject, &mut caller, &running)?;
    }
    calls += stopped(subject, &mut caller, &running)?;
    case_of(Case::UnrelatedIoctl, subject, &mut stranger, &running)?;
    end(subject, running, calls)
}

/// The case in which another process is traced.
fn another(program: &str, subject: Subject, same: &mut Vec<Site>) -> Result<()> {
    let mut caller = Caller::start(program, true)?;
    let traced = Caller::start(program, true)?;
    let running = Running::start(subject, Whom { pid: traced.pid(), only: true }, same)?;
    case_of(Case::FilteredOut, subject, &mut caller, &running)?;
    end(subject, running, 0)
}

fn end(subject: Subject, running: Running, calls: u64) -> Result<()> {
    let lost = running.stop(calls)?;
    if lost > 0 {
        println!("{}: lost {lost} of {calls} calls", subject.name());
    }
    Ok(())
}

/// Measures and reports; returns the number of KFD calls made.
fn case_of(case: Case, subject: Subject, caller: &mut Caller, running: &Running) -> Result<u64> {
    let order = order(case.work());
    let warm = Order { bursts: 1, ..order };
    caller.order(warm)?;
    let idle = caller.order(Order { operations: 0, ..order })?;
    let before = running.hits()?;
    let took: Vec<Took> = (0..REPEATS).map(|_| caller.order(order)).collect::<Result<_>>()?;
    let mut figure = Figure::new(case, subject.name(), order.operations, idle, &took);
    let repeats = u32::try_from(REPEATS).context("few repeats")?;
    if let (Some(before), Some(after)) = (before, running.hits()?) {
        let operations = f64::from(order.operations) * f64::from(order.bursts) * f64::from(repeats);
        figure.probes = Some((after - before) / operations);
    }
    figure.report()?;
    Ok(calls(warm) + u64::from(repeats) * calls(order))
}

/// The pair once more while the tracer's process is stopped: after the first record the kernel wakes no task,
/// since the reader is behind (kernel/bpf/ringbuf.c:bpf_ringbuf_commit).
fn stopped(subject: Subject, caller: &mut Caller, running: &Running) -> Result<u64> {
    let case = Case::CreateDestroy;
    let order = Order { bursts: HELD_BURSTS, ..order(case.work()) };
    let mut took = Vec::new();
    let mut idle = None;
    for _ in 0..REPEATS {
        if !running.hold(true)? {
            return Ok(0);
        }
        idle = Some(caller.order(Order { operations: 0, ..order })?);
        took.push(caller.order(order)?);
        running.hold(false)?;
        // meanwhile its process empties the ring buffer
        caller.order(Order { operations: 0, ..order })?;
    }
    let idle = idle.context("no repeats")?;
    let name = format!("{}{STOPPED}", subject.name());
    let figure = Figure::new(case, &name, order.operations, idle, &took);
    figure.report()?;
    Ok(REPEATS as u64 * calls(order))
}

/// Bursts well below the 4 ms between two timer interrupts, unless the tracer uses signals.
fn order(work: Work) -> Order {
    let operations = if work == Work::Pair { 50 } else { 500 };
    Order { work, operations, bursts: 20 }
}

fn calls(order: Order) -> u64 {
    u64::from(order.operations) * u64::from(order.bursts) * order.work.ioctls()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subject_brings_what_it_is_held_against() {
        let of = |names: &[&str]| wanted(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
        assert_eq!(of(&[]).unwrap(), Subject::ALL);
        assert_eq!(of(&["strace"]).unwrap(), [Subject::Untraced, Subject::Strace]);
        assert_eq!(of(&["empty_same"]).unwrap(), [Subject::Untraced, Subject::KfdTrace, Subject::EmptySame]);
        assert!(of(&["perf"]).is_err());
    }
}
