//! Signals that request the end: SIGTERM, SIGINT (Ctrl-C) and SIGHUP, and of a program that has the whole terminal SIGQUIT;
//! and the SIGHUP of a daemon, which must not end it.
//!
//! A command that was started with SIGHUP ignored, as by nohup(1), leaves it so: it is meant to outlive its terminal.

use std::future::poll_fn;
use std::io;
use std::mem::MaybeUninit;
use std::task::{Context, Poll};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::yield_now;

pub struct Signals {
    /// Each requests the end.
    ends: Vec<Signal>,
    /// Caught, so that it ends nothing.
    _deaf_to: Option<Signal>,
}

impl Signals {
    /// From now on SIGTERM, SIGINT and SIGHUP end nothing by themselves.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn new() -> io::Result<Self> {
        Ok(Signals { ends: of_kinds(&[SignalKind::interrupt(), SignalKind::hangup()])?, _deaf_to: None })
    }

    /// The same, and SIGQUIT, which would end the program before it has restored the terminal.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn of_a_terminal() -> io::Result<Self> {
        let kinds = [SignalKind::interrupt(), SignalKind::hangup(), SignalKind::quit()];
        Ok(Signals { ends: of_kinds(&kinds)?, _deaf_to: None })
    }

    /// Those of [`Signals::new`], but SIGINT requests nothing: the terminal sends it to a command, too, which decides.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn beside_a_command() -> io::Result<Self> {
        let deaf_to = signal(SignalKind::interrupt())?;
        Ok(Signals { ends: of_kinds(&[SignalKind::hangup()])?, _deaf_to: Some(deaf_to) })
    }

    /// SIGTERM and SIGINT: for SIGHUP there are [`Hangups`].
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn of_a_daemon() -> io::Result<Self> {
        Ok(Signals { ends: of_kinds(&[SignalKind::interrupt()])?, _deaf_to: None })
    }

    /// Waits for the next signal.
    pub async fn any(&mut self) {
        poll_fn(|context| if self.take(context) { Poll::Ready(()) } else { Poll::Pending }).await;
    }

    /// Discards the signals received until now.
    pub async fn forget(&mut self) {
        // The runtime processes them when it has nothing else to do.
        yield_now().await;
        poll_fn(|context| {
            while self.take(context) {}
            Poll::Ready(())
        })
        .await;
    }

    /// Whether one has come.
    fn take(&mut self, context: &mut Context<'_>) -> bool {
        self.ends.iter_mut().any(|signal| signal.poll_recv(context).is_ready())
    }
}

/// SIGTERM and these, without a SIGHUP that is ignored.
fn of_kinds(kinds: &[SignalKind]) -> io::Result<Vec<Signal>> {
    let wanted = |kind: &&SignalKind| **kind != SignalKind::hangup() || !is_ignored(**kind);
    std::iter::once(&SignalKind::terminate())
        .chain(kinds.iter().filter(wanted))
        .copied()
        .map(signal)
        .collect()
}

/// Whether this process was started so that it ignores a signal.
fn is_ignored(kind: SignalKind) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: without a new action, sigaction(2) only writes the present one to `action`, which has room for it.
    let done = unsafe { libc::sigaction(kind.as_raw_value(), std::ptr::null(), action.as_mut_ptr()) };
    // SAFETY: all bytes are 0 or were written by sigaction(2), and each is valid there.
    let action = unsafe { action.assume_init() };
    done == 0 && action.sa_sigaction == libc::SIG_IGN
}

/// SIGHUP of a daemon: it outlives its terminal.
pub struct Hangups(Signal);

impl Hangups {
    /// From now on it ends nothing.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn new() -> io::Result<Self> {
        Ok(Hangups(signal(SignalKind::hangup())?))
    }

    /// Calls `act` for each, without end.
    pub async fn each(mut self, mut act: impl FnMut()) {
        while self.0.recv().await.is_some() {
            act();
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use nix::sys::signal::{Signal, raise};
    use std::time::Duration;
    use tokio::sync::Mutex;
    use tokio::time::timeout;

    /// A signal reaches everything in this process that waits for one: tests that wait for one run one at a
    /// time.
    pub(crate) static TURN: Mutex<()> = Mutex::const_new(());

    /// The tests themselves may run under nohup(1), where SIGHUP is ignored for good.
    pub(crate) fn hear_hangups() {
        use nix::sys::signal::{SigHandler, signal};
        if is_ignored(SignalKind::hangup()) {
            // SAFETY: no handler is replaced, as the signal has none yet.
            unsafe { signal(Signal::SIGHUP, SigHandler::SigDfl) }.unwrap();
        }
    }

    #[tokio::test]
    async fn what_came_is_forgotten_and_what_comes_is_not() {
        let _turn = TURN.lock().await;
        let mut signals = Signals::new().unwrap();
        let soon = Duration::from_millis(200);
        // To this thread: another thread of the process might be slow.
        raise(Signal::SIGINT).unwrap();
        raise(Signal::SIGTERM).unwrap();
        signals.forget().await;
        assert!(timeout(soon, signals.any()).await.is_err(), "it was forgotten");
        raise(Signal::SIGTERM).unwrap();
        assert!(timeout(10 * soon, signals.any()).await.is_ok());
    }

    #[tokio::test]
    async fn what_ends_a_terminal_requests_the_end_of_who_has_to_restore_it() {
        let _turn = TURN.lock().await;
        hear_hangups();
        let (mut signals, mut others) = (Signals::of_a_terminal().unwrap(), Signals::of_a_daemon().unwrap());
        let soon = Duration::from_millis(200);
        for signal in [Signal::SIGHUP, Signal::SIGQUIT] {
            raise(signal).unwrap();
            assert!(timeout(10 * soon, signals.any()).await.is_ok(), "{signal}");
        }
        assert!(timeout(soon, others.any()).await.is_err(), "only where it was requested");
    }

    #[tokio::test]
    async fn a_hangup_requests_the_end_of_all_but_daemons() {
        let _turn = TURN.lock().await;
        hear_hangups();
        let soon = Duration::from_millis(200);
        let mut all = [Signals::new(), Signals::beside_a_command()].map(Result::unwrap);
        let mut daemon = Signals::of_a_daemon().unwrap();
        raise(Signal::SIGHUP).unwrap();
        for signals in &mut all {
            assert!(timeout(10 * soon, signals.any()).await.is_ok());
        }
        assert!(timeout(soon, daemon.any()).await.is_err(), "it has `Hangups`");
    }
}
