//! One sample of all queues: their pointers in the memory of their processes.
//!
//! In: the queues to sample, and the files that are open from the previous sample. Out: a reading per queue,
//! and the cost. It holds nothing of the tracer, so a memory read that blocks delays nothing else.

use crate::attribute::memory::ProcessMemory;
use crate::model::pointers::Unmeasured;
use crate::runtime::clock;
use crate::state::{ProcessKey, Sample, Target};
use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// One in this many of the descriptors that this process may have is for memories: connections need some,
/// too.
const SHARE: u64 = 2;

/// Open memory files, one per process.
#[derive(Debug)]
pub(crate) struct Sampler {
    procfs: PathBuf,
    memories: BTreeMap<ProcessKey, ProcessMemory>,
    /// Maximum number of open files.
    most: usize,
    /// tgid of the process that is being read; 0 for none.
    reads: Arc<AtomicU32>,
}

/// The result of a sample.
#[derive(Debug)]
pub struct Pass {
    pub(crate) samples: Vec<Sample>,
    /// CPU time of its thread, nanoseconds.
    pub(crate) cpu_ns: u64,
    /// When it ended, CLOCK_MONOTONIC nanoseconds.
    pub(crate) at_ns: u64,
}

impl Sampler {
    pub(crate) fn new(procfs: PathBuf) -> Self {
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let most = usize::try_from(limit / SHARE).unwrap_or(usize::MAX);
        Sampler { procfs, memories: BTreeMap::new(), most, reads: Arc::default() }
    }

    /// Which process is read at the moment; 0 for none.
    pub(crate) fn reads(&self) -> Arc<AtomicU32> {
        self.reads.clone()
    }

    /// Reads the pointers of all queues. Closes the memories of processes that are no longer among the
    /// targets.
    pub(crate) fn pass(&mut self, targets: &[Target]) -> Pass {
        let begin = cpu_ns();
        let wanted: BTreeSet<ProcessKey> = targets.iter().map(|target| target.key).collect();
        self.memories.retain(|key, _| wanted.contains(key));
        let mut samples = Vec::with_capacity(targets.iter().map(|target| target.queues.len()).sum());
        for target in targets {
            self.reads.store(target.tgid, Ordering::Relaxed);
            let first = samples.len();
            let memory = self.open(target);
            samples.extend(target.queues.iter().map(|queue| Sample {
                key: target.key,
                queue_id: queue.queue_id,
                since_ns: queue.since_ns,
                reading: memory.and_then(|memory| memory.counts(&queue.pointers)),
                at_ns: clock::mono_ns(),
            }));
            let gone = |sample: &Sample| sample.reading == Err(Unmeasured::Gone);
            if samples.iter().skip(first).any(gone) {
                // If it was opened by a thread that ended while others live, it may have been opened too
                // late.
                self.memories.remove(&target.key);
            }
        }
        self.reads.store(0, Ordering::Relaxed);
        Pass { samples, cpu_ns: cpu_ns().saturating_sub(begin), at_ns: clock::mono_ns() }
    }

    fn open(&mut self, target: &Target) -> Result<&ProcessMemory, Unmeasured> {
        if !self.memories.contains_key(&target.key) {
            if self.memories.len() >= self.most {
                return Err(Unmeasured::Descriptors);
            }
            let memory = ProcessMemory::open(&self.procfs, target.tgid, target.start_boottime_ns)?;
            self.memories.insert(target.key, memory);
        }
        self.memories.get(&target.key).ok_or(Unmeasured::Failed)
    }
}

/// CPU time of the running thread, nanoseconds.
fn cpu_ns() -> u64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    clock::nanoseconds(now.tv_sec, now.tv_nsec)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::event::{ProcessId, QueueFacts};
    use crate::model::pointers::Counts;
    use crate::model::pointers::Pointers;
    use crate::model::pointers::samples::head_bytes;
    use crate::state::Sought;
    use crate::state::samples::facts;

    fn target(process: u64, tgid: u32, address: u64) -> Target {
        let queue = QueueFacts {
            write_pointer_address: Some(address + 0x38),
            read_pointer_address: Some(address + 0x80),
            ..facts(1)
        };
        let pointers = Pointers::of(&queue).expect("an AQL queue");
        let queues = vec![Sought { queue_id: 1, since_ns: 5, pointers }];
        Target { key: ProcessId(process).into(), tgid, start_boottime_ns: None, queues }
    }

    fn readings(pass: &Pass) -> Vec<Result<(u64, u64), Unmeasured>> {
        let counts = |counts: Counts| (counts.submitted, counts.retired);
        pass.samples.iter().map(|sample| sample.reading.map(counts)).collect()
    }

    #[test]
    fn a_file_of_a_memory_that_went_is_let_go() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("sleep");
        let targets = [target(1, child.id(), 0x1000)];
        let mut sampler = Sampler::new("/proc".into());
        let before = readings(&sampler.pass(&targets));
        let open = sampler.memories.len();
        child.kill().expect("it lives");
        child.wait().expect("it ends");
        assert_eq!((before, open), (vec![Err(Unmeasured::Unreadable)], 1));
        assert_eq!(readings(&sampler.pass(&targets)), [Err(Unmeasured::Gone)]);
        assert_eq!(sampler.memories.len(), 0, "another thread of it may live");
    }

    #[test]
    fn each_queue_is_read_through_one_file_of_its_process() {
        let head = head_bytes(9, 4);
        let own = std::process::id();
        let address = std::ptr::from_ref(&head) as u64;
        let targets = [target(1, own, address), target(2, u32::MAX, address), target(3, own, 0x1000)];
        let mut sampler = Sampler::new("/proc".into());
        let (from_ns, reads) = (clock::mono_ns(), sampler.reads());
        let pass = sampler.pass(&targets);
        assert!(pass.samples.iter().all(|sample| (from_ns..=pass.at_ns).contains(&sample.at_ns)));
        assert_eq!(reads.load(Ordering::Relaxed), 0, "it is over");
        assert_eq!(readings(&pass), [Ok((9, 4)), Err(Unmeasured::Gone), Err(Unmeasured::Unreadable)]);
        assert!(pass.cpu_ns > 0 && pass.samples.iter().all(|sample| sample.since_ns == 5));
        assert_eq!(sampler.memories.len(), 2);
        assert!(!sampler.memories.contains_key(&ProcessId(2).into()));
        // It is opened once: if procfs no longer exists, it is read all the same.
        sampler.procfs = "/nowhere".into();
        assert_eq!(readings(&sampler.pass(&targets[..1])), [Ok((9, 4))]);
        assert_eq!(sampler.memories.len(), 1, "who is not sampled any more is let go");
        sampler.most = 1;
        sampler.procfs = "/proc".into();
        assert_eq!(
            readings(&sampler.pass(&[target(4, own, address), target(5, own, address)])),
            [Ok((9, 4)), Err(Unmeasured::Descriptors)]
        );
    }
}
