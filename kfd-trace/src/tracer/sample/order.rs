//! In which order the processes of a sample are read, and how long that may take: who answers slowly delays the others
//! little.
//!
//! In: the processes, and how long reading each has taken. Out: which one is read next, how long that may take, and which are
//! left out of this sample. Pure.

use super::tenant::Tenant;
use crate::state::{ProcessKey, Target};
use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// What slow readings may take of one sample altogether; after that the rest is left out of it.
const LONGEST: Duration = Duration::from_secs(4);

/// What the reading of one process may take at the begin of a sample: less, the more slow readings have taken.
pub(super) const PATIENCE: Duration = Duration::from_secs(1);

/// It may always take this: a page is read from a swap device, or the address space is locked.
const LEAST: Duration = Duration::from_millis(100);

/// A faster reading is not slow: it takes some 10 us a queue, and less than 100 us to open the memory.
const SLOW: Duration = Duration::from_millis(1);

/// The order of one sample, and what it learned from earlier ones.
#[derive(Debug, Default)]
pub(super) struct Order {
    rest: VecDeque<Target>,
    /// Who was slow.
    tenants: BTreeMap<Tenant, Slow>,
    /// What they spent together.
    slow: Duration,
    /// What was left out of this sample, and of how many before it.
    left_out: BTreeMap<ProcessKey, u32>,
    /// What was left out of the last sample, likewise.
    left_out_before: BTreeMap<ProcessKey, u32>,
    /// Tenants that are to be reported.
    unreported: Vec<Tenant>,
}

#[derive(Debug, Default)]
struct Slow {
    /// What its slow readings took of this sample, with half of what it had taken before.
    spent: Duration,
    is_reported: bool,
}

impl Order {
    /// Begins a sample. Who was slow is read last, so that it delays no other one; first of each tenant what was left out
    /// most often in a row.
    pub(super) fn begin(&mut self, mut targets: Vec<Target>) {
        self.tenants.retain(|_, slow| {
            slow.spent /= 2;
            slow.spent >= SLOW / 100
        });
        self.slow = self.tenants.values().map(|slow| slow.spent).sum();
        self.left_out_before = std::mem::take(&mut self.left_out);
        if !self.tenants.is_empty() || !self.left_out_before.is_empty() {
            targets.sort_by_cached_key(|target| {
                (self.spent(&Tenant::of(target)), Reverse(self.left_out_before.get(&target.key)))
            });
        }
        self.rest = targets.into();
    }

    /// Which one is read now; `None` at the end. What is left out for want of time is added to `late`.
    pub(super) fn next(&mut self, late: &mut Vec<Target>) -> Option<Target> {
        if self.slow >= LONGEST && !self.rest.is_empty() {
            let slowest =
                self.tenants.iter().max_by_key(|(_, slow)| slow.spent).map(|(tenant, _)| tenant.clone());
            slowest.into_iter().for_each(|tenant| self.is_slow(tenant));
            let rest = std::mem::take(&mut self.rest);
            rest.into_iter().for_each(|target| self.leave_out(target, late));
        }
        loop {
            let target = self.rest.pop_front()?;
            // So that it costs nothing if no reading is slow.
            let tenant = (!self.tenants.is_empty()).then(|| Tenant::of(&target));
            // A tenant has what two processes may take: if one blocks, the others are still read.
            let Some(tenant) = tenant.filter(|tenant| self.spent(tenant) >= 2 * self.patience()) else {
                return Some(target);
            };
            self.is_slow(tenant);
            self.leave_out(target, late);
        }
    }

    fn leave_out(&mut self, target: Target, late: &mut Vec<Target>) {
        let before = self.left_out_before.get(&target.key).copied().unwrap_or_default();
        self.left_out.insert(target.key, before.saturating_add(1));
        late.push(target);
    }

    /// Others are left out because of this one.
    fn is_slow(&mut self, tenant: Tenant) {
        if let Some(one) = self.tenants.get_mut(&tenant).filter(|one| !one.is_reported) {
            one.is_reported = true;
            self.unreported.push(tenant);
        }
    }

    /// What reading one process may take now.
    pub(super) fn patience(&self) -> Duration {
        (LONGEST.saturating_sub(self.slow) / 4).clamp(LEAST, PATIENCE)
    }

    /// Reading this one took so long, or has until it was given up. How much later that was noticed is not its doing.
    pub(super) fn took(&mut self, target: &Target, took: Duration) {
        let took = took.min(PATIENCE);
        if took >= SLOW {
            self.tenants.entry(Tenant::of(target)).or_default().spent += took;
            self.slow += took;
        }
    }

    /// Takes out what is not to be read any more.
    pub(super) fn take(&mut self, is_out: impl Fn(&Target) -> bool) -> Vec<Target> {
        let (out, rest): (Vec<_>, Vec<_>) = self.rest.drain(..).partition(is_out);
        self.rest = rest.into();
        out
    }

    /// The tenants of which processes were left out, each once until it has been quick for a while.
    pub(super) fn report(&mut self) -> Vec<Tenant> {
        std::mem::take(&mut self.unreported)
    }

    fn spent(&self, tenant: &Tenant) -> Duration {
        self.tenants.get(tenant).map_or(Duration::ZERO, |slow| slow.spent)
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples::target;
    use super::*;
    use std::collections::BTreeSet;

    const MS: Duration = Duration::from_millis(1);

    /// A sample in which reading each process takes what `takes` says: who was read when, in the order of time, who was left
    /// out, and what it took.
    fn pass(
        order: &mut Order,
        targets: &[Target],
        takes: impl Fn(&Target, Duration) -> Duration,
    ) -> (Vec<(u32, Duration)>, usize, Duration) {
        order.begin(targets.to_vec());
        let (mut read, mut late, mut now) = (Vec::new(), Vec::new(), Duration::ZERO);
        while let Some(target) = order.next(&mut late) {
            let took = takes(&target, order.patience());
            order.took(&target, took);
            now += took;
            read.push((target.uid.expect("a user"), now));
        }
        (read, late.len(), now)
    }

    /// Processes of user 0, which answer just before they would be set aside, then some of others.
    fn crowd() -> Vec<Target> {
        (0..100)
            .map(|process| target(process, 0))
            .chain((100..110).map(|process| target(process, 1000)))
            .collect()
    }

    fn just_in_time(target: &Target, patience: Duration) -> Duration {
        if target.uid == Some(0) { patience - MS } else { MS / 100 }
    }

    #[test]
    fn a_tenant_that_answers_just_in_time_delays_the_others_once_and_for_its_part() {
        let (mut order, all) = (Order::default(), crowd());
        let (read, left_out, took) = pass(&mut order, &all, just_in_time);
        assert!(took < 2 * PATIENCE, "{took:?}");
        assert_eq!(read.iter().filter(|(uid, _)| *uid == 1000).count(), 10);
        assert_eq!(left_out + read.len(), all.len(), "{left_out}");
        assert_eq!(order.report().iter().map(Tenant::to_string).collect::<Vec<_>>(), ["user 0"]);
        for _ in 0..20 {
            let (read, _, took) = pass(&mut order, &all, just_in_time);
            assert!(
                read[..10].iter().all(|(uid, at)| *uid == 1000 && *at < MS),
                "they are read first: {read:?}"
            );
            assert!(took < PATIENCE && read.len() > 10, "{took:?}");
        }
        assert_eq!(order.report().len(), 0, "it is known");
        for _ in 0..20 {
            pass(&mut order, &all, |_, _| MS / 100);
        }
        let (read, left_out, _) = pass(&mut order, &all, |_, _| MS / 100);
        assert_eq!((read[0].0, left_out), (0, 0), "it is forgiven");
    }

    #[test]
    fn one_answer_that_came_very_late_leaves_out_nobody_next_time() {
        let mut order = Order::default();
        let all = [target(1, 0), target(2, 1000)];
        pass(&mut order, &all, |target, _| if target.uid == Some(0) { 3_600_000 * MS } else { MS / 100 });
        let (read, left_out, _) = pass(&mut order, &all, |_, _| MS / 100);
        assert_eq!((read.len(), left_out), (2, 0));
    }

    #[test]
    fn what_was_left_out_is_read_next_time() {
        let (mut order, mut seen) = (Order::default(), BTreeSet::new());
        let all: Vec<Target> = (0..20).map(|process| target(process, 0)).collect();
        for _ in 0..20 {
            order.begin(all.clone());
            let mut late = Vec::new();
            while let Some(target) = order.next(&mut late) {
                order.took(&target, 300 * MS);
                seen.insert(target.key);
            }
            assert!(!late.is_empty());
        }
        assert_eq!(seen.len(), all.len());
    }

    #[test]
    fn many_tenants_together_have_a_bounded_time_and_who_was_quick_goes_first() {
        let mut all: Vec<Target> = (0..100).map(|process| target(process, 2000)).collect();
        for (target, uid) in all.iter_mut().zip(0..) {
            target.uid = Some(uid);
        }
        all.push(target(100, 1000));
        let takes = |target: &Target, patience| if target.uid < Some(100) { patience } else { MS / 100 };
        let mut order = Order::default();
        let (_, left_out, took) = pass(&mut order, &all, takes);
        assert!(took < LONGEST + PATIENCE && left_out > 0, "{took:?}");
        assert!(!order.report().is_empty(), "who took the time is named");
        let goes_first = |order: &mut Order| pass(order, &all, takes).0[0].0 == 1000;
        assert!((0..100).any(|_| goes_first(&mut order)), "once all others are known");
        for _ in 0..20 {
            let (read, _, took) = pass(&mut order, &all, takes);
            assert!(read[0].0 == 1000 && took <= LONGEST, "{took:?} {read:?}");
        }
    }

    #[test]
    fn patience_shrinks_with_what_slow_readings_took_and_never_to_nothing() {
        let mut order = Order::default();
        assert_eq!(order.patience(), PATIENCE);
        let mut before = PATIENCE + MS;
        for process in 0..7 {
            assert!(order.patience() < before);
            before = order.patience();
            order.took(&target(process, 7), 500 * MS);
        }
        order.took(&target(8, 8), 5 * PATIENCE);
        assert_eq!(order.patience(), LEAST);
        let mut quick = Order::default();
        (0..100_000).for_each(|process| quick.took(&target(process, 7), MS / 2));
        assert_eq!(quick.patience(), PATIENCE, "many processes are not slow ones");
    }
}
