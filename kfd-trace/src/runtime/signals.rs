//! Signals that request a tracer's end: SIGINT (Ctrl-C) and SIGTERM, and what ends a program that has the whole terminal;
//! and SIGHUP, which must not end a daemon.

use std::future::{pending, ready};
use std::io;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::yield_now;

pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
    /// SIGINT requests it, too.
    by_interrupt: bool,
    /// SIGHUP and SIGQUIT do, too.
    terminal: Option<[Signal; 2]>,
}

impl Signals {
    /// From now on these signals end nothing by themselves.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn new() -> io::Result<Self> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            by_interrupt: true,
            terminal: None,
        })
    }

    /// The same, with those that would end the program before it has restored the terminal.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn of_a_terminal() -> io::Result<Self> {
        let terminal = Some([signal(SignalKind::hangup())?, signal(SignalKind::quit())?]);
        Ok(Signals { terminal, ..Signals::new()? })
    }

    /// The same, but SIGINT requests nothing: the terminal sends it to a command, too, which decides.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn beside_a_command() -> io::Result<Self> {
        Ok(Signals { by_interrupt: false, ..Signals::new()? })
    }

    /// Waits for the next signal.
    pub async fn any(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv(), if self.by_interrupt => {}
            () = either(&mut self.terminal) => {}
        }
    }

    /// Discards the signals received until now.
    pub async fn forget(&mut self) {
        // The runtime processes them when it has nothing else to do.
        yield_now().await;
        for _ in 0..2 {
            tokio::select! {
                biased;
                () = self.any() => {}
                () = ready(()) => {}
            }
        }
    }
}

/// The next of both; never where there are none.
async fn either(signals: &mut Option<[Signal; 2]>) {
    match signals {
        Some([one, other]) => tokio::select! {
            _ = one.recv() => {}
            _ = other.recv() => {}
        },
        None => pending().await,
    }
}

/// SIGHUP. Other commands than daemons leave it to the kernel: closing a terminal ends what was started on
/// it.
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
        let (mut signals, mut others) = (Signals::of_a_terminal().unwrap(), Signals::new().unwrap());
        let soon = Duration::from_millis(200);
        for signal in [Signal::SIGHUP, Signal::SIGQUIT] {
            raise(signal).unwrap();
            assert!(timeout(10 * soon, signals.any()).await.is_ok(), "{signal}");
        }
        assert!(timeout(soon, others.any()).await.is_err(), "only where it was requested");
    }
}
