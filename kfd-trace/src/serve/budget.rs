//! The one rule of what documents may cost the tracer: a pause of three times the CPU time that one took, so that clients
//! without pauses take a quarter of a CPU for each sort of document, as long as one takes no more than a second. The tracer keeps it, since whoever takes over
//! the web server's process asks without any pause.

use rustix::time::{ClockId, clock_gettime};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// After work comes a pause of so many times its CPU time.
pub(super) const PAUSES: u32 = 3;

/// Longer than that nothing waits for earlier work: clients give up.
pub(super) const LONGEST_PAUSE: Duration = Duration::from_secs(3);

/// The pause after work of this CPU time.
pub(super) fn pause(cpu: Duration) -> Duration {
    (cpu * PAUSES).min(LONGEST_PAUSE)
}

pub(super) fn sleep_until(time: Option<Instant>) {
    if let Some(pause) = time.and_then(|time| time.checked_duration_since(Instant::now())) {
        thread::sleep(pause);
    }
}

/// CPU time of this thread.
pub(super) fn cpu_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

/// When a lane's next document may be made. It outlives the web server's process: that one could end itself to have no pause.
#[derive(Debug, Default)]
pub(super) struct Budget(Mutex<Option<Instant>>);

impl Budget {
    /// Waits for the pause after the last document.
    pub(super) fn wait(&self) {
        let next = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        sleep_until(next);
    }

    /// The thread has used this CPU time since the last one.
    pub(super) fn spend(&self, cpu: Duration) {
        let next = Instant::now() + pause(cpu);
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(next);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_three_times_the_cpu_time_and_never_longer_than_clients_wait() {
        assert_eq!(pause(Duration::from_millis(20)), Duration::from_millis(60));
        assert_eq!(pause(Duration::from_secs(20)), LONGEST_PAUSE);
    }
}
