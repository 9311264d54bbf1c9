//! Parses the prefix of a log line (clr, rocclr/utils/debug.cpp): `:LEVEL:FILE:LINE: TIME us: PID and TID`.

use super::limits::LATEST_US;
use super::scan::LineScan;
use memchr::{memchr, memchr_iter};

/// Longest name of a source file; on Windows it is the whole path.
const LONGEST_FILE: usize = 300;

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

impl Prefix {
    /// Finds the first prefix of a line without colours: its place, the prefix, and what is behind it.
    #[must_use]
    pub fn find(line: &[u8]) -> Option<(usize, Prefix, &[u8])> {
        if let Some((prefix, rest)) = Prefix::parse(line) {
            return Some((0, prefix, rest));
        }
        Prefix::within(line).next()
    }

    /// Finds a further line of clr behind a message. It must have a time: other text is part of the message.
    #[inline]
    pub(super) fn find_next(message: &[u8]) -> Option<(usize, Prefix, &[u8])> {
        Prefix::within(message).find(|(_, prefix, _)| prefix.time_us.is_some())
    }

    /// Each is looked for no further than a few colons behind it, so that all together take time in proportion to the text.
    #[inline]
    fn within(text: &[u8]) -> impl Iterator<Item = (usize, Prefix, &[u8])> {
        memchr_iter(b':', text).filter_map(|at| {
            let (prefix, rest) = Prefix::parse(&text[at..])?;
            Some((at, prefix, rest))
        })
    }

    /// Parses what begins with a prefix; returns the prefix and the message after it. `None`: no prefix.
    #[must_use]
    #[inline]
    pub fn parse(line: &[u8]) -> Option<(Prefix, &[u8])> {
        let [b':', level @ b'0'..=b'9', b':', rest @ ..] = line else { return None };
        Prefix::after_level(level - b'0', rest)
    }

    fn after_level(level: u8, rest: &[u8]) -> Option<(Prefix, &[u8])> {
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
        let Some((time_us, odd)) = time(&mut scan) else {
            // Less text is too much like that of others.
            let name = rest[..file].trim_ascii_end();
            let is_source = [".cpp", ".hpp", ".h", ".cc"].iter().any(|end| name.ends_with(end.as_bytes()));
            return is_source.then_some((
                Prefix { level, time_us: None, pid: None, tid: None, style: Style::Quoted },
                scan.0,
            ));
        };
        let time_us = Some(time_us).filter(|time| *time <= LATEST_US)?;
        scan.spaces();
        let who = if scan.0.first() == Some(&b'[') { bracketed(&mut scan, odd) } else { before(&mut scan) };
        scan.spaces();
        let (pid, tid, style) = match who {
            Some((pid, tid, style)) => (Some(pid), Some(tid), style),
            None => (None, None, Style::TimeOnly),
        };
        Some((Prefix { level, time_us: Some(time_us), pid, tid, style }, scan.0))
    }
}

/// Parses `TIME us:`, and returns whether it has 6.3.2's stray `d`.
#[inline]
fn time(scan: &mut LineScan<'_>) -> Option<(u64, bool)> {
    let mut ahead = *scan;
    let time = ahead.number()?;
    let odd = ahead.tag("d").is_some();
    ahead.tag(" us:")?;
    *scan = ahead;
    Some((time, odd))
}

/// Parses `[pid:PID tid:0x...]`.
#[inline]
fn bracketed(scan: &mut LineScan<'_>, odd: bool) -> Option<(u32, u64, Style)> {
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
fn before(scan: &mut LineScan<'_>) -> Option<(u32, u64, Style)> {
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
mod tests {
    use super::*;

    fn parsed(line: &str) -> Option<(Prefix, String)> {
        Prefix::parse(line.as_bytes())
            .map(|(prefix, rest)| (prefix, String::from_utf8_lossy(rest).into_owned()))
    }

    #[test]
    fn prefixes_of_each_version() {
        let same = |pid, tid, style| Prefix { level: 4, time_us: Some(7_270_505_876), pid, tid, style };
        let cases = [
            (
                ":4:rocvirtual.cpp           :869 : 7270505876 us: 157801: [tid:0x7f316f4006c0] text",
                same(Some(157_801), Some(0x7f31_6f40_06c0), Style::Rocm56),
            ),
            (
                ":4:rocvirtual.cpp           :871 : 7270505876 us: [pid:21    tid:0x7f316f4006c0] text",
                same(Some(21), Some(0x7f31_6f40_06c0), Style::Rocm57),
            ),
            (
                ":4:rocvirtual.cpp           :1177: 7270505876 us: [pid:157801 tid: 0x1f6c0] text",
                same(Some(157_801), Some(0x1f6c0), Style::Rocm63),
            ),
            (
                ":4:rocdevice.cpp            :3211: 7270505876d us: [pid:21983 tid: 7f316f4006c0] text",
                same(Some(21_983), Some(0x7f31_6f40_06c0), Style::Rocm632),
            ),
            (":4:                         :0   : 7270505876 us:  text", same(None, None, Style::TimeOnly)),
        ];
        for (line, prefix) in cases {
            assert_eq!(parsed(line), Some((prefix, "text".to_owned())), "{line}");
        }
        let quoted = Prefix { level: 3, time_us: None, pid: None, tid: None, style: Style::Quoted };
        assert_eq!(parsed(":3:rocdevice.cpp:415: Initalizing"), Some((quoted, "Initalizing".to_owned())));
    }

    #[test]
    fn prefixes_behind_other_text_and_paths_of_windows() {
        let found = |line: &str| {
            let (at, prefix, rest) = Prefix::find(line.as_bytes()).unwrap();
            (line[..at].to_owned(), prefix.level, prefix.time_us, String::from_utf8_lossy(rest).into_owned())
        };
        let text = |before: &str, level, time| (before.to_owned(), level, time, "t".to_owned());
        for before in [
            "",
            "    ",
            "> ",
            "08:00:00 a:1: ",
            "run.log:4:",
            "12:",
            "[1,3]<stderr>:",
            "0/20 [00:00<?, ?it/s]",
        ] {
            assert_eq!(found(&format!("{before}:3:a.cpp:1: 7 us:  t")), text(before, 3, Some(7)));
            assert_eq!(found(&format!("{before}:4:a.cpp:1: t")), text(before, 4, None));
        }
        assert_eq!(found(r":3:C:\src\a.cpp:3100: 7 us:  t"), text("", 3, Some(7)));
        let next =
            |message: &str| Prefix::find_next(message.as_bytes()).map(|(at, prefix, _)| (at, prefix.time_us));
        assert_eq!(next("a us: b us: :4:a.cpp:1: 8 us:  t"), Some((12, Some(8))));
        assert_eq!(
            next("duration: 12 us: :4:a.cpp:1: t"),
            None,
            "without a time it may be text of a message"
        );
    }

    #[test]
    fn what_is_no_prefix_is_not_taken_for_one() {
        let long = format!(":4:{}:1: x", "f".repeat(300));
        for line in [
            "",
            ":",
            ":4",
            ":x:a.cpp:1: t",
            "4:a.cpp:1: t",
            ":4:a.cpp:b: t",
            ":4:a.cpp:1 t",
            " :4:a.cpp:1: t",
            ":4:a:1: t",
            &long,
        ] {
            assert_eq!(parsed(line), None, "{line}");
        }
        for line in
            ["run.log:4::x.cpp:100: t", "a.c:3:12: error: b.cpp:1: t", "at 08:00:00: t", "1:2:3:4:5:6:7: t"]
        {
            assert_eq!(Prefix::find(line.as_bytes()), None, "{line}");
        }
        assert_eq!(parsed(":4:a:1: 99999999999999999 us: t"), None, "no machine runs for so long");
        let (prefix, rest) = parsed(":4:a:1: 1 us: [pid:99999999999 tid:0x1] t").unwrap();
        assert_eq!((prefix.pid, rest.as_str()), (None, "[pid:99999999999 tid:0x1] t"));
    }
}
