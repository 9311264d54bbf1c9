//! The sources that a scrape reads, with the result and duration of each.

use super::family::{Family, number};
use super::scrape::{STATE, Scrape};
use super::table as t;

pub(super) fn families(scrape: &Scrape<'_>) -> [Family; 2] {
    let (mut success, mut duration) =
        (Family::new(&t::COLLECTOR_SUCCESS), Family::new(&t::COLLECTOR_DURATION));
    for collected in scrape.collectors {
        // A series that is always 1 would suggest a check that does not exist.
        if collected.collector != STATE {
            success.set(&[collected.collector], number(collected.failed.is_none().into()));
        }
        duration.set(&[collected.collector], number(collected.took_ns) / 1e9);
    }
    [success, duration]
}
