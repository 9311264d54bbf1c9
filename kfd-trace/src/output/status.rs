//! What this kernel lets the tracer see: findings, one verdict per probe, and the consequences.

use crate::kernel::Preflight;
use crate::kernel::findings::{Finding, FindingSeverity};
use crate::model::missed::Missed;
use crate::model::verdict::{EVICTIONS, ProbeStatus, QUEUES, Sight, Verdict, all_see};
use crate::text::{escape, table};
use kfd_trace_common::counter::ProbeId;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::{self, Write};

/// Version of the JSON format.
pub const SCHEMA: u32 = 1;

/// Counts by cause, none of them 0.
pub type Losses = BTreeMap<&'static str, u64>;

/// Everything that is shown.
#[derive(Clone, Copy, Debug)]
pub struct Status<'a> {
    /// Checks and their results, in order: `("kernel", "6.12.0")`.
    pub facts: &'a [(&'static str, String)],
    /// Worst first.
    pub findings: &'a [Finding],
    /// Empty if no probe could be tried: the findings show why.
    pub probes: &'a [ProbeStatus],
    /// Runs of each probe that the kernel skipped while it was attached.
    pub missed: &'a BTreeMap<ProbeId, Missed>,
    /// Other losses of each probe in that time, by cause ([`crate::events::tables::Tables::losses_of`]).
    pub losses: &'a BTreeMap<ProbeId, Losses>,
    /// The same for all probes, by name, none of them 0 ([`crate::events::tables::Tables::missing`]).
    pub lost: &'a BTreeMap<String, u64>,
}

/// What this kernel and its driver are, in order.
#[must_use]
pub fn facts(preflight: &Preflight) -> Vec<(&'static str, String)> {
    let reported = |value: Option<String>| value.unwrap_or_else(|| "not reported".to_owned());
    let yes = |value: bool| if value { "yes" } else { "no" }.to_owned();
    vec![
        ("kernel", reported(preflight.release.clone())),
        ("driver", preflight.driver.to_string()),
        ("BTF of the kernel", yes(preflight.vmlinux_btf)),
        ("BTF of the driver", yes(preflight.amdgpu_btf)),
        ("lockdown", reported(preflight.lockdown.map(|lockdown| format!("{lockdown:?}").to_lowercase()))),
        ("kptr_restrict", reported(preflight.kptr_restrict.map(|value| value.to_string()))),
        ("possible CPUs", reported(preflight.possible_cpus.map(|value| value.to_string()))),
    ]
}

/// What cannot be seen: one line per topic whose probes were requested but are not attached to all of their
/// functions.
#[must_use]
pub fn meaning(probes: &[ProbeStatus]) -> Vec<String> {
    let mut lines: Vec<String> = probes
        .iter()
        .filter_map(|probe| match &probe.verdict {
            Verdict::Attached | Verdict::NotAsked | Verdict::ReportedBy(_) | Verdict::NoGpu => None,
            Verdict::NotInKernel if probe.may_lack => None,
            Verdict::Partly { .. } => Some(format!("seen in part: {}", probe.feeds)),
            Verdict::LeftOut | Verdict::NotInKernel | Verdict::MissingFields(_) | Verdict::Refused(_) => {
                let needed = if probe.required { " (the tracer needs this)" } else { "" };
                Some(format!("not seen: {}{needed}", probe.feeds))
            }
        })
        .collect();
    // Entry and return of a function have one row each.
    lines.dedup();
    lines
}

/// The same in short. `by_ioctl`: queues are followed by their ioctls alone.
#[must_use]
pub fn sight(probes: &[ProbeStatus], by_ioctl: bool) -> Sight {
    let traces = !probes.is_empty();
    Sight {
        traces,
        queues: by_ioctl || (traces && all_see(probes, &QUEUES)),
        evictions: traces && all_see(probes, &EVICTIONS),
        by_ioctl,
        unseen: meaning(probes),
    }
}

/// Writes the facts about a kernel, and what limits tracing there: a severity and a line each.
///
/// # Errors
/// Those of `out`.
pub(crate) fn kernel_summary<N: AsRef<str>, S: AsRef<str>>(
    out: &mut impl Write,
    facts: &[(N, String)],
    findings: impl ExactSizeIterator<Item = (S, String)>,
) -> io::Result<()> {
    let width = facts.iter().map(|(name, _)| name.as_ref().chars().count()).max().unwrap_or(0);
    for (name, value) in facts {
        writeln!(out, "{:width$}  {}", escape::terminal(name.as_ref()), escape::terminal(value))?;
    }
    if findings.len() > 0 {
        writeln!(out, "\nfindings:")?;
        for (severity, line) in findings {
            writeln!(out, "  {}: {}", escape::terminal(severity.as_ref()), escape::terminal(&line))?;
        }
    }
    Ok(())
}

/// Writes the status as text.
///
/// # Errors
/// Those of `out`.
pub fn text(out: &mut impl Write, status: &Status<'_>) -> io::Result<()> {
    let findings = status.findings.iter().map(|finding| (severity(finding.severity), finding.to_string()));
    kernel_summary(out, status.facts, findings)?;
    if status.probes.is_empty() {
        return writeln!(out, "\nno probe was tried");
    }
    writeln!(out, "\n{}", probe_table(status))?;
    if status.lost.is_empty() {
        writeln!(out, "\nnothing was lost while they were attached")?;
    } else {
        writeln!(out, "\nlost while they were attached:")?;
        status.lost.iter().try_for_each(|(name, count)| writeln!(out, "  {name}: {count}"))?;
    }
    let meaning = meaning(status.probes);
    if meaning.is_empty() {
        return writeln!(out, "\nall requested events are traced");
    }
    writeln!(out)?;
    meaning.iter().try_for_each(|line| writeln!(out, "{line}"))
}

fn probe_table(status: &Status<'_>) -> String {
    let rows = status.probes.iter().map(|probe| {
        vec![
            probe.id.name().to_owned(),
            probe.kind.to_owned(),
            escape::terminal(&functions(&probe.symbols)),
            probe.verdict.word().to_owned(),
            missed(status.missed.get(&probe.id)),
            escape::terminal(&probe.verdict.reason().unwrap_or_default()),
        ]
    });
    table::plain(&["PROBE", "KIND", "FUNCTION", "VERDICT", "MISSED", "REASON"], rows.collect(), &[])
}

/// Empty for a probe that is attached to no function.
fn missed(missed: Option<&Missed>) -> String {
    let count =
        |missed: &Missed| missed.counted().map_or_else(|| "not measured".to_owned(), |n| n.to_string());
    missed.map_or_else(|| "-".to_owned(), count)
}

fn functions(symbols: &[String]) -> String {
    match symbols {
        [] => "-".to_owned(),
        [one] => one.clone(),
        [first, rest @ ..] => format!("{first} and {} more", rest.len()),
    }
}

fn severity(severity: FindingSeverity) -> &'static str {
    match severity {
        FindingSeverity::NothingToTrace => "nothing to trace",
        FindingSeverity::Blocks => "blocks",
        FindingSeverity::Limits => "limits",
        FindingSeverity::Note => "note",
    }
}

#[derive(Serialize)]
struct StatusDocument<'a> {
    schema: u32,
    facts: serde_json::Map<String, serde_json::Value>,
    findings: Vec<JsonFinding<'a>>,
    probes: Vec<ProbeReport<'a>>,
    lost: &'a BTreeMap<String, u64>,
    meaning: Vec<String>,
}

/// One finding, in `status --json` and `doctor --json`.
#[derive(Serialize)]
pub(crate) struct JsonFinding<'a> {
    severity: &'static str,
    what: &'a str,
    consequence: &'a str,
    remedy: &'a str,
}

impl<'a> From<&'a Finding> for JsonFinding<'a> {
    fn from(finding: &'a Finding) -> Self {
        JsonFinding {
            severity: match finding.severity {
                FindingSeverity::NothingToTrace => "nothing_to_trace",
                other => severity(other),
            },
            what: &finding.what,
            consequence: finding.consequence,
            remedy: finding.remedy,
        }
    }
}

/// One probe, in `status --json` and in the API.
#[derive(Serialize)]
pub(super) struct ProbeReport<'a> {
    probe: &'static str,
    kind: &'static str,
    functions: &'a [String],
    places: usize,
    required: bool,
    verdict: &'static str,
    reason: Option<String>,
    missed: Option<JsonMissed>,
    /// Other losses while it was attached, by cause, none of them 0.
    lost: Option<&'a Losses>,
    feeds: &'static str,
}

impl<'a> ProbeReport<'a> {
    pub(super) fn new(
        probe: &'a ProbeStatus,
        missed: &BTreeMap<ProbeId, Missed>,
        losses: &'a BTreeMap<ProbeId, Losses>,
    ) -> Self {
        ProbeReport {
            probe: probe.id.name(),
            kind: probe.kind,
            functions: &probe.symbols,
            places: probe.places,
            required: probe.required,
            verdict: probe.verdict.word(),
            reason: probe.verdict.reason(),
            missed: missed.get(&probe.id).map(|missed| (*missed).into()),
            lost: losses.get(&probe.id),
            feeds: probe.feeds,
        }
    }
}

/// Counted while the probe was attached; `null` is not measured.
#[derive(Serialize)]
struct JsonMissed {
    program_skipped: Option<u64>,
    probe_missed: Option<u64>,
}

impl From<Missed> for JsonMissed {
    fn from(missed: Missed) -> Self {
        JsonMissed { program_skipped: missed.program_skipped, probe_missed: missed.probe_missed }
    }
}

/// Writes the status as one JSON object.
///
/// # Errors
/// Those of `out`.
pub fn json(out: &mut impl Write, status: &Status<'_>) -> io::Result<()> {
    let findings = status.findings.iter().map(JsonFinding::from);
    let probes = status.probes.iter().map(|probe| ProbeReport::new(probe, status.missed, status.losses));
    let document = StatusDocument {
        schema: SCHEMA,
        facts: status.facts.iter().map(|(name, value)| ((*name).to_owned(), value.as_str().into())).collect(),
        findings: findings.collect(),
        probes: probes.collect(),
        lost: status.lost,
        meaning: meaning(status.probes),
    };
    escape::json(&mut *out, &document)?;
    writeln!(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::samples::probe;

    fn shown(probes: &[ProbeStatus]) -> (String, serde_json::Value) {
        with_lost(probes, &BTreeMap::new())
    }

    fn with_lost(probes: &[ProbeStatus], lost: &BTreeMap<String, u64>) -> (String, serde_json::Value) {
        let findings = [Finding {
            severity: FindingSeverity::Limits,
            what: "no BTF".into(),
            consequence: "only ioctls are traced",
            remedy: "use another kernel",
        }];
        let facts = [("kernel", "6.12.0".to_owned()), ("driver", "amdgpu\x1b".to_owned())];
        let missed = BTreeMap::from([
            (ProbeId::Ioctl, Missed { program_skipped: Some(3), probe_missed: Some(4) }),
            (ProbeId::Open, Missed::default()),
        ]);
        let losses = BTreeMap::from([
            (ProbeId::Ioctl, Losses::from([("ring_full", 5), ("queue_unreadable", 7)])),
            (ProbeId::Open, Losses::new()),
        ]);
        let status =
            Status { facts: &facts, findings: &findings, probes, missed: &missed, losses: &losses, lost };
        let (mut plain, mut object) = (Vec::new(), Vec::new());
        text(&mut plain, &status).expect("memory");
        json(&mut object, &status).expect("memory");
        (String::from_utf8(plain).expect("UTF-8"), serde_json::from_slice(&object).expect("JSON"))
    }

    #[test]
    fn every_verdict_has_its_row_its_reason_and_its_meaning() {
        let probes = [
            probe(ProbeId::Ioctl, Verdict::Attached),
            probe(ProbeId::IoctlHandler, Verdict::NotAsked),
            probe(ProbeId::QueueAdd, Verdict::MissingFields(vec!["QUEUE_ID".into()])),
            probe(ProbeId::Open, Verdict::Partly { failed: vec![("kfd_open".into(), "ENOENT".into())] }),
        ];
        let lost = BTreeMap::from([("trouble, queue_unreadable, ioctl".to_owned(), 7)]);
        let (text, value) = with_lost(&probes, &lost);
        let expected = concat!(
            "kernel  6.12.0\ndriver  amdgpu\\u{1b}\n\nfindings:\n",
            "  limits: no BTF: only ioctls are traced; use another kernel\n\n",
            "PROBE          KIND    FUNCTION            VERDICT         MISSED        REASON\n",
            "ioctl          kprobe  kfd_one and 1 more  attached        7\n",
            "ioctl_handler  kprobe  kfd_one and 1 more  not_asked       -\n",
            "queue_add      kprobe  kfd_one and 1 more  missing_fields  -             QUEUE_ID\n",
            "open           kprobe  kfd_one and 1 more  partly          not measured  kfd_open: ENOENT\n\n",
            "lost while they were attached:\n  trouble, queue_unreadable, ioctl: 7\n\n",
            "not seen: what queue_add feeds\nseen in part: what open feeds\n",
        );
        assert_eq!(text, expected);
        assert_eq!(value["probes"][2]["verdict"], "missing_fields");
        assert_eq!(value["probes"][0]["reason"], serde_json::Value::Null);
        assert_eq!(value["meaning"].as_array().map(Vec::len), Some(2));
        let missed = |at: usize| value["probes"][at]["missed"].clone();
        assert_eq!(missed(0), serde_json::json!({"program_skipped": 3, "probe_missed": 4}));
        assert_eq!(missed(2), serde_json::Value::Null, "it is on no function");
        assert_eq!(missed(3), serde_json::json!({"program_skipped": null, "probe_missed": null}));
        let lost_of = |at: usize| value["probes"][at]["lost"].clone();
        assert_eq!(lost_of(0), serde_json::json!({"ring_full": 5, "queue_unreadable": 7}));
        assert_eq!(lost_of(2), serde_json::Value::Null, "it is on no function");
        assert_eq!(lost_of(3), serde_json::json!({}));
        assert_eq!(value["findings"][0]["severity"], "limits");
        assert_eq!(value["lost"], serde_json::json!(lost));
    }

    #[test]
    fn the_text_shows_whether_all_probes_are_attached_or_none_was_tried() {
        let (text, value) = shown(&[probe(ProbeId::Ioctl, Verdict::Attached)]);
        let end = "\nnothing was lost while they were attached\n\nall requested events are traced\n";
        assert!(text.ends_with(end), "{text}");
        assert_eq!((&value["meaning"], &value["lost"]), (&serde_json::json!([]), &serde_json::json!({})));
        assert!(shown(&[]).0.ends_with("\nno probe was tried\n"));
    }
}
