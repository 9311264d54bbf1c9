//! Ioctls of all processes, including ended ones.

use super::family::{Family, number};
use super::scrape::Scrape;
use super::table as t;
use crate::events::tables::{InFlightRow, Tables};
use crate::model::ioctl::{self, Named, WAIT_EVENTS};
use crate::state::{IoctlSum, IoctlTotals};
use crate::text::errno;
use kfd_trace_common::counter::ProbeId;
use std::collections::BTreeMap;

/// Calls in flight of one ioctl: how many, and the entry of the oldest.
#[derive(Clone, Copy)]
struct InFlight {
    calls: usize,
    oldest_ns: u64,
}

pub(super) fn families(scrape: &Scrape<'_>) -> Vec<Family> {
    let Some(tables) = scrape.tables.filter(|_| scrape.sees(&[ProbeId::Ioctl])) else { return Vec::new() };
    let named = &scrape.named;
    let sums = scrape.retired.with(tables);
    let mut all = vec![calls(named, &sums), errors(named, &sums), not_measured(&sums)];
    if scrape.sees(&[ProbeId::IoctlReturn]) {
        all.extend(measured(scrape, tables, &sums));
        let waits = tables.whole_calls.then(|| waits(scrape, &tables.waits, &sums));
        all.extend(waits.into_iter().flatten());
    }
    all
}

/// Name and sum of every ioctl that the driver has or that was called: series start at 0.
fn each(named: &Named, sums: &IoctlTotals) -> BTreeMap<u8, (String, IoctlSum)> {
    let known = named.defs().map(|def| (def.nr, IoctlSum::default()));
    let called = sums.iter().map(|(nr, sum)| (nr, sum.clone()));
    known.chain(called).map(|(nr, sum)| (nr, (named.name(u32::from(nr)), sum))).collect()
}

fn calls(named: &Named, sums: &IoctlTotals) -> Family {
    let mut family = Family::new(&t::IOCTLS);
    for (name, sum) in each(named, sums).values() {
        family.add(&[name], sum.stat.entered);
    }
    family
}

fn errors(named: &Named, sums: &IoctlTotals) -> Family {
    let mut family = Family::new(&t::IOCTL_ERRORS);
    for (name, sum) in each(named, sums).values() {
        for (number, count) in &sum.errors {
            family.add(&[name, &errno::name(*number)], *count);
        }
    }
    family
}

fn not_measured(sums: &IoctlTotals) -> Family {
    let mut family = Family::new(&t::IOCTLS_NOT_MEASURED);
    family.add(&[&Named::default().name(u32::from(WAIT_EVENTS))], sums.not_measured());
    family
}

/// Families that need the returns. WAIT_EVENTS is in none that shows how long calls take: its sleepers wait, and those
/// of hours would hide a call that is stuck.
fn measured(scrape: &Scrape<'_>, tables: &Tables, sums: &IoctlTotals) -> [Family; 5] {
    let mut duration = Family::new(&t::IOCTL_DURATION);
    let mut now = Family::new(&t::IOCTLS_IN_FLIGHT);
    let mut oldest = Family::new(&t::IOCTL_OLDEST);
    let mut no_return = Family::new(&t::IOCTLS_NO_RETURN);
    let mut missed = Family::new(&t::RETURNS_MISSED);
    let in_flight = in_flight(&tables.in_flight);
    for (nr, (name, sum)) in each(&scrape.named, sums) {
        no_return.add(&[&name], sum.stat.no_return_seen);
        if nr == WAIT_EVENTS {
            if tables.whole_calls {
                missed.add(&[&name], sums.missed(nr, tables.waits.len()));
            }
            continue;
        }
        let flying = in_flight.get(&nr).copied();
        let calls = flying.map_or(0, |flying| flying.calls);
        now.add(&[&name], u64::try_from(calls).unwrap_or(u64::MAX));
        if let Some(flying) = flying {
            oldest.set(&[&name], age_seconds(scrape, flying.oldest_ns));
        }
        missed.add(&[&name], sums.missed(nr, calls));
        duration.histogram(&[&name], sum);
    }
    [duration, now, oldest, no_return, missed]
}

/// Families of the threads that sleep in WAIT_EVENTS.
fn waits(scrape: &Scrape<'_>, waits: &[InFlightRow], sums: &IoctlTotals) -> [Family; 3] {
    let calls = u64::try_from(waits.len()).unwrap_or(u64::MAX);
    let mut oldest = Family::new(&t::EVENT_WAIT_OLDEST);
    if let Some(entered_ns) = waits.iter().map(|wait| wait.entered_ns).min() {
        oldest.set(&[], age_seconds(scrape, entered_ns));
    }
    let mut duration = Family::new(&t::EVENT_WAIT_DURATION);
    duration.histogram(&[], sums.get(WAIT_EVENTS).cloned().unwrap_or_default());
    [Family::single(&t::EVENT_WAITS, number(calls)), oldest, duration]
}

fn age_seconds(scrape: &Scrape<'_>, entered_ns: u64) -> f64 {
    number(scrape.now_ns.saturating_sub(entered_ns)) / 1e9
}

fn in_flight(rows: &[InFlightRow]) -> BTreeMap<u8, InFlight> {
    let mut all = BTreeMap::new();
    for row in rows {
        let flying =
            all.entry(ioctl::nr(row.cmd)).or_insert(InFlight { calls: 0, oldest_ns: row.entered_ns });
        flying.calls += 1;
        flying.oldest_ns = flying.oldest_ns.min(row.entered_ns);
    }
    all
}
