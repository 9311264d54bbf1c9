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
    calls: u64,
    oldest_ns: u64,
}

pub(super) fn families(scrape: &Scrape<'_>) -> Vec<Family> {
    let Some(tables) = scrape.tables.filter(|_| scrape.sees(&[ProbeId::Ioctl])) else { return Vec::new() };
    let named = &scrape.named;
    let sums = scrape.retired.with(&tables.ioctls, &tables.errors);
    let mut all = vec![calls(named, &sums), errors(named, &sums), not_measured(&sums)];
    if scrape.sees(&[ProbeId::IoctlReturn]) {
        all.extend(measured(scrape, tables, &sums));
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
    let calls = sums.get(WAIT_EVENTS).map_or(0, |sum| sum.unexplained(0));
    family.add(&[&Named::default().name(u32::from(WAIT_EVENTS))], calls);
    family
}

/// Families that need the handlers' returns; WAIT_EVENTS has none.
fn measured(scrape: &Scrape<'_>, tables: &Tables, sums: &IoctlTotals) -> [Family; 5] {
    let mut duration = Family::new(&t::IOCTL_DURATION);
    let mut now = Family::new(&t::IOCTLS_IN_FLIGHT);
    let mut oldest = Family::new(&t::IOCTL_OLDEST);
    let mut no_return = Family::new(&t::IOCTLS_NO_RETURN);
    let mut missed = Family::new(&t::RETURNS_MISSED);
    let in_flight = in_flight(&tables.in_flight);
    for (nr, (name, sum)) in each(&scrape.named, sums).into_iter().filter(|(nr, _)| *nr != WAIT_EVENTS) {
        let flying = in_flight.get(&nr).copied();
        let calls = flying.map_or(0, |flying| flying.calls);
        now.add(&[&name], calls);
        if let Some(flying) = flying {
            oldest.set(&[&name], number(scrape.now_ns.saturating_sub(flying.oldest_ns)) / 1e9);
        }
        no_return.add(&[&name], sum.stat.no_return_seen);
        missed.add(&[&name], sum.unexplained(calls));
        duration.histogram(&[&name], sum);
    }
    [duration, now, oldest, no_return, missed]
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
