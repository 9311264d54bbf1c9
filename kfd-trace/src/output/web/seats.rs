//! How many connections there may be. One that comes when all seats are taken gets the seat of the one that has been idle for
//! longest, so that those who only connect, or do not read their answers, keep nobody out.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use super::tally::{Event, Tally};

pub(super) struct Seats {
    limit: usize,
    tally: Arc<Tally>,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    /// Counts what happens: the lower, the longer ago.
    clock: u64,
    taken: BTreeMap<u64, Taken>,
}

struct Taken {
    /// By the clock, when it last became idle.
    since: u64,
    /// Requests that are being answered.
    at_work: usize,
    /// Dropped to send it away.
    _stay: oneshot::Sender<()>,
}

impl Table {
    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }
}

/// Of one connection, until it is dropped.
#[derive(Clone)]
pub(super) struct Seat(Arc<Place>);

struct Place {
    seats: Arc<Seats>,
    id: u64,
}

impl Seats {
    pub(super) fn new(limit: usize, tally: Arc<Tally>) -> Arc<Self> {
        Arc::new(Seats { limit, tally, table: Mutex::default() })
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A seat, and what ends when it is given to somebody else. `None` where all that have one are being answered.
    pub(super) fn take(self: &Arc<Self>) -> Option<(Seat, oneshot::Receiver<()>)> {
        let mut table = self.table();
        if table.taken.len() >= self.limit {
            let idle = table.taken.iter().filter(|(_, taken)| taken.at_work == 0);
            let Some((&id, _)) = idle.min_by_key(|(_, taken)| taken.since) else {
                self.tally.count(Event::Refused);
                return None;
            };
            self.tally.count(Event::MadeRoom);
            table.taken.remove(&id);
        }
        let id = table.tick();
        let (stay, leave) = oneshot::channel();
        table.taken.insert(id, Taken { since: id, at_work: 0, _stay: stay });
        Some((Seat(Arc::new(Place { seats: Arc::clone(self), id })), leave))
    }
}

impl Seat {
    /// It is not sent away until what this gives is dropped.
    pub(super) fn work(&self) -> Work {
        if let Some(taken) = self.0.seats.table().taken.get_mut(&self.0.id) {
            taken.at_work += 1;
        }
        Work(Arc::clone(&self.0))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.seats.table().taken.remove(&self.id);
    }
}

/// A request that is being answered.
pub(super) struct Work(Arc<Place>);

impl Drop for Work {
    fn drop(&mut self) {
        let mut table = self.0.seats.table();
        let now = table.tick();
        if let Some(taken) = table.taken.get_mut(&self.0.id) {
            taken.at_work -= 1;
            taken.since = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::oneshot::error::TryRecvError;

    fn stays(leave: &mut oneshot::Receiver<()>) -> bool {
        leave.try_recv() == Err(TryRecvError::Empty)
    }

    #[test]
    fn who_was_idle_for_longest_makes_room() {
        let tally = Arc::new(Tally::default());
        let seats = Seats::new(2, Arc::clone(&tally));
        let (first, mut first_leaves) = seats.take().unwrap();
        let (_second, mut second_leaves) = seats.take().unwrap();
        drop(first.work());
        let (_third, mut third_leaves) = seats.take().unwrap();
        assert!(stays(&mut first_leaves) && !stays(&mut second_leaves) && stays(&mut third_leaves));
        assert_eq!(tally.counts()[Event::MadeRoom as usize], 1);
    }

    #[test]
    fn who_is_being_answered_keeps_the_seat() {
        let tally = Arc::new(Tally::default());
        let seats = Seats::new(2, Arc::clone(&tally));
        let (first, mut first_leaves) = seats.take().unwrap();
        let work = (first.work(), first.work());
        let (second, mut second_leaves) = seats.take().unwrap();
        drop(work.0);
        let (third, _third_leaves) = seats.take().unwrap();
        assert!(stays(&mut first_leaves) && !stays(&mut second_leaves));
        let _third_works = third.work();
        assert!(seats.take().is_none());
        assert_eq!(tally.counts()[Event::Refused as usize], 1);
        // The one that was sent away gives no seat free a second time.
        drop(second);
        assert!(seats.take().is_none());
        drop((work.1, first));
        assert!(seats.take().is_some());
    }
}
