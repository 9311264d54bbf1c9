//! Two samples of all queues, for rates where no tracer runs.

use super::order::PATIENCE;
use super::pass::{Pass, Read, Reader, Sampler};
use crate::state::{State, WaitingReaders};
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};

/// Interval between the two readings that make a rate.
const BETWEEN: Duration = Duration::from_millis(500);

/// Reads the pointers of all queues twice. Returns the processes (tgid) that block whoever reads their memory: of their queues
/// nothing is known.
///
/// # Errors
/// One line, if there are too many of these.
pub fn sample(procfs: &Path, state: &mut State) -> Result<Vec<u32>, String> {
    let targets = state.sought();
    let mut sampler = Sampler::new(procfs.to_owned(), WaitingReaders::default());
    let mut blocking = Vec::new();
    let threads = channel();
    for is_second in [false, true] {
        let reader = sampler.begin(targets.clone(), Instant::now());
        let pass = finished(&mut sampler, reader, &threads, &mut blocking)?;
        blocking.extend(sampler.slow(Instant::now()));
        let read: Vec<bool> = pass.samples.iter().map(|sample| sample.reading.is_ok()).collect();
        for sample in &pass.samples {
            state.sampled(sample);
        }
        if is_second || !read.contains(&true) {
            // If nothing can be read there is no rate to wait for.
            break;
        }
        sleep(BETWEEN);
    }
    Ok(blocking)
}

/// In threads of their own: a memory read may block, and all else must be shown all the same.
fn finished(
    sampler: &mut Sampler,
    reader: Reader,
    (sender, done): &(Sender<Read>, Receiver<Read>),
    blocking: &mut Vec<u32>,
) -> Result<Pass, String> {
    let reads = |reader: Reader| {
        let sender = sender.clone();
        // The receiver may be gone.
        spawn(move || drop(sender.send(reader.run())));
    };
    reads(reader);
    loop {
        match done.recv_timeout(PATIENCE / 10) {
            Ok(Read::All(pass)) => return Ok(pass),
            Ok(Read::Returned(key)) => sampler.returned(key, Instant::now()),
            Err(RecvTimeoutError::Disconnected) => return Err("the reader panicked".to_owned()),
            Err(RecvTimeoutError::Timeout) => {
                let now = Instant::now();
                let Some(tgid) = sampler.blocks(now) else { continue };
                match sampler.set_aside(now) {
                    Some(reader) => {
                        blocking.push(tgid);
                        reads(reader);
                    }
                    // It has just been read.
                    None if sampler.blocks(now).is_none() => {}
                    None => return Err(format!("reading the memory of process {tgid} takes too long")),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples::Procfs;
    use super::*;
    use crate::model::event::{Body, QueueFacts};
    use crate::model::pointers::Unmeasured;
    use crate::model::pointers::samples::head_bytes;
    use crate::state::samples::{event, facts, seen, state};

    #[test]
    fn a_process_that_blocks_hides_no_other_ones_activity() {
        let procfs = Procfs::new();
        let head = head_bytes(9, 4);
        let address = std::ptr::from_ref(&head) as u64;
        let queue = |queue_id| QueueFacts {
            write_pointer_address: Some(address + 0x38),
            read_pointer_address: Some(address + 0x80),
            ..facts(queue_id)
        };
        let mut state = state();
        for (process, tgid) in [(1, procfs.blocking(4321)), (2, procfs.own(4322))] {
            let Body::ProcessSeen(sample) = seen(false) else { panic!("it was made so") };
            let own = crate::model::event::ProcessSeen { start_boottime_ns: None, ..sample };
            state.apply(&event(1, process, tgid, Body::ProcessSeen(own)));
            state.apply(&event(2, process, tgid, Body::QueueCreate(queue(1))));
        }
        assert_eq!(sample(&procfs.path(), &mut state), Ok(vec![4321]));
        let activity = |tgid| state.process_of_tgid(tgid).expect("it").queues[&1].activity.clone();
        assert_eq!(activity(4321).problem(), Some(Unmeasured::Late));
        assert_eq!(activity(4322).now().map(|now| now.counts.submitted), Some(9));
        assert!(activity(4322).now().is_some_and(|now| now.rate.is_some()));
        procfs.answer(4321);
    }
}
