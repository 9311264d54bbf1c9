//! Computes the reported figures from the bench program's output and callgrind's counts. Pure.

use crate::bench::baseline::Figure;
use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use std::collections::BTreeMap;

const INSTRUCTIONS: &str = "instructions";

/// Ends of the names of regions of one size, and of ten times that.
const TENFOLD: (&str, &str) = (".10000_queues", ".100000_queues");

/// Prefix of a figure that is the cost of ten times as much, in percent.
const GROWTH: &str = "growth.";

/// Parts, and what ten times as much may cost there: nothing is quadratic. Records of the mix and samples are looked up
/// among all processes and queues, one by one: the depth of the trees is in their cost.
const MOST_GROWTH: [(&str, i64); 6] = [
    ("compare.", 1_100),
    ("ends.", 1_100),
    ("record.process_seen", 1_100),
    ("scrape.", 1_100),
    ("record.mix", 1_200),
    ("sample", 1_200),
];

/// A region that the bench program measured (tests/load/src/region.rs).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Region {
    case: String,
    /// Its cost is that of this many times `unit`.
    per: u64,
    unit: String,
    ns: u64,
}

/// The regions of a run in their order, and its other figures.
pub(super) fn read(printed: &str) -> Result<(Vec<Region>, Vec<Figure>)> {
    let (mut regions, mut others) = (Vec::new(), Vec::new());
    for line in printed.lines() {
        let value: Value = serde_json::from_str(line).with_context(|| format!("not JSON: {line}"))?;
        let (region, figure) = (region(&value), Figure::read(&value));
        ensure!(region.is_some() != figure.is_some(), "neither a region nor a figure: {line}");
        regions.extend(region);
        others.extend(figure);
    }
    Ok((regions, others))
}

fn region(line: &Value) -> Option<Region> {
    Some(Region {
        case: line["case"].as_str()?.to_owned(),
        per: line["per"].as_u64().filter(|per| *per > 0)?,
        unit: line["unit"].as_str()?.to_owned(),
        ns: line["ns"].as_u64()?,
    })
}

/// Instructions of each region, per unit; and the sums for scrapes. `counted`: by the name of the region.
pub(super) fn instructions(regions: &[Region], counted: &BTreeMap<String, u64>) -> Result<Vec<Figure>> {
    let (have, want) = (counted.len(), regions.len());
    ensure!(have == want, "callgrind counted {have} regions, the program ran {want}");
    let count = |region: &Region| {
        let all = counted.get(&region.case).copied();
        all.with_context(|| format!("callgrind counted nothing of {}", region.case))
    };
    let counts: Vec<u64> = regions.iter().map(count).collect::<Result<_>>()?;
    let each = regions.iter().zip(&counts).map(|(region, all)| {
        let unit = format!("{INSTRUCTIONS}/{}", region.unit);
        figure(&region.case, (all + region.per / 2) / region.per, unit)
    });
    let mut figures: Vec<Figure> = each.collect();
    let scrapes = sums(regions.iter().zip(counts));
    for (queues, all) in &scrapes {
        let unit = format!("{INSTRUCTIONS}/scrape");
        figures.push(figure(format!("scrape.total.{queues}_queues"), *all, unit));
    }
    let unit = || format!("{INSTRUCTIONS}/queue");
    for (queues, all) in &scrapes {
        figures.push(figure(format!("scrape.each.{queues}_queues"), all / queues, unit()));
    }
    for ((few, less), (many, more)) in scrapes.iter().zip(scrapes.iter().skip(1)) {
        let added = more.saturating_sub(*less) / (many - few);
        figures.push(figure(format!("scrape.each_more.{few}_to_{many}_queues"), added, unit()));
    }
    let totals = counted.iter().map(|(case, count)| (case.as_str(), *count));
    figures.extend(growth(&totals.collect()));
    Ok(figures)
}

/// What ten times as many processes and queues cost.
fn growth(counts: &BTreeMap<&str, u64>) -> Vec<Figure> {
    let (few, many) = TENFOLD;
    let grown = counts.iter().filter_map(|(case, less)| {
        let part = case.strip_suffix(few)?;
        let more = counts.get(format!("{part}{many}").as_str())?;
        Some(figure(format!("{GROWTH}{part}"), more * 100 / less.max(&1), "percent"))
    });
    grown.collect()
}

/// What grows more than what it is of, one line each.
pub(super) fn overgrown(figures: &[Figure]) -> Vec<String> {
    let over = |figure: &Figure| {
        let part = figure.case.strip_prefix(GROWTH)?;
        let (_, most) = MOST_GROWTH.into_iter().find(|(begin, _)| part.starts_with(begin))?;
        (figure.value > most).then(|| format!("{}: {} percent, {most} at most", figure.case, figure.value))
    };
    figures.iter().filter_map(over).collect()
}

fn figure(case: impl Into<String>, value: u64, unit: impl Into<String>) -> Figure {
    Figure::new(case, i64::try_from(value).unwrap_or(i64::MAX), unit)
}

/// Times of runs without callgrind, the fastest of each region: records a second, and scrapes.
pub(super) fn times(runs: &[Vec<Region>]) -> Vec<Figure> {
    let regions = runs.first().map_or(&[][..], Vec::as_slice);
    let fastest: Vec<u64> = (0..regions.len())
        .map(|index| runs.iter().filter_map(|run| run.get(index)).map(|region| region.ns).min().unwrap_or(0))
        .collect();
    let mixes = regions.iter().zip(&fastest).filter(|(region, _)| region.case.starts_with("record.mix."));
    let rates = mixes.map(|(region, ns)| {
        let case = region.case.replacen("record.", "rate.", 1);
        figure(case, region.per * 1_000_000_000 / ns.max(&1), "records/s")
    });
    let scrapes = sums(regions.iter().zip(fastest.iter().copied()));
    let scrapes = scrapes
        .into_iter()
        .map(|(queues, ns)| figure(format!("scrape.time.{queues}_queues"), ns / 1_000, "us"));
    rates.chain(scrapes).collect()
}

/// Sums of the steps of scrapes, by number of queues.
fn sums<'a>(regions: impl Iterator<Item = (&'a Region, u64)>) -> BTreeMap<u64, u64> {
    let mut all = BTreeMap::new();
    for (region, cost) in regions.filter(|(region, _)| region.unit == "scrape") {
        let queues = region.case.rsplit('.').next().and_then(|word| word.strip_suffix("_queues"));
        if let Some(queues) = queues.and_then(|number| number.parse().ok()).filter(|queues| *queues > 0) {
            *all.entry(queues).or_default() += cost;
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRINTED: &str = r#"{"case":"record.mix.10_queues","per":4,"unit":"record","ns":2000}
{"case":"scrape.copy.10_queues","per":1,"unit":"scrape","ns":1000}
{"case":"scrape.text.10_queues","per":1,"unit":"scrape","ns":4000}
{"case":"scrape.size.10_queues","value":77,"unit":"bytes"}
{"case":"scrape.copy.30_queues","per":1,"unit":"scrape","ns":9000}
"#;

    fn lines(figures: &[Figure]) -> Vec<String> {
        figures.iter().map(|figure| format!("{} {} {}", figure.case, figure.value, figure.unit)).collect()
    }

    #[test]
    fn what_is_not_understood_is_an_error() {
        let (regions, others) = read(PRINTED).unwrap();
        assert_eq!((regions.len(), lines(&others)), (4, vec!["scrape.size.10_queues 77 bytes".to_owned()]));
        for line in [
            "warning: x",
            r#"{"case":"a","unit":"b"}"#,
            r#"{"case":"a","per":0,"unit":"b","ns":1}"#,
            r#"{"case":"a","per":2,"value":3,"unit":"b","ns":1}"#,
        ] {
            assert!(read(line).is_err(), "{line}");
        }
    }

    #[test]
    fn instructions_are_of_one_record_and_of_each_queue_of_a_scrape() {
        let (regions, _) = read(PRINTED).unwrap();
        let mut counted = BTreeMap::from(
            [
                ("scrape.copy.30_queues", 6_100),
                ("record.mix.10_queues", 4_003),
                ("scrape.copy.10_queues", 100),
                ("scrape.text.10_queues", 2_000),
            ]
            .map(|(case, count)| (case.to_owned(), count)),
        );
        let figures = instructions(&regions, &counted).unwrap();
        assert_eq!(
            lines(&figures),
            [
                "record.mix.10_queues 1001 instructions/record",
                "scrape.copy.10_queues 100 instructions/scrape",
                "scrape.text.10_queues 2000 instructions/scrape",
                "scrape.copy.30_queues 6100 instructions/scrape",
                "scrape.total.10_queues 2100 instructions/scrape",
                "scrape.total.30_queues 6100 instructions/scrape",
                "scrape.each.10_queues 210 instructions/queue",
                "scrape.each.30_queues 203 instructions/queue",
                "scrape.each_more.10_to_30_queues 200 instructions/queue",
            ]
        );
        counted.remove("scrape.copy.10_queues");
        assert!(instructions(&regions, &counted).is_err(), "a dump is missing");
        counted.insert("scrape.copy.20_queues".to_owned(), 100);
        assert!(instructions(&regions, &counted).is_err(), "a dump of something else");
    }

    #[test]
    fn ten_times_as_much_may_cost_eleven_times_as_much_and_twelve_where_it_is_looked_up() {
        let counts = BTreeMap::from([
            ("compare.sysfs.10000_queues", 1_000),
            ("compare.sysfs.100000_queues", 11_000),
            ("ends.sysfs.10000_queues", 1_000),
            ("ends.sysfs.100000_queues", 11_010),
            ("record.mix.10000_queues", 5),
            ("record.mix.100000_queues", 60),
            ("sample.10000_queues", 1_000),
            ("sample.100000_queues", 12_010),
            ("scrape.text.10000_queues", 7),
            ("scrape.text.10000_queues_64_gpus", 99),
        ]);
        let grown = growth(&counts);
        assert_eq!(
            lines(&grown),
            [
                "growth.compare.sysfs 1100 percent",
                "growth.ends.sysfs 1101 percent",
                "growth.record.mix 1200 percent",
                "growth.sample 1201 percent",
            ]
        );
        let over =
            ["growth.ends.sysfs: 1101 percent, 1100 at most", "growth.sample: 1201 percent, 1200 at most"];
        assert_eq!(overgrown(&grown), over);
    }

    #[test]
    fn of_several_runs_the_fastest_counts() {
        let (regions, _) = read(PRINTED).unwrap();
        let mut slow = regions.clone();
        slow.iter_mut().for_each(|region| region.ns *= 2);
        slow[2].ns = 3_000;
        assert_eq!(
            lines(&times(&[slow, regions])),
            [
                "rate.mix.10_queues 2000000 records/s",
                "scrape.time.10_queues 4 us",
                "scrape.time.30_queues 9 us",
            ]
        );
    }
}
