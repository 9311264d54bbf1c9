//! One sample of all queues: their pointers in the memory of their processes.
//!
//! In: the queues to sample, and the files that are open from the previous sample. Out: a reading per queue,
//! and the cost. It holds nothing of the tracer, so a memory read that blocks delays nothing else; and the
//! thread that it blocks can be left to it ([`Sampler::set_aside`]), so that another one reads the rest.

use super::aside::{Aside, MOST};
use super::order::{Order, PATIENCE};
use super::tenant::Tenant;
use crate::attribute::memory::ProcessMemory;
use crate::model::pointers::{Pointers, Unmeasured};
use crate::runtime::clock;
use crate::state::{ProcessKey, Reading, Sample, Target, WaitingReaders};
use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// One in this many of the descriptors that this process may have is for memories: connections need some,
/// too.
const SHARE: u64 = 2;

/// Samples, each read by one thread at a time.
#[derive(Debug)]
pub(crate) struct Sampler {
    shared: Arc<Mutex<Reads>>,
    aside: Aside,
    /// Threads that were left to their processes, also by earlier samplers.
    waiting: WaitingReaders,
}

/// What the thread that reads and the one that watches it share.
#[derive(Debug)]
struct Reads {
    procfs: PathBuf,
    /// Open memory files, one per process.
    memories: BTreeMap<ProcessKey, Arc<ProcessMemory>>,
    /// Maximum number of open files.
    most: usize,
    /// Which thread reads: the number of those that were left alone before it.
    thread: u64,
    /// What is to be read, and what is being read since when.
    order: Order,
    reading: Option<(Target, Instant)>,
    /// Those that have answered, but took too long.
    slow: Vec<Target>,
    samples: Vec<Sample>,
    cpu_ns: u64,
}

/// The result of a sample.
#[derive(Debug)]
pub struct Pass {
    pub(crate) samples: Vec<Sample>,
    /// CPU time of its threads, nanoseconds.
    pub(crate) cpu_ns: u64,
    /// When it ended, CLOCK_MONOTONIC nanoseconds.
    pub(crate) at_ns: u64,
}

/// How a thread ended.
#[derive(Debug)]
pub(crate) enum Read {
    /// All is read.
    All(Pass),
    /// It was set aside with this process, which blocks no longer.
    Returned(ProcessKey),
}

/// One thread of a sample.
#[derive(Debug)]
pub(crate) struct Reader {
    shared: Arc<Mutex<Reads>>,
    waiting: WaitingReaders,
    thread: u64,
}

impl Sampler {
    pub(crate) fn new(procfs: PathBuf, waiting: WaitingReaders) -> Self {
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let most = usize::try_from(limit / SHARE).unwrap_or(usize::MAX);
        let reads = Reads {
            procfs,
            memories: BTreeMap::new(),
            most,
            thread: 0,
            order: Order::default(),
            reading: None,
            slow: Vec::new(),
            samples: Vec::new(),
            cpu_ns: 0,
        };
        Sampler { shared: Arc::new(Mutex::new(reads)), aside: Aside::default(), waiting }
    }

    /// Begins a sample of all queues, once the last one is over. Closes the memories of processes that are no
    /// longer among the targets. Queues of processes that are set aside are [`Unmeasured::Late`].
    pub(crate) fn begin(&mut self, targets: Vec<Target>, now: Instant) -> Reader {
        self.aside.keep(&targets, now);
        let mut reads = lock(&self.shared);
        let wanted: BTreeSet<ProcessKey> = targets.iter().map(|target| target.key).collect();
        reads.memories.retain(|key, _| wanted.contains(key));
        let (late, rest): (Vec<_>, Vec<_>) =
            targets.into_iter().partition(|target| self.aside.has(target, now));
        reads.samples = late.iter().flat_map(late_samples).collect();
        reads.order.begin(rest);
        reads.cpu_ns = 0;
        let thread = reads.thread;
        drop(reads);
        self.reader(thread)
    }

    fn reader(&self, thread: u64) -> Reader {
        Reader { shared: self.shared.clone(), waiting: self.waiting.clone(), thread }
    }

    /// tgid of the process that blocks its reader.
    pub(crate) fn blocks(&self, now: Instant) -> Option<u32> {
        let reads = lock(&self.shared);
        let (target, since) = reads.reading.as_ref()?;
        (now.saturating_duration_since(*since) > reads.order.patience()).then_some(target.tgid)
    }

    /// Leaves the thread to the process that blocks it. Returns the one that goes on; `None` if too many wait
    /// already, or the process has just been read.
    pub(crate) fn set_aside(&mut self, now: Instant) -> Option<Reader> {
        if self.waiting.count() >= MOST {
            return None;
        }
        let mut reads = lock(&self.shared);
        let patience = reads.order.patience();
        let blocks = |(_, since): &mut (Target, Instant)| now.saturating_duration_since(*since) > patience;
        let (target, _) = reads.reading.take_if(blocks)?;
        self.aside.put(&target);
        reads.memories.remove(&target.key);
        reads.order.took(&target, patience);
        // Others of its tenant may be left alone now, too.
        let late = reads.order.take(|target| self.aside.has(target, now));
        reads.samples.extend(late.iter().chain([&target]).flat_map(late_samples));
        reads.thread += 1;
        self.waiting.begins();
        let thread = reads.thread;
        drop(reads);
        Some(self.reader(thread))
    }

    /// Leaves processes alone for a while that have answered, but took too long. Returns their tgids.
    pub(crate) fn slow(&mut self, now: Instant) -> Vec<u32> {
        let slow = std::mem::take(&mut lock(&self.shared).slow);
        for target in &slow {
            self.aside.put(target);
            self.aside.returned(target.key, now);
        }
        slow.iter().map(|target| target.tgid).collect()
    }

    /// Tenants of which processes were left out, since reading their memory took too long: [`Order::report`].
    pub(super) fn slow_tenants(&self) -> Vec<Tenant> {
        lock(&self.shared).order.report()
    }

    /// The thread that was left to this process is back.
    pub(crate) fn returned(&mut self, key: ProcessKey, now: Instant) {
        self.aside.returned(key, now);
    }
}

/// A thread that reads goes on until it is through with its process, and counts as long as that blocks it.
impl Drop for Sampler {
    fn drop(&mut self) {
        let mut reads = lock(&self.shared);
        if reads.reading.take().is_some() {
            reads.thread += 1;
            self.waiting.begins();
        }
    }
}

fn lock(shared: &Mutex<Reads>) -> MutexGuard<'_, Reads> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

fn late_samples(target: &Target) -> impl Iterator<Item = Sample> {
    samples(target, |_| Err(Unmeasured::Late))
}

fn samples<'t>(
    target: &'t Target,
    read: impl Fn(&Pointers) -> Reading + 't,
) -> impl Iterator<Item = Sample> + 't {
    target.queues.iter().map(move |queue| Sample {
        key: target.key,
        queue_id: queue.queue_id,
        since_ns: queue.since_ns,
        reading: read(&queue.pointers),
        at_ns: clock::mono_ns(),
    })
}

impl Reader {
    /// Reads the pointers of all queues that are left.
    pub(crate) fn run(self) -> Read {
        let mut cpu = cpu_ns();
        loop {
            let (target, memory) = {
                let mut reads = lock(&self.shared);
                let Some(target) = reads.next() else { return Read::All(reads.end()) };
                let known = reads.memories.get(&target.key).cloned();
                let is_full = known.is_none() && reads.memories.len() >= reads.most;
                let procfs = reads.procfs.clone();
                drop(reads);
                let open =
                    || ProcessMemory::open(&procfs, target.tgid, target.start_boottime_ns).map(Arc::new);
                let memory = match known {
                    Some(memory) => Ok(memory),
                    None if is_full => Err(Unmeasured::Descriptors),
                    None => open(),
                };
                (target, memory)
            };
            let read: Vec<Sample> = match &memory {
                Ok(memory) => samples(&target, |pointers| memory.counts(pointers)).collect(),
                Err(why) => samples(&target, |_| Err(*why)).collect(),
            };
            let mut reads = lock(&self.shared);
            if reads.thread != self.thread {
                self.waiting.ends();
                return Read::Returned(target.key);
            }
            reads.read();
            let gone = |sample: &Sample| sample.reading == Err(Unmeasured::Gone);
            match memory {
                // If it was opened by a thread that ended while others live, it may have been opened too late.
                _ if read.iter().any(gone) => drop(reads.memories.remove(&target.key)),
                Ok(memory) => drop(reads.memories.insert(target.key, memory)),
                Err(_) => {}
            }
            reads.samples.extend(read);
            let now = cpu_ns();
            reads.cpu_ns += now.saturating_sub(std::mem::replace(&mut cpu, now));
        }
    }
}

impl Reads {
    /// Which process is read now.
    fn next(&mut self) -> Option<Target> {
        let mut late = Vec::new();
        let next = self.order.next(&mut late);
        self.samples.extend(late.iter().flat_map(late_samples));
        self.reading = next.clone().map(|target| (target, Instant::now()));
        next
    }

    /// It is read.
    fn read(&mut self) {
        let Some((target, since)) = self.reading.take() else { return };
        let took = since.elapsed();
        // Late in a sample little patience is left, and what takes a tenth of a second may be innocent.
        let is_slow = took > self.order.patience().max(PATIENCE / 4);
        self.order.took(&target, took);
        if is_slow {
            self.slow.push(target);
        }
    }

    fn end(&mut self) -> Pass {
        let samples = std::mem::take(&mut self.samples);
        Pass { samples, cpu_ns: std::mem::take(&mut self.cpu_ns), at_ns: clock::mono_ns() }
    }
}

/// CPU time of the running thread, nanoseconds.
fn cpu_ns() -> u64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    clock::nanoseconds(now.tv_sec, now.tv_nsec)
}

#[cfg(test)]
mod tests;
