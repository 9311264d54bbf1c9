//! Reader of the ring buffer.

use super::decode::{Maker, Undecodable, decode};
use crate::model::event::Event;
use aya::maps::{MapData, RingBuf};
use std::io;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Records read at once before other tasks get to run.
const BATCH: usize = 4096;

/// Reader of the ring buffer.
pub struct Ring {
    ring: AsyncFd<RingBuf<MapData>>,
    maker: Maker,
}

impl Ring {
    /// Takes over the map; `maker` is the kernel that fills it.
    ///
    /// # Errors
    /// When the descriptor cannot be registered with the runtime.
    pub fn new(ring: RingBuf<MapData>, maker: Maker) -> io::Result<Self> {
        // SAFETY: the map owns its descriptor and keeps it open until it is dropped with this reader.
        let ring =
            unsafe { AsyncFd::register_with_interest(ring, Interest::READABLE) }.map_err(io::Error::from)?;
        Ok(Ring { ring, maker })
    }

    /// Waits for records and appends a batch of them.
    ///
    /// # Errors
    /// When waiting fails; never because of a record.
    pub async fn read(&mut self, out: &mut Vec<Result<Event, Undecodable>>) -> io::Result<()> {
        let mut ready = self.ring.readable_mut().await?;
        let ring = ready.get_inner_mut();
        let mut taken = 0;
        while taken < BATCH {
            let Some(record) = ring.next() else {
                ready.clear_ready();
                return Ok(());
            };
            out.push(decode(&record, &self.maker));
            taken += 1;
        }
        // More records may be pending: the descriptor stays marked as readable.
        Ok(())
    }

    /// Reads all pending records without waiting.
    pub fn drain(&mut self, out: &mut Vec<Result<Event, Undecodable>>) {
        while let Some(record) = self.ring.get_mut().next() {
            out.push(decode(&record, &self.maker));
        }
    }
}

/// Forwards log lines of the BPF side (debug builds) to the program's own log, until the task is dropped.
///
/// # Errors
/// When the descriptor cannot be registered with the runtime.
#[cfg(debug_assertions)]
pub async fn follow_log(logger: aya_log::EbpfLogger<&'static dyn log::Log>) -> io::Result<()> {
    // SAFETY: the logger owns its map, which keeps its descriptor open.
    let logger = unsafe { AsyncFd::register_with_interest(logger, Interest::READABLE) };
    let mut logger = logger.map_err(io::Error::from)?;
    loop {
        let mut ready = logger.readable_mut().await?;
        ready.get_inner_mut().flush();
        ready.clear_ready();
    }
}
