//! The service manager: notifies it that the daemon is up, what it does, and that it is alive as long as its
//! loop turns.
//!
//! Without a manager that requests this (NOTIFY_SOCKET, WATCHDOG_USEC), sends nothing.

use super::beat::Beat;
use super::ticks::Turns;
use crate::text::escape;
use sd_notify::NotifyState;
use std::fmt::Display;
use std::io;
use std::pin::pin;
use std::time::Duration;
use tokio::time::Instant;

/// The loop turns at least this often.
pub(crate) const TURN: Duration = Duration::from_secs(1);

/// Beside other work the loop turns this often, so that a process that does nothing wakes up seldom.
const REST: Duration = Duration::from_secs(4);

/// Anything that is awaited for longer is taken for hanging: work begun elsewhere takes the kernel seconds.
const LONGEST_WORK: Duration = Duration::from_secs(300);

/// A web server that is not well for longer is not started again by this process: its start may take a minute, and the pause
/// before half of one.
const LONGEST_START: Duration = Duration::from_secs(120);

type Notify = Box<dyn FnMut(&[NotifyState<'_>]) -> io::Result<()>>;

/// What is sent, and to which manager.
pub(crate) struct Supervisor {
    notify: Notify,
    watchdog: Option<Watchdog>,
    /// The loop that this is called from.
    turned: Beat,
    /// The loop that keeps the web server running.
    serves: Beat,
}

impl Supervisor {
    /// For the manager that started this process. `turned`: the loop that this is called from; `serves`: the one that keeps
    /// the web server running.
    pub(crate) fn from_env(turned: Beat, serves: Beat) -> Self {
        Supervisor::new(Box::new(sd_notify::notify), sd_notify::watchdog_enabled(), turned, serves)
    }

    /// `timeout`: the manager ends this process after this long without a message.
    fn new(notify: Notify, timeout: Option<Duration>, turned: Beat, serves: Beat) -> Self {
        let watchdog = timeout.map(|timeout| Watchdog { every: timeout / 2, last: None });
        Supervisor { notify, watchdog, turned, serves }
    }

    /// The daemon is up: it traces, or waits for its driver.
    pub(crate) fn up(&mut self, doing: impl Display) {
        self.send(&[NotifyState::Ready, NotifyState::Status(&escape::terminal(&doing.to_string()))]);
    }

    /// The daemon is stopping, which takes the kernel seconds.
    pub(crate) fn stopping(&mut self) {
        self.send(&[NotifyState::Stopping]);
    }

    /// Must be called at each turn of the loop, and from nowhere else.
    pub(crate) fn alive(&mut self) {
        self.turned.turn();
        if self.serves.age() > LONGEST_START {
            return;
        }
        let now = Instant::now();
        if self.watchdog.as_mut().is_some_and(|watchdog| watchdog.is_due(now)) {
            self.send(&[NotifyState::Watchdog]);
        }
    }

    /// Awaits work done elsewhere, or one pause; meanwhile reports the process as alive, as long as that is
    /// credible.
    pub(crate) async fn beside<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut turns = Turns::each(self.watchdog.as_ref().map_or(REST, Watchdog::turn));
        self.beside_turns(work, async || turns.next().await).await
    }

    /// [`Self::beside`], alive at each of these turns.
    async fn beside_turns<T>(&mut self, work: impl Future<Output = T>, mut turn: impl AsyncFnMut()) -> T {
        let mut work = pin!(work);
        let begin = Instant::now();
        self.alive();
        loop {
            tokio::select! {
                done = &mut work => return done,
                () = turn() => if begin.elapsed() < LONGEST_WORK { self.alive() },
            }
        }
    }

    fn send(&mut self, states: &[NotifyState<'_>]) {
        if let Err(error) = (self.notify)(states) {
            log::warn!("cannot notify the service manager: {error}");
        }
    }
}

/// When the next keep-alive is due.
struct Watchdog {
    every: Duration,
    last: Option<Instant>,
}

impl Watchdog {
    /// Interval between the turns of a loop that does nothing else.
    fn turn(&self) -> Duration {
        if self.every <= REST { TURN } else { REST }
    }

    /// Whether the next turn may be too late.
    fn is_due(&mut self, now: Instant) -> bool {
        let due = self.last.is_none_or(|last| now.duration_since(last) + self.turn() > self.every);
        if due {
            self.last = Some(now);
        }
        due
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::runtime::beat::tests::stuck_for;
    use std::cell::RefCell;
    use std::rc::Rc;
    use tokio::time::{advance, sleep};

    /// A manager that keeps the messages that it gets, with a timeout of one minute.
    pub(crate) fn listening() -> (Supervisor, Rc<RefCell<Vec<String>>>) {
        let messages = Rc::new(RefCell::new(Vec::new()));
        let keeps = messages.clone();
        let notify: Notify = Box::new(move |states: &[NotifyState<'_>]| {
            keeps.borrow_mut().extend(states.iter().map(ToString::to_string));
            Ok(())
        });
        let timeout = Some(Duration::from_secs(60));
        (Supervisor::new(notify, timeout, Beat::default(), Beat::default()), messages)
    }

    #[tokio::test(start_paused = true)]
    async fn a_keep_alive_is_sent_every_half_timeout_while_the_loop_runs() {
        let (mut supervisor, messages) = listening();
        for _ in 0..=90 {
            supervisor.alive();
            advance(TURN).await;
        }
        assert_eq!(*messages.borrow(), ["WATCHDOG=1"; 4], "at 0, 27, 54 and 81 s");
        advance(Duration::from_secs(600)).await;
        assert_eq!(messages.borrow().len(), 4, "nothing turns");
    }

    #[tokio::test(start_paused = true)]
    async fn no_turn_is_left_out_if_the_timeout_is_short() {
        let mut watchdog = Watchdog { every: Duration::from_secs(1), last: None };
        let begin = Instant::now();
        assert!((0..5).all(|turn| watchdog.is_due(begin + turn * TURN)));
        assert!(!watchdog.is_due(begin + 4 * TURN), "sent at the turn before");
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_awaited_for_too_long_is_not_covered() {
        let (mut supervisor, messages) = listening();
        supervisor.beside_turns(sleep(Duration::from_secs(100)), async || sleep(TURN).await).await;
        assert_eq!(messages.borrow().len(), 4, "at 0, 27, 54 and 81 s");
        supervisor.beside_turns(sleep(LONGEST_WORK * 10), async || sleep(TURN).await).await;
        assert!(messages.borrow().len() <= 16, "{}", messages.borrow().len());
    }

    #[tokio::test(start_paused = true)]
    async fn a_web_server_that_is_not_started_again_ends_the_keep_alives() {
        let (mut supervisor, messages) = listening();
        supervisor.serves = stuck_for(LONGEST_START.as_secs() + 1);
        supervisor.alive();
        assert!(messages.borrow().is_empty());
        supervisor.serves.turn();
        supervisor.alive();
        assert_eq!(*messages.borrow(), ["WATCHDOG=1"]);
    }

    #[tokio::test(start_paused = true)]
    async fn the_loop_turns_with_and_without_a_manager_and_beside_other_work() {
        let (supervisor, _) = listening();
        let mut supervisor = Supervisor { watchdog: None, turned: stuck_for(100), ..supervisor };
        supervisor.beside(sleep(TURN)).await;
        assert!(supervisor.turned.age() < Duration::from_secs(100));
    }

    #[test]
    fn a_status_is_one_line() {
        let (mut supervisor, messages) = listening();
        supervisor.up("waits\nMAINPID=1");
        supervisor.stopping();
        assert_eq!(*messages.borrow(), ["READY=1", "STATUS=waits\\u{a}MAINPID=1", "STOPPING=1"]);
    }

    #[test]
    fn without_a_watchdog_no_keep_alive_is_sent() {
        let (supervisor, messages) = listening();
        let mut supervisor = Supervisor { watchdog: None, ..supervisor };
        supervisor.alive();
        assert!(messages.borrow().is_empty());
    }
}
