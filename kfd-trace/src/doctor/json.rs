//! The report as one JSON object (docs/doctor.md).

use super::report::Diagnosis;
use crate::kernel::Finding;
use crate::output::status::JsonFinding;
use crate::text::escape;
use serde::{Serialize, Serializer};

/// Version of the format.
pub const SCHEMA: u32 = 1;

/// Facts and findings about this kernel, as `kfd-trace status` shows them.
#[derive(Clone, Copy, Debug)]
pub struct KernelSummary<'a> {
    pub facts: &'a [(&'static str, String)],
    pub findings: &'a [Finding],
}

#[derive(Serialize)]
struct DoctorDocument<'a> {
    schema: u32,
    /// PID of the requested process; `None`: the report is for the node.
    pid: Option<u32>,
    #[serde(serialize_with = "in_order")]
    facts: &'a [(&'static str, String)],
    limits: Vec<JsonFinding<'a>>,
    #[serde(flatten)]
    report: &'a Diagnosis,
}

/// As the text has them.
fn in_order<S: Serializer>(facts: &[(&'static str, String)], to: S) -> Result<S::Ok, S::Error> {
    to.collect_map(facts.iter().map(|(name, value)| (name, value)))
}

/// The report in one line.
///
/// # Errors
/// Never for these types; serde_json reports errors only at run time.
pub fn document(
    report: &Diagnosis,
    kernel: KernelSummary<'_>,
    pid: Option<u32>,
) -> serde_json::Result<String> {
    escape::json_text(&DoctorDocument {
        schema: SCHEMA,
        pid,
        facts: kernel.facts,
        limits: kernel.findings.iter().map(JsonFinding::from).collect(),
        report,
    })
}
