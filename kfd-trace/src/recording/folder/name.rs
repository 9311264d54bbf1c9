//! Names of a daemon's files: only what has such a name is ever removed. `kfd-trace-00000012-20261124T031245Z.rec`

use jiff::Timestamp;

const BEGIN: &str = "kfd-trace-";
const END: &str = ".rec";
/// Digits of a number, at least: so that names are in the order of the numbers.
const DIGITS: usize = 8;
const STAMP: &str = "%Y%m%dT%H%M%SZ";

/// `at`: its begin, for people. The number has its order: the wall clock may be set back.
pub(super) fn of(number: u64, at: Timestamp) -> String {
    format!("{BEGIN}{number:0DIGITS$}-{}{END}", at.strftime(STAMP))
}

/// The number of a daemon's file; `None` for any other name.
pub(super) fn number(name: &str) -> Option<u64> {
    let (number, stamp) = name.strip_prefix(BEGIN)?.strip_suffix(END)?.split_once('-')?;
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let (day, time) = stamp.strip_suffix('Z')?.split_once('T')?;
    let is_stamp = day.len() == 8 && time.len() == 6 && digits(day) && digits(time);
    if number.len() < DIGITS || !digits(number) || !is_stamp {
        return None;
    }
    number.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_the_number_and_the_time() {
        let at = Timestamp::from_second(1_790_000_000).expect("a time");
        assert_eq!(of(12, at), "kfd-trace-00000012-20260921T141320Z.rec");
        for one in [1, 12, 99_999_999, 100_000_000, u64::MAX] {
            assert_eq!(number(&of(one, at)), Some(one));
        }
    }

    #[test]
    fn no_other_name_is_one_of_ours() {
        let others = [
            "kfd-trace.rec",
            "night.rec",
            "kfd-trace-00000012-20260921T141320Z.rec.bak",
            "kfd-trace-00000012-20260921T141320Z.pftrace",
            "kfd-trace-12-20260921T141320Z.rec",
            "kfd-trace-+0000012-20260921T141320Z.rec",
            "kfd-trace-00000012-20260921T14132Z.rec",
            "kfd-trace-00000012-2026092aT141320Z.rec",
            "kfd-trace-00000012.rec",
            "kfd-trace-99999999999999999999999-20260921T141320Z.rec",
            "my-kfd-trace-00000012-20260921T141320Z.rec",
        ];
        for name in others {
            assert_eq!(number(name), None, "{name}");
        }
    }
}
