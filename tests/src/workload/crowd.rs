//! Threads of a script that make one call each and stay until released, so that their traces still exist when
//! a test checks.

use super::report;
use crate::kfd::Errno;
use crate::kfd::Tally;
use crate::kfd::client::NewQueue;
use crate::kfd::uapi::QueueType;
use crate::kfd::{Client, Gpu, events};
use anyhow::{Context, Result};
use nix::unistd::gettid;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

/// Threads that sleep in WAIT_EVENTS.
pub(super) struct Sleepers {
    event: events::Event,
    threads: Vec<JoinHandle<(Option<Errno>, Tally)>>,
}

impl Sleepers {
    /// Threads on the same descriptor, which all wait for one event. Returns as soon as they exist.
    pub(super) fn new(client: &mut Client, number: u32) -> Result<Self> {
        let event = events::create(client).context("CREATE_EVENT")?;
        let sleeper = |_| {
            let mut own = client.share();
            thread::spawn(move || {
                let waited = events::wait(&mut own, event.id, u32::MAX);
                (waited.err(), own.tally)
            })
        };
        let threads = (0..number).map(sleeper).collect();
        report::done("sleepers", &json!({"event": event.id}))?;
        Ok(Self { event, threads })
    }

    /// All have returned then. Reports how many, and their errors by errno.
    pub(super) fn wake(self, client: &mut Client) -> Result<()> {
        events::wake(client, self.event).context("SET_EVENT")?;
        let woken = self.threads.len();
        let mut errnos = BTreeMap::<String, u32>::new();
        for thread in self.threads {
            let (errno, tally) = thread.join().ok().context("a sleeper that panicked")?;
            client.tally.merge(&tally);
            if let Some(errno) = errno {
                *errnos.entry(errno.name()).or_default() += 1;
            }
        }
        report::done("wake", &json!({"woken": woken, "errnos": errnos}))
    }
}

/// They end when it is dropped.
#[derive(Default)]
pub(super) struct Crowd {
    may_go: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Crowd {
    /// GET_VERSION by threads on the same descriptor, one after the other.
    pub(super) fn of(client: &mut Client, number: u32) -> Result<Self> {
        let (mut crowd, mut tids) = (Self::default(), Vec::new());
        for _ in 0..number {
            let (mut own, may_go) = (client.share(), Arc::clone(&crowd.may_go));
            let (sender, done) = std::sync::mpsc::channel();
            crowd.threads.push(thread::spawn(move || {
                let called = own.version().map(|_| (gettid().as_raw(), own.tally));
                // The receiver no longer waits where another thread has failed.
                let _ = sender.send(called);
                while !may_go.load(Ordering::Acquire) {
                    thread::park();
                }
            }));
            let (tid, tally) = done.recv().context("a thread that panicked")?.context("GET_VERSION")?;
            client.tally.merge(&tally);
            tids.push(tid);
        }
        report::done("threads", &json!({"tids": tids}))?;
        Ok(crowd)
    }

    /// CREATE_QUEUE by threads on the same descriptor, all at once. Reports how many queues were created, and the
    /// errors by errno.
    pub(super) fn creating(client: &mut Client, gpu: &Gpu, number: u32) -> Result<Self> {
        let mut crowd = Self::default();
        let (sender, done) = std::sync::mpsc::channel();
        for _ in 0..number {
            let (mut own, may_go, sender) = (client.share(), Arc::clone(&crowd.may_go), sender.clone());
            let gpu = *gpu;
            crowd.threads.push(thread::spawn(move || {
                let new = NewQueue::new(QueueType::Sdma, &gpu).expect("memory for a queue");
                let made = own.create_queue(new, false);
                // The receiver no longer waits where another thread has panicked.
                let _ = sender.send((made.as_ref().err().copied(), own.tally));
                while !may_go.load(Ordering::Acquire) {
                    thread::park();
                }
                // What the queue lies in is unmapped now: nothing runs it.
                drop(made);
            }));
        }
        drop(sender);
        let mut errnos = BTreeMap::<String, u32>::new();
        let mut created = 0;
        for (errno, tally) in done.iter().take(usize::try_from(number)?) {
            client.tally.merge(&tally);
            match errno {
                Some(errno) => *errnos.entry(errno.name()).or_default() += 1,
                None => created += 1,
            }
        }
        report::done("create-crowd", &json!({"created": created, "errnos": errnos}))?;
        Ok(crowd)
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        self.may_go.store(true, Ordering::Release);
        for thread in self.threads.drain(..) {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}
