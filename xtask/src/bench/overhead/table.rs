//! The figures as tables. Pure.

use super::figures::Row;
use crate::bench::baseline::Figure;

/// The subject whose extra instructions are the lower limit for our own programs.
const LIMIT: &str = "empty_same";

const HEAD: [&str; 6] = ["case", "subject", "instructions", "extra", "x empty_same", "extra a probe"];

/// A Markdown table, columns aligned, for a terminal and docs/performance.md alike.
pub(super) fn table(rows: &[Row]) -> String {
    let cells: Vec<[String; 6]> = rows.iter().map(|row| cells(row, rows)).collect();
    let width = |column: usize| {
        let longest = cells.iter().map(|cells| cells[column].len()).max().unwrap_or(0);
        longest.max(HEAD[column].len())
    };
    let widths: [usize; 6] = std::array::from_fn(width);
    let mut text = line(&HEAD.map(str::to_owned), &widths);
    text += &rule(&widths);
    for cells in &cells {
        text += &line(cells, &widths);
    }
    text
}

/// The tracer's own cost; empty where it was not measured.
pub(super) fn own(figures: &[Figure]) -> String {
    let mut text = String::new();
    if !figures.is_empty() {
        text += "\n| the tracer itself | |\n|---|--:|\n";
    }
    for Figure { case, value, unit } in figures {
        text += &format!("| {case} | {value} {unit} |\n");
    }
    text
}

/// Text to the left, numbers to the right.
fn line(cells: &[String; 6], widths: &[usize; 6]) -> String {
    let mut text = String::from("|");
    for (column, (cell, width)) in cells.iter().zip(widths).enumerate() {
        text += &if column < 2 { format!(" {cell:width$} |") } else { format!(" {cell:>width$} |") };
    }
    text + "\n"
}

fn rule(widths: &[usize; 6]) -> String {
    let mut text = String::from("|");
    for (column, width) in widths.iter().enumerate() {
        let dashes = "-".repeat(width + 1);
        text += &if column < 2 { format!("{dashes}-|") } else { format!("{dashes}:|") };
    }
    text + "\n"
}

fn cells(row: &Row, all: &[Row]) -> [String; 6] {
    let beside = |subject: &str| all.iter().find(|other| other.of(row) && other.subject == subject);
    let limit = beside(LIMIT).map(|limit| limit.extra).filter(|limit| *limit >= NOISE);
    let times = limit.map(|limit| format!("{:.2}", ratio(row.extra, limit)));
    [
        row.case.clone(),
        row.subject.clone(),
        row.instructions.to_string(),
        row.extra.to_string(),
        times.unwrap_or_else(|| "-".to_owned()),
        row.probe().map_or_else(|| "-".to_owned(), |probe| probe.to_string()),
    ]
}

/// Below this, a difference is meaningless: a ratio to it even more so.
const NOISE: i64 = 20;

#[expect(clippy::cast_precision_loss, reason = "instructions of one operation")]
fn ratio(a: i64, b: i64) -> f64 {
    a as f64 / b as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(case: &str, subject: &str, extra: i64, probes: Option<f64>) -> Row {
        let instructions = 1000 + extra;
        Row {
            kernel: "6.12",
            case: case.to_owned(),
            subject: subject.to_owned(),
            instructions,
            extra,
            probes,
        }
    }

    #[test]
    fn each_row_is_held_against_the_limit_of_its_case() {
        let rows = [
            row("a", "empty_same", 1000, None),
            row("a", "kfd_trace", 1290, Some(2.0)),
            row("b", "kfd_trace", 5, None),
            row("b", "empty_same", 2, None),
        ];
        let expected = "\
| case | subject    | instructions | extra | x empty_same | extra a probe |
|------|------------|-------------:|------:|-------------:|--------------:|
| a    | empty_same |         2000 |  1000 |         1.00 |             - |
| a    | kfd_trace  |         2290 |  1290 |         1.29 |           645 |
| b    | kfd_trace  |         1005 |     5 |            - |             - |
| b    | empty_same |         1002 |     2 |            - |             - |
";
        assert_eq!(table(&rows), expected);
    }
}
