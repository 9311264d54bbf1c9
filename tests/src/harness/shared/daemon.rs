//! The shared daemon, and a test's view of it.

use super::{begin, lives, lock, of_shared};
use crate::harness::exposition::Metrics;
use crate::harness::tracer::Daemon;
use crate::harness::wait::{SOON, until};
use anyhow::{Context, Result, ensure};
use std::ops::Deref;
use std::sync::{Mutex, MutexGuard};

static DAEMON: Mutex<Option<Daemon>> = Mutex::new(None);

/// The daemon's counters of its own faults; also differences that were corrected from the driver's lists: the
/// probes did not see everything.
const MISSING: [&str; 5] = [
    "kfd_trace_records_lost_total",
    "kfd_trace_trouble_total",
    "kfd_trace_decode_errors_total",
    "kfd_trace_state_anomalies_total",
    "kfd_trace_differences_total",
];

/// The shared daemon with counters that begin at 0; its pages are those of the daemon.
#[derive(Debug)]
pub struct SharedDaemon {
    /// The first scrape.
    before: Metrics,
    daemon: MutexGuard<'static, Option<Daemon>>,
}

impl Daemon {
    /// A view of the shared `kfd-trace daemon`; waits until everything of earlier tests is counted. No KFD
    /// process may live.
    pub fn shared() -> Result<SharedDaemon> {
        of_shared("daemon", SharedDaemon::new())
    }
}

impl SharedDaemon {
    fn new() -> Result<Self> {
        end_if_skipped()?;
        let settle = |daemon: &mut Daemon| {
            let mut last = String::new();
            let settled = until("all of earlier tests to be counted", SOON, || {
                lives(daemon)?;
                let metrics = daemon.scrape()?;
                last = left(&metrics).join(", ");
                Ok(last.is_empty().then_some(metrics))
            });
            settled.with_context(|| format!("{last}; its stderr:\n{}", daemon.stderr()))
        };
        let (daemon, before) = begin(&DAEMON, || Daemon::ready(&[]), settle)?;
        Ok(Self { before, daemon })
    }

    /// A scrape whose counters and histograms contain only increments since the view began.
    pub fn scrape(&self) -> Result<Metrics> {
        Ok(Daemon::scrape(self)?.since(&self.before))
    }

    /// Scrapes until `look` returns a value.
    pub fn scrape_until<T>(&self, what: &str, look: impl Fn(&Metrics) -> Option<T>) -> Result<T> {
        until(what, SOON, || Ok(look(&self.scrape()?)))
    }

    /// Ends the view.
    ///
    /// # Errors
    /// When the tracer has exited, or counts anything as lost, undone, not understood or inconsistent.
    pub fn end(mut self) -> Result<()> {
        let whole = of_shared("daemon", self.is_whole());
        if whole.is_err() {
            // the next test gets another one
            *self.daemon = None;
        }
        whole
    }

    fn is_whole(&mut self) -> Result<()> {
        lives(self.daemon.as_mut().context("it was ended")?)?;
        nothing_missing(&self.scrape()?).with_context(|| format!("its stderr:\n{}", self.stderr()))
    }
}

impl Deref for SharedDaemon {
    type Target = Daemon;
    fn deref(&self) -> &Daemon {
        self.daemon.as_ref().expect("a view is of a daemon that was started, and holds its lock")
    }
}

/// Ends a daemon whose programs the kernel has skipped: it would never learn of some creations and ends. The
/// daemon itself makes no call that causes skips, but the start of another tracer does.
fn end_if_skipped() -> Result<()> {
    let skipped = match lock(&DAEMON).as_ref() {
        Some(daemon) => daemon.scrape()?.sum("kfd_trace_probe_missed_total", &[]).unwrap_or(0.0),
        None => 0.0,
    };
    if skipped > 0.0 { end() } else { Ok(()) }
}

/// Ends it.
pub(super) fn end() -> Result<()> {
    let Some(mut daemon) = lock(&DAEMON).take() else { return Ok(()) };
    of_shared("daemon", daemon.stop())
}

fn nothing_missing(metrics: &Metrics) -> Result<()> {
    for name in MISSING {
        let series: Vec<_> = metrics.series(name).collect();
        ensure!(!series.is_empty(), "it does not count {name}");
        let more: Vec<_> = series.iter().filter(|(_, value)| *value > 0.0).collect();
        ensure!(more.is_empty(), "beside this test it has counted {name}: {more:?}");
    }
    Ok(())
}

/// What of earlier tests is unprocessed or still alive: records of creations and ends of processes compared
/// with those that the state counts, and what exists now.
fn left(metrics: &Metrics) -> Vec<String> {
    let sum = |name, labels: &[(&str, &str)]| metrics.sum(name, labels).unwrap_or(0.0);
    let taken_in =
        |kind, name| (kind, sum("kfd_trace_records_total", &[("kind", kind)]), name, sum(name, &[]));
    let none = |name| ("none", 0.0, name, sum(name, &[]));
    [
        taken_in("process_seen", "kfd_processes_created_total"),
        taken_in("process_release", "kfd_processes_ended_total"),
        none("kfd_processes"),
        none("kfd_queues"),
    ]
    .into_iter()
    .filter(|(_, reported, _, counted)| reported != counted)
    .map(|(what, reported, name, counted)| format!("{what}: {reported}, {name}: {counted}"))
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_left_once_all_births_and_ends_are_counted() {
        let left = |seen: u32, created: u32, released: u32, ended: u32, now: u32| {
            let text = format!(
                "kfd_trace_records_total{{kind=\"process_seen\"}} {seen}\nkfd_processes_created_total {created}\n\
                 kfd_trace_records_total{{kind=\"process_release\"}} {released}\nkfd_processes_ended_total {ended}\n\
                 kfd_processes {now}\n"
            );
            left(&Metrics::parse(&text).unwrap())
        };
        assert_eq!((left(0, 0, 0, 0, 0), left(3, 3, 3, 3, 0)), (vec![], vec![]));
        assert_eq!(left(3, 2, 2, 2, 0), ["process_seen: 3, kfd_processes_created_total: 2"]);
        assert_eq!(left(3, 3, 3, 2, 0), ["process_release: 3, kfd_processes_ended_total: 2"]);
        assert_eq!(left(3, 3, 2, 2, 1), ["none: 0, kfd_processes: 1"]);
    }

    #[test]
    fn each_of_what_may_be_missing_is_reported() {
        let text = |wrong: &str| -> String {
            MISSING.iter().map(|name| format!("{name} {}\n", u8::from(*name == wrong))).collect()
        };
        let judged = |text: &str| nothing_missing(&Metrics::parse(text).unwrap());
        assert!(judged(&text("")).is_ok());
        for wrong in MISSING.iter().chain(&["kfd_trace_differences_total"]) {
            assert!(judged(&text(wrong)).unwrap_err().to_string().contains(wrong), "{wrong}");
            assert!(judged(&text("").replace(&format!("{wrong} 0\n"), "")).is_err(), "not counted: {wrong}");
        }
    }
}
