//! Which files must go. Pure.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

/// A file of a daemon, whichever run wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) path: PathBuf,
    pub(super) number: u64,
    pub(super) bytes: u64,
    pub(super) changed: SystemTime,
}

/// How many of these files, the oldest first, must be removed: so many that the others have at most `room` bytes, and all
/// in front that did not change for longer than `max_age`. A time in the future is none: the clock was set back.
pub(super) fn surplus(files: &[Found], room: u64, max_age: Duration, now: SystemTime) -> usize {
    let is_old = |file: &Found| now.duration_since(file.changed).is_ok_and(|age| age > max_age);
    let old = files.iter().take_while(|file| is_old(file)).count();
    let mut bytes: u64 = files.iter().map(|file| file.bytes).sum();
    let mut large = 0;
    while let Some(file) = files.get(large).filter(|_| bytes > room) {
        bytes -= file.bytes;
        large += 1;
    }
    old.max(large)
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    fn now() -> SystemTime {
        SystemTime::UNIX_EPOCH + 1_000_000 * S
    }

    /// Bytes and seconds since the last change, oldest first.
    fn files(all: &[(u64, u32)]) -> Vec<Found> {
        let file = |(number, (bytes, age)): (u64, &(u64, u32))| Found {
            path: PathBuf::new(),
            number,
            bytes: *bytes,
            changed: now() - S * *age,
        };
        (1..).zip(all).map(file).collect()
    }

    fn removed(all: &[(u64, u32)], room: u64, max_age: u32) -> usize {
        surplus(&files(all), room, S * max_age, now())
    }

    #[test]
    fn the_oldest_go_until_the_others_have_room() {
        let all = [(10, 30), (20, 20), (30, 10)];
        assert_eq!([60, 59, 50, 49, 30, 29, 0].map(|room| removed(&all, room, 99)), [0, 1, 1, 2, 2, 3, 3]);
        assert_eq!(removed(&[], 0, 99), 0);
        assert_eq!(removed(&[(0, 5), (7, 4)], 7, 99), 0, "an empty one takes no room");
    }

    #[test]
    fn what_is_too_old_goes_whatever_room_there_is() {
        let all = [(10, 30), (20, 20), (30, 10)];
        assert_eq!([30, 29, 20, 19, 9].map(|age| removed(&all, 99, age)), [0, 1, 1, 2, 3]);
        assert_eq!(removed(&all, 30, 29), 2, "both bounds hold");
    }

    #[test]
    fn a_clock_that_was_set_back_makes_nothing_old() {
        let mut all = files(&[(10, 30), (20, 20)]);
        all[0].changed = now() + 500 * S;
        assert_eq!(surplus(&all, 99, 15 * S, now()), 0, "they go in their order");
        assert_eq!(surplus(&all, 15, 15 * S, now()), 2);
    }
}
