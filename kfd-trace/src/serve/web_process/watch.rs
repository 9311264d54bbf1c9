//! Watches the web server's process: its end, its pulse, and whether its sockets still listen.
//!
//! In: the process, the socket of its pulse, the request to stop. Out: how it ended; one that hangs is killed.

use crate::runtime::beat::Beat;
use crate::serve::web::GRACE;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::fmt;
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

/// Interval between a pulse's answer and the next pulse.
const EVERY: Duration = Duration::from_secs(10);

/// An answer that takes longer does not come: a thread of the process has a tenth of a CPU at least where only the tracer runs beside it.
const HANGS: Duration = Duration::from_secs(15);

/// Nothing waits longer than that for one that hangs at the end.
const HANGS_AT_THE_END: Duration = Duration::from_secs(3);

/// What it may take beyond the requests in progress.
const MARGIN: Duration = Duration::from_secs(2);

/// How a process ended.
#[derive(Debug)]
pub(super) struct Ended {
    status: ExitStatus,
    /// Why it was killed, if it was.
    why: Option<&'static str>,
}

impl Ended {
    pub(super) fn is_well(&self) -> bool {
        self.why.is_none() && self.status.success()
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.why {
            None => write!(f, "ended: {}", self.status),
            Some(why) => write!(f, "{why}, and was killed"),
        }
    }
}

/// What is known of the pulse, and when. Pure.
#[derive(Clone, Copy, Debug)]
struct Pulse {
    /// The last pulse, if its answer is missing.
    sent: Option<Instant>,
    /// When the next one is due.
    next: Instant,
    /// When the process must have ended.
    end: Option<Instant>,
}

#[derive(Debug, PartialEq, Eq)]
enum Step {
    Send,
    Kill(&'static str),
    Wait(Duration),
}

impl Pulse {
    fn step(self, now: Instant) -> Step {
        if self.end.is_some_and(|end| now >= end) {
            return Step::Kill("does not end");
        }
        let hangs = if self.end.is_some() { HANGS_AT_THE_END } else { HANGS };
        let due = match self.sent.map(|sent| sent + hangs) {
            Some(due) if now >= due => return Step::Kill("hangs"),
            Some(due) => due,
            None if now >= self.next => return Step::Send,
            None => self.next,
        };
        let due = self.end.map_or(due, |end| end.min(due));
        Step::Wait(due.saturating_duration_since(now))
    }

    fn answered(&mut self, now: Instant) {
        (self.sent, self.next) = (None, now + EVERY);
    }

    /// From now on it is to end: whether it hangs is asked at once.
    fn stops(&mut self, now: Instant) {
        (self.sent, self.next, self.end) = (None, now, Some(now + GRACE + MARGIN));
    }
}

pub(super) struct Watch<'w> {
    pub(super) pulse: &'w UnixStream,
    /// Readable once it is to end.
    pub(super) stopping: &'w OwnedFd,
    /// Turned as long as the process is known to be well.
    pub(super) turned: &'w Beat,
}

impl Watch<'_> {
    /// `listens`: whether its sockets do.
    ///
    /// # Errors
    /// If it cannot be watched.
    pub(super) fn until_ended(&self, child: &mut Child, listens: impl Fn() -> bool) -> io::Result<Ended> {
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let process = pidfd_open(pid.ok_or(io::ErrorKind::InvalidData)?, PidfdFlags::empty())?;
        let mut stream = self.pulse;
        stream.set_nonblocking(true)?;
        let now = Instant::now();
        let (mut pulse, mut has_pulse) = (Pulse { sent: None, next: now + EVERY, end: None }, true);
        loop {
            let now = Instant::now();
            let wait = match pulse.step(now) {
                Step::Kill(why) => return killed(child, why),
                Step::Send => {
                    // One that is closed is seen below.
                    let _ = stream.write(&[1]);
                    pulse.sent = Some(now);
                    continue;
                }
                Step::Wait(wait) => wait,
            };
            let is_stopping = pulse.end.is_some();
            let mut ready = vec![PollFd::new(&process, PollFlags::IN)];
            ready.extend(has_pulse.then(|| PollFd::new(self.pulse, PollFlags::IN)));
            ready.extend((!is_stopping).then(|| PollFd::new(self.stopping, PollFlags::IN)));
            retry_on_intr(|| poll(&mut ready, Some(&timespec(wait))))?;
            let mut seen = ready.iter().map(|descriptor| !descriptor.revents().is_empty());
            let ends = seen.next().unwrap_or(false);
            let answers = has_pulse && seen.next().unwrap_or(false);
            let stops = !is_stopping && seen.next().unwrap_or(false);
            let now = Instant::now();
            if ends {
                return Ok(Ended { status: child.wait()?, why: None });
            }
            if answers {
                match stream.read(&mut [0; 16]) {
                    // It ends, or has to: without a pulse it hangs.
                    Ok(0) | Err(_) => has_pulse = false,
                    Ok(_) => {
                        self.turned.turn();
                        pulse.answered(now);
                        if !listens() {
                            return killed(child, "does not listen any more");
                        }
                    }
                }
            }
            if stops {
                pulse.stops(now);
            }
        }
    }
}

fn killed(child: &mut Child, why: &'static str) -> io::Result<Ended> {
    child.kill()?;
    Ok(Ended { status: child.wait()?, why: Some(why) })
}

fn timespec(duration: Duration) -> Timespec {
    // Not less than a millisecond, so that what is due is due then.
    let duration = duration.max(Duration::from_millis(1));
    Timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: duration.subsec_nanos().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pulse_without_an_answer_ends_the_process_and_at_the_end_at_once() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let mut pulse = Pulse { sent: None, next: at(10), end: None };
        assert_eq!(pulse.step(begin), Step::Wait(EVERY));
        assert_eq!(pulse.step(at(10)), Step::Send);
        pulse.sent = Some(at(10));
        assert_eq!(pulse.step(at(15)), Step::Wait(Duration::from_secs(10)));
        let mut answered = pulse;
        answered.answered(at(17));
        assert_eq!(answered.step(at(17)), Step::Wait(EVERY));
        assert_eq!(pulse.step(at(25)), Step::Kill("hangs"));
        pulse.stops(at(17));
        assert_eq!(pulse.step(at(17)), Step::Send, "it is asked again");
        pulse.sent = Some(at(17));
        assert_eq!(pulse.step(at(20)), Step::Kill("hangs"));
        pulse.answered(at(18));
        assert_eq!(pulse.step(at(18)), Step::Wait(GRACE + MARGIN - Duration::from_secs(1)));
        assert_eq!(pulse.step(at(22)), Step::Kill("does not end"));
    }
}
