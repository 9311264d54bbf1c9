//! Parses the prefix of a log line (clr, rocclr/utils/debug.cpp): `:LEVEL:FILE:LINE: TIME us: PID and TID`.

use super::limits::LATEST_US;
use super::scan::LineScan;
use memchr::memmem::Finder;
use memchr::{memchr, memchr_iter};
use std::sync::LazyLock;

/// Longest name of a source file; on Windows it is the whole path.
const LONGEST_FILE: usize = 300;

/// What is behind a time.
static UNIT: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(" us:"));

/// Form of a prefix; a rough indication of the ROCm version, no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Style {
    /// 5.6: `PID  : [tid:0x...]`.
    Rocm56,
    /// 5.7 to 6.2: `[pid:PID   tid:0x...]`.
    Rocm57,
    /// From 6.3 on: `[pid:PID tid: 0x...]`.
    Rocm63,
    /// 6.3.2 as shipped: `TIMEd us: [pid:PID tid: ...]`, with no `0x` before the number.
    Rocm632,
    /// From 6.3 on, below level 4: time only.
    TimeOnly,
    /// Neither time nor process, as in quoted lines.
    Quoted,
}

impl Style {
    pub const ALL: [Style; 6] =
        [Style::Rocm56, Style::Rocm57, Style::Rocm63, Style::Rocm632, Style::TimeOnly, Style::Quoted];

    /// Name in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Style::Rocm56 => "5.6",
            Style::Rocm57 => "5.7-6.2",
            Style::Rocm63 => "6.3+",
            Style::Rocm632 => "6.3.2",
            Style::TimeOnly => "6.3+, time only",
            Style::Quoted => "quoted",
        }
    }
}

/// One prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    /// 0 to 9. The level of a message differs between versions.
    pub level: u8,
    /// CLOCK_MONOTONIC, microseconds.
    pub time_us: Option<u64>,
    /// In the process's own namespace: in a container, the container's.
    pub pid: Option<u32>,
    /// `pthread_t`, or a hash of it; never the kernel's thread id.
    pub tid: Option<u64>,
    pub style: Style,
}

/// PID, thread and form.
type Who = (u32, u64, Style);

/// Reads prefixes. What a line shares with the one before is compared: parsing it takes longer than the rest of the line.
#[derive(Clone, Debug, Default)]
pub struct PrefixReader {
    /// The last one with a time, up to the last three digits of that.
    head: Vec<u8>,
    /// Its time without these digits, milliseconds; 0: there is none.
    time_ms: u64,
    /// The last PID and thread, as text up to its `]`, and parsed.
    who: Vec<u8>,
    parsed: Option<Who>,
}

impl PrefixReader {
    /// Finds the first prefix of a line without colours: its place, the prefix, and what is behind it.
    #[must_use]
    pub fn find<'a>(&mut self, line: &'a [u8]) -> Option<(usize, Prefix, &'a [u8])> {
        if let Some((prefix, rest)) = self.parse(line) {
            return Some((0, prefix, rest));
        }
        self.within(line).next()
    }

    /// Finds a further line of clr behind a message. It must have a time: other text is part of the message.
    #[inline]
    pub(super) fn find_next<'a>(&mut self, message: &'a [u8]) -> Option<(usize, Prefix, &'a [u8])> {
        // Few messages have what ends a time, most have colons.
        UNIT.find(message)?;
        self.within(message).find(|(_, prefix, _)| prefix.time_us.is_some())
    }

    /// Each is looked for no further than a few colons behind it, so that all together take time in proportion to the text.
    #[inline]
    fn within<'a>(&mut self, text: &'a [u8]) -> impl Iterator<Item = (usize, Prefix, &'a [u8])> {
        memchr_iter(b':', text).filter_map(|at| {
            let (prefix, rest) = self.parse(&text[at..])?;
            Some((at, prefix, rest))
        })
    }

    /// Parses what begins with a prefix; returns the prefix and the message after it. `None`: no prefix.
    #[must_use]
    #[inline]
    pub fn parse<'a>(&mut self, line: &'a [u8]) -> Option<(Prefix, &'a [u8])> {
        let [b':', level @ b'0'..=b'9', b':', ..] = line else { return None };
        let shared = line.strip_prefix(&*self.head).filter(|_| self.time_ms > 0);
        let (mut scan, begun_ms) = match shared {
            Some(digits) => (LineScan(digits), Some(self.time_ms)),
            None => (head(line)?.1, None),
        };
        let digits = scan.0;
        let Some((time_us, odd)) = time(&mut scan, begun_ms) else { return quoted(line) };
        if shared.is_none() {
            let count = digits.iter().take_while(|byte| byte.is_ascii_digit()).count();
            let end = line.len() - digits.len() + count;
            self.head.clear();
            self.head.extend_from_slice(&line[..end.saturating_sub(3)]);
            self.time_ms = time_us / 1000;
        }
        let time_us = Some(time_us).filter(|time| *time <= LATEST_US)?;
        scan.spaces();
        let who = self.who(&mut scan, odd);
        scan.spaces();
        let (pid, tid, style) = match who {
            Some((pid, tid, style)) => (Some(pid), Some(tid), style),
            None => (None, None, Style::TimeOnly),
        };
        Some((Prefix { level: level - b'0', time_us: Some(time_us), pid, tid, style }, scan.0))
    }

    #[inline]
    fn who(&mut self, scan: &mut LineScan<'_>, odd: bool) -> Option<Who> {
        if let Some(rest) = scan.0.strip_prefix(&*self.who)
            && let Some(parsed) = self.parsed.filter(|parsed| odd == (parsed.2 == Style::Rocm632))
        {
            scan.0 = rest;
            return Some(parsed);
        }
        let text = scan.0;
        let parsed = if text.first() == Some(&b'[') { bracketed(scan, odd) } else { before(scan) }?;
        self.who.clear();
        self.who.extend_from_slice(&text[..text.len() - scan.0.len()]);
        self.parsed = Some(parsed);
        Some(parsed)
    }
}

/// Parses `:LEVEL:FILE:LINE: `; returns the file, and what is behind.
fn head(line: &[u8]) -> Option<(&[u8], LineScan<'_>)> {
    let [b':', b'0'..=b'9', b':', rest @ ..] = line else { return None };
    // The drive of a path of Windows.
    let drive = if let [b'A'..=b'Z' | b'a'..=b'z', b':', b'\\' | b'/', ..] = rest { 2 } else { 0 };
    let rest = &rest[drive..];
    // Without an early colon it has no prefix.
    let file = memchr(b':', &rest[..rest.len().min(LONGEST_FILE)])?;
    let mut scan = LineScan(&rest[file + 1..]);
    scan.spaces();
    scan.number()?;
    scan.spaces();
    scan.tag(":")?;
    scan.spaces();
    Some((&rest[..file], scan))
}

/// A prefix without a time.
#[cold]
fn quoted(line: &[u8]) -> Option<(Prefix, &[u8])> {
    let (name, rest) = head(line)?;
    // Less text is too much like that of others.
    let name = name.trim_ascii_end();
    let is_source = [".cpp", ".hpp", ".h", ".cc"].iter().any(|end| name.ends_with(end.as_bytes()));
    let level = line[1] - b'0';
    is_source.then_some((Prefix { level, time_us: None, pid: None, tid: None, style: Style::Quoted }, rest.0))
}

/// Parses `TIME us:`, and returns whether it has 6.3.2's stray `d`. `begun_ms`: of digits that are before.
#[inline]
fn time(scan: &mut LineScan<'_>, begun_ms: Option<u64>) -> Option<(u64, bool)> {
    let mut ahead = *scan;
    let time = match begun_ms {
        Some(begun) => ahead.digits(begun)?,
        None => ahead.number()?,
    };
    let odd = ahead.tag("d").is_some();
    ahead.tag(" us:")?;
    *scan = ahead;
    Some((time, odd))
}

/// Parses `[pid:PID tid:0x...]`.
#[inline]
fn bracketed(scan: &mut LineScan<'_>, odd: bool) -> Option<Who> {
    let mut ahead = *scan;
    ahead.tag("[pid:")?;
    ahead.spaces();
    let pid = u32::try_from(ahead.number()?).ok()?;
    ahead.spaces();
    ahead.tag("tid:")?;
    let apart = ahead.0.first() == Some(&b' ');
    ahead.spaces();
    let tid = ahead.hex()?;
    ahead.tag("]")?;
    *scan = ahead;
    let style = match (odd, apart) {
        (true, _) => Style::Rocm632,
        (false, true) => Style::Rocm63,
        (false, false) => Style::Rocm57,
    };
    Some((pid, tid, style))
}

/// Parses `PID  : [tid:0x...]`.
fn before(scan: &mut LineScan<'_>) -> Option<Who> {
    let mut ahead = *scan;
    let pid = u32::try_from(ahead.number()?).ok()?;
    ahead.spaces();
    ahead.tag(": [tid:")?;
    let tid = ahead.hex()?;
    ahead.tag("]")?;
    *scan = ahead;
    Some((pid, tid, Style::Rocm56))
}

#[cfg(test)]
mod tests;
