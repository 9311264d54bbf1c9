//! Waiting for a condition, with a limit: in the guest's own time, which advances with its instructions
//! (xtask/src/vm/qemu.rs), so that a busy host shortens none.

use anyhow::{Context, Result, bail};
use std::time::{Duration, Instant};

/// For operations that should take milliseconds.
pub const SOON: Duration = Duration::from_secs(60);

/// For a tracer to start or to end. The kernel walks all of its traceable functions for each kprobe that is
/// attached or detached: 25 ms each, for up to some 170 of them.
pub const ATTACH: Duration = Duration::from_secs(120);

/// Interval between two checks of a condition without notification: at first, and at most. A check may be a
/// whole scrape.
const PERIOD: [Duration; 2] = [Duration::from_millis(20), Duration::from_secs(1)];

/// The pause grows with the time waited: a delay matters less then.
fn rest(waited: Duration) -> Duration {
    (waited / 8).clamp(PERIOD[0], PERIOD[1])
}

/// Calls `probe` until it returns a value; an error of `probe` ends the wait at once.
pub fn until<T>(what: &str, limit: Duration, mut probe: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let start = Instant::now();
    loop {
        if let Some(value) = probe().with_context(|| format!("while waiting for {what}"))? {
            return Ok(value);
        }
        let waited = start.elapsed();
        if waited >= limit {
            bail!("{what}: not within {limit:?}");
        }
        std::thread::sleep(rest(waited));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_value_is_given_once_it_is_there() {
        let mut looks = 0;
        let value = until("the third look", SOON, || {
            looks += 1;
            Ok((looks == 3).then_some("seen"))
        });
        assert_eq!((value.unwrap(), looks), ("seen", 3));
    }

    #[test]
    fn who_waits_long_looks_rarely() {
        let rests = [0, 400, 60_000].map(|waited| rest(Duration::from_millis(waited)).as_millis());
        assert_eq!(rests, [20, 50, 1000]);
    }

    #[test]
    fn a_limit_passed_names_what_was_waited_for() {
        let waited = until("rain", Duration::ZERO, || Ok(None::<()>));
        assert!(format!("{:#}", waited.unwrap_err()).contains("rain"));
    }
}
