//! The questions that users ask of a fleet: those of the dashboard, and of docs/fleet.md. In: the two files. Out: queries
//! with the dashboard's variables filled in; and how long one takes.

use super::http;
use crate::check::rules::read;
use crate::paths;
use anyhow::{Context as _, Result};
use serde_json::Value;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const OF_NODES: &str = "deploy/grafana/fleet.json";
const OF_SUMS: &str = "deploy/grafana/sums.json";
const DOCUMENT: &str = "docs/fleet.md";

/// What a dashboard shows by default, in so many points.
const RANGE: u64 = 3_600;
const STEP: u64 = 30;

/// The least of so many is taken.
const TIMES: usize = 3;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Query {
    /// The panel's title, or the document.
    pub(super) from: String,
    pub(super) expr: String,
    /// A value at a moment; else a graph.
    pub(super) instant: bool,
}

/// To a store that has the nodes' own series.
pub(super) fn of_nodes() -> Result<Vec<Query>> {
    of_file(OF_NODES)
}

/// To a store that has sums only.
pub(super) fn of_sums() -> Result<Vec<Query>> {
    let mut all = of_file(OF_SUMS)?;
    all.extend(of_document(&read(&paths::root().join(DOCUMENT))?));
    Ok(all)
}

fn of_file(name: &'static str) -> Result<Vec<Query>> {
    Ok(of_dashboard(&serde_json::from_str(&read(&paths::root().join(name))?).context(name)?))
}

fn of_dashboard(dashboard: &Value) -> Vec<Query> {
    let array = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let mut panels = array(&dashboard["panels"]);
    // A row that is folded has its panels inside.
    let inside: Vec<Value> = panels.iter().flat_map(|panel| array(&panel["panels"])).collect();
    panels.extend(inside);
    let of_panel = |panel: &Value| -> Vec<Query> {
        let from = panel["title"].as_str().unwrap_or_default();
        let query = |target: &Value| {
            Some(Query {
                from: from.to_owned(),
                expr: filled(target["expr"].as_str()?),
                instant: target["instant"].as_bool().unwrap_or(false),
            })
        };
        array(&panel["targets"]).iter().filter_map(query).collect()
    };
    panels.iter().flat_map(of_panel).collect()
}

fn filled(expr: &str) -> String {
    let variables = [
        ("$job", "kfd-trace"),
        ("$instances", ".+"),
        ("$clusters", ".*"),
        ("$__rate_interval", "2m"),
        ("$__range", "1h"),
    ];
    variables.iter().fold(expr.to_owned(), |expr, (name, value)| expr.replace(name, value))
}

/// Of blocks of PromQL: a query begins at the begin of a line, and its other lines are indented.
fn of_document(text: &str) -> Vec<Query> {
    let mut all: Vec<Query> = Vec::new();
    for block in text.split("```promql\n").skip(1).filter_map(|rest| rest.split("```").next()) {
        for line in block.lines() {
            match all.last_mut() {
                Some(query) if line.starts_with(' ') => query.expr += &format!(" {}", line.trim()),
                _ => all.push(Query { from: DOCUMENT.to_owned(), expr: line.to_owned(), instant: true }),
            }
        }
    }
    all
}

/// What a query took.
pub(super) struct Answer {
    pub(super) series: usize,
    pub(super) least: Duration,
}

/// Asks as Grafana does, without caches.
pub(super) fn ask(port: u16, query: &Query) -> Result<Answer> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    let (now, begin, step) = (now.to_string(), (now - RANGE).to_string(), STEP.to_string());
    let common = [("query", query.expr.as_str()), ("nocache", "1")];
    let mut answer = Answer { series: 0, least: Duration::MAX };
    for _ in 0..TIMES {
        let (result, took) = if query.instant {
            http::query(port, "/api/v1/query", &[common[0], common[1], ("time", &now)])?
        } else {
            let range = [common[0], common[1], ("start", &begin), ("end", &now), ("step", &step)];
            http::query(port, "/api/v1/query_range", &range)?
        };
        answer = Answer { series: result.len(), least: answer.least.min(took) };
    }
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn queries_of_a_dashboard_are_filled_in() {
        let dashboard = json!({"panels": [
            {"title": "A", "targets": [{"expr": "sum(up{job=\"$job\", instance=~\"$instances\"})", "instant": true}]},
            {"title": "Row", "panels": [{"title": "B", "targets": [{"expr": "rate(x[$__rate_interval])"}, {"refId": "C"}]}]},
        ]});
        let query =
            |from: &str, expr: &str, instant| Query { from: from.to_owned(), expr: expr.to_owned(), instant };
        let expected = [
            query("A", "sum(up{job=\"kfd-trace\", instance=~\".+\"})", true),
            query("B", "rate(x[2m])", false),
        ];
        assert_eq!(of_dashboard(&dashboard), expected);
    }

    #[test]
    fn queries_of_a_document_may_have_several_lines() {
        let text = "x\n```promql\na\nb or\n  c\n```\ny\n```yaml\nno: 1\n```\n```promql\nd\n```\n";
        let exprs: Vec<String> = of_document(text).into_iter().map(|query| query.expr).collect();
        assert_eq!(exprs, ["a", "b or c", "d"]);
    }

    #[test]
    fn the_files_have_queries_without_a_variable_left() {
        let (nodes, sums) = (of_nodes().expect("queries"), of_sums().expect("queries"));
        assert!(sums.iter().filter(|query| query.from == DOCUMENT).count() >= 5);
        assert!(nodes.len() > 40 && sums.len() > 40, "{} {}", nodes.len(), sums.len());
        assert!(nodes.iter().chain(&sums).all(|query| !query.expr.contains('$')));
    }
}
