//! What one node of each shape costs, from its expositions alone: series, samples and bytes a day, and new series an hour.

use super::render::Sheet;
use super::shape::{Node, Shape};
use anyhow::Result;
use flate2::Compression;
use flate2::write::GzEncoder;
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::Write as _;

const DAY: u64 = 86_400;

/// The daemon's own level (serve/negotiate.rs).
const GZIP: u32 = 1;

/// No process is seen by fewer scrapes than one: each has series for its life and the linger.
const LOOK_MS: u64 = 30_000;

/// Of a node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    pub(super) series: u64,
    /// Without those of processes.
    pub(super) standing: u64,
    pub(super) bytes: u64,
    pub(super) gzip: u64,
    pub(super) new_an_hour: u64,
}

pub(super) fn of(sheet: &Sheet, shape: Shape) -> Result<Budget> {
    let node = Node::new(1, shape);
    let mut text = String::new();
    sheet.render(&node, 0, &mut text);
    let mut gzip = GzEncoder::new(Vec::new(), Compression::new(GZIP));
    gzip.write_all(text.as_bytes())?;
    let series: Vec<&str> = series(&text).collect();
    let of_processes = series.iter().filter(|series| series.contains("pid=\"")).count();
    Ok(Budget {
        series: series.len() as u64,
        standing: (series.len() - of_processes) as u64,
        bytes: text.len() as u64,
        gzip: gzip.finish()?.len() as u64,
        new_an_hour: new_an_hour(sheet, &node),
    })
}

/// Series without their values.
pub(super) fn series(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| Some(line.rsplit_once(' ')?.0))
}

/// Counted over the life of a process, or an hour where that is longer.
fn new_an_hour(sheet: &Sheet, node: &Node) -> u64 {
    let life = node.shape.life().as_secs();
    let hours = life.div_ceil(3_600);
    let looks = hours * 3_600_000 / LOOK_MS;
    // Of processes that live for hours a look in each linger sees all.
    let stride = if life > 300 { 5 } else { 1 };
    let mut seen = HashSet::new();
    let mut text = String::new();
    let mut first = 0;
    for look in (0..=looks).step_by(stride) {
        text.clear();
        sheet.render(node, look * LOOK_MS, &mut text);
        for series in series(&text).filter(|series| series.contains("pid=\"")) {
            let mut hasher = DefaultHasher::new();
            series.hash(&mut hasher);
            seen.insert(hasher.finish());
        }
        if look == 0 {
            first = seen.len();
        }
    }
    (seen.len() - first) as u64 / hours
}

/// A row of the table of each shape, at so many seconds from scrape to scrape.
pub(super) fn row(shape: Shape, budget: &Budget, interval: u64) -> String {
    let scrapes = DAY / interval;
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    format!(
        "| {} | {} | {} | {:.1} | {:.0} | {:.1} | {} | {:.0} | {:.0} |",
        shape.name(),
        budget.series,
        budget.standing,
        (budget.series * scrapes) as f64 / 1e6,
        budget.bytes as f64 / 1024.0,
        budget.gzip as f64 / 1024.0,
        budget.new_an_hour,
        mib(budget.bytes * scrapes),
        mib(budget.gzip * scrapes),
    )
}

pub(super) const HEAD: &str = "\
| shape | series | without processes | M samples a day | KiB a scrape | gzip KiB | new series an hour | MiB a day | gzip MiB a day |
|---|--:|--:|--:|--:|--:|--:|--:|--:|";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::template::{Template, tests::SMALL};

    #[test]
    fn a_budget_counts_series_and_those_that_are_new() {
        let sheet = Sheet::new(&Template::parse(SMALL).expect("a template"));
        let [idle, training, cpx, jobs] = Shape::ALL.map(|shape| of(&sheet, shape).expect("a budget"));
        assert_eq!((idle.series, idle.standing, idle.new_an_hour), (18, 18, 0));
        // A process has three series; one that ended keeps two.
        assert_eq!((training.series, training.standing), (18 + 8 * 3, 18));
        assert_eq!(training.new_an_hour, 8 * 3 / 12);
        assert_eq!((cpx.standing, cpx.new_an_hour), (2 + 128, 64 * 3));
        assert_eq!((jobs.series, jobs.new_an_hour), (18 + 32 * 3 + 160 * 2, 32 * 60 * 3));
        assert!(idle.gzip < idle.bytes && jobs.bytes > training.bytes);
    }
}
