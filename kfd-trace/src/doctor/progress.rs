//! How far the examination of a node is, and whether its result is still wanted. Pure.
//!
//! Shared by the thread that examines and by the one that waits for it, since a process, a file or the driver may block the first.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What an examination is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Step {
    /// It reads the driver's table, or lists in sysfs.
    #[default]
    Driver,
    /// It waits for the lock of the tracer.
    Tracer,
    /// It waits until what has just ended is freed.
    Settling,
    /// It reads this process.
    Process(u32),
    /// It compares what it read.
    Comparing,
}

/// The progress of one examination.
#[derive(Debug, Default)]
pub struct Progress {
    step: Mutex<Step>,
    cancelled: AtomicBool,
    deadline: Option<Instant>,
}

impl Progress {
    /// Of an examination that nobody waits for after this time.
    #[must_use]
    pub fn until(deadline: Instant) -> Self {
        Progress { deadline: Some(deadline), ..Progress::default() }
    }

    /// The next step begins.
    pub fn begin(&self, step: Step) {
        *self.step.lock().unwrap_or_else(PoisonError::into_inner) = step;
    }

    #[must_use]
    pub fn step(&self) -> Step {
        *self.step.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The result is not wanted any more: what is read from now on is thrown away.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    /// Whether something that takes so long can be waited for.
    #[must_use]
    pub fn has_time(&self, takes: Duration) -> bool {
        self.deadline.is_none_or(|deadline| Instant::now() + takes <= deadline)
    }
}
