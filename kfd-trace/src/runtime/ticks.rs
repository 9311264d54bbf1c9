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

/// The first tick is at once.
#[derive(Debug)]
pub(crate) struct Ticks(AsyncFd<OwnedFd>);

impl Ticks {
    /// # Errors
    /// If the kernel has no timer left, or the runtime cannot wait for it.
    pub(crate) fn each(interval: Duration) -> io::Result<Self> {
        let timer =
            timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
        let timespec = |duration: Duration| Timespec::try_from(duration).map_err(io::Error::other);
        // A first expiration at 0 would disarm it.
        let first = timespec(Duration::from_nanos(1))?;
        let times = Itimerspec { it_interval: timespec(interval)?, it_value: first };
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
    use std::thread::sleep;
    use std::time::Instant;
    use tokio::time::timeout;

    const MS: Duration = Duration::from_millis(1);

    #[tokio::test]
    async fn the_first_tick_is_at_once_and_missed_ones_are_one() {
        let mut ticks = Ticks::each(200 * MS).expect("a timer");
        let begin = Instant::now();
        ticks.tick().await.expect("a tick");
        assert!(begin.elapsed() < 190 * MS, "{:?}", begin.elapsed());
        sleep(500 * MS);
        ticks.tick().await.expect("a tick");
        assert!(timeout(20 * MS, ticks.tick()).await.is_err(), "two were missed");
        ticks.tick().await.expect("a tick");
        assert!(begin.elapsed() >= 590 * MS, "{:?}", begin.elapsed());
    }
}
