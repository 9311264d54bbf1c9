//! Checks that Grafana does not make: that a dashboard's metrics are the tracer's, its variables its own, and
//! that panels describe what they show. Pure.

use super::json::expand;
use super::panel::{Dashboard, Kind, Panel};
use crate::check::rules::{Names, words};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Grafana's built-in variables.
const OF_GRAFANA: [&str; 2] = ["__rate_interval", "__range"];

/// One line per problem; empty: no problem.
pub(super) fn problems(dashboards: &[Dashboard], names: &Names<'_>, runbooks: &str) -> Vec<String> {
    let mut found = BTreeSet::new();
    for dashboard in dashboards {
        for (place, panel) in places(dashboard) {
            found.extend(of_panel(dashboard, panel, names, runbooks).map(|what| format!("{place}: {what}")));
            if let Some((_, to, variable)) = panel.link {
                let variables = dashboards.iter().filter(|one| one.name == to).flat_map(|one| &one.variables);
                if !variables.into_iter().any(|one| one.name == variable) {
                    found.insert(format!("{place}: leads to {to}, which has no variable {variable}"));
                }
            }
        }
    }
    found.into_iter().collect()
}

fn places(dashboard: &Dashboard) -> impl Iterator<Item = (String, &Panel)> {
    let panels = dashboard.rows.iter().flat_map(|(row, panels)| panels.iter().map(move |panel| (row, panel)));
    panels.map(|(row, panel)| (format!("{}: {row}: {}", dashboard.name, panel.title), panel))
}

fn of_panel(
    dashboard: &Dashboard,
    panel: &Panel,
    names: &Names<'_>,
    runbooks: &str,
) -> impl Iterator<Item = String> {
    let mut found = Vec::new();
    for (_, expr) in &panel.queries {
        let expr = expand(dashboard, expr);
        found.extend(
            names.unknown(&expr).map(|word| format!("neither docs/metrics.md nor a record has {word}")),
        );
        // Of a store of sums a fleet's Prometheus, and so a node's dashboard, knows nothing, and the other way round.
        let elsewhere =
            words(&expr).filter(|word| word.starts_with("fleet:") != (dashboard.name == super::sums::NAME));
        found.extend(elsewhere.map(|word| format!("its store does not have {word}")));
        let strange = variables(&expr).filter(|name| {
            !OF_GRAFANA.contains(name) && !dashboard.variables.iter().any(|variable| variable.name == *name)
        });
        found.extend(strange.map(|name| format!("there is no variable {name}")));
    }
    let has_section = |alert: &str| runbooks.lines().any(|line| line.strip_prefix("## ") == Some(alert));
    let lacking = panel.alerts.iter().filter(|alert| !has_section(alert));
    found.extend(lacking.map(|alert| format!("docs/runbooks.md has no section {alert}")));
    if panel.queries.is_empty() {
        found.push("has no query".to_owned());
    }
    if panel.text.is_empty() {
        found.push("has no description".to_owned());
    }
    let columns: Vec<&str> = match panel.kind {
        Kind::Table(labels) => {
            let labels = labels.iter().map(|(_, name)| *name);
            labels.chain(panel.queries.iter().map(|(legend, _)| *legend)).collect()
        }
        _ => Vec::new(),
    };
    let named = panel.units.iter().map(|(column, _)| *column).chain(panel.link.map(|(column, _, _)| column));
    found.extend(
        named.filter(|name| !columns.contains(name)).map(|name| format!("there is no column {name}")),
    );
    found.into_iter()
}

/// Names after `$`.
fn variables(expr: &str) -> impl Iterator<Item = &str> {
    expr.split('$').skip(1).map(|rest| {
        let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        &rest[..end.unwrap_or(rest.len())]
    })
}

/// All queries as rules, which promtool can parse. Other variables than these are within quotation marks.
pub(super) fn as_rules(dashboards: &[Dashboard]) -> Value {
    let groups = dashboards.iter().map(|dashboard| {
        let queries = places(dashboard).flat_map(|(_, panel)| &panel.queries);
        let rules = queries.zip(0..).map(|((_, expr), number)| {
            let expr = expand(dashboard, expr).replace("$__rate_interval", "5m").replace("$__range", "1h");
            json!({"record": format!("{}:{number}", dashboard.name), "expr": expr})
        });
        json!({"name": dashboard.name, "rules": rules.collect::<Vec<_>>()})
    });
    json!({"groups": groups.collect::<Vec<_>>()})
}

#[cfg(test)]
mod tests;
