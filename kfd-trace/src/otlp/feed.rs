//! Hands over what happened to the threads that export it: never waits for them, and knows what was dropped.

use super::batch::{Batch, Filling};
use super::delivery::Delivery;
use super::record::{Encoder, Item};
use super::resource::{Envelope, Host, resource};
use super::settings::Settings;
use crate::output::exported::Exported;
use crate::runtime::clock;
use crate::text::count::counted;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// What may wait to become records: seconds of a busy thread, some 20 MB.
const UNMADE: usize = 1 << 16;

/// How long the end waits for the collector.
const LAST: Duration = Duration::from_secs(5);

/// The side of the thread that follows the ring buffer.
#[derive(Debug)]
pub struct Feed {
    items: Sender<Vec<Item>>,
    unmade: Arc<AtomicUsize>,
    exported: Exported,
    /// Records that were dropped here since the last one that was handed over.
    dropped: u64,
    delivery: Arc<Delivery>,
    done: Receiver<()>,
}

impl Feed {
    /// To be called after capabilities were given up: the threads keep those that there are.
    ///
    /// # Errors
    /// If there is no thread. A collector that does not answer is tried again.
    pub fn new(settings: &Settings, host: &Host) -> io::Result<Self> {
        let exported = Exported::default();
        let envelope = Envelope::new(resource(host, settings));
        let (way, bytes) = (settings.way.clone(), settings.queue_bytes);
        let delivery = Arc::new(Delivery::new(way, bytes, envelope, exported.clone()));
        let (items, received) = channel();
        let (sender, done) = channel();
        let unmade = Arc::new(AtomicUsize::new(0));
        let maker = Maker { received, unmade: Arc::clone(&unmade), delivery: Arc::clone(&delivery) };
        thread::Builder::new().name("otlp-records".to_owned()).spawn(move || maker.run())?;
        let deliverer = Arc::clone(&delivery);
        let deliver = move || {
            deliverer.run();
            drop(sender);
        };
        thread::Builder::new().name("otlp-sender".to_owned()).spawn(deliver)?;
        Ok(Feed { items, unmade, exported, dropped: 0, delivery, done })
    }

    #[must_use]
    pub fn exported(&self) -> Exported {
        self.exported.clone()
    }

    /// Hands these over, in their order.
    pub fn put(&mut self, mut items: Vec<Item>) {
        let unmade = self.unmade.load(Relaxed);
        if unmade > 0 && unmade + items.len() > UNMADE {
            let before = items.len();
            // What comes next needs the right GPUs, and when the trace began.
            items.retain(|item| !matches!(item, Item::New(_)));
            let dropped = (before - items.len()) as u64;
            if self.dropped == 0 && dropped > 0 {
                log::warn!(
                    "{}: too little time to make records: some are dropped, and counted",
                    self.delivery.shown()
                );
            }
            self.dropped += dropped;
            self.exported.drops(dropped);
        }
        if items.is_empty() {
            return;
        }
        if self.dropped > 0 {
            items.insert(0, Item::Dropped(std::mem::take(&mut self.dropped)));
        }
        self.unmade.fetch_add(items.len(), Relaxed);
        // The thread ends with this side; one that panicked has said so.
        if let Err(unsent) = self.items.send(items) {
            self.exported.drops(unsent.0.iter().filter(|item| matches!(item, Item::New(_))).count() as u64);
        }
    }

    /// Waits a little for the collector.
    pub fn finish(self) {
        let Feed { items, exported, delivery, done, .. } = self;
        drop(items);
        let _ = done.recv_timeout(LAST);
        let left = exported.figures().waiting;
        if left > 0 {
            log::warn!(
                "{}: {} not exported before the end",
                delivery.shown(),
                counted(left, "record was", "records were")
            );
        }
    }
}

/// Makes records, in a thread of its own.
struct Maker {
    received: Receiver<Vec<Item>>,
    unmade: Arc<AtomicUsize>,
    delivery: Arc<Delivery>,
}

impl Maker {
    fn run(&self) {
        let _seen = self.delivery.seen();
        let (mut encoder, mut filling) = (Encoder::default(), Filling::default());
        loop {
            match self.received.recv_timeout(filling.patience(Instant::now())) {
                Ok(items) => {
                    let (count, now_ns, now) = (items.len(), clock::unix_ns(), Instant::now());
                    for item in &items {
                        let records = encoder.encode(item, now_ns, &mut filling.batch.bytes);
                        filling.added(records, now);
                        self.send(filling.complete(now));
                    }
                    self.unmade.fetch_sub(count, Relaxed);
                }
                Err(RecvTimeoutError::Timeout) => self.send(filling.complete(Instant::now())),
                Err(RecvTimeoutError::Disconnected) => {
                    self.send(filling.take());
                    return self.delivery.end();
                }
            }
        }
    }

    fn send(&self, batch: Option<Batch>) {
        if let Some(batch) = batch {
            self.delivery.put(batch);
        }
    }
}
