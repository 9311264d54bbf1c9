//! The queries of Grafana's dashboards (deploy/grafana), in a form that Prometheus itself can evaluate.

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;

#[derive(Clone, Debug, PartialEq)]
pub struct PanelQuery {
    /// `kfd-trace / Node`
    pub dashboard: String,
    /// Title of the panel with the letter of the query, or `variable NAME`.
    pub panel: String,
    /// Without variables.
    pub expr: String,
    /// Evaluated at one time (/api/v1/query), not over a range (/api/v1/query_range).
    pub is_instant: bool,
}

#[derive(Deserialize)]
struct Dashboard {
    title: String,
    panels: Vec<Panel>,
    templating: Templating,
}

#[derive(Deserialize)]
struct Panel {
    title: String,
    #[serde(default)]
    targets: Vec<Target>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Target {
    ref_id: String,
    expr: String,
    instant: bool,
}

#[derive(Deserialize)]
struct Templating {
    list: Vec<Variable>,
}

#[derive(Deserialize)]
struct Variable {
    name: String,
    #[serde(default)]
    definition: Option<String>,
}

/// All queries of a dashboard's JSON, those of its variables among them, with these values of variables:
/// `("job", "kfd-trace")`,
/// `("__rate_interval", "1m")`.
///
/// # Errors
/// When it is no dashboard, or a variable has no value here.
pub fn queries(json: &str, values: &[(&str, &str)]) -> Result<Vec<PanelQuery>> {
    let dashboard: Dashboard = serde_json::from_str(json).context("not a dashboard")?;
    let title = &dashboard.title;
    let mut all = Vec::new();
    for variable in &dashboard.templating.list {
        let Some(definition) = &variable.definition else { continue };
        let panel = format!("variable {}", variable.name);
        let short = values_of_label(definition).with_context(|| format!("{title}: {panel}"))?;
        all.push((panel, short, true));
    }
    for panel in &dashboard.panels {
        for target in &panel.targets {
            let panel = format!("{} {}", panel.title, target.ref_id);
            all.push((panel, target.expr.clone(), target.instant));
        }
    }
    let whole = all.into_iter().map(|(panel, short, is_instant)| {
        let expr = with_values(&short, values).with_context(|| format!("{title}: {panel}: `{short}`"))?;
        Ok(PanelQuery { dashboard: title.clone(), panel, expr, is_instant })
    });
    whole.collect()
}

/// `label_values(SERIES, LABEL)` as a query: one series per value of the label, and none if the label is
/// missing.
fn values_of_label(definition: &str) -> Result<String> {
    let inner = definition.strip_prefix("label_values(").and_then(|rest| rest.strip_suffix(')'));
    let parts = inner.and_then(|inner| inner.rsplit_once(", "));
    let (series, label) =
        parts.with_context(|| format!("not label_values(SERIES, LABEL): `{definition}`"))?;
    let selected = series.strip_suffix('}').map_or_else(|| format!("{series}{{"), |open| format!("{open}, "));
    Ok(format!("count by ({label}) ({selected}{label}!=\"\"}})"))
}

/// With the value of each `$name`.
fn with_values(text: &str, values: &[(&str, &str)]) -> Result<String> {
    let (mut whole, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once('$') {
        let end = after.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(after.len());
        let (name, after) = after.split_at(end);
        let Some((_, value)) = values.iter().find(|(have, _)| *have == name) else {
            bail!("no value for ${name}");
        };
        whole += before;
        whole += value;
        rest = after;
    }
    Ok(whole + rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DASHBOARD: &str = r#"{
        "title": "One",
        "templating": {"list": [
            {"name": "datasource", "type": "datasource"},
            {"name": "job", "definition": "label_values(kfd_trace_build_info, job)"},
            {"name": "gpu", "definition": "label_values(kfd_gpu_info{job=\"$job\"}, gpu)"}
        ]},
        "panels": [
            {"title": "Row", "type": "row"},
            {"title": "Rate", "targets": [
                {"refId": "A", "expr": "rate(a{job=\"$job\"}[$__rate_interval])", "instant": false},
                {"refId": "B", "expr": "b{job=\"$job\"}", "instant": true}
            ]}
        ]
    }"#;

    #[test]
    fn each_query_has_its_values() {
        let found = queries(DASHBOARD, &[("job", "kfd"), ("__rate_interval", "1m")]).unwrap();
        let found: Vec<_> = found.iter().map(|one| (&*one.panel, &*one.expr, one.is_instant)).collect();
        let expected = [
            ("variable job", "count by (job) (kfd_trace_build_info{job!=\"\"})", true),
            ("variable gpu", "count by (gpu) (kfd_gpu_info{job=\"kfd\", gpu!=\"\"})", true),
            ("Rate A", "rate(a{job=\"kfd\"}[1m])", false),
            ("Rate B", "b{job=\"kfd\"}", true),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_variable_without_a_value_is_reported() {
        let error = queries(DASHBOARD, &[("job", "kfd")]).unwrap_err();
        let expected =
            "One: Rate A: `rate(a{job=\"$job\"}[$__rate_interval])`: no value for $__rate_interval";
        assert_eq!(format!("{error:#}"), expected);
    }

    #[test]
    fn the_dashboards_of_the_project_are_read() {
        let values = ["job", "instance", "instances", "clusters", "gpu", "pid", "__rate_interval", "__range"]
            .map(|name| (name, "value"));
        for (name, json) in [
            ("sums", include_str!("../../../deploy/grafana/sums.json")),
            ("fleet", include_str!("../../../deploy/grafana/fleet.json")),
            ("node", include_str!("../../../deploy/grafana/node.json")),
            ("process", include_str!("../../../deploy/grafana/process.json")),
        ] {
            let found = queries(json, &values).unwrap();
            let panels = json.matches("\"refId\"").count();
            // A variable's query has a refId, too.
            assert_eq!(found.len(), panels, "{name}");
        }
    }
}
