//! The figures that were accepted, and what has grown since. Pure but for the file.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::figures::Row;
use crate::paths;

/// Subjects that are our own doing; the others show what the kernel and other programs take.
const OURS: [&str; 2] = ["kfd_trace", "kfd_trace_caller"];

/// More than this of the accepted extra instructions is a fault: one in so many.
const TOLERATED: i64 = 20;

/// Where hardly any are extra, a share of them says nothing.
const SLACK: i64 = 20;

/// The accepted figures of one kernel.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Baseline {
    /// Of the kernel that they were measured on.
    pub(super) release: String,
    /// Case, subject, extra instructions.
    figures: Vec<(String, String, i64)>,
}

/// One file a series, so that each can be renewed alone.
fn path(series: &str) -> PathBuf {
    paths::root().join("xtask/baselines").join(format!("overhead-{series}.json"))
}

impl Baseline {
    /// Ours among these figures.
    pub(super) fn of(release: &str, rows: &[Row]) -> Self {
        let ours = rows.iter().filter(|row| OURS.contains(&row.subject.as_str()));
        let figures = ours.map(|row| (row.case.clone(), row.subject.clone(), row.extra)).collect();
        Self { release: release.to_owned(), figures }
    }

    pub(super) fn load(series: &str) -> Result<Self> {
        let path = path(series);
        let text = fs::read_to_string(&path)
            .with_context(|| format!("no accepted figures of Linux {series}: {}", path.display()))?;
        Self::parse(&text).with_context(|| format!("{} is not understood", path.display()))
    }

    pub(super) fn save(&self, series: &str) -> Result<PathBuf> {
        let path = path(series);
        let dir = path.parent().context("a folder for the accepted figures")?;
        fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
        fs::write(&path, self.text()?).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }

    fn text(&self) -> Result<String> {
        let figure = |(case, subject, extra): &(String, String, i64)| json!({ "case": case, "subject": subject, "extra_over_untraced": extra });
        let figures: Vec<Value> = self.figures.iter().map(figure).collect();
        let text = serde_json::to_string_pretty(&json!({ "release": self.release, "figures": figures }))?;
        Ok(text + "\n")
    }

    fn parse(text: &str) -> Result<Self> {
        let value: Value = serde_json::from_str(text)?;
        let word = |value: &Value| value.as_str().map(str::to_owned);
        let figure = |value: &Value| {
            Some((word(&value["case"])?, word(&value["subject"])?, value["extra_over_untraced"].as_i64()?))
        };
        let list = value["figures"].as_array().context("no figures")?;
        let figures: Option<Vec<_>> = list.iter().map(figure).collect();
        Ok(Self {
            release: word(&value["release"]).context("no release")?,
            figures: figures.context("a figure is not whole")?,
        })
    }

    /// What is wrong with new figures, a line each: those that have grown, and those that are missing.
    pub(super) fn grown(&self, now: &Self) -> Vec<String> {
        let check = |(case, subject, accepted): &(String, String, i64)| {
            let found = now.figures.iter().find(|(other, who, _)| other == case && who == subject);
            let Some((.., extra)) = found else {
                return Some(format!("{case}, {subject}: not measured"));
            };
            let most = accepted + (accepted / TOLERATED).max(SLACK);
            (*extra > most).then(|| {
                format!("{case}, {subject}: {extra} extra instructions an operation, {accepted} accepted, {most} tolerated")
            })
        };
        self.figures.iter().filter_map(check).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn baseline(figures: &[(&str, &str, i64)]) -> Baseline {
        let figures =
            figures.iter().map(|(case, subject, n)| ((*case).to_owned(), (*subject).to_owned(), *n));
        Baseline { release: "6.12.1".to_owned(), figures: figures.collect() }
    }

    #[test]
    fn a_twentieth_more_is_tolerated_and_more_is_named() {
        let accepted = baseline(&[("a", "kfd_trace", 2000), ("b", "kfd_trace", 0), ("c", "kfd_trace", 500)]);
        let within = baseline(&[("a", "kfd_trace", 2100), ("b", "kfd_trace", 20), ("c", "kfd_trace", 10)]);
        assert_eq!(accepted.grown(&within), Vec::<String>::new());
        let grown = accepted.grown(&baseline(&[("a", "kfd_trace", 2101), ("b", "kfd_trace", 21)]));
        let begins = ["a, kfd_trace: 2101 ", "b, kfd_trace: 21 ", "c, kfd_trace: not measured"];
        assert_eq!(grown.len(), begins.len());
        for (line, begin) in grown.iter().zip(begins) {
            assert!(line.starts_with(begin), "{line}");
        }
    }

    #[test]
    fn only_our_own_are_kept_and_read_back() {
        let row = |subject: &str, extra| Row {
            kernel: "6.12",
            case: "a".to_owned(),
            subject: subject.to_owned(),
            instructions: 9000,
            extra,
            probes: None,
        };
        let kept = Baseline::of("6.12.1", &[row("untraced", 0), row("kfd_trace", 7), row("strace", 8000)]);
        assert_eq!(kept, baseline(&[("a", "kfd_trace", 7)]));
        assert_eq!(Baseline::parse(&kept.text().expect("JSON")).expect("JSON"), kept);
        assert!(Baseline::parse(r#"{"release":"x","figures":[{"case":"a"}]}"#).is_err());
    }
}
