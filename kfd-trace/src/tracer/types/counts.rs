//! What preemptions and runlists show of a scheduler's counts, before it is known that they are its counts.
//!
//! In: records, and whether the counts agree with the walk. Out: the records, without counts until they did once.

use crate::events::decode::Undecodable;
use crate::model::event::{Body, Event};
use std::thread::sleep;
use std::time::Duration;

/// A queue that was just created is in the driver's lists after some milliseconds.
const TRIES: u32 = 3;
const PAUSE: Duration = Duration::from_millis(20);

/// How often records may wait until a queue that was just created is in the driver's lists.
const WAITS: u32 = 8;

#[derive(Debug)]
pub(super) struct Counts {
    confirmed: bool,
    /// The waits of [`WAITS`] that are left.
    waits: u32,
}

impl Default for Counts {
    fn default() -> Self {
        Counts { confirmed: false, waits: WAITS }
    }
}

impl Counts {
    /// Asks whether they agree as long as they did not, if these records have any.
    pub(super) fn confirm(
        &mut self,
        records: &mut [Result<Event, Undecodable>],
        mut agree: impl FnMut() -> bool,
    ) {
        let has_counts = |event: &Event| matches!(event.body, Body::Preempt(_) | Body::Runlist(_));
        if self.confirmed || !records.iter().flatten().any(has_counts) {
            return;
        }
        self.confirmed = agree();
        if !self.confirmed && self.waits > 0 {
            self.waits -= 1;
            self.confirmed = (1..TRIES).any(|_| {
                sleep(PAUSE);
                agree()
            });
        }
        if !self.confirmed {
            records.iter_mut().flatten().for_each(|event| forget(&mut event.body));
        }
    }
}

fn forget(body: &mut Body) {
    match body {
        Body::Preempt(preemption) => preemption.oversubscribed = None,
        Body::Runlist(list) => {
            (list.processes, list.queues, list.cp_queues) = (None, None, None);
            list.oversubscribed = None;
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::runlist::samples::{list, preemption};
    use crate::state::samples::event;

    fn records() -> Vec<Result<Event, Undecodable>> {
        let record = |body| Ok(event(1, 1, 700, body));
        vec![record(Body::Preempt(preemption())), record(Body::Runlist(list())), record(Body::Close)]
    }

    #[test]
    fn counts_that_nothing_confirmed_are_unknown() {
        let mut shown = records();
        Counts::default().confirm(&mut shown, || false);
        let Ok(Event { body: Body::Preempt(preempted), .. }) = &shown[0] else { panic!("{shown:?}") };
        assert_eq!((preempted.oversubscribed, preempted.latency_ns), (None, preemption().latency_ns));
        let Ok(Event { body: Body::Runlist(listed), .. }) = &shown[1] else { panic!("{shown:?}") };
        assert_eq!((listed.processes, listed.queues, listed.cp_queues), (None, None, None));
        assert_eq!((listed.oversubscribed, listed.reason), (None, list().reason));
        assert_eq!(shown[2], records()[2]);
    }

    #[test]
    fn counts_that_agreed_once_are_shown() {
        let (mut counts, mut shown) = (Counts::default(), records());
        counts.confirm(&mut records()[2..], || panic!("there are none"));
        let mut asked = 0;
        counts.confirm(&mut shown, || {
            asked += 1;
            asked > 1
        });
        assert_eq!((&shown, asked), (&records(), 2), "a queue may not be in the lists at once");
        counts.confirm(&mut shown, || panic!("they are known"));
        assert_eq!(shown, records());
    }

    #[test]
    fn records_do_not_wait_for_ever() {
        let mut counts = Counts { waits: 0, ..Counts::default() };
        let mut asked = 0;
        counts.confirm(&mut records(), || {
            asked += 1;
            false
        });
        assert_eq!(asked, 1);
    }
}
