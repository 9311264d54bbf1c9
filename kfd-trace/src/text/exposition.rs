//! Labels and numbers of Prometheus' exposition format, appended to a text.
//!
//! The `prometheus` crate's encoder writes the same, from objects that have to be made first
//! (output/metrics/tests/encoder.rs compares).

use super::escape;

/// Integers below this are exact as `f64`.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// Appends `name="value"`: made safe for a terminal, then escaped as the format requires.
pub fn label(out: &mut String, name: &str, value: &str) {
    out.push_str(name);
    out.push_str("=\"");
    let plain = |byte: u8| (b' '..=b'~').contains(&byte) & (byte != b'"') & (byte != b'\\');
    // Nearly every text is plain.
    if value.bytes().fold(true, |all, byte| all & plain(byte)) {
        out.push_str(value);
    } else {
        for c in escape::terminal(value).chars() {
            if matches!(c, '"' | '\\') {
                out.push('\\');
            }
            out.push(c);
        }
    }
    out.push('"');
}

/// Appends a number, as `f64` is displayed. Nearly all are integers.
pub fn number(out: &mut String, value: f64) {
    match integer(value) {
        // Most are 0, and there a call is most of the cost.
        Some(digit @ 0..10) => out.push(char::from(b'0' + digit.to_le_bytes()[0])),
        Some(integer) => out.push_str(itoa::Buffer::new().format(integer)),
        None => out.push_str(&value.to_string()),
    }
}

/// Through `i64`, to which and from which a CPU converts in one instruction.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "compared with the number"
)]
fn integer(value: f64) -> Option<u64> {
    let integer = value as i64;
    (value.is_sign_positive() && value < EXACT && integer as f64 == value).then_some(integer as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn numbered(value: f64) -> String {
        let mut out = String::new();
        number(&mut out, value);
        out
    }

    #[test]
    fn numbers_at_the_edges_are_displayed_as_floats_are() {
        for value in [
            0.0,
            -0.0,
            1.0,
            -1.0,
            9.0,
            10.0,
            0.1,
            1e-9,
            EXACT - 1.0,
            EXACT,
            EXACT + 2.0,
            1.8446744073709552e19,
            1e300,
            f64::INFINITY,
            f64::NEG_INFINITY,
            f64::NAN,
        ] {
            assert_eq!(numbered(value), value.to_string());
        }
    }

    proptest! {
        #[test]
        fn any_number_is_displayed_as_floats_are(bits: u64, count in 0..(1u64 << 54)) {
            #[expect(clippy::cast_precision_loss, reason = "an input")]
            let count = count as f64;
            for value in [f64::from_bits(bits), count, count / 1e9] {
                prop_assert_eq!(numbered(value), value.to_string());
            }
        }

        #[test]
        fn a_label_is_escaped_twice(value in ".*|[ -~\\\\\"\n\u{9b}]*") {
            let mut out = String::new();
            label(&mut out, "comm", &value);
            let safe = escape::terminal(&value).replace('\\', "\\\\").replace('"', "\\\"");
            prop_assert_eq!(out, format!("comm=\"{safe}\""));
        }
    }
}
