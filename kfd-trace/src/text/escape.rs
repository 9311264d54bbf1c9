//! Makes untrusted text (comm, cgroup names) safe for a terminal. All output may be shown on one, JSON and
//! metrics included.

use serde::Serialize;
use std::fmt::Write as _;
use std::io::{self, Write};

/// Keeps letters, digits, ASCII punctuation and spaces; replaces the rest (control characters, and those that
/// change the writing direction) by `\u{...}`, so that no process can control the terminal through its name.
#[must_use]
pub fn terminal(text: &str) -> String {
    if is_plain(text) {
        return text.to_owned();
    }
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        if is_safe(c) {
            safe.push(c);
        } else {
            safe.extend(c.escape_unicode());
        }
    }
    safe
}

/// Whether [`terminal`] replaces nothing. Nearly every text is plain, a scrape has thousands, and most are short: eight bytes at once,
/// some of them twice.
#[must_use]
pub fn is_plain(text: &str) -> bool {
    let bytes = text.as_bytes();
    match (bytes.first_chunk::<8>(), bytes.last_chunk::<8>()) {
        (Some(first), Some(last)) if bytes.len() <= 16 => are_plain(*first) && are_plain(*last),
        (Some(_), Some(last)) => {
            let (eights, _) = bytes.as_chunks::<8>();
            eights.iter().fold(are_plain(*last), |plain, eight| plain & are_plain(*eight))
        }
        _ => match (bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) {
            (Some([a, b, c, d]), Some([e, f, g, h])) => are_plain([*a, *b, *c, *d, *e, *f, *g, *h]),
            _ => bytes.iter().all(|byte| (b' '..=b'~').contains(byte)),
        },
    }
}

/// From b' ' to b'~', each of them.
fn are_plain(eight: [u8; 8]) -> bool {
    const EACH: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = EACH * 0x80;
    let bytes = u64::from_ne_bytes(eight);
    // The high bit of a byte: it is 0x80 or more, or becomes that by one more (DEL), or has none of the bits of 0x60 (below
    // b' '). What is 0x80 or more is found by its own bit, whatever it carries into the next one.
    let del = (bytes & !HIGH) + EACH;
    let control = !((bytes << 1) | (bytes << 2)) & HIGH;
    (bytes | del | control) & HIGH == 0
}

fn is_safe(c: char) -> bool {
    c == ' ' || c.is_ascii_graphic() || !c.is_ascii() && c.is_alphanumeric()
}

/// Writes JSON that escapes everything that [`terminal`] would replace, as `\u009b`: a JSON reader gets the
/// same text. JSON itself requires that only for characters below U+0020.
///
/// # Errors
/// Errors of `out`.
pub fn json(mut out: impl Write, value: &impl Serialize) -> io::Result<()> {
    out.write_all(json_text(value)?.as_bytes())
}

/// [`json`] as text.
///
/// # Errors
/// Never for structures and maps of text; serde_json reports this at run time only.
pub fn json_text(value: &impl Serialize) -> serde_json::Result<String> {
    let mut bytes = Vec::with_capacity(USUAL_LINE);
    serde_json::to_writer(&mut bytes, value)?;
    let text = String::from_utf8(bytes).map_err(serde::ser::Error::custom)?;
    Ok(if is_plain(&text) { text } else { escaped(&text) })
}

/// A JSON document of others, in one line, with what [`json`] escapes. It must be one: in a string JSON has no tabs and line
/// ends as they are.
#[must_use]
pub fn json_document(text: &str) -> String {
    let text = text.trim().replace(['\t', '\r', '\n'], " ");
    if is_plain(&text) { text } else { escaped(&text) }
}

/// Most events are shorter, in bytes.
const USUAL_LINE: usize = 1024;

/// What serde_json has not escaped stands in a string of the document as it is, so it may be escaped afterwards; doing so
/// for a whole line at once costs a fraction of looking at each name and value.
fn escaped(json: &str) -> String {
    let mut safe = String::with_capacity(json.len() + json.len() / 8);
    for c in json.chars() {
        if is_safe(c) {
            safe.push(c);
        } else {
            for unit in c.encode_utf16(&mut [0; 2]) {
                // Memory takes everything.
                let _ = write!(safe, "\\u{unit:04x}");
            }
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::{are_plain, is_plain, json_document, json_text, terminal};

    #[test]
    fn json_has_the_same_content_in_safe_characters() {
        let text = "a\x1b[2J\"\\ \u{7f}\u{9b}31m \u{202e}größe\u{1f600}\n";
        let json = json_text(&[text]).expect("JSON");
        assert_eq!(json, r#"["a\u001b[2J\"\\ \u007f\u009b31m \u202egröße\ud83d\ude00\n"]"#);
        assert_eq!(serde_json::from_str::<[String; 1]>(&json).expect("JSON"), [text]);
    }

    #[test]
    fn each_byte_is_looked_at_wherever_it_is() {
        for length in 0..40 {
            let plain: String = (b' '..=b'~').cycle().take(length).map(char::from).collect();
            assert!(is_plain(&plain), "{plain}");
            for place in 0..length {
                for other in ['\0', '\n', '\u{1b}', '\u{1f}', '\u{7f}', '\u{80}', 'ß', '\u{202e}'] {
                    let mut text: Vec<char> = plain.chars().collect();
                    text[place] = other;
                    let text: String = text.into_iter().collect();
                    assert!(!is_plain(&text), "{text:?}");
                }
            }
        }
        for byte in 0..128_u8 {
            let expected = (b' '..=b'~').contains(&byte);
            assert_eq!(are_plain([b'a', b'~', b' ', byte, b' ', b'~', 0x40, b'`']), expected, "{byte:#x}");
        }
    }

    #[test]
    fn a_document_of_others_is_one_line_of_safe_characters() {
        let foreign = "{\r\n\t\"a\u{9b}\u{202e}\":\t[1e400, 18446744073709551615],\n\"b\": \"\\n\u{7f}\"}\n";
        let safe = json_document(foreign);
        let expected = r#"{   "a\u009b\u202e": [1e400, 18446744073709551615], "b": "\n\u007f"}"#;
        assert_eq!(safe, expected);
    }

    #[test]
    fn nothing_that_steers_a_terminal_passes() {
        assert_eq!(terminal("a\x1b[2J\nb"), "a\\u{1b}[2J\\u{a}b");
        assert_eq!(terminal("x\u{202e}y\u{9b}"), "x\\u{202e}y\\u{9b}");
        assert_eq!(terminal("größe python3 (x)"), "größe python3 (x)");
    }
}
