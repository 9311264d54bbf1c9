//! Checks of rules that promtool does not make: that the metrics are those of the tracer, and that each alert
//! is documented and has fired in a test. Pure. Dashboards check their metrics in the same way.

use serde::Deserialize;
use serde::de::IgnoredAny;
use std::collections::{BTreeMap, BTreeSet};

/// The test file in which no alert may fire.
const QUIET: &str = "quiet.yml";

/// The parts of a rule file that are checked.
#[derive(Debug, Deserialize)]
pub(crate) struct Rules {
    groups: Vec<Group>,
}

impl Rules {
    /// Those of two files.
    pub(super) fn and(mut self, other: Rules) -> Self {
        self.groups.extend(other.groups);
        self
    }
}

#[derive(Debug, Deserialize)]
struct Group {
    rules: Vec<Rule>,
}

#[derive(Debug, Deserialize)]
struct Rule {
    record: Option<String>,
    alert: Option<String>,
    expr: String,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

/// The parts of a test file that are checked.
#[derive(Debug, Deserialize)]
pub(super) struct Tests {
    tests: Vec<Test>,
}

#[derive(Debug, Deserialize)]
struct Test {
    input_series: Vec<Series>,
    #[serde(default)]
    alert_rule_test: Vec<AlertTest>,
}

#[derive(Debug, Deserialize)]
struct Series {
    series: String,
}

#[derive(Debug, Deserialize)]
struct AlertTest {
    alertname: String,
    #[serde(default)]
    exp_alerts: Vec<IgnoredAny>,
}

pub(super) struct Files<'a> {
    pub(super) rules: &'a Rules,
    /// With the name of each file.
    pub(super) tests: &'a [(String, Tests)],
    /// Text of docs/metrics.md.
    pub(super) metrics: &'a str,
    /// Text of docs/runbooks.md.
    pub(super) runbooks: &'a str,
}

/// One line per problem; empty: no problem.
pub(super) fn problems(files: &Files<'_>) -> Vec<String> {
    let rules: Vec<&Rule> = files.rules.groups.iter().flat_map(|group| &group.rules).collect();
    let alerts: BTreeMap<&str, &Rule> =
        rules.iter().filter_map(|rule| Some((rule.alert.as_deref()?, *rule))).collect();
    let mut found = names(files, &rules);
    for (name, alert) in &alerts {
        found.extend(missing(name, alert).map(|what| format!("alert {name} has no {what}")));
    }
    let sections: BTreeSet<&str> =
        files.runbooks.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    let without = |of: &str, have: &BTreeSet<&str>| {
        let incomplete = alerts.keys().filter(|name| !have.contains(*name));
        incomplete.map(|name| format!("alert {name} has no {of}")).collect::<Vec<_>>()
    };
    found.extend(without("section in docs/runbooks.md", &sections));
    found.extend(without(
        "test in which it fires",
        &tested(files.tests, |_, test| !test.exp_alerts.is_empty()),
    ));
    let quiet = tested(files.tests, |file, test| file == QUIET && test.exp_alerts.is_empty());
    found.extend(without(&format!("test in {QUIET}"), &quiet));
    let strays = sections.iter().filter(|name| name.starts_with("Kfd") && !alerts.contains_key(*name));
    found.extend(strays.map(|name| format!("docs/runbooks.md: there is no alert {name}")));
    found
}

fn tested(files: &[(String, Tests)], is_wanted: impl Fn(&str, &AlertTest) -> bool) -> BTreeSet<&str> {
    let all = files.iter().flat_map(|(name, file)| file.tests.iter().map(move |test| (name, test)));
    let alerts = all.flat_map(|(name, test)| test.alert_rule_test.iter().map(move |test| (name, test)));
    alerts.filter(|(name, test)| is_wanted(name, test)).map(|(_, test)| test.alertname.as_str()).collect()
}

fn missing(name: &str, alert: &Rule) -> impl Iterator<Item = String> {
    let runbook = format!("docs/runbooks.md#{}", name.to_lowercase());
    let has = |key: &str| alert.annotations.get(key).is_some_and(|text| !text.is_empty());
    let wanted = [
        (has("summary"), "summary".to_owned()),
        (has("description"), "description".to_owned()),
        (alert.labels.contains_key("severity"), "severity".to_owned()),
        (alert.annotations.get("runbook_url") == Some(&runbook), format!("runbook_url: {runbook}")),
    ];
    wanted.into_iter().filter(|(has, _)| !has).map(|(_, what)| what)
}

/// Names of metrics that nothing exports or records, and labels that a metric does not have.
fn names(files: &Files<'_>, rules: &[&Rule]) -> Vec<String> {
    let names = Names::read(files.metrics, files.rules);
    let mut found = BTreeSet::new();
    let mut look = |place: &str, text: &str| {
        let unknown = names.unknown(text);
        found.extend(unknown.map(|word| format!("{place}: neither docs/metrics.md nor a record has {word}")));
    };
    for rule in rules {
        let place =
            rule.alert.as_ref().or(rule.record.as_ref()).map_or("a rule without a name", String::as_str);
        look(place, &rule.expr);
        rule.annotations.values().for_each(|text| look(place, text));
    }
    for (name, file) in files.tests {
        file.tests.iter().flat_map(|test| &test.input_series).for_each(|input| look(name, &input.series));
    }
    let inputs = files.tests.iter().flat_map(|(name, file)| file.tests.iter().map(move |test| (name, test)));
    for (name, input) in
        inputs.flat_map(|(name, test)| test.input_series.iter().map(move |input| (name, input)))
    {
        let (metric, labels) = labels(&input.series);
        let strange = labels.filter(|label| !names.known.has_label(metric, label));
        found.extend(strange.map(|label| format!("{name}: {metric} has no label {label}")));
    }
    found.into_iter().collect()
}

/// Name and labels of `name{label="value", ...}`. No value in the tests has a quotation mark.
fn labels(series: &str) -> (&str, impl Iterator<Item = &str>) {
    let (metric, rest) = series.split_once('{').unwrap_or((series, ""));
    // Every other part is a value.
    let names = rest.split('"').step_by(2).map(|part| part.trim_matches([',', ' ', '=', '}']));
    (metric.trim(), names.filter(|name| !name.is_empty()))
}

/// Words that can be metric names here: of the tracer, or of a record of one.
pub(crate) fn words(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == ':'));
    words.map(|word| word.trim_end_matches(':')).filter(|word| {
        word.starts_with("kfd_") || word.split_once(':').is_some_and(|(_, metric)| metric.contains("kfd_"))
    })
}

/// Names that a query may use.
pub(crate) struct Names<'a> {
    known: Known<'a>,
    recorded: BTreeSet<&'a str>,
}

impl<'a> Names<'a> {
    /// Reads the text of docs/metrics.md and the rules.
    pub(crate) fn read(metrics: &'a str, rules: &'a Rules) -> Self {
        let rules = rules.groups.iter().flat_map(|group| &group.rules);
        Names {
            known: Known::read(metrics),
            recorded: rules.filter_map(|rule| rule.record.as_deref()).collect(),
        }
    }

    /// Names in a text that nothing exports or records.
    pub(crate) fn unknown<'t>(&self, text: &'t str) -> impl Iterator<Item = &'t str> {
        words(text).filter(|word| {
            !(if word.contains(':') { self.recorded.contains(word) } else { self.known.has(word) })
        })
    }
}

/// The metrics that docs/metrics.md lists.
struct Known<'a>(BTreeMap<&'a str, Metric<'a>>);

struct Metric<'a> {
    is_histogram: bool,
    labels: Vec<&'a str>,
}

/// Labels that Prometheus gives to each series.
const OF_TARGET: [&str; 2] = ["job", "instance"];

impl<'a> Known<'a> {
    fn read(text: &'a str) -> Self {
        let mut known = BTreeMap::new();
        for line in text.lines() {
            let columns: Vec<&str> = line.split('|').map(str::trim).collect();
            let ["", name, kind, labels, ..] = columns[..] else { continue };
            let Some(name) = name.strip_prefix('`').and_then(|name| name.strip_suffix('`')) else { continue };
            let labels = labels.split_whitespace().map(|label| label.trim_matches('`')).collect();
            known.insert(name, Metric { is_histogram: kind == "histogram", labels });
        }
        Known(known)
    }

    fn has(&self, word: &str) -> bool {
        let of_histogram = || {
            let base = ["_bucket", "_sum", "_count"].iter().find_map(|part| word.strip_suffix(part));
            base.and_then(|base| self.0.get(base)).is_some_and(|metric| metric.is_histogram)
        };
        let is_label = || self.0.values().any(|metric| metric.labels.contains(&word));
        self.0.contains_key(word) || is_label() || of_histogram()
    }

    /// True for a metric that is not the tracer's: Prometheus' own, or reported by [`Known::has`].
    fn has_label(&self, metric: &str, label: &str) -> bool {
        self.0.get(metric).is_none_or(|metric| metric.labels.contains(&label) || OF_TARGET.contains(&label))
    }
}

#[cfg(test)]
mod tests;
