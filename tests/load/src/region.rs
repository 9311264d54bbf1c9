//! Only the measured code: callgrind counts inside a [`region`] only.

use crate::callgrind;
use serde_json::json;
use std::ffi::CString;
use std::hint::black_box;
use std::time::Instant;

/// Runs `act` as a region; its cost is of `per` times `unit` (`record`, `scrape`).
pub(crate) fn region<T>(case: &str, per: usize, unit: &str, act: impl FnOnce() -> T) -> T {
    let trigger = CString::new(case).unwrap_or_default();
    let begin = Instant::now();
    callgrind::start();
    let done = black_box(act());
    callgrind::dump(&trigger);
    callgrind::stop();
    let ns = u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX);
    println!("{}", json!({ "case": case, "per": per, "unit": unit, "ns": ns }));
    done
}

/// A figure that is not counted by callgrind.
pub(crate) fn value(case: &str, value: u64, unit: &str) {
    println!("{}", json!({ "case": case, "value": value, "unit": unit }));
}
