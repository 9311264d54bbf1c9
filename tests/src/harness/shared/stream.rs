//! The shared stream, and a test's view of it.

use super::counters::{Counters, Counts};
use super::{begin, lives, lock, no_kfd_process, of_shared};
use crate::harness::json_lines::JsonLines;
use crate::harness::tracer::Stream;
use crate::harness::wait::{SOON, until};
use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;
use std::sync::{Mutex, MutexGuard};

static STREAM: Mutex<Option<Running>> = Mutex::new(None);

struct Running {
    stream: Stream,
    counters: Counters,
    /// Lines before the last view.
    mark: usize,
    /// The counters at that line.
    before: Counts,
}

/// The lines of the shared stream since the view was created.
pub struct SharedStream {
    lines: JsonLines,
    running: MutexGuard<'static, Option<Running>>,
}

impl Stream {
    /// A view of the shared `kfd-trace --json`; waits until everything of earlier tests has been reported. No
    /// KFD process may live.
    pub fn shared() -> Result<SharedStream> {
        of_shared("stream", SharedStream::new())
    }
}

impl SharedStream {
    fn new() -> Result<Self> {
        let settle = |running: &mut Running| {
            running.settle()?;
            Ok(running.stream.after(running.mark))
        };
        let (running, lines) = begin(&STREAM, Running::start, settle)?;
        Ok(Self { lines, running })
    }

    fn running(&mut self) -> Result<&mut Running> {
        self.running.as_mut().context("it was ended")
    }

    /// Stops it, until [`Self::go_on`] or its end.
    pub fn pause(&mut self) -> Result<()> {
        self.running()?.stream.signal(Signal::SIGSTOP)
    }

    pub fn go_on(&mut self) -> Result<()> {
        self.running()?.stream.signal(Signal::SIGCONT)
    }

    /// Ends the view. Records that do not fit earlier ones are reported in the summary, so by [`super::end`].
    ///
    /// # Errors
    /// When the tracer has exited, has lost a record or failed an operation, or does not report what it was
    /// sent.
    pub fn end(mut self) -> Result<()> {
        let whole = of_shared("stream", self.running().and_then(Running::is_whole));
        if whole.is_err() {
            // the next test gets another one
            *self.running = None;
        }
        whole
    }
}

impl Deref for SharedStream {
    type Target = JsonLines;
    fn deref(&self) -> &JsonLines {
        &self.lines
    }
}

impl Drop for SharedStream {
    fn drop(&mut self) {
        // fails without harm if it has ended or is running
        let _ = self.go_on();
    }
}

impl Running {
    fn start() -> Result<Self> {
        let stream = Stream::tracing(&[])?;
        let counters = Counters::of(stream.pid())?;
        Ok(Self { stream, counters, mark: 0, before: Counts::default() })
    }

    /// Sets the mark.
    fn settle(&mut self) -> Result<()> {
        let (reported, counts) = until("all of earlier tests to be reported", SOON, || {
            lives(&mut self.stream)?;
            let lines = self.stream.after(self.mark);
            let (reported, whole, over) = lines.look(|lines| (lines.len(), kinds(lines), is_over(lines)));
            let counts = self.counters.read()?;
            let sent = counts.since(&self.before).sent;
            Ok((over && unknown(&sent, &whole).is_none()).then_some((reported, counts)))
        })?;
        self.mark += reported;
        self.before = counts;
        Ok(())
    }

    fn end(mut self) -> Result<()> {
        no_kfd_process()?;
        self.settle()?;
        let summary = self.stream.finish()?;
        ensure!(summary["lost"] == json!({}), "over all tests it has lost {}", summary["lost"]);
        ensure!(summary["queues"]["alive"] == 0, "queues are left: {summary}");
        Ok(())
    }

    fn is_whole(&mut self) -> Result<()> {
        lives(&mut self.stream)?;
        let missing = self.counters.read()?.since(&self.before).missing;
        ensure!(
            missing.is_empty(),
            "beside this test it has lost records or could not do something: {missing:?}"
        );
        until("every record to be reported", SOON, || {
            let reported = self.stream.after(self.mark).look(kinds);
            Ok(unknown(&self.counters.read()?.since(&self.before).sent, &reported).is_none().then_some(()))
        })
    }
}

/// Ends it; everything it saw must be reported, and no queue may outlive its process.
pub(super) fn end() -> Result<()> {
    let Some(running) = lock(&STREAM).take() else { return Ok(()) };
    of_shared("stream", running.end())
}

type Sums = BTreeMap<String, u64>;

/// Lines by kind.
fn kinds(lines: &[Value]) -> Sums {
    let mut sums = Sums::new();
    for event in lines.iter().filter_map(|line| line["event"].as_str()) {
        *sums.entry(event.to_owned()).or_default() += 1;
    }
    sums
}

/// A kind of which more records were sent than lines printed. There may be more lines: some are made from
/// other records.
fn unknown<'a>(sent: &'a BTreeMap<&'static str, u64>, reported: &Sums) -> Option<&'a str> {
    let short = sent.iter().find(|(kind, sent)| reported.get(**kind).unwrap_or(&0) < sent);
    short.map(|(kind, _)| *kind)
}

/// Whether everything that began has ended: KFD processes, whose release is reported last, and resets.
fn is_over(lines: &[Value]) -> bool {
    let of = |event: &str| -> BTreeSet<&str> {
        let lines = lines.iter().filter(|line| line["event"] == event);
        lines.filter_map(|line| line["kfd_process"].as_str()).collect()
    };
    let count = |event: &str| lines.iter().filter(|line| line["event"] == event).count();
    of("process_seen").is_subset(&of("process_release")) && count("gpu_reset_begin") == count("gpu_reset_end")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(event: &str, kfd_process: Option<&str>) -> Value {
        json!({ "event": event, "kfd_process": kfd_process })
    }

    #[test]
    fn it_is_over_once_each_process_is_released_and_each_reset_has_ended() {
        let lines = [
            line("process_seen", Some("1")),
            line("process_seen", Some("2")),
            line("process_release", Some("1")),
            line("gpu_reset_begin", None),
            line("process_release", Some("2")),
            line("gpu_reset_end", None),
        ];
        let over: Vec<bool> = (0..=lines.len()).map(|seen| is_over(&lines[..seen])).collect();
        assert_eq!(over, [true, false, false, false, false, false, true]);
    }

    #[test]
    fn a_kind_with_too_few_lines_is_unreported() {
        let sent = [("ioctl", 2), ("open", 1)].into();
        let reported = |ioctls: u64| Sums::from([("ioctl".to_owned(), ioctls), ("open".to_owned(), 3)]);
        assert_eq!((unknown(&sent, &reported(1)), unknown(&sent, &reported(2))), (Some("ioctl"), None));
        assert_eq!(kinds(&[line("open", None), line("open", None)]), Sums::from([("open".to_owned(), 2)]));
    }
}
