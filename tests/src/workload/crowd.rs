//! Threads of a script that make one call each and stay until released, so that their traces still exist when
//! a test checks.

use super::report;
use crate::kfd::client::NewQueue;
use crate::kfd::uapi::QueueType;
use crate::kfd::{Client, Gpu};
use anyhow::{Context, Result};
use nix::unistd::gettid;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

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
