//! Which rank, container or program wrote a line, by what a collector puts at its front.
//!
//! In: lines. Out: a [`Source`], a number for each label. PIDs of two containers may be equal: their labels keep them
//! apart. Text of the program itself is no label.

use super::limits::{LONGEST_LABEL, SOURCES};
use std::collections::HashMap;

/// A label; `Source::default()`: none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Source(u16);

/// A process of a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogProcess {
    pub source: Source,
    /// In its own namespace, as the log has it; from 6.3 on, lines below level 4 have none.
    pub pid: Option<u32>,
}

/// Labels in order of their first line.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    names: Vec<Box<[u8]>>,
    index: HashMap<Box<[u8]>, Source>,
    /// Lines with a label for which there was no room: they count as lines without one.
    pub left_out: u64,
}

impl Sources {
    /// The source of a line, by what is before the log's own text.
    pub(super) fn of(&mut self, line: &[u8]) -> Source {
        let Some(label) = label(line) else { return Source::default() };
        if let Some(source) = self.index.get(label) {
            return *source;
        }
        let Some(next) = u16::try_from(self.names.len() + 1).ok().filter(|next| *next <= SOURCES) else {
            self.left_out += 1;
            return Source::default();
        };
        self.names.push(label.into());
        self.index.insert(label.into(), Source(next));
        Source(next)
    }

    /// How a process is named to people.
    #[must_use]
    pub fn process(&self, process: LogProcess) -> String {
        let pid = process.pid.map_or_else(|| "no PID".to_owned(), |pid| format!("PID {pid}"));
        match self.name(process.source) {
            Some(source) => format!("{pid} of {}", crate::text::escape::terminal(&source)),
            None => pid,
        }
    }

    /// Its label.
    #[must_use]
    pub fn name(&self, source: Source) -> Option<String> {
        let name = self.names.get(usize::from(source.0).checked_sub(1)?)?;
        Some(String::from_utf8_lossy(name).into_owned())
    }
}

/// Finds the label at the front of a line, behind a time if there is one:
///
/// | written by | form |
/// |---|---|
/// | `srun --label` | `3: ` |
/// | `mpirun --tag-output` | `[1,3]<stderr>:`, `[job@1,3]<stderr>: ` |
/// | torchrun, hydra | `[rank3]:`, `[default3]:`, `[3] ` |
/// | Ray | `(Worker pid=4300) ` |
/// | docker compose | `trainer-1  \| ` |
/// | `kubectl logs --prefix` | `[pod/trainer-0/main] ` |
/// | journald, syslog | `node7 train.sh[991]: ` |
fn label(line: &[u8]) -> Option<&[u8]> {
    let (rest, timed) = after_time(line);
    let (word, after) = split(rest, b' ');
    match rest.first()? {
        b'(' => {
            let inner = until(rest, b')')?.strip_prefix(b"(")?;
            memchr::memmem::find(inner, b" pid=").map(|_| inner)
        }
        b'[' => {
            let inner = until(rest, b']')?.strip_prefix(b"[")?;
            let numbers = |text: &[u8]| text.iter().all(|byte| byte.is_ascii_digit() || *byte == b',');
            let begins = |name: &&str| {
                inner
                    .strip_prefix(name.as_bytes())
                    .is_some_and(|number| !number.is_empty() && numbers(number))
            };
            let is_rank = (!inner.is_empty() && numbers(inner))
                || ["rank", "default", "worker"].iter().any(begins)
                || inner.starts_with(b"pod/")
                || inner
                    .rsplit(|byte| *byte == b'@')
                    .next()
                    .is_some_and(|job| inner.contains(&b'@') && numbers(job));
            is_rank.then_some(inner)
        }
        _ if word.len() > LONGEST_LABEL => None,
        b'0'..=b'9' if after.is_some() => {
            let number = word.strip_suffix(b":")?;
            number.iter().all(u8::is_ascii_digit).then_some(number)
        }
        _ => {
            let after = after?.trim_ascii_start();
            if after.starts_with(b"| ") && word.iter().all(is_name) {
                return Some(word);
            }
            let (program, _) = split(after, b' ');
            let named = program.strip_suffix(b"]:").filter(|_| timed && program.len() <= LONGEST_LABEL)?;
            let number = named.rsplit(|byte| *byte == b'[').next()?;
            let is_pid = number.len() < named.len() && number.iter().all(u8::is_ascii_digit);
            // The host, the program and its PID.
            let length = rest.len() - after.len() + program.len() - 1;
            is_pid.then_some(&rest[..length])
        }
    }
}

fn is_name(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.')
}

/// Up to the closing bracket, which is left out.
fn until(text: &[u8], close: u8) -> Option<&[u8]> {
    let end = memchr::memchr(close, &text[..text.len().min(LONGEST_LABEL)])?;
    Some(&text[..end])
}

fn split(text: &[u8], at: u8) -> (&[u8], Option<&[u8]>) {
    match memchr::memchr(at, text) {
        Some(end) => (&text[..end], Some(&text[end + 1..])),
        None => (text, None),
    }
}

/// Leaves out a time at the front: ISO 8601, or as syslog writes it; and whether there was one.
fn after_time(line: &[u8]) -> (&[u8], bool) {
    const MONTHS: [&[u8]; 12] =
        [b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec"];
    let mut rest = line.trim_ascii_start();
    let mut timed = false;
    // A month, a day and a time are the most.
    for _ in 0..3 {
        let (word, after) = split(rest, b' ');
        let Some(after) = after else { break };
        let marks = || word.iter().filter(|byte| matches!(byte, b':' | b'-')).count();
        let is_time = word.first().is_some_and(u8::is_ascii_digit) && word.len() < 48 && marks() >= 2;
        let is_day = timed && word.len() <= 2 && word.iter().all(u8::is_ascii_digit);
        if !is_time && !is_day && !MONTHS.contains(&word) {
            break;
        }
        timed = true;
        rest = after.trim_ascii_start();
    }
    (rest, timed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_of_collectors_and_no_text_of_programs() {
        for (line, expected) in [
            ("trainer-1  | ", Some("trainer-1")),
            ("3: ", Some("3")),
            ("[1,3]<stderr>:", Some("1,3")),
            ("[prterun-node7-1@1,3]<stderr>: ", Some("prterun-node7-1@1,3")),
            ("[rank3]:", Some("rank3")),
            ("[default3]:", Some("default3")),
            ("[3] ", Some("3")),
            ("(Worker pid=4300) ", Some("Worker pid=4300")),
            ("(Worker pid=4300, ip=10.0.0.1) text", Some("Worker pid=4300, ip=10.0.0.1")),
            ("[pod/trainer-0/main] ", Some("pod/trainer-0/main")),
            ("Sep 01 08:00:00 node7 train.sh[991]: ", Some("node7 train.sh[991]")),
            ("2026-09-01T08:00:00+0200 node7 train.sh[991]: ", Some("node7 train.sh[991]")),
            ("2026-09-01T08:00:00Z trainer-1  | step 7 ", Some("trainer-1")),
            ("2026-09-01T08:00:00.0000001Z ", None),
            ("Sep 01 08:00:00 ", None),
            ("> ", None),
            ("step 1 ... ", None),
            ("  0%|      | 0/20 [00:00<?, ?it/s]", None),
            ("[INFO] ", None),
            ("[1/10] ", None),
            ("[rank]:", None),
            ("epoch 3: loss 0.1 ", None),
            ("node7 train.sh[991]: ", None),
            ("12:", None),
            ("", None),
        ] {
            assert_eq!(label(line.as_bytes()), expected.map(str::as_bytes), "{line}");
        }
    }

    #[test]
    fn labels_are_bounded_in_number_and_length() {
        let mut sources = Sources::default();
        for number in 0..u32::from(SOURCES) + 5 {
            sources.of(format!("{number}: x").as_bytes());
        }
        assert_eq!((sources.names.len(), sources.left_out), (usize::from(SOURCES), 5));
        assert_eq!(sources.of(b"7: "), Source(8));
        assert_eq!(sources.name(Source(8)).as_deref(), Some("7"));
        assert_eq!(sources.name(Source::default()), None);
        assert_eq!(
            sources.of(format!("({} pid=4)", "x".repeat(LONGEST_LABEL)).as_bytes()),
            Source::default()
        );
    }
}
