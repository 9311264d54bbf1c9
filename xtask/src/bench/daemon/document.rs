//! The tables of docs/performance.md that are made from the accepted figures of the daemon.

use crate::bench::baseline::Baseline;
use crate::paths;
use anyhow::{Context as _, Result};
use std::fs;
use std::path::PathBuf;

const BEGIN: &str = "<!-- From xtask/baselines/daemon.json by `cargo xtask bench daemon --accept`. -->\n";
const END: &str = "<!-- End. -->\n";

/// Ends of cases, by column.
const RECORDS: [(&str, &str); 3] =
    [("beside 10 queues", ".10_queues"), ("1,000", ".1000_queues"), ("10,000", ".10000_queues")];
const SIZES: [(&str, &str); 5] = [
    ("10 queues", ".10_queues"),
    ("1,000", ".1000_queues"),
    ("10,000", ".10000_queues"),
    ("10,000 on 64 GPUs", ".10000_queues_64_gpus"),
    ("100,000, 5,000 processes", ".100000_queues"),
];

/// How a figure is shown.
#[derive(Clone, Copy)]
enum Shown {
    Whole,
    Millions,
}

/// Rows: the words, and the begin of the cases.
const OF_RECORDS: [(&str, &str); 14] = [
    ("MQD init", "record.mqd_init"),
    ("queue create", "record.queue_create"),
    ("MQD update", "record.mqd_update"),
    ("queue update", "record.queue_update"),
    ("evict", "record.evict"),
    ("restore", "record.restore"),
    ("queue destroy", "record.queue_destroy"),
    ("mix of these", "record.mix"),
    ("the same with the history, while it fills", "record.mix_with_history"),
    ("and when it is full", "record.mix_with_full_history"),
    ("ioctl", "record.ioctl"),
    ("process that starts and ends, of five records", "record.process_life"),
    ("sample of a queue, without its reading", "sample"),
    ("new process, with what /proc and the kubelet's folders have", "record.process_seen"),
];
const OF_SIZES: [(&str, &str); 11] = [
    ("scrape: copying the state", "scrape.copy"),
    ("scrape: making the text", "scrape.text"),
    ("scrape: in all", "scrape.total"),
    ("the first scrape, which makes the label texts", "scrape.first"),
    ("exposition, MB", "scrape.size"),
    ("compressing it", "scrape.gzip"),
    ("compressed, MB", "scrape.gzip_size"),
    ("comparison with sysfs: queues", "compare.sysfs"),
    ("comparison with sysfs: ends of processes", "ends.sysfs"),
    ("comparison with the kernel's table: queues", "compare.kernel"),
    ("comparison with the kernel's table: ends of processes", "ends.kernel"),
];
const OF_GROWTH: [(&str, &str); 9] = [
    ("records of the mix", "growth.record.mix"),
    ("samples", "growth.sample"),
    ("new processes", "growth.record.process_seen"),
    ("comparison with sysfs: queues", "growth.compare.sysfs"),
    ("comparison with sysfs: ends of processes", "growth.ends.sysfs"),
    ("comparison with the kernel's table: queues", "growth.compare.kernel"),
    ("comparison with the kernel's table: ends of processes", "growth.ends.kernel"),
    ("scrape: copying the state", "growth.scrape.copy"),
    ("scrape: making the text", "growth.scrape.text"),
];
const OF_RECORDING: [(&str, &str); 6] = [
    ("the stream: a line of JSON", "recording.stream"),
    ("the recorder: a line of the recording", "recording.record"),
    ("compressing it, in a thread of its own", "recording.compress"),
    ("replay: reading it, in a thread of its own", "recording.read"),
    ("replay: a line of JSON", "recording.replay"),
    ("bytes in the file", "recording.file"),
];
const OF_EXPORT: [(&str, &str); 4] = [
    ("with the history, which is full", "export.off"),
    ("and handed over to be exported", "export.tracer"),
    ("made into records of OTLP, in a thread of its own", "export.records"),
    ("bytes of a record of OTLP", "export.size"),
];
const OF_MEMORY: [(&str, &str); 4] = [
    ("a live queue", "memory.queue"),
    ("an ended queue that is remembered", "memory.ended_queue"),
    ("500 processes and 10,000 queues", "memory.state.10000_queues"),
    ("a scrape of these, while it runs", "memory.scrape.10000_queues"),
];

fn tables(accepted: &Baseline) -> String {
    let one = [("", "")];
    let recording = [("of the mix, beside 1,000 queues", ".1000_queues")];
    [
        table(accepted, "instructions of one record", &RECORDS, &OF_RECORDS, Shown::Whole),
        table(accepted, "million instructions", &SIZES, &OF_SIZES, Shown::Millions),
        table(
            accepted,
            "ten times as many processes and queues cost, percent",
            &one,
            &OF_GROWTH,
            Shown::Whole,
        ),
        table(accepted, "instructions of one record", &recording, &OF_RECORDING, Shown::Whole),
        table(accepted, "instructions of one record", &recording, &OF_EXPORT, Shown::Whole),
        table(accepted, "bytes", &one, &OF_MEMORY, Shown::Whole),
    ]
    .join("\n")
}

/// A figure that is missing is left empty.
fn table(
    accepted: &Baseline,
    title: &str,
    columns: &[(&str, &str)],
    rows: &[(&str, &str)],
    shown: Shown,
) -> String {
    let line = |first: &str, cells: Vec<String>| format!("| {first} | {} |\n", cells.join(" | "));
    let mut text = line(title, columns.iter().map(|(words, _)| (*words).to_owned()).collect());
    text += &format!("|---|{}\n", "--:|".repeat(columns.len()));
    for (words, case) in rows {
        let cell = |(_, size): &(&str, &str)| {
            let value = accepted.of(&format!("{case}{size}"));
            value.map_or_else(String::new, |value| number(value, shown))
        };
        text += &line(words, columns.iter().map(cell).collect());
    }
    text
}

fn number(value: i64, shown: Shown) -> String {
    match shown {
        Shown::Whole => thousands(value),
        // Three digits, or two where it is small.
        Shown::Millions if value >= 100_000_000 => thousands((value + 500_000) / 1_000_000),
        Shown::Millions => {
            let hundredths = (value + 5_000) / 10_000;
            format!("{}.{:02}", hundredths / 100, hundredths % 100)
        }
    }
}

fn thousands(value: i64) -> String {
    let digits = value.to_string();
    let cut = |at: usize| at > 0 && (digits.len() - at).is_multiple_of(3);
    let parts =
        digits.char_indices().flat_map(|(at, digit)| cut(at).then_some(',').into_iter().chain([digit]));
    parts.collect()
}

fn path() -> PathBuf {
    paths::root().join("docs/performance.md")
}

/// Puts the tables where the old ones are.
fn renewed(document: &str, accepted: &Baseline) -> Option<String> {
    let (before, rest) = document.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some([before, BEGIN, &tables(accepted), END, after].concat())
}

/// Writes the tables of newly accepted figures.
pub(super) fn renew(accepted: &Baseline) -> Result<PathBuf> {
    let path = path();
    let document = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let new = renewed(&document, accepted).with_context(|| format!("no tables in {}", path.display()))?;
    fs::write(&path, new).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::baseline::Figure;
    use crate::bench::daemon::BASELINE;

    #[test]
    fn the_document_has_the_accepted_figures() {
        let accepted = Baseline::load(BASELINE).unwrap();
        let document = fs::read_to_string(path()).unwrap();
        let new = renewed(&document, &accepted).expect("a place for the tables");
        let different = document.lines().zip(new.lines()).find(|(old, new)| old != new);
        assert_eq!(different, None, "docs/performance.md and xtask/baselines/daemon.json");
        assert!(document == new);
    }

    #[test]
    fn each_row_has_an_accepted_figure() {
        let accepted = Baseline::load(BASELINE).unwrap();
        let rows = OF_RECORDS.iter().chain(&OF_SIZES).chain(&OF_GROWTH).chain(&OF_MEMORY);
        for (_, case) in rows {
            let has = |figure: &Figure| figure.case.starts_with(case);
            assert!(accepted.figures.iter().any(has), "{case}");
        }
    }

    #[test]
    fn figures_are_shown_by_thousands_and_millions() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(thousands), ["0", "999", "1,000", "1,234,567"]);
        let millions = [448_930, 40_502_409, 99_999_999, 329_121_465, 1_234_500_000];
        assert_eq!(
            millions.map(|value| number(value, Shown::Millions)),
            ["0.45", "40.50", "100.00", "329", "1,235"]
        );
        let accepted =
            Baseline { measured_on: String::new(), figures: vec![Figure::new("ends.a.2", 7, "x")] };
        let text =
            table(&accepted, "t", &[("one", ".1"), ("two", ".2")], &[("ends", "ends.a")], Shown::Whole);
        assert_eq!(text, "| t | one | two |\n|---|--:|--:|\n| ends |  | 7 |\n");
    }
}
