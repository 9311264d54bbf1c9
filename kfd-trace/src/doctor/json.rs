//! The report as one JSON object (docs/doctor.md).

use super::report::Diagnosis;
use super::text::KernelSummary;
use crate::output::status::JsonFinding;
use crate::text::escape;
use serde::Serialize;
use std::io::{self, Write};

/// Version of the format.
pub const SCHEMA: u32 = 1;

#[derive(Serialize)]
struct DoctorDocument<'a> {
    schema: u32,
    /// PID of the requested process; `None`: the report is for the node.
    pid: Option<u32>,
    facts: serde_json::Map<String, serde_json::Value>,
    limits: Vec<JsonFinding<'a>>,
    #[serde(flatten)]
    report: &'a Diagnosis,
}

/// Writes the report.
///
/// # Errors
/// Those of `out`.
pub fn json(
    out: &mut impl Write,
    report: &Diagnosis,
    kernel: KernelSummary<'_>,
    pid: Option<u32>,
) -> io::Result<()> {
    let fact = |(name, value): &(&'static str, String)| ((*name).to_owned(), value.as_str().into());
    let document = DoctorDocument {
        schema: SCHEMA,
        pid,
        facts: kernel.facts.iter().map(fact).collect(),
        limits: kernel.findings.iter().map(JsonFinding::from).collect(),
        report,
    };
    escape::json(&mut *out, &document)?;
    writeln!(out)
}
