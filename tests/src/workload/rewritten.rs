//! An UPDATE_QUEUE whose arguments another thread changes while the driver works on its copy of them.

use super::report;
use crate::kfd::uapi::UpdateQueue;
use crate::kfd::{Client, Errno, Tally};
use anyhow::{Context, Result};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

/// The call under way.
pub(super) struct Rewritten {
    args: Arc<[AtomicU64; 3]>,
    caller: JoinHandle<(Option<Errno>, Tally)>,
}

impl Rewritten {
    /// Begins the call in a thread of its own.
    pub(super) fn begin(client: &Client, update: &UpdateQueue) -> Result<Self> {
        let UpdateQueue { ring_base_address, queue_id, ring_size, queue_percentage, queue_priority } =
            *update;
        let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let words = [ring_base_address, pair(queue_id, ring_size), pair(queue_percentage, queue_priority)];
        let args = Arc::new(words.map(AtomicU64::new));
        let (mut own, passed) = (client.share(), Arc::clone(&args));
        let caller = thread::spawn(move || {
            let updated = own.update_queue_at(&passed);
            (updated.err(), own.tally)
        });
        report::done("begin-update", &json!({}))?;
        Ok(Self { args, caller })
    }

    /// Nonsense in the place of the arguments.
    pub(super) fn rewrite(&self) -> Result<()> {
        self.args.iter().for_each(|word| word.store(0x5a5a_5a5a_5a5a_5a5a, Ordering::Release));
        report::done("rewrite", &json!({}))
    }

    /// Waits for its end.
    pub(super) fn end(self, client: &mut Client) -> Result<()> {
        let (errno, tally) = self.caller.join().ok().context("a thread that panicked")?;
        client.tally.merge(&tally);
        report::done("end-update", &json!({"failed": errno.map(Errno::name)}))
    }
}
