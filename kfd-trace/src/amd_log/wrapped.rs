//! Lines of a container's log, as its runtime writes them: CRI (kubelet) and JSON (docker and others). In: a line. Out: the
//! text of the program, its stream, and whether the text is whole: runtimes cut lines at 16 KiB.

use serde::Deserialize;
use std::borrow::Cow;

/// What a line has of the program's own text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part<'a> {
    /// One of few: `stdout`, `stderr`.
    pub(super) stream: Cow<'a, [u8]>,
    pub(super) text: Cow<'a, [u8]>,
    pub(super) whole: bool,
}

/// `None`: it is not so wrapped.
pub(super) fn part(line: &[u8]) -> Option<Part<'_>> {
    match line.first()? {
        b'{' => json(line),
        b'0'..=b'9' => cri(line),
        _ => None,
    }
}

/// `2026-09-01T08:00:00.000000001Z stderr F text`; `P` for a line that goes on in the next one (CRI's logging format).
fn cri(line: &[u8]) -> Option<Part<'_>> {
    let mut words = line.splitn(4, |byte| *byte == b' ');
    let (time, stream, tags, text) = (words.next()?, words.next()?, words.next()?, words.next()?);
    if time.len() > 48 || !time.contains(&b'T') || !matches!(stream, b"stdout" | b"stderr") {
        return None;
    }
    let whole = match tags.split(|byte| *byte == b':').next()? {
        b"F" => true,
        b"P" => false,
        _ => return None,
    };
    Some(Part { stream: stream.into(), text: text.into(), whole })
}

/// docker's json-file driver; journald's and others' names for the same.
#[derive(Deserialize)]
struct Wrapped<'a> {
    #[serde(borrow, alias = "MESSAGE", alias = "message", alias = "msg", alias = "line")]
    log: Cow<'a, str>,
    #[serde(borrow, default)]
    stream: Cow<'a, str>,
}

fn json(line: &[u8]) -> Option<Part<'_>> {
    let Wrapped { log, stream } = serde_json::from_slice(line).ok()?;
    // Only docker's keeps the newline: without it, the line goes on in the next object.
    let docker = matches!(&*stream, "stdout" | "stderr");
    let whole = !docker || log.ends_with('\n');
    let stream = if docker { bytes(stream) } else { Cow::default() };
    let mut text = bytes(log);
    while let Some(b'\n' | b'\r') = text.last() {
        text = match text {
            Cow::Borrowed(text) => Cow::Borrowed(&text[..text.len() - 1]),
            Cow::Owned(mut text) => {
                text.pop();
                Cow::Owned(text)
            }
        };
    }
    Some(Part { stream, text, whole })
}

fn bytes(text: Cow<'_, str>) -> Cow<'_, [u8]> {
    match text {
        Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
        Cow::Owned(text) => Cow::Owned(text.into_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Option<(String, String, bool)> {
        let text = |bytes: Cow<'_, [u8]>| String::from_utf8_lossy(&bytes).into_owned();
        part(line.as_bytes()).map(|part| (text(part.stream), text(part.text), part.whole))
    }

    fn wanted(stream: &str, text: &str, whole: bool) -> Option<(String, String, bool)> {
        Some((stream.to_owned(), text.to_owned(), whole))
    }

    #[test]
    fn forms_of_runtimes() {
        for (line, expected) in [
            ("2026-09-01T08:00:00.1Z stderr F :3:a:1: 7 us:  x", wanted("stderr", ":3:a:1: 7 us:  x", true)),
            ("2026-09-01T08:00:00.1Z stdout P  two  words", wanted("stdout", " two  words", false)),
            ("2026-09-01T08:00:00.1Z stdout F:tag x", wanted("stdout", "x", true)),
            ("2026-09-01T08:00:00.1Z stdout F ", wanted("stdout", "", true)),
            (r#"{"log":"a\tb\n","stream":"stderr","time":"x"}"#, wanted("stderr", "a\tb", true)),
            (r#"{"time":"x","stream":"stdout","log":"cut"}"#, wanted("stdout", "cut", false)),
            (r#"{"MESSAGE":"plain","_PID":"7"}"#, wanted("", "plain", true)),
            (r#"{"level":"info","msg":"x\r\n"}"#, wanted("", "x", true)),
        ] {
            assert_eq!(read(line), expected, "{line}");
        }
    }

    #[test]
    fn other_lines_are_left_as_they_are() {
        for line in [
            "",
            "text",
            "2026-09-01T08:00:00.1Z stderr X text",
            "2026-09-01T08:00:00.1Z other F text",
            "7 stdout F text",
            "2026-09-01T08:00:00.1Z stderr F",
            r#"{"log":7}"#,
            r#"{"log":"a""#,
            r#"{"other":"a"}"#,
            "{x}",
        ] {
            assert_eq!(read(line), None, "{line}");
        }
    }
}
