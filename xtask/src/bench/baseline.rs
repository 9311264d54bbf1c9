//! Accepted figures, and how new ones differ from them. One file per benchmark in xtask/baselines. Pure
//! except for the file.

use crate::paths;
use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use std::fs;
use std::path::PathBuf;

/// Growth in percent of an accepted figure that is reported. The compiler's choices alone, in code that no change has
/// touched, made a figure grow by more.
const REPORTED: i64 = 5;

/// Growth with which the check fails.
const FAILS: i64 = 15;

/// One figure; smaller is better.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Figure {
    pub(crate) case: String,
    pub(crate) value: i64,
    pub(crate) unit: String,
}

impl Figure {
    pub(crate) fn new(case: impl Into<String>, value: i64, unit: impl Into<String>) -> Self {
        Figure { case: case.into(), value, unit: unit.into() }
    }

    pub(crate) fn read(value: &Value) -> Option<Self> {
        Some(Figure::new(value["case"].as_str()?, value["value"].as_i64()?, value["unit"].as_str()?))
    }

    pub(crate) fn json(&self) -> Value {
        json!({ "case": self.case, "value": self.value, "unit": self.unit })
    }
}

/// Figures of one benchmark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Baseline {
    /// What the figures depend on besides our own code: a kernel's release, a compiler.
    pub(crate) measured_on: String,
    pub(crate) figures: Vec<Figure>,
}

/// What has grown, one line each.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Growth {
    /// Too much, or it was not measured.
    pub(crate) fails: Vec<String>,
    /// More than usual, and tolerated.
    pub(crate) reported: Vec<String>,
}

impl Growth {
    /// `bench`: what accepts it.
    pub(crate) fn report(&self, bench: &str) {
        self.reported.iter().for_each(|line| eprintln!("warning: {line}"));
        if !self.reported.is_empty() {
            eprintln!(
                "warning: more than {REPORTED} % above what was accepted, which no change may have caused; `cargo xtask bench {bench} --accept` accepts it"
            );
        }
    }
}

fn path(name: &str) -> PathBuf {
    paths::root().join("xtask/baselines").join(format!("{name}.json"))
}

impl Baseline {
    /// The accepted figures of a benchmark.
    pub(crate) fn load(name: &str) -> Result<Self> {
        let path = path(name);
        let text = fs::read_to_string(&path)
            .with_context(|| format!("no accepted figures (--accept makes them): {}", path.display()))?;
        Self::parse(&text).with_context(|| format!("{} is not understood", path.display()))
    }

    /// The same, where there may be none.
    pub(crate) fn find(name: &str) -> Result<Option<Self>> {
        path(name).exists().then(|| Self::load(name)).transpose()
    }

    /// Makes these the accepted ones.
    pub(crate) fn save(&self, name: &str) -> Result<PathBuf> {
        let path = path(name);
        let dir = path.parent().context("a folder for the accepted figures")?;
        fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
        fs::write(&path, self.text()?).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }

    fn text(&self) -> Result<String> {
        let figures: Vec<Value> = self.figures.iter().map(Figure::json).collect();
        let all = json!({ "measured_on": self.measured_on, "figures": figures });
        Ok(serde_json::to_string_pretty(&all)? + "\n")
    }

    fn parse(text: &str) -> Result<Self> {
        let value: Value = serde_json::from_str(text)?;
        let list = value["figures"].as_array().context("no figures")?;
        let figures: Option<Vec<Figure>> = list.iter().map(Figure::read).collect();
        Ok(Self {
            measured_on: value["measured_on"].as_str().context("no measured_on")?.to_owned(),
            figures: figures.context("a figure is not whole")?,
        })
    }

    /// An accepted figure.
    pub(crate) fn of(&self, case: &str) -> Option<i64> {
        self.figures.iter().find(|figure| figure.case == case).map(|figure| figure.value)
    }

    /// New figures that have grown, and those that are missing. Where that is more than the usual share of an accepted
    /// figure, `slack` of its case is tolerated.
    pub(crate) fn grown(&self, now: &Self, slack: impl Fn(&str) -> i64) -> Growth {
        let mut growth = Growth::default();
        for Figure { case, value: accepted, unit } in &self.figures {
            let Some(value) = now.of(case) else {
                growth.fails.push(format!("{case}: not measured"));
                continue;
            };
            let [reported, most] =
                [REPORTED, FAILS].map(|percent| accepted + (accepted * percent / 100).max(slack(case)));
            if value > most {
                growth.fails.push(format!("{case}: {value} {unit}, {accepted} accepted, {most} tolerated"));
            } else if value > reported {
                growth.reported.push(format!("{case}: {value} {unit}, {accepted} accepted"));
            }
        }
        growth
    }

    /// New figures that were never accepted, one line each.
    pub(crate) fn unaccepted(&self, now: &Self) -> Vec<String> {
        let new = now.figures.iter().filter(|figure| self.of(&figure.case).is_none());
        new.map(|Figure { case, value, unit }| format!("{case}: {value} {unit}, none accepted")).collect()
    }

    /// Accepted figures that are now too high to detect the next growth, one line each.
    pub(crate) fn shrunk(&self, now: &Self) -> Vec<String> {
        let check = |Figure { case, value: accepted, unit }: &Figure| {
            let value = now.of(case)?;
            let few = value < accepted - accepted * REPORTED / 100;
            few.then(|| format!("{case}: {value} {unit}, {accepted} accepted"))
        };
        self.figures.iter().filter_map(check).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn baseline(figures: &[(&str, i64)]) -> Baseline {
        let figures = figures.iter().map(|(case, value)| Figure::new(*case, *value, "things"));
        Baseline { measured_on: "6.12.1".to_owned(), figures: figures.collect() }
    }

    #[test]
    fn growth_is_reported_above_a_twentieth_and_fails_above_three() {
        let accepted = baseline(&[("a", 2000), ("b", 0), ("c", 500), ("d", 100)]);
        let within = baseline(&[("a", 2100), ("b", 20), ("c", 10), ("d", 120)]);
        assert_eq!(accepted.grown(&within, |_| 20), Growth::default());
        let growth = accepted.grown(&within, |_| 0);
        assert_eq!(
            growth.fails,
            ["b: 20 things, 0 accepted, 0 tolerated", "d: 120 things, 100 accepted, 115 tolerated"]
        );
        assert_eq!(growth.reported, Vec::<String>::new());
        let growth = accepted.grown(&baseline(&[("a", 2300), ("b", 21), ("d", 115)]), |_| 0);
        assert_eq!(growth.reported, ["a: 2300 things, 2000 accepted", "d: 115 things, 100 accepted"]);
        let growth = accepted.grown(&baseline(&[("a", 2301), ("b", 21), ("d", 0)]), |_| 20);
        assert_eq!(
            growth.fails,
            [
                "a: 2301 things, 2000 accepted, 2300 tolerated",
                "b: 21 things, 0 accepted, 20 tolerated",
                "c: not measured",
            ]
        );
    }

    #[test]
    fn a_twentieth_less_is_tolerated_and_less_is_named() {
        let accepted = baseline(&[("a", 2000), ("b", 0), ("c", 500)]);
        let now = baseline(&[("a", 1900), ("b", 0), ("c", 474), ("d", 1)]);
        assert_eq!(accepted.shrunk(&now), ["c: 474 things, 500 accepted"]);
        assert_eq!(accepted.unaccepted(&now), ["d: 1 things, none accepted"]);
    }

    #[test]
    fn what_is_written_is_read_back() {
        let kept = baseline(&[("a", 7), ("b", -1)]);
        assert_eq!(Baseline::parse(&kept.text().expect("JSON")).expect("JSON"), kept);
        assert!(Baseline::parse(r#"{"measured_on":"x","figures":[{"case":"a"}]}"#).is_err());
        assert!(Baseline::parse(r#"{"figures":[]}"#).is_err());
    }
}
