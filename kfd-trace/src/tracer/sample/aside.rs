//! Which processes are not read now, since reading their memory blocks: each is left to its thread, and the others go on.
//!
//! In: which process blocks since when, the end of that, and the current time. Out: whether a process is read.
//! Pure.

use super::tenant::Tenant;
use crate::state::{ProcessKey, Target};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Threads that wait for the memory of one process each. A page of a FUSE file system, or of an NFS server that is gone, as the
/// pointer of a queue is enough. A thread that waits costs some 20 KiB.
pub(super) const MOST: usize = 64;

/// So many may wait for processes of one tenant: the tenant's others are not read then.
const MOST_OF_TENANT: usize = 4;

/// How long a process is not read after it has blocked once; twice as long each further time.
const PAUSE: Duration = Duration::from_secs(30);
const LONGEST_PAUSE: Duration = Duration::from_hours(1);

/// Processes that are set aside.
#[derive(Debug, Default)]
pub(super) struct Aside(BTreeMap<ProcessKey, Blocking>);

#[derive(Debug)]
struct Blocking {
    tenant: Tenant,
    /// How often it has blocked.
    times: u32,
    /// When it is read again; `None` while a thread waits.
    until: Option<Instant>,
}

impl Aside {
    /// A thread waits for the memory of this process, and is left alone.
    pub(super) fn put(&mut self, target: &Target) {
        let one = self.0.entry(target.key).or_insert_with(|| Blocking {
            tenant: Tenant::of(target),
            times: 0,
            until: None,
        });
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
        let is_aside = |one: &Blocking| one.until.is_none_or(|until| now < until);
        if self.0.get(&target.key).is_some_and(is_aside) {
            return true;
        }
        let waiting = || self.0.values().filter(|one| one.until.is_none());
        if waiting().count() < MOST_OF_TENANT {
            return false;
        }
        let tenant = Tenant::of(target);
        waiting().filter(|one| one.tenant == tenant).count() >= MOST_OF_TENANT
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
    use super::super::samples::target;
    use super::*;
    use crate::model::event::ProcessId;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_process_that_blocks_is_left_alone_and_read_again_after_a_pause_that_grows() {
        let (mut aside, now, one) = (Aside::default(), Instant::now(), target(1, 1000));
        assert!(!aside.has(&one, now));
        let mut at = now;
        for pause in [PAUSE, 2 * PAUSE, 4 * PAUSE] {
            aside.put(&one);
            assert!(aside.has(&one, at + LONGEST_PAUSE * 100), "as long as its thread waits");
            aside.returned(one.key, at);
            assert!(aside.has(&one, at + pause - SECOND) && !aside.has(&one, at + pause));
            at += pause;
        }
        (0..40).for_each(|_| aside.put(&one));
        aside.returned(one.key, at);
        assert!(!aside.has(&one, at + LONGEST_PAUSE), "never for longer");
        assert!(!aside.has(&target(2, 1000), at), "another process of the user is read");
    }

    #[test]
    fn one_tenant_takes_few_threads() {
        let (mut aside, now) = (Aside::default(), Instant::now());
        let most = u64::try_from(MOST_OF_TENANT).expect("few");
        (1..=most).for_each(|process| aside.put(&target(process, 1000)));
        assert!(aside.has(&target(99, 1000), now), "the tenant's others");
        assert!(!aside.has(&target(99, 1001), now), "another user's");
        let unknown = Target { uid: None, ..target(99, 0) };
        assert!(!aside.has(&unknown, now));
        aside.returned(ProcessId(1).into(), now);
        assert!(!aside.has(&target(99, 1000), now));
    }

    #[test]
    fn a_pod_takes_no_threads_of_another_ones_that_has_its_user() {
        let (mut aside, now) = (Aside::default(), Instant::now());
        let of_pod = |process, last, container| {
            let pod = format!("/kubepods/pod6d1f4a3c-0b7e-4d8a-9c11-5e2f7a90b3c{last}/{container}");
            Target { cgroup: Some(pod), ..target(process, 0) }
        };
        (1..=4).for_each(|process| aside.put(&of_pod(process, 1, process)));
        assert!(aside.has(&of_pod(99, 1, 99), now), "a further container of the pod");
        assert!(!aside.has(&of_pod(99, 2, 1), now), "another pod of root");
        assert!(!aside.has(&target(99, 0), now), "root outside of pods");
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
        aside.keep(std::slice::from_ref(&one), now + 8 * PAUSE + SECOND);
        assert_eq!(aside.0.len(), 0);
    }
}
