//! Which processes are not read now, since reading their memory blocks: each is left to its thread, and the others go on.
//!
//! In: which process blocks since when, the end of that, and the current time. Out: whether a process is read, and
//! whether another thread may go on. Pure.

use crate::state::{ProcessKey, Target};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// A process whose memory blocks its reader for longer is set aside. One tenant is enough: a page of a FUSE file system, or
/// of an NFS server that is gone, as the pointer of a queue.
pub(super) const PATIENCE: Duration = Duration::from_secs(1);

/// Threads that wait for the memory of one process each. A thread that waits costs some 20 KiB.
const MOST: usize = 64;

/// Of these, those that wait for processes of one user: the user's others are not read then.
const MOST_OF_USER: usize = 4;

/// How long a process is not read after it has blocked once; twice as long each further time.
const PAUSE: Duration = Duration::from_secs(30);
const LONGEST_PAUSE: Duration = Duration::from_hours(1);

/// Processes that are set aside.
#[derive(Debug, Default)]
pub(super) struct Aside(BTreeMap<ProcessKey, Blocking>);

#[derive(Debug)]
struct Blocking {
    uid: Option<u32>,
    /// How often it has blocked.
    times: u32,
    /// When it is read again; `None` while a thread waits.
    until: Option<Instant>,
}

impl Aside {
    /// Another thread may go on beside those that wait.
    pub(super) fn has_room(&self) -> bool {
        self.waiting() < MOST
    }

    /// Threads that wait.
    pub(super) fn waiting(&self) -> usize {
        self.0.values().filter(|one| one.until.is_none()).count()
    }

    /// A thread waits for the memory of this process, and is left alone.
    pub(super) fn put(&mut self, target: &Target) {
        let one = self.0.entry(target.key).or_insert(Blocking { uid: target.uid, times: 0, until: None });
        one.times += 1;
        one.until = None;
    }

    /// The thread waits no longer.
    pub(super) fn returned(&mut self, key: ProcessKey, now: Instant) {
        if let Some(one) = self.0.get_mut(&key) {
            one.until = Some(now + one.pause());
        }
    }

    /// Whether a process is not read now.
    pub(super) fn has(&self, target: &Target, now: Instant) -> bool {
        let of_user = |one: &&Blocking| one.until.is_none() && one.uid.is_some() && one.uid == target.uid;
        self.0.get(&target.key).is_some_and(|one| one.until.is_none_or(|until| now < until))
            || self.0.values().filter(of_user).count() >= MOST_OF_USER
    }

    /// Forgets processes that have no queues any more, or have been read for as long as they were left alone before, unless
    /// a thread waits.
    pub(super) fn keep(&mut self, targets: &[Target], now: Instant) {
        self.0.retain(|key, one| {
            let is_forgiven = one.until.is_some_and(|until| now > until + one.pause());
            one.until.is_none() || !is_forgiven && targets.iter().any(|target| target.key == *key)
        });
    }
}

impl Blocking {
    fn pause(&self) -> Duration {
        PAUSE.saturating_mul(1 << (self.times - 1).min(16)).min(LONGEST_PAUSE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::event::ProcessId;

    fn target(process: u64, uid: u32) -> Target {
        let key = ProcessId(process).into();
        Target { key, tgid: 7, uid: Some(uid), start_boottime_ns: None, queues: Vec::new() }
    }

    #[test]
    fn a_process_that_blocks_is_left_alone_and_read_again_after_a_pause_that_grows() {
        let (mut aside, now, one) = (Aside::default(), Instant::now(), target(1, 1000));
        assert!(!aside.has(&one, now));
        let mut at = now;
        for pause in [PAUSE, 2 * PAUSE, 4 * PAUSE] {
            aside.put(&one);
            assert!(aside.has(&one, at + LONGEST_PAUSE * 100), "as long as its thread waits");
            assert_eq!(aside.waiting(), 1);
            aside.returned(one.key, at);
            assert_eq!(aside.waiting(), 0);
            assert!(aside.has(&one, at + pause - PATIENCE) && !aside.has(&one, at + pause));
            at += pause;
        }
        (0..40).for_each(|_| aside.put(&one));
        aside.returned(one.key, at);
        assert!(!aside.has(&one, at + LONGEST_PAUSE), "never for longer");
        assert!(!aside.has(&target(2, 1000), at), "another process of the user is read");
    }

    #[test]
    fn one_user_takes_few_threads_and_all_together_a_bounded_number() {
        let (mut aside, now) = (Aside::default(), Instant::now());
        let most = u64::try_from(MOST_OF_USER).expect("few");
        (1..=most).for_each(|process| aside.put(&target(process, 1000)));
        assert!(aside.has(&target(99, 1000), now), "the user's others");
        assert!(!aside.has(&target(99, 1001), now), "another user's");
        let unknown = Target { uid: None, ..target(99, 0) };
        assert!(!aside.has(&unknown, now));
        aside.returned(ProcessId(1).into(), now);
        assert!(!aside.has(&target(99, 1000), now));
        let all = u64::try_from(MOST).expect("few");
        (most + 1..=all)
            .for_each(|process| aside.put(&target(process, u32::try_from(process).expect("a uid"))));
        assert!(aside.has_room());
        aside.put(&target(all + 1, 9));
        assert!(!aside.has_room() && aside.waiting() == MOST);
    }

    #[test]
    fn what_has_ended_is_forgotten_unless_a_thread_waits() {
        let (mut aside, now) = (Aside::default(), Instant::now());
        [1, 2, 3].iter().for_each(|process| aside.put(&target(*process, 1000)));
        [1, 2].iter().for_each(|process| aside.returned(ProcessId(*process).into(), now));
        aside.keep(&[target(2, 1000)], now);
        assert_eq!(aside.0.len(), 2);
        assert!(!aside.has(&target(1, 1000), now) && aside.has(&target(2, 1000), now));
    }

    #[test]
    fn what_blocks_no_more_is_forgiven_after_a_pause_without_it() {
        let (mut aside, now, one) = (Aside::default(), Instant::now(), target(1, 1000));
        (0..3).for_each(|_| aside.put(&one));
        aside.returned(one.key, now);
        aside.keep(std::slice::from_ref(&one), now + 8 * PAUSE);
        assert_eq!(aside.0.len(), 1, "it was left alone for four pauses, and read for four");
        aside.keep(std::slice::from_ref(&one), now + 8 * PAUSE + PATIENCE);
        assert_eq!(aside.0.len(), 0);
    }
}
