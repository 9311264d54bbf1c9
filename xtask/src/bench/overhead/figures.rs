//! Computes the figures from the guest's lines. Pure.

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

/// Prefix of the guest's lines (tests/src/cost/figure.rs).
const MARK: &str = "kfd-cost ";

/// All subjects that can be selected (tests/src/cost/subject.rs).
pub(super) const SUBJECTS: [&str; 12] = [
    UNTRACED,
    "empty_kprobe",
    "empty_kretprobe",
    "empty_pair",
    "kfd_trace",
    "empty_same",
    "clock_same",
    "kfd_trace_links",
    "kfd_trace_runlists",
    "bpftrace_hist",
    "bpftrace_event",
    "strace",
];

/// The subject that all others are compared with.
const UNTRACED: &str = "untraced";

/// The end of the name of a subject of which only the caller's own path counts.
const CALLER: &str = "_caller";

/// Subjects whose probes are those of kfd-trace, and which do not count their runs.
const SAME_PROBES: [&str; 3] = ["kfd_trace_caller", "empty_same", "clock_same"];

/// One of the guest's lines: instructions per operation, one number per repeat.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Report {
    case: String,
    subject: String,
    caller: Vec<f64>,
    machine: Vec<f64>,
    /// Runs of the tracer's programs per operation.
    probes: Option<f64>,
}

/// A figure.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Row {
    /// The series, as `--kernel` names it.
    pub(super) kernel: &'static str,
    pub(super) case: String,
    pub(super) subject: String,
    /// Per operation.
    pub(super) instructions: i64,
    /// More than without any tracer.
    pub(super) extra: i64,
    /// Runs of kfd-trace's programs per operation, where they are counted.
    pub(super) probes: Option<f64>,
}

impl Row {
    /// Whether both are of the same case on the same kernel.
    pub(super) fn of(&self, other: &Self) -> bool {
        (self.kernel, &self.case) == (other.kernel, &other.case)
    }

    /// Extra instructions for each run of a program.
    pub(super) fn probe(&self) -> Option<i64> {
        #[expect(clippy::cast_precision_loss, reason = "instructions of one operation")]
        let extra = self.extra as f64;
        self.probes.filter(|probes| *probes > 0.0).map(|probes| round(extra / probes))
    }
}

impl Report {
    /// `None`: a line of another kind.
    pub(super) fn parse(line: &str) -> Option<Result<Self>> {
        let text = line.trim().strip_prefix(MARK)?.strip_prefix('{')?;
        Some(Self::read(&format!("{{{text}")).with_context(|| format!("the guest's line `{line}`")))
    }

    fn read(text: &str) -> Result<Self> {
        let value: Value = serde_json::from_str(text)?;
        let word = |name: &str| value[name].as_str().map(str::to_owned).with_context(|| format!("no {name}"));
        let numbers = |name: &str| {
            let list: Option<Vec<f64>> = value[name].as_array()?.iter().map(Value::as_f64).collect();
            list.filter(|list| !list.is_empty())
        };
        Ok(Self {
            case: word("case")?,
            subject: word("subject")?,
            caller: numbers("caller").context("no caller")?,
            machine: numbers("machine").context("no machine")?,
            probes: value["probes"].as_f64(),
        })
    }

    /// The repeats of the value that counts for a subject.
    fn counted(&self, subject: &str) -> &[f64] {
        if subject.ends_with(CALLER) { &self.caller } else { &self.machine }
    }
}

/// The middle one of the repeats: an interruption increases one, and the driver's own path is now and then 1 % shorter
/// than usual, which as the least of `untraced` would count as the tracer's cost.
fn middle(repeats: &[f64]) -> f64 {
    let mut sorted = repeats.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len().saturating_sub(1) / 2).copied().unwrap_or(f64::NAN)
}

/// The figures, in the guest's order.
pub(super) fn rows(kernel: &'static str, reported: &[Report]) -> Result<Vec<Row>> {
    let row = |report: &Report| {
        let Report { case, subject, .. } = report;
        let base = reported.iter().find(|other| other.case == *case && other.subject == UNTRACED);
        let base = base.with_context(|| format!("{case}: the guest reported nothing of {UNTRACED}"))?;
        let whole = middle(report.counted(subject));
        let extra = whole - middle(base.counted(subject));
        Ok(Row {
            kernel,
            case: case.clone(),
            subject: subject.clone(),
            instructions: round(whole),
            extra: round(extra),
            probes: probes(report, reported),
        })
    };
    reported.iter().map(row).collect()
}

/// The runs in a report; for subjects with the same probes that count none, the runs of their case.
fn probes(report: &Report, reported: &[Report]) -> Option<f64> {
    let uncounted = SAME_PROBES.contains(&report.subject.as_str());
    let same = |other: &&Report| uncounted && other.case == report.case;
    report.probes.or_else(|| reported.iter().filter(same).find_map(|other| other.probes))
}

#[expect(clippy::cast_possible_truncation, reason = "instructions of one operation")]
fn round(instructions: f64) -> i64 {
    instructions.round() as i64
}

/// The spread of each figure's repeats.
pub(super) fn repeats(reported: &[Report]) -> impl Iterator<Item = String> {
    reported.iter().map(|report| {
        let Report { case, subject, caller, machine, .. } = report;
        format!("{case} {subject}: caller {caller:.1?}, machine {machine:.1?}")
    })
}

pub(super) fn json(rows: &[Row]) -> Result<String> {
    let object = |row: &Row| {
        json!({
            "kernel": row.kernel,
            "case": row.case,
            "subject": row.subject,
            "instructions_per_op": row.instructions,
            "extra_over_untraced": row.extra,
        })
    };
    let all: Vec<Value> = rows.iter().map(object).collect();
    serde_json::to_string_pretty(&all).context("the figures as JSON")
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: [&str; 6] = [
        r#"kfd-cost {"case":"create_destroy","subject":"untraced","caller":[90.4,80.0,90.4],"machine":[101.0,100.2,99.0],"probes":null}"#,
        "==> Linux 6.12, something else",
        r#"kfd-cost {"case":"create_destroy","subject":"kfd_trace","caller":[95.0,97.0],"machine":[700.2,1705.0,690.0],"probes":6.0}"#,
        r#"kfd-cost {"case":"create_destroy","subject":"kfd_trace_caller","caller":[150.0,150.9],"machine":[1.0,1.0],"probes":null}"#,
        r#"kfd-cost {"case":"create_destroy","subject":"strace","caller":[9.0],"machine":[9100.0],"probes":null}"#,
        "kfd-cost: an error of the program",
    ];

    fn reported() -> Vec<Report> {
        LINES.iter().filter_map(|line| Report::parse(line)).collect::<Result<_>>().expect("all are sound")
    }

    #[test]
    fn each_subject_is_held_against_the_same_measure_of_untraced() {
        let rows = rows("6.12", &reported()).expect("untraced is there");
        let seen: Vec<_> =
            rows.iter().map(|row| (row.subject.as_str(), row.instructions, row.extra)).collect();
        let expected = [
            ("untraced", 100, 0),
            ("kfd_trace", 700, 600),
            ("kfd_trace_caller", 150, 60),
            ("strace", 9100, 9000),
        ];
        assert_eq!(seen, expected);
    }

    #[test]
    fn the_runs_of_programs_hold_for_the_same_probes_only() {
        let rows = rows("6.12", &reported()).expect("untraced is there");
        let probe: Vec<_> = rows.iter().map(Row::probe).collect();
        assert_eq!(probe, [None, Some(100), Some(10), None]);
    }

    #[test]
    fn what_is_missing_is_an_error() {
        let without: Vec<_> = reported().into_iter().filter(|report| report.subject != UNTRACED).collect();
        assert!(rows("6.12", &without).is_err());
        let broken = r#"kfd-cost {"case":"create_destroy","subject":"strace","caller":[],"machine":[1.0]}"#;
        assert!(Report::parse(broken).expect("a figure").is_err());
    }

    #[test]
    fn json_has_the_documented_fields_and_no_other() {
        let rows = rows("6.12", &reported()).expect("untraced is there");
        let value: Value = serde_json::from_str(&json(&rows).expect("JSON")).expect("JSON");
        let expected = json!({
            "kernel": "6.12", "case": "create_destroy", "subject": "kfd_trace_caller",
            "instructions_per_op": 150, "extra_over_untraced": 60,
        });
        assert_eq!(value[2], expected);
        assert_eq!(value.as_array().map(Vec::len), Some(4));
    }
}
