//! What may trace the caller: how it is started and stopped.

use super::empty::{Does, Empty};
use super::foreign::{self, Foreign, Reported};
use super::sites::{self, Site};
use crate::harness::{Daemon, Metrics, Stream};
use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::Signal;
use serde::Serialize;

/// The handlers of the calls (kfd_chardev.c), both of a name of their own.
pub(super) const HANDLERS: [&str; 2] = ["kfd_ioctl_create_queue", "kfd_ioctl_destroy_queue"];

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Subject {
    Untraced,
    /// Attached to the handlers.
    EmptyKprobe,
    EmptyKretprobe,
    EmptyPair,
    /// The daemon, or the stream where one process is selected.
    KfdTrace,
    /// At every place where kfd-trace had a probe just before.
    EmptySame,
    /// There, too, with programs that ask for the thread and the time: the least that counting a call and its latency
    /// can cost.
    ClockSame,
    /// The daemon, or the stream, with `--attach multi`.
    KfdTraceLinks,
    /// The daemon with `--runlists`.
    KfdTraceRunlists,
    BpftraceHist,
    BpftraceEvent,
    Strace,
}

impl Subject {
    pub(super) const ALL: [Self; 12] = [
        Self::Untraced,
        Self::EmptyKprobe,
        Self::EmptyKretprobe,
        Self::EmptyPair,
        Self::KfdTrace,
        Self::EmptySame,
        Self::ClockSame,
        Self::KfdTraceLinks,
        Self::KfdTraceRunlists,
        Self::BpftraceHist,
        Self::BpftraceEvent,
        Self::Strace,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Untraced => "untraced",
            Self::EmptyKprobe => "empty_kprobe",
            Self::EmptyKretprobe => "empty_kretprobe",
            Self::EmptyPair => "empty_pair",
            Self::KfdTrace => "kfd_trace",
            Self::EmptySame => "empty_same",
            Self::ClockSame => "clock_same",
            Self::KfdTraceLinks => "kfd_trace_links",
            Self::KfdTraceRunlists => "kfd_trace_runlists",
            Self::BpftraceHist => "bpftrace_hist",
            Self::BpftraceEvent => "bpftrace_event",
            Self::Strace => "strace",
        }
    }
}

/// Who is traced.
#[derive(Clone, Copy, Debug)]
pub(super) struct Whom {
    pub(super) pid: u32,
    /// This process alone. Otherwise all processes, where the subject can.
    pub(super) only: bool,
}

/// A running subject.
#[derive(Debug)]
pub(super) enum Running {
    Nothing,
    Empty(#[expect(dead_code, reason = "held until it is dropped")] Empty),
    Daemon { daemon: Box<Daemon>, before: Box<Metrics> },
    Stream(Box<Stream>),
    Foreign(Foreign),
}

impl Running {
    /// Starts it and waits until it traces. `same` is where kfd-trace places its probes: filled by it, used
    /// by `empty_same`.
    pub(super) fn start(subject: Subject, whom: Whom, same: &mut Vec<Site>) -> Result<Self> {
        let started = match subject {
            Subject::Untraced => Self::Nothing,
            Subject::EmptyKprobe => Self::Empty(Empty::named(&HANDLERS, true, false)?),
            Subject::EmptyKretprobe => Self::Empty(Empty::named(&HANDLERS, false, true)?),
            Subject::EmptyPair => Self::Empty(Empty::named(&HANDLERS, true, true)?),
            Subject::EmptySame | Subject::ClockSame => {
                ensure!(!same.is_empty(), "kfd-trace was not there before");
                let does = if subject == Subject::ClockSame { Does::Clock } else { Does::Nothing };
                Self::Empty(Empty::at(same, does)?)
            }
            Subject::KfdTrace => {
                let before = sites::read()?;
                let tracer = Self::tracer(whom, &[])?;
                *same = sites::added(&before, &sites::read()?);
                ensure!(!same.is_empty(), "kfd-trace has put no probe on");
                tracer
            }
            Subject::KfdTraceLinks => Self::tracer(whom, &["--attach", "multi"])?,
            Subject::KfdTraceRunlists => Self::tracer(whom, &["--runlists"])?,
            Subject::BpftraceHist => Self::Foreign(Foreign::bpftrace(&foreign::histogram(whom))?),
            Subject::BpftraceEvent => Self::Foreign(Foreign::bpftrace(&foreign::events(whom))?),
            Subject::Strace => Self::Foreign(Foreign::strace(whom.pid)?),
        };
        Ok(started)
    }

    fn tracer(whom: Whom, options: &[&str]) -> Result<Self> {
        if whom.only {
            let pid = whom.pid.to_string();
            let selected = [&["--pid", pid.as_str()], options].concat();
            return Ok(Self::Stream(Box::new(Stream::tracing(&selected)?)));
        }
        let daemon = Daemon::ready(options)?;
        let before = daemon.scrape()?;
        Ok(Self::Daemon { daemon: Box::new(daemon), before: Box::new(before) })
    }

    /// Runs of the tracer's programs since its start, where it counts them.
    pub(super) fn hits(&self) -> Result<Option<f64>> {
        let Self::Daemon { daemon, before } = self else { return Ok(None) };
        let since = daemon.scrape()?.since(before);
        let hits = since.sum("kfd_trace_probe_hits_total", &[]);
        hits.context("no probe hits are counted").map(Some)
    }

    /// Stops the tracer's own process, or continues it; its probes stay. `false`: there is none.
    pub(super) fn hold(&self, still: bool) -> Result<bool> {
        let Self::Daemon { daemon, .. } = self else { return Ok(false) };
        daemon.signal(if still { Signal::SIGSTOP } else { Signal::SIGCONT })?;
        Ok(true)
    }

    /// Ends it; fails unless it has reported exactly `calls` ioctls of KFD. Calls that it reports as lost
    /// count as reported, except for our own tracer; returns the number lost.
    pub(super) fn stop(self, calls: u64) -> Result<u64> {
        let reported = match self {
            Self::Nothing | Self::Empty(_) => return Ok(0),
            Self::Daemon { mut daemon, before } => {
                let since = daemon.scrape()?.since(&before);
                daemon.stop()?;
                let sum = |name| Ok::<_, anyhow::Error>(whole(since.sum(name, &[]).unwrap_or(0.0)));
                let lost = sum("kfd_trace_records_lost_total")?;
                ensure!(lost == 0, "kfd-trace lost {lost} records");
                Reported { calls: sum("kfd_ioctls_total")?, lost }
            }
            Self::Stream(mut stream) => {
                let summary = stream.finish()?;
                let ioctls = stream.events("ioctl").len();
                ensure!(
                    ioctls == 0 || calls > 0,
                    "of another process, kfd-trace reported {ioctls} ioctls: {summary}"
                );
                Reported { calls: ioctls as u64, lost: 0 }
            }
            Self::Foreign(foreign) => foreign.stop()?,
        };
        if reported.calls + reported.lost != calls {
            bail!("reported of {} ioctls, lost {}, of {calls} that were made", reported.calls, reported.lost);
        }
        Ok(reported.lost)
    }
}

/// A counter of Prometheus' text format.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "counts of calls, made in seconds"
)]
fn whole(value: f64) -> u64 {
    value as u64
}
