//! Two samples of all queues, for rates where no tracer runs.

use super::pass::Sampler;
use crate::state::State;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::thread::{sleep, spawn};
use std::time::Duration;

/// Interval between the two readings that make a rate.
const BETWEEN: Duration = Duration::from_millis(500);

/// Timeout for both readings.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Reads the pointers of all queues twice.
///
/// # Errors
/// One line, if a memory blocks its reader.
pub fn sample(procfs: &Path, state: &mut State) -> Result<(), String> {
    let targets = state.sought();
    let mut sampler = Sampler::new(procfs.to_owned());
    let reads = sampler.reads();
    let (sender, samples) = mpsc::channel();
    // In a thread of its own: a memory read may block, and all else must be shown all the same.
    spawn(move || {
        let first = sampler.pass(&targets).samples;
        let rest = if first.iter().any(|sample| sample.reading.is_ok()) {
            sleep(BETWEEN);
            sampler.pass(&targets).samples
        } else {
            // If nothing can be read there is no rate to wait for.
            Vec::new()
        };
        // The receiver may be gone.
        let _ = sender.send([first, rest].concat());
    });
    let slow = |_| format!("reading the memory of process {} takes too long", reads.load(Ordering::Relaxed));
    for sample in samples.recv_timeout(TIMEOUT).map_err(slow)? {
        state.sampled(&sample);
    }
    Ok(())
}
