//! What the tracer can see, what it cannot and why, and what it lost.

use super::events::{Bounds, bounds};
use super::view::written;
use crate::attribute::Topology;
use crate::kernel::types::TypesReport;
use crate::model::missed::Missed;
use crate::model::verdict::ProbeStatus;
use crate::output::status::{self, Losses, ProbeReport};
use crate::state::{Class, Kept};
use crate::text::clock;
use kfd_trace_common::counter::ProbeId;
use serde::Serialize;
use std::collections::BTreeMap;

/// State of the tracing.
#[derive(Clone, Copy, Debug)]
pub struct Tracing<'a> {
    /// Now, RFC 3339.
    pub ts: &'a Option<String>,
    /// Start of the daemon, nanoseconds of the Unix epoch.
    pub began_ns: i64,
    /// Likewise: from when on the history is known.
    pub known_since_ns: i64,
    /// Why nothing is traced now, if so.
    pub why_not: Option<&'a str>,
    /// Empty while nothing is traced.
    pub probes: &'a [ProbeStatus],
    pub missed: &'a BTreeMap<ProbeId, Missed>,
    pub losses: &'a BTreeMap<ProbeId, Losses>,
    /// By name, none of them 0.
    pub lost: &'a BTreeMap<String, u64>,
    /// Queues are tracked by ioctls alone.
    pub queues_by_ioctl: bool,
    /// Between two readings of queues, nanoseconds; 0 for never.
    pub sample_interval_ns: u64,
    pub driver_loads: u64,
    pub types: &'a TypesReport,
    pub topology: &'a Topology,
    pub kept: &'a [(Class, Kept)],
}

/// Where the layouts of the driver's structures come from.
#[derive(Serialize)]
struct TypesFields<'a> {
    source: &'static str,
    /// The file or the table's entry.
    name: String,
    checked: &'static str,
    refuted: Vec<RefutedFields<'a>>,
}

#[derive(Serialize)]
struct RefutedFields<'a> {
    name: String,
    reason: &'a str,
}

fn types_fields(types: &TypesReport) -> TypesFields<'_> {
    let refuted = types.refuted.iter();
    TypesFields {
        source: types.source.name(),
        name: types.source.to_string(),
        checked: types.checked(),
        refuted: refuted.map(|(source, reason)| RefutedFields { name: source.to_string(), reason }).collect(),
    }
}

/// Builds the document.
///
/// # Errors
/// As [`super::queues`].
pub fn status(tracing: &Tracing<'_>) -> serde_json::Result<String> {
    #[derive(Serialize)]
    struct StatusFields<'a> {
        version: &'static str,
        began: Option<String>,
        tracing: bool,
        reason: Option<&'a str>,
        driver_loads: u64,
        queues_by_ioctl: bool,
        sample_interval_ns: u64,
        driver_types: TypesFields<'a>,
        meaning: Vec<String>,
        unreadable: Vec<String>,
        probes: Vec<ProbeReport<'a>>,
        lost: &'a BTreeMap<String, u64>,
        history: Vec<Bounds>,
    }
    let probe = |probe| ProbeReport::new(probe, tracing.missed, tracing.losses);
    written(
        tracing.ts.clone(),
        StatusFields {
            version: env!("CARGO_PKG_VERSION"),
            began: clock::rfc3339(tracing.began_ns),
            tracing: tracing.why_not.is_none(),
            reason: tracing.why_not,
            driver_loads: tracing.driver_loads,
            queues_by_ioctl: tracing.queues_by_ioctl,
            sample_interval_ns: tracing.sample_interval_ns,
            driver_types: types_fields(tracing.types),
            meaning: status::meaning(tracing.probes),
            unreadable: tracing.topology.errors.iter().map(ToString::to_string).collect(),
            probes: tracing.probes.iter().map(probe).collect(),
            lost: tracing.lost,
            history: bounds(tracing.kept),
        },
    )
}
