//! The library's encoder, as the judge of what is written without it.

use prometheus::TextEncoder;
use prometheus::proto::{Counter, Gauge, LabelPair, Metric, MetricFamily, MetricType};

/// A line of an exposition: label pairs and value.
type Line = (Vec<(String, String)>, f64);

/// What the library writes of the series in this text, given in another order: sorted by label values, each series
/// once, escaped, numbers as it formats them. Histograms are as they are, since the library wrote them.
pub(super) fn encoded(text: &str) -> String {
    let mut families: Vec<(&str, String)> = Vec::new();
    for family in text.split("# HELP ").skip(1) {
        let (help, rest) = family.split_once('\n').expect("a line of help");
        let (name, help) = help.split_once(' ').expect("a name");
        let (kind, lines) = rest.split_once('\n').expect("a line of type");
        let kind = kind.strip_prefix(&format!("# TYPE {name} ")).expect("of the same name");
        let text = if kind == "histogram" {
            format!("# HELP {family}")
        } else {
            let lines = lines.lines().map(|text| line(name, text));
            let family = made(name, help, kind, lines.collect());
            TextEncoder::new().encode_to_string(&[family]).expect("well formed")
        };
        families.push((name, text));
    }
    families.sort();
    families.into_iter().map(|(_, text)| text).collect()
}

fn line(name: &str, line: &str) -> Line {
    let rest = line.strip_prefix(name).expect("a series of its family");
    let (labels, value) = rest.rsplit_once(' ').expect("a value");
    let mut labels = labels.strip_prefix('{').and_then(|labels| labels.strip_suffix('}')).unwrap_or_default();
    let mut pairs = Vec::new();
    while let Some((name, rest)) = labels.split_once("=\"") {
        let (value, rest) = quoted(rest);
        pairs.push((name.to_owned(), value));
        labels = rest.strip_prefix(',').unwrap_or(rest);
    }
    assert_eq!(labels, "", "{line}");
    (pairs, value.parse().expect("a number"))
}

/// A value up to its quote, and what follows.
fn quoted(text: &str) -> (String, &str) {
    let mut value = String::new();
    let mut chars = text.chars();
    loop {
        match chars.next().expect("a quote at the end") {
            '"' => return (value, chars.as_str()),
            '\\' => value.push(chars.next().expect("what is escaped")),
            c => value.push(c),
        }
    }
}

fn made(name: &str, help: &str, kind: &str, mut lines: Vec<Line>) -> MetricFamily {
    lines.reverse();
    let values = |(pairs, _): &Line| pairs.iter().map(|(_, value)| value.clone()).collect::<Vec<_>>();
    lines.sort_by_key(values);
    lines.dedup_by_key(|line| values(line));
    let mut family = MetricFamily::default();
    family.set_name(name.to_owned());
    family.set_help(help.to_owned());
    family.set_field_type(if kind == "counter" { MetricType::COUNTER } else { MetricType::GAUGE });
    let metrics = lines.into_iter().map(|(pairs, value)| {
        let labels = pairs.into_iter().map(|(name, value)| {
            let mut pair = LabelPair::default();
            pair.set_name(name);
            pair.set_value(value);
            pair
        });
        let mut metric = Metric::from_label(labels.collect());
        let (mut counter, mut gauge) = (Counter::default(), Gauge::default());
        counter.set_value(value);
        gauge.set_value(value);
        match kind {
            "counter" => metric.set_counter(counter),
            _ => metric.set_gauge(gauge),
        }
        metric
    });
    family.set_metric(metrics.collect());
    family
}

/// The same in OpenMetrics (1.0, "Suffixes" and "EOF"): the series of a counter have another name than the family.
pub(super) fn open_metrics(text: &str) -> String {
    let lines = text.lines().map(|line| {
        let mut words: Vec<&str> = line.split(' ').collect();
        if words[0] == "#" {
            words[2] = words[2].strip_suffix("_total").unwrap_or(words[2]);
        }
        words.join(" ") + "\n"
    });
    lines.chain(["# EOF\n".to_owned()]).collect()
}
