//! What the daemon sees and lost: `/api/v1/status`.

use super::Document;
use super::list::{at_most, unix_ns};
use crate::model::verdict::{EVICTIONS, QUEUES, Sight, Verdict};
use crate::text::escape;
use kfd_trace_common::counter::ProbeId;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// Entries of a list that are read at most.
const ENTRIES: usize = 10_000;

/// Lines of [`Status::problems`].
const PROBLEMS: usize = 30;

/// The document.
#[derive(Debug, Deserialize)]
pub struct Status {
    schema: u64,
    #[serde(rename = "ts", deserialize_with = "unix_ns")]
    at_ns: u64,
    tracing: bool,
    #[serde(default)]
    reason: Option<String>,
    #[serde(default)]
    queues_by_ioctl: bool,
    #[serde(deserialize_with = "at_most::<_, _, ENTRIES>")]
    meaning: Vec<String>,
    #[serde(deserialize_with = "at_most::<_, _, ENTRIES>")]
    unreadable: Vec<String>,
    #[serde(deserialize_with = "at_most::<_, _, ENTRIES>")]
    probes: Vec<ProbeRow>,
    lost: BTreeMap<String, u64>,
    /// Not from each version.
    #[serde(default)]
    sample_interval_ns: Option<u64>,
}

impl Document for Status {
    fn schema(&self) -> u64 {
        self.schema
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ProbeRow {
    probe: String,
    verdict: String,
}

impl Status {
    /// When it was made, nanoseconds of the Unix epoch by the daemon's clock.
    #[must_use]
    pub fn at_ns(&self) -> u64 {
        self.at_ns
    }

    /// `evictions`: the daemon counts them by GPU.
    #[must_use]
    pub fn sight(&self, evictions: bool) -> Sight {
        let sees = |id: &ProbeId| {
            let own = |row: &&ProbeRow| row.probe == id.name();
            self.probes.iter().find(own).is_some_and(|row| Verdict::word_sees(&row.verdict))
        };
        Sight {
            traces: self.tracing,
            queues: self.queues_by_ioctl || QUEUES.iter().all(sees),
            evictions: evictions && EVICTIONS.iter().all(sees),
            by_ioctl: self.queues_by_ioctl,
            unseen: self.meaning.clone(),
        }
    }

    /// Why nothing is traced, if so.
    #[must_use]
    pub fn why_not(&self) -> Option<String> {
        (!self.tracing).then(|| self.reason.clone().unwrap_or_else(|| "no reason is given".to_owned()))
    }

    #[must_use]
    pub fn lost(&self) -> &BTreeMap<String, u64> {
        &self.lost
    }

    /// Interval at which queues are read; `None` where the daemon does not report it.
    #[must_use]
    pub fn sample(&self) -> Option<Duration> {
        self.sample_interval_ns.map(Duration::from_nanos)
    }

    /// What cannot be seen, could not be read and was lost there, one line per topic, safe for a terminal.
    #[must_use]
    pub fn problems(&self) -> Vec<String> {
        let unseen = self.meaning.iter().map(|line| format!("not seen: {line}"));
        let unreadable = self.unreadable.iter().map(|line| format!("not readable: {line}"));
        let lost = self.lost.iter().filter(|(_, count)| **count > 0);
        let lost = lost.map(|(name, count)| format!("lost: {count} ({name})"));
        let all = unseen.chain(unreadable).chain(lost);
        let mut lines: Vec<String> = all.take(PROBLEMS + 1).map(|line| escape::terminal(&line)).collect();
        if lines.len() > PROBLEMS {
            lines.truncate(PROBLEMS);
            lines.push("and more: see `kfd-trace status` there".to_owned());
        }
        lines
    }

    pub(super) fn unreadable(&self) -> &[String] {
        &self.unreadable
    }
}
