//! Formats values for the page.

use crate::text::clock::age;
use crate::text::escape;

/// Characters shown of a text from outside the tracer.
pub(super) const CHARACTERS: usize = 64;

/// Makes a text from outside the tracer safe: it cannot control the page or its text direction, and is short.
pub(super) fn text(text: &str) -> String {
    let cut = text.char_indices().nth(CHARACTERS).map_or(text.len(), |(at, _)| at);
    let mut safe = escape::terminal(&text[..cut]);
    if cut < text.len() {
        safe += &format!("… ({} bytes)", text.len());
    }
    safe
}

pub(super) fn shortened(text: String) -> String {
    match text.char_indices().nth(4 * CHARACTERS) {
        Some((cut, _)) => format!("{}…", &text[..cut]),
        None => text,
    }
}

/// Readable form of RFC 3339: `2026-09-21 03:00:00`.
pub(super) fn seconds(rfc3339: &str) -> String {
    rfc3339.get(..19).map(|time| time.replace('T', " ")).unwrap_or_default()
}

pub(super) fn show(value: Option<impl ToString>) -> String {
    value.map_or_else(dash, |value| value.to_string())
}

pub(super) fn dash() -> String {
    "–".to_owned()
}

pub(super) fn since(from_ns: Option<u64>, now_ns: u64) -> String {
    from_ns.map_or_else(dash, |from_ns| age(now_ns.saturating_sub(from_ns)))
}
