//! Limits the number of connections. When all are in use, a new connection replaces the one that has been
//! idle for longest, so that clients that only connect, or do not read their responses, keep no others out. A
//! new connection is left some time to make a request: else a crowd that arrives at once would replace each
//! other, and no client would be answered. An address that has more than its share loses its own connections
//! first, new ones included: else it would keep all others waiting by connecting often enough.

use super::tally::{WebEvent, WebTally};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, Semaphore, oneshot};
use tokio::time::{Instant, timeout_at};

/// How long a client waits for a connection before those after it have their turn: usually as long as a
/// scrape waits for a response.
const TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Clone, Copy)]
struct Limits {
    all: usize,
    /// A client that has more than these loses its own first.
    share: usize,
    /// Time to make a request, from the start of the connection.
    fresh: Duration,
    /// The same, of a client with more than its share: a handshake over a network.
    brief: Duration,
}

pub(super) struct Connections {
    limits: Limits,
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
    client: Client,
    turn: Arc<Semaphore>,
    /// By `clock`, when it last became idle.
    since: u64,
    came: Instant,
    answered: bool,
    /// Requests in progress.
    at_work: usize,
    /// Dropped to close the connection.
    _stay: oneshot::Sender<()>,
}

/// Where connections come from: an IPv4 address, or a network of IPv6, whose addresses one client may all have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Client(IpAddr);

impl From<IpAddr> for Client {
    fn from(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V6(address) => {
                let [a, b, c, d, ..] = address.segments();
                Client(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into())
            }
            address => Client(address),
        }
    }
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

    /// The connection whose slot a new one gets: the one that was idle for longest, of the crowd if there is one. A
    /// crowd that has none idle loses one with a request.
    fn makes_room(&self, limits: Limits, now: Instant) -> Result<u64, Full> {
        let Some(crowd) = self.crowd(limits.share) else { return self.oldest(limits.fresh, now, |_| true) };
        let of_crowd = self.oldest(limits.brief, now, |taken| taken.client == crowd);
        of_crowd.or_else(|full| {
            let all = self.taken.iter().filter(|(_, taken)| taken.client == crowd);
            let oldest = all.min_by_key(|(_, taken)| taken.since).map(|(&id, _)| id);
            // Where some are idle, they are too new.
            if full.0.is_some() { Err(full) } else { oldest.ok_or(full) }
        })
    }

    /// Of the idle ones that count, and had their time to make a request.
    fn oldest(&self, fresh: Duration, now: Instant, counts: impl Fn(&Open) -> bool) -> Result<u64, Full> {
        let idle = || self.taken.iter().filter(|(_, taken)| taken.at_work == 0 && counts(taken));
        let old = idle().filter(|(_, taken)| taken.kept_until(fresh).is_none_or(|until| until <= now));
        let oldest = old.min_by_key(|(_, taken)| taken.since).map(|(&id, _)| id);
        oldest.ok_or_else(|| Full(idle().filter_map(|(_, taken)| taken.kept_until(fresh)).min()))
    }

    /// The client that has most connections, if these are more than its share.
    fn crowd(&self, share: usize) -> Option<Client> {
        let mut held: BTreeMap<Client, usize> = BTreeMap::new();
        self.taken.values().for_each(|taken| *held.entry(taken.client).or_default() += 1);
        let crowds = held.into_iter().filter(|(_, count)| *count > share);
        crowds.max_by_key(|(_, count)| *count).map(|(client, _)| client)
    }
}

impl Open {
    /// Until when it is kept although it is idle; none once it was answered. `fresh`: the time to make a request.
    fn kept_until(&self, fresh: Duration) -> Option<Instant> {
        (!self.answered).then(|| self.came + fresh)
    }
}

/// The slot of one connection, until it is dropped.
#[derive(Clone)]
pub(super) struct Connection(Arc<Held>);

struct Held {
    connections: Arc<Connections>,
    id: u64,
    turn: Arc<Semaphore>,
}

impl Connections {
    pub(super) fn new(limit: usize, fresh: Duration, tally: Arc<WebTally>) -> Arc<Self> {
        let limits = Limits { all: limit, share: (limit / 4).max(1), fresh, brief: fresh / 20 };
        Arc::new(Connections { limits, tally, table: Mutex::default(), freed: Notify::new() })
    }

    fn table(&self) -> MutexGuard<'_, OpenConnections> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next available slot. `None` if none was available for [`TIMEOUT`].
    pub(super) async fn take(self: &Arc<Self>, from: IpAddr) -> Option<Admitted> {
        let limit = Instant::now() + TIMEOUT;
        loop {
            let mut freed = pin!(self.freed.notified());
            // From here on no notification is missed.
            freed.as_mut().enable();
            let now = Instant::now();
            let next = match self.try_take(from.into(), now) {
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

    /// Closes the connection that has been idle for longest, where there are no descriptors left: as at the limit. `false`: none
    /// may be closed now.
    pub(super) fn make_room(&self) -> bool {
        let mut table = self.table();
        let Ok(id) = table.makes_room(self.limits, Instant::now()) else { return false };
        self.tally.count(WebEvent::MadeRoom);
        table.taken.remove(&id).is_some()
    }

    fn try_take(self: &Arc<Self>, client: Client, now: Instant) -> Result<Admitted, Full> {
        let mut table = self.table();
        if table.taken.len() >= self.limits.all {
            let id = table.makes_room(self.limits, now)?;
            self.tally.count(WebEvent::MadeRoom);
            table.taken.remove(&id);
        }
        let id = table.tick();
        let (stay, leave) = oneshot::channel();
        let same = table.taken.values().find(|taken| taken.client == client);
        let turn = same.map_or_else(|| Arc::new(Semaphore::new(1)), |taken| Arc::clone(&taken.turn));
        let open = Open {
            client,
            turn: turn.clone(),
            since: id,
            came: now,
            answered: false,
            at_work: 0,
            _stay: stay,
        };
        table.taken.insert(id, open);
        Ok((Connection(Arc::new(Held { connections: Arc::clone(self), id, turn })), leave))
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

    /// One request at a time of each client: for what takes a CPU before it is known who asks.
    pub(super) fn turn(&self) -> &Arc<Semaphore> {
        &self.0.turn
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
            taken.answered = true;
        }
        drop(table);
        self.0.connections.freed.notify_waiters();
    }
}

#[cfg(test)]
mod tests;
