//! Compares memory by words. musl compares it byte by byte, which was a fifth of a record with the history: the released
//! program, which is linked with musl, takes this function in place of musl's. Elsewhere the system's own is faster.

use std::cmp::Ordering;
use std::ffi::c_int;

const WORD: usize = size_of::<u64>();

/// C's `memcmp`: the order of the first bytes that differ, as unsigned numbers. Nothing here may compare arrays or slices,
/// which the compiler makes calls of this function.
///
/// # Safety
/// Both pointers are of at least `length` bytes that can be read.
#[cfg_attr(target_env = "musl", unsafe(no_mangle))]
unsafe extern "C" fn memcmp(left: *const u8, right: *const u8, length: usize) -> c_int {
    let mut at = 0;
    while let Some(last) = length.checked_sub(WORD) {
        let [one, other] = [left, right].map(|bytes| {
            // SAFETY: `at` is at most `last`, after which there is one more word of the `length` bytes.
            u64::from_be(unsafe { bytes.wrapping_add(at).cast::<u64>().read_unaligned() })
        });
        if one != other || at == last {
            return one.cmp(&other) as c_int;
        }
        // The last word may begin among bytes that are equal.
        at = last.min(at + WORD);
    }
    while at < length {
        // SAFETY: `at` is below `length`.
        let [one, other] = [left, right].map(|bytes| unsafe { bytes.wrapping_add(at).read() });
        if one != other {
            return one.cmp(&other) as c_int;
        }
        at += 1;
    }
    Ordering::Equal as c_int
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn compared(left: &[u8], right: &[u8]) -> Ordering {
        assert_eq!(left.len(), right.len());
        // SAFETY: both have so many bytes.
        unsafe { memcmp(left.as_ptr(), right.as_ptr(), left.len()) }.cmp(&0)
    }

    #[test]
    fn the_first_difference_decides_wherever_it_is_and_none_outside_counts() {
        for length in 0..=100 {
            for (skew, other_skew) in
                (0..WORD).flat_map(|skew| [(skew, 0), (skew, skew), (0, skew), (skew, 3)])
            {
                let (mut left, mut right) = (vec![0x11; length + 24], vec![0x11; length + 24]);
                // What is before and behind differs, in both directions.
                left[skew..][length..].fill(0xff);
                right[other_skew..][length..].fill(0x80);
                left[..skew].fill(0);
                right[..other_skew].fill(1);
                let (left, right) = (&mut left[skew..][..length], &mut right[other_skew..][..length]);
                assert_eq!(compared(left, right), Ordering::Equal, "{length}");
                for at in (0..length).rev() {
                    // The next one has the other order.
                    let both = if at % 2 == 0 { (0x80, 0x7f) } else { (0x7f, 0x80) };
                    (left[at], right[at]) = both;
                    assert_eq!(
                        compared(left, right),
                        both.0.cmp(&both.1),
                        "{length} {at} {skew} {other_skew}"
                    );
                }
            }
        }
    }

    proptest! {
        #[test]
        fn the_order_is_that_of_the_bytes(
            begin in vec(any::<u8>(), 0..80), ends in vec(any::<[u8; 2]>(), 0..40), skew in 0..WORD,
        ) {
            let [left, right] = [0, 1].map(|side| -> Vec<u8> {
                let ends = ends.iter().map(|both| both[side]);
                vec![0; skew * side].into_iter().chain(begin.iter().copied()).chain(ends).collect()
            });
            let (left, right) = (left.as_slice(), &right[skew..]);
            // Where the test is linked with musl, the order of slices is the function's own.
            prop_assert_eq!(compared(left, right), left.cmp(right));
            prop_assert_eq!(compared(left, right), left.iter().cmp(right));
        }
    }
}
