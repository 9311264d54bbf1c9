//! Limits the number of connections. When all are in use, a new connection replaces the one that has been
//! idle for longest, so that clients that only connect, or do not read their responses, keep no others out. A
//! new connection is left some time to make a request: else a crowd that arrives at once would replace each
//! other, and no client would be answered.

use super::tally::{WebEvent, WebTally};
use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, timeout_at};

/// How long a client waits for a connection before those after it have their turn: usually as long as a
/// scrape waits for a response.
const TIMEOUT: Duration = Duration::from_secs(10);

pub(super) struct Connections {
    limit: usize,
    /// Time to make a request, from the start of the connection.
    fresh: Duration,
    tally: Arc<WebTally>,
    table: Mutex<OpenConnections>,
    /// Notified when a connection ends or becomes idle.
    freed: Notify,
}

#[derive(Default)]
struct OpenConnections {
    /// A count of events: the lower, the longer ago.
    clock: u64,
    taken: BTreeMap<u64, Open>,
}

struct Open {
    /// By `clock`, when it last became idle.
    since: u64,
    /// Until then it is kept although it is idle; none once it was answered.
    fresh_until: Option<Instant>,
    /// Requests in progress.
    at_work: usize,
    /// Dropped to close the connection.
    _stay: oneshot::Sender<()>,
}

/// A connection's slot, and a receiver that ends when the slot is given to another connection.
type Admitted = (Connection, oneshot::Receiver<()>);

/// All slots are in use; the first is available at this time, if nothing happens before. Unknown if all have
/// requests in progress.
struct Full(Option<Instant>);

impl OpenConnections {
    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// The connection whose slot a new one gets.
    fn idle_for_longest(&self, now: Instant) -> Result<u64, Full> {
        let idle = self.taken.iter().filter(|(_, taken)| taken.at_work == 0);
        let old = idle.clone().filter(|(_, taken)| taken.fresh_until.is_none_or(|until| until <= now));
        let oldest = old.min_by_key(|(_, taken)| taken.since).map(|(&id, _)| id);
        oldest.ok_or_else(|| Full(idle.filter_map(|(_, taken)| taken.fresh_until).min()))
    }
}

/// The slot of one connection, until it is dropped.
#[derive(Clone)]
pub(super) struct Connection(Arc<Held>);

struct Held {
    connections: Arc<Connections>,
    id: u64,
}

impl Connections {
    pub(super) fn new(limit: usize, fresh: Duration, tally: Arc<WebTally>) -> Arc<Self> {
        Arc::new(Connections { limit, fresh, tally, table: Mutex::default(), freed: Notify::new() })
    }

    fn table(&self) -> MutexGuard<'_, OpenConnections> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next available slot. `None` if none was available for [`TIMEOUT`].
    pub(super) async fn take(self: &Arc<Self>) -> Option<Admitted> {
        let limit = Instant::now() + TIMEOUT;
        loop {
            let mut freed = pin!(self.freed.notified());
            // From here on no notification is missed.
            freed.as_mut().enable();
            let now = Instant::now();
            let next = match self.try_take(now) {
                Ok(given) => return Some(given),
                Err(Full(next)) => next.map_or(limit, |next| next.min(limit)),
            };
            if now >= limit {
                self.tally.count(WebEvent::Refused);
                return None;
            }
            // Either way, check again.
            let _ = timeout_at(next, freed).await;
        }
    }

    fn try_take(self: &Arc<Self>, now: Instant) -> Result<Admitted, Full> {
        let mut table = self.table();
        if table.taken.len() >= self.limit {
            let id = table.idle_for_longest(now)?;
            self.tally.count(WebEvent::MadeRoom);
            table.taken.remove(&id);
        }
        let id = table.tick();
        let (stay, leave) = oneshot::channel();
        let fresh_until = Some(now + self.fresh);
        table.taken.insert(id, Open { since: id, fresh_until, at_work: 0, _stay: stay });
        Ok((Connection(Arc::new(Held { connections: Arc::clone(self), id })), leave))
    }
}

impl Connection {
    /// The connection is not closed for others until the returned value is dropped.
    pub(super) fn work(&self) -> OpenRequest {
        if let Some(taken) = self.0.connections.table().taken.get_mut(&self.0.id) {
            taken.at_work += 1;
        }
        OpenRequest(Arc::clone(&self.0))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.connections.table().taken.remove(&self.id);
        self.connections.freed.notify_waiters();
    }
}

/// A request in progress.
pub(super) struct OpenRequest(Arc<Held>);

impl Drop for OpenRequest {
    fn drop(&mut self) {
        let mut table = self.0.connections.table();
        let now = table.tick();
        if let Some(taken) = table.taken.get_mut(&self.0.id) {
            taken.at_work -= 1;
            taken.since = now;
            taken.fresh_until = None;
        }
        drop(table);
        self.0.connections.freed.notify_waiters();
    }
}

#[cfg(test)]
mod tests;
