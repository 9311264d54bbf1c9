//! The report as it is printed, read from its JSON: of this node, or of another one's daemon.
//!
//! In: bytes from any server. Out: what the text shows. Names of views and findings that are not known are of a later
//! version. Texts are made safe for a terminal where they are shown.

use super::report::{ChipRow, DoctorOutcome, RocmSmi, Standing, ViewName};
use super::sampled;
use crate::output::reported::Document;
use crate::output::reported::list::{at_most, name, path};
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use std::collections::BTreeMap;
use std::fmt;

/// Processes that are read at most: more than a node has with KFD open.
const PROCESSES: usize = 50_000;
/// Entries of each other list but those of PIDs, which take no more memory than their text.
const ENTRIES: usize = 1_000;

/// The document.
#[derive(Debug, Deserialize)]
pub struct Report {
    schema: u64,
    /// The requested process; `None`: the report is for the node.
    pub pid: Option<u32>,
    #[serde(deserialize_with = "in_order")]
    pub facts: Vec<(String, String)>,
    #[serde(deserialize_with = "at_most::<_, _, ENTRIES>")]
    pub limits: Vec<Limit>,
    pub outcome: DoctorOutcome,
    pub complete: bool,
    pub looked_at: usize,
    pub not_permitted: usize,
    pub hidepid: bool,
    #[serde(deserialize_with = "at_most::<_, _, ENTRIES>")]
    pub views: Vec<View>,
    #[serde(deserialize_with = "at_most::<_, _, PROCESSES>")]
    pub processes: Vec<ProcessRow>,
    #[serde(deserialize_with = "at_most::<_, _, ENTRIES>")]
    pub chips: Vec<ChipRow>,
}

impl Document for Report {
    fn schema(&self) -> u64 {
        self.schema
    }
}

/// What limits tracing there.
#[derive(Debug, Deserialize)]
pub struct Limit {
    severity: String,
    what: String,
    consequence: String,
    remedy: String,
}

impl Limit {
    /// As `kfd-trace status` shows it.
    pub(super) fn severity(&self) -> String {
        self.severity.replace('_', " ")
    }

    pub(super) fn line(&self) -> String {
        format!("{}: {}; {}", self.what, self.consequence, self.remedy)
    }
}

#[derive(Debug, Deserialize)]
pub struct View {
    view: Known<ViewName>,
    pub saw: Option<Vec<u32>>,
    #[serde(deserialize_with = "path")]
    pub why: Option<String>,
    pub can_miss: String,
}

impl View {
    /// Name in text output.
    pub(super) fn words(&self) -> &str {
        match &self.view {
            Known::Known(view) => view.words(),
            Known::Later(name) => name,
        }
    }
}

#[derive(Debug, Deserialize)]
pub struct ProcessRow {
    pub pid: u32,
    #[serde(deserialize_with = "name")]
    pub comm: Option<String>,
    #[serde(deserialize_with = "path")]
    pub owner: Option<String>,
    pub standing: Known<Standing>,
    pub kfd: Option<bool>,
    pub queues: usize,
    pub vram_bytes: Option<u64>,
    pub activity: Option<Sampled>,
    pub rocm_smi: Option<Known<RocmSmi>>,
    #[serde(deserialize_with = "at_most::<_, _, ENTRIES>")]
    pub findings: Vec<Finding>,
}

/// A value of this version, or the name of one of a later version.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub enum Known<T> {
    Known(T),
    Later(String),
}

#[derive(Debug, Deserialize)]
pub struct Sampled {
    queues_measured: usize,
    not_measured: BTreeMap<String, usize>,
    packets_retired: u64,
    busy: bool,
}

impl Sampled {
    pub(super) fn words(&self) -> String {
        let all = self.not_measured.is_empty();
        sampled::words(self.queues_measured, all, self.packets_retired, self.busy)
    }
}

#[derive(Debug, Deserialize)]
pub struct Finding {
    weight: String,
    pub text: String,
}

impl Finding {
    pub(super) fn is_wrong(&self) -> bool {
        self.weight == "wrong"
    }
}

/// Names and values in the order of the document.
fn in_order<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<(String, String)>, D::Error> {
    struct Facts;

    impl<'de> Visitor<'de> for Facts {
        type Value = Vec<(String, String)>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("names and values")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut facts = Vec::new();
            while let Some(fact) = map.next_entry()? {
                facts.push(fact);
            }
            Ok(facts)
        }
    }

    from.deserialize_map(Facts)
}
