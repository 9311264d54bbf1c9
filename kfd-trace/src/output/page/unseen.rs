//! What cannot be seen, and what was lost.

use super::cells::{sentence, shortened};
use super::view::{Part, ROWS};
use crate::model::verdict::{ProbeStatus, Verdict};
use crate::output::api::Tracing;
use crate::output::status;
use askama::Template;

#[derive(Template)]
#[template(path = "page/unseen.html")]
pub(super) struct Unseen {
    queues_by_ioctl: bool,
    pub(super) meaning: Vec<String>,
    unreadable: Part<String>,
    probes: Vec<ProbeCells>,
    attached: usize,
    tried: usize,
    pub(super) lost: Vec<(String, u64)>,
}

struct ProbeCells {
    name: &'static str,
    functions: String,
    verdict: &'static str,
    reason: String,
    feeds: &'static str,
}

impl Unseen {
    pub(super) fn new(tracing: &Tracing<'_>) -> Self {
        let probes = tracing.probes;
        let row = |probe: &ProbeStatus| ProbeCells {
            name: probe.id.name(),
            functions: shortened(probe.symbols.join(", ")),
            verdict: probe.verdict.word(),
            reason: probe.verdict.reason().map(|reason| sentence(&reason)).unwrap_or_default(),
            feeds: probe.feeds,
        };
        let on = |probe: &&ProbeStatus| matches!(probe.verdict, Verdict::Attached);
        let errors = tracing.topology.errors.iter().map(|error| sentence(&error.to_string()));
        Unseen {
            queues_by_ioctl: tracing.queues_by_ioctl,
            meaning: status::meaning(probes),
            unreadable: Part::new(errors.collect(), ROWS),
            probes: probes.iter().filter(|probe| !on(probe)).map(row).collect(),
            attached: probes.iter().filter(on).count(),
            tried: probes.len(),
            lost: tracing.lost.iter().map(|(name, count)| (name.clone(), *count)).collect(),
        }
    }
}
