//! Ticks at a fixed interval, by a timer of the kernel: each wakes the thread once. A timer of tokio's is in a
//! wheel of several levels, and wakes it once more for each level that it passes.

use rustix::fd::OwnedFd;
use rustix::io::{Errno, read};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use std::io;
use std::time::Duration;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::sleep;

/// The first tick is at once.
#[derive(Debug)]
pub(crate) struct Ticks(AsyncFd<OwnedFd>);

/// The first turn is after the interval.
#[derive(Debug)]
pub(crate) struct Turns {
    ticks: Option<Ticks>,
    every: Duration,
}

impl Turns {
    pub(crate) fn each(every: Duration) -> Self {
        Turns { ticks: Ticks::from(every, every).ok(), every }
    }

    /// Waits for the next turn; all that were missed are one. Cancel-safe. If the kernel has no timer left, the runtime's
    /// serves, which wakes the thread more often.
    pub(crate) async fn next(&mut self) {
        let ticked = if let Some(ticks) = &mut self.ticks { ticks.tick().await.is_ok() } else { false };
        if !ticked {
            sleep(self.every).await;
        }
    }
}

impl Ticks {
    /// # Errors
    /// If the kernel has no timer left, or the runtime cannot wait for it.
    pub(crate) fn each(interval: Duration) -> io::Result<Self> {
        // At 0 it would be disarmed.
        Self::from(Duration::from_nanos(1), interval)
    }

    fn from(first: Duration, interval: Duration) -> io::Result<Self> {
        let timer =
            timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
        let timespec = |duration: Duration| Timespec::try_from(duration).map_err(io::Error::other);
        let times = Itimerspec { it_interval: timespec(interval)?, it_value: timespec(first)? };
        timerfd_settime(&timer, TimerfdTimerFlags::empty(), &times)?;
        // SAFETY: the descriptor is kept open until it is dropped with this.
        let timer =
            unsafe { AsyncFd::register_with_interest(timer, Interest::READABLE) }.map_err(io::Error::from)?;
        Ok(Ticks(timer))
    }

    /// Waits for the next tick; all that were missed are one. Cancel-safe.
    ///
    /// # Errors
    /// If the timer cannot be waited for.
    pub(crate) async fn tick(&mut self) -> io::Result<()> {
        loop {
            let mut ready = self.0.readable_mut().await?;
            let expirations = read(ready.get_inner(), &mut [0; size_of::<u64>()]);
            // An expiration after the reading makes it ready again.
            ready.clear_ready();
            match expirations {
                Ok(_) => return Ok(()),
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;
    use std::time::Instant;
    use tokio::time::timeout;

    const MS: Duration = Duration::from_millis(1);

    #[tokio::test]
    async fn the_first_tick_is_at_once_and_the_next_one_is_not() {
        let mut ticks = Ticks::each(3600 * 1000 * MS).expect("a timer");
        ticks.tick().await.expect("a tick");
        assert!(timeout(20 * MS, ticks.tick()).await.is_err(), "an hour before it is due");
    }

    #[tokio::test]
    async fn missed_ticks_are_one() {
        let mut ticks = Ticks::each(10 * MS).expect("a timer");
        thread::sleep(500 * MS);
        let begin = Instant::now();
        for _ in 0..5 {
            ticks.tick().await.expect("a tick");
        }
        // All that were missed, one that may have been due already, and three more.
        assert!(begin.elapsed() >= 29 * MS, "{:?}", begin.elapsed());
    }

    #[tokio::test]
    async fn turns_come_with_and_without_a_timer_of_the_kernel() {
        for mut turns in [Turns::each(20 * MS), Turns { ticks: None, every: 20 * MS }] {
            let begin = Instant::now();
            turns.next().await;
            turns.next().await;
            assert!(begin.elapsed() >= 39 * MS, "{:?}", begin.elapsed());
        }
    }
}
