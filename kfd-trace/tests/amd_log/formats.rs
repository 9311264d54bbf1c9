//! Every log format of clr, by release: a line of each is given to the parser, and what it makes of it compared with a list
//! that was reviewed (formats.tsv). The list has no text of clr: a format is the begin of its SHA-256.
//!
//! In: clones of clr, by `KFD_TRACE_CLR=DIR@REVISION,DIR@REVISION... cargo test -p kfd-trace --test amd_log formats --
//! --ignored --nocapture`. With `KFD_TRACE_CLR_WRITE=FILE`, the list of what the parser makes of them is written there, with
//! the text, to review.

use kfd_trace::amd_log::message::Message;
use kfd_trace::amd_log::prefix::PrefixReader;
use ring::digest::{SHA256, digest};
use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fmt::Write as _;
use std::fs;
use std::process::Command;

/// `HASH CLASS`, by hash.
const LIST: &str = include_str!("formats.tsv");

/// What a report makes of a line.
const CLASSES: [&str; 17] = [
    "abort", "agents", "birth", "command", "complete", "copy", "error", "fault", "full", "gfx", "kernel",
    "other", "packet", "pool", "returned", "step", "times",
];

/// Macros of clr that write a line (utils/debug.hpp), with the level of those whose arguments have none.
const MACROS: [(&str, u8); 11] = [
    ("guarantee", 0),
    ("ClPrint", 4),
    ("LogPrintfError", 1),
    ("LogPrintfWarning", 2),
    ("LogPrintfInfo", 3),
    ("LogPrintfDebug", 4),
    ("LogError", 1),
    ("LogWarning", 2),
    ("LogInfo", 3),
    ("DevLogPrintfError", 1),
    ("DevLogError", 1),
];

const LEVELS: [(&str, u8); 6] = [
    ("LOG_NONE", 0),
    ("LOG_ERROR", 1),
    ("LOG_WARNING", 2),
    ("LOG_INFO", 3),
    ("LOG_DEBUG", 4),
    ("LOG_DETAIL_DEBUG", 5),
];

fn class(level: u8, text: &str) -> &'static str {
    let line =
        format!(":{level}:rocdevice.cpp            :7   : 1000000 us: [pid:7     tid:0x7f0000000a00] {text}");
    let (prefix, message) = PrefixReader::default().parse(line.as_bytes()).expect("a prefix");
    match Message::parse(message) {
        Message::Packet(_) => "packet",
        Message::Command { .. } => "command",
        Message::Complete { .. } => "complete",
        Message::Ran { .. } => "times",
        Message::Kernel { .. } => "kernel",
        Message::QueuePool(_) => "pool",
        Message::Birth(_) => "birth",
        Message::LogStep { .. } => "step",
        Message::Abort(_) => "abort",
        Message::Fault(_) => "fault",
        Message::QueueFull => "full",
        Message::Copy { .. } => "copy",
        Message::Agents(_) => "agents",
        Message::Gfx(_) => "gfx",
        Message::Returned(_) => "returned",
        Message::Damaged(_) => "damaged",
        // Shown as an error, whatever it says.
        Message::Other if prefix.level <= 1 => "error",
        Message::Other => "other",
    }
}

fn hash(format: &str) -> String {
    let digest = digest(&SHA256, format.as_bytes());
    digest.as_ref().iter().take(8).fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

fn list() -> BTreeMap<String, String> {
    let pair = |line: &str| {
        let (hash, class) = line.split_once('\t').expect("HASH, a tab, CLASS");
        (hash.to_owned(), class.to_owned())
    };
    LIST.lines().map(pair).collect()
}

/// Arguments of a call, up to its closing bracket.
fn arguments(text: &str) -> &str {
    let (mut depth, mut quoted, mut escaped) = (1, false, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b'(' if !quoted => depth += 1,
            b')' if !quoted => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return &text[..at];
        }
    }
    text
}

/// The first string of the arguments: literals that follow one another, with `PRIx64` and the like between them.
fn literal(arguments: &str) -> Option<String> {
    let mut rest = &arguments[arguments.find('"')?..];
    let mut text = String::new();
    loop {
        rest = rest.trim_start();
        if let Some(inner) = rest.strip_prefix('"') {
            let mut characters = inner.char_indices();
            let mut end = None;
            while let Some((at, character)) = characters.next() {
                match character {
                    '"' => {
                        end = Some(at);
                        break;
                    }
                    '\\' => text.extend(characters.next().map(|(_, escaped)| match escaped {
                        'n' | 't' | '\n' => ' ',
                        other => other,
                    })),
                    other => text.push(other),
                }
            }
            rest = &inner[end? + 1..];
        } else if let Some(kind) = rest.strip_prefix("PRI") {
            text.push_str(&kind[..1]);
            rest = kind.trim_start_matches(|letter: char| letter.is_ascii_alphanumeric());
        } else {
            return Some(text.trim_end().to_owned());
        }
    }
}

/// Level and format of each line that a source file writes.
fn formats(source: &str, found: &mut BTreeSet<(u8, String)>) {
    for (name, level) in MACROS {
        for (at, _) in source.match_indices(name) {
            let is_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
            let after = source[at + name.len()..].trim_start();
            let Some(after) = after.strip_prefix('(').filter(|_| !source[..at].ends_with(is_name)) else {
                continue;
            };
            let arguments = arguments(after);
            let Some(format) = literal(arguments) else { continue };
            let named = LEVELS
                .iter()
                .find(|(name, _)| arguments.split(|letter: char| !is_name(letter)).any(|word| word == *name));
            found.insert((named.map_or(level, |(_, level)| *level), format));
        }
    }
}

/// A line of a format: each conversion with a value.
fn filled(format: &str) -> String {
    let (mut text, mut rest) = (String::new(), format);
    while let Some(at) = rest.find('%') {
        text.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        let flags = after.trim_start_matches(|letter: char| "-+ #0123456789.*hlzjtL".contains(letter));
        let Some(kind) = flags.chars().next() else { break };
        text.push_str(match kind {
            'p' | 'P' => "0x7f1234500000",
            'x' | 'X' => "b02",
            's' => "hipName",
            'c' => "c",
            'f' | 'g' | 'e' => "1.5",
            '%' => "%",
            _ => "3",
        });
        rest = &flags[kind.len_utf8()..];
    }
    text + rest
}

fn git(folder: &str, arguments: &[&str]) -> String {
    let output = Command::new("git").arg("-C").arg(folder).args(arguments).output().expect("git");
    assert!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn of_revision(folder: &str, revision: &str) -> BTreeSet<(u8, String)> {
    let all = git(folder, &["ls-tree", "-r", "--name-only", revision]);
    let is_source = |path: &&str| {
        let path = path.strip_prefix("projects/clr/").unwrap_or(path);
        (path.ends_with(".cpp") || path.ends_with(".hpp"))
            && ["rocclr/", "hipamd/src/", "opencl/amdocl/"].iter().any(|folder| path.starts_with(folder))
    };
    let mut found = BTreeSet::new();
    for path in all.lines().filter(is_source) {
        formats(&git(folder, &["show", &format!("{revision}:{path}")]), &mut found);
    }
    assert!(found.len() > 500, "{revision} of {folder} has {} formats: is it clr?", found.len());
    found
}

#[test]
#[ignore = "needs a clone of clr: KFD_TRACE_CLR"]
fn every_format_of_clr_has_its_reviewed_class() {
    let Ok(revisions) = env::var("KFD_TRACE_CLR") else { return };
    let (list, mut made, mut wrong) = (list(), BTreeMap::new(), Vec::new());
    for revision in revisions.split(',') {
        let (folder, name) = revision.rsplit_once('@').expect("DIR@REVISION");
        let formats = of_revision(folder, name);
        let (mut unknown, mut other_class) = (0, 0);
        for (level, format) in &formats {
            let (text, hash) = (filled(format), hash(&format!("{level} {format}")));
            let class = class(*level, &text);
            match list.get(&hash) {
                None => unknown += 1,
                Some(wanted) if wanted != class => other_class += 1,
                Some(_) => {}
            }
            if list.get(&hash).is_none_or(|wanted| wanted != class) {
                wrong.push(format!("{name}: {class}, not {:?}: {text}", list.get(&hash)));
            }
            made.insert(hash, (class, text));
        }
        println!("{name}: {} formats, {unknown} unknown, {other_class} of another class", formats.len());
    }
    if let Ok(path) = env::var("KFD_TRACE_CLR_WRITE") {
        let lines = made.iter().map(|(hash, (class, text))| format!("{hash}\t{class}\t{text}\n"));
        fs::write(path, lines.collect::<String>()).expect("a file to write");
    }
    assert!(wrong.is_empty(), "{} lines:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn the_list_of_formats_is_sorted_and_of_known_classes() {
    let lines: Vec<(&str, &str)> = LIST.lines().filter_map(|line| line.split_once('\t')).collect();
    assert_eq!(
        (lines.len(), LIST.lines().count()),
        (list().len(), lines.len()),
        "no line is double or broken"
    );
    assert!(lines.is_sorted() && lines.len() > 1000, "{}", lines.len());
    for (hash, class) in lines {
        assert!(hash.len() == 16 && CLASSES.contains(&class), "{hash} {class}");
    }
}

/// The formats as clr's sources have them: calls over lines, escaped quotes, brackets in strings, widths by macro.
#[test]
fn formats_are_found_and_filled() {
    let source = r#"
        ClPrint(amd::LOG_INFO, amd::LOG_KERN,
                "Queue %p (%s) has\t%-25s "
                "of 0x%" PRIx64 " and %zu%%\n", queue, name("a)"), x);
        LogPrintfError("Cannot open \"%s\"", name);
        MyLogError("none");
        LogError(message);
    "#;
    let mut found = BTreeSet::new();
    formats(source, &mut found);
    let all: Vec<(u8, String)> = found.into_iter().map(|(level, format)| (level, filled(&format))).collect();
    let expected =
        [(1, "Cannot open \"hipName\""), (3, "Queue 0x7f1234500000 (hipName) has hipName of 0xb02 and 3%")];
    assert_eq!(all, expected.map(|(level, text)| (level, text.to_owned())));
}
