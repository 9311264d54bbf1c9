//! Formats values for the page.

use crate::attribute::Topology;
use crate::output::api::ApiView;
use crate::text::clock::age;
use crate::text::escape;
use std::fmt;

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

/// Characters of a sentence of the tracer itself, which may name a path or a version: none of its own is as long.
const SENTENCE: usize = 1024;

/// Makes a sentence of the tracer itself safe, without cutting what it recommends.
pub(super) fn sentence(text: &str) -> String {
    let cut = text.char_indices().nth(SENTENCE).map_or(text.len(), |(at, _)| at);
    let end = if cut < text.len() { "…" } else { "" };
    escape::terminal(&text[..cut]) + end
}

/// A list of names.
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

/// `gpu 0 (0000:05:00.0, gfx942)`, or by its gpu_id where the topology does not have it.
pub(super) fn label(gpu_id: u32, topology: &Topology) -> String {
    topology.label(gpu_id).unwrap_or_else(|| format!("gpu_id={gpu_id}"))
}

/// How long ago something was: HTML of a `<time>` whose text the page's script counts on.
#[derive(Clone, Debug)]
pub(super) struct Age {
    /// RFC 3339, to the second: two readings of the clocks differ by less.
    since: String,
    text: String,
}

impl Age {
    /// `from_ns`: CLOCK_MONOTONIC.
    pub(super) fn new(from_ns: u64, view: &ApiView<'_>) -> Self {
        let since = view.clock.rfc3339(from_ns).unwrap_or_default();
        let since = since.get(..19).map(|time| format!("{time}Z")).unwrap_or_default();
        Age { since, text: age(view.now_ns.saturating_sub(from_ns)) }
    }
}

/// Numbers and letters of the tracer itself: nothing of it needs to be escaped.
impl fmt::Display for Age {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<time class=\"age\" datetime=\"{}\">{}</time>", self.since, self.text)
    }
}

/// An [`Age`], or a dash if the begin is not known: HTML.
pub(super) fn since(from_ns: Option<u64>, view: &ApiView<'_>) -> String {
    from_ns.map_or_else(dash, |from_ns| Age::new(from_ns, view).to_string())
}
