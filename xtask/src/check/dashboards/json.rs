//! A dashboard as Grafana's JSON, of the version that [`GRAFANA`] names.

use super::panel::{Dashboard, Kind, PER_SECOND, Panel, SECONDS, Variable};
use serde_json::{Value, json};

/// The Grafana version whose schema the files have: `cargo xtask dashboards --schema` checks them against it.
pub(super) const GRAFANA: &str = "12.4.11";

/// The schema number that this version writes.
const SCHEMA_VERSION: u32 = 42;

/// Field of every table.
const TIME: &str = "Time";

const COLUMNS: u32 = 24;
const STAT_HEIGHT: u32 = 4;
const HEIGHT: u32 = 8;

pub(super) fn uid(name: &str) -> String {
    format!("kfd-trace-{name}")
}

/// A query as Grafana sends it, except for the variables.
pub(super) fn expand(dashboard: &Dashboard, short: &str) -> String {
    let gpu = if dashboard.variables.iter().any(|variable| variable.name == "gpu") {
        r#"{@, gpu=~"$gpu"}"#
    } else {
        "{@}"
    };
    let named = format!("* on (job, instance, gpu_id) group_left (gpu, pci) kfd_gpu_info{gpu}");
    short.replace("NAMED", &named).replace('@', dashboard.selects)
}

pub(super) fn dashboard(dashboard: &Dashboard) -> Value {
    let variables = dashboard.variables.iter().map(|one| variable(dashboard, one));
    let source = json!({
        "name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus",
        "regex": "", "hide": 0, "multi": false, "includeAll": false, "options": [],
    });
    json!({
        "uid": uid(dashboard.name),
        "title": dashboard.title,
        "description": dashboard.text,
        "tags": ["kfd-trace"],
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "editable": true,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": dashboard.from, "to": "now"},
        "timezone": "browser",
        "links": [{
            "type": "dashboards", "title": "kfd-trace", "tags": ["kfd-trace"], "icon": "dashboard", "tooltip": "",
            "asDropdown": false, "includeVars": true, "keepTime": true, "targetBlank": false,
        }],
        "templating": {"list": std::iter::once(source).chain(variables).collect::<Vec<_>>()},
        "panels": panels(dashboard),
    })
}

fn variable(dashboard: &Dashboard, one: &Variable) -> Value {
    let of = expand(dashboard, one.of);
    let query = format!("label_values({of}, {})", one.values);
    let mut json = json!({
        "name": one.name, "label": one.label, "type": "query", "datasource": source(),
        // 1: values of a label, in the editor's terms.
        "query": {"qryType": 1, "query": query, "refId": one.name},
        "definition": query,
        // Queried again when the time range changes; sorted as numbers where they are numbers.
        "refresh": 2, "sort": 7, "regex": "", "hide": 0, "options": [],
        "multi": one.all.is_some(), "includeAll": one.all.is_some(),
    });
    if let Some(all) = one.all {
        json["allValue"] = json!(all);
        json["current"] = json!({"text": ["All"], "value": ["$__all"]});
    } else if !one.first.is_empty() {
        json["current"] = json!({"text": one.first, "value": one.first});
    }
    json
}

fn source() -> Value {
    json!({"type": "prometheus", "uid": "${datasource}"})
}

/// Rows and panels from left to right, wrapped at the right edge.
fn panels(dashboard: &Dashboard) -> Vec<Value> {
    let mut all = Vec::new();
    let mut top = 0;
    for (title, panels) in &dashboard.rows {
        let place = json!({"x": 0, "y": top, "w": COLUMNS, "h": 1});
        let id = all.len() + 1;
        all.push(json!({
            "type": "row", "title": title, "id": id, "gridPos": place, "collapsed": false, "panels": [],
        }));
        top += 1;
        let (mut left, mut tallest) = (0, 0);
        for panel in panels {
            if left + panel.width > COLUMNS {
                (left, top, tallest) = (0, top + tallest, 0);
            }
            let height = if panel.kind == Kind::Stat { STAT_HEIGHT } else { HEIGHT };
            let mut json = self::panel(dashboard, panel);
            json["id"] = json!(all.len() + 1);
            json["gridPos"] = json!({"x": left, "y": top, "w": panel.width, "h": height});
            all.push(json);
            (left, tallest) = (left + panel.width, tallest.max(height));
        }
        top += tallest;
    }
    all
}

fn panel(dashboard: &Dashboard, panel: &Panel) -> Value {
    let (kind, options, custom) = looks(panel);
    let targets = panel.queries.iter().zip('A'..).map(|((legend, expr), id)| {
        let format = match panel.kind {
            Kind::Table(_) => "table",
            Kind::Heatmap => "heatmap",
            _ => "time_series",
        };
        let is_instant = matches!(panel.kind, Kind::Stat | Kind::Table(_));
        json!({
            "refId": id, "datasource": source(), "editorMode": "code", "format": format,
            "expr": expand(dashboard, expr), "legendFormat": legend,
            "instant": is_instant, "range": !is_instant,
        })
    });
    let alerts: String =
        panel.alerts.iter().map(|name| format!(" docs/runbooks.md#{}", name.to_lowercase())).collect();
    let runbook = if alerts.is_empty() { String::new() } else { format!(" What to do:{alerts}") };
    let mut steps =
        vec![json!({"color": if panel.limit.is_some() { "green" } else { "text" }, "value": null})];
    steps.extend(panel.limit.map(|(value, color)| json!({"color": color, "value": value})));
    let mut defaults = json!({
        "unit": panel.unit, "custom": custom, "mappings": [],
        "thresholds": {"mode": "absolute", "steps": steps},
        "color": {"mode": if panel.kind == Kind::Stat { "thresholds" } else { "palette-classic" }},
    });
    match panel.kind {
        Kind::Stat if panel.unit == super::panel::COUNT => defaults["decimals"] = json!(0),
        Kind::Lines | Kind::Stack => defaults["min"] = json!(0),
        Kind::States => {
            let states = json!({"0": {"text": "no", "color": "red"}, "1": {"text": "yes", "color": "green"}});
            defaults["mappings"] = json!([{"type": "value", "options": states}]);
        }
        _ => {}
    }
    json!({
        "type": kind,
        "title": panel.title,
        "description": format!("{}{runbook}", panel.text),
        "datasource": source(),
        "targets": targets.collect::<Vec<_>>(),
        "transformations": transformations(panel),
        "options": options,
        "fieldConfig": {"defaults": defaults, "overrides": overrides(panel)},
    })
}

/// Type, options and field options.
fn looks(panel: &Panel) -> (&'static str, Value, Value) {
    let legend = json!({"showLegend": true, "displayMode": "list", "placement": "bottom", "calcs": []});
    let tooltip = json!({"mode": "multi", "sort": "desc", "hideZeros": true});
    let series = |stacking, fill, limit| {
        json!({
            "drawStyle": "line", "lineWidth": 1, "fillOpacity": fill, "showPoints": "auto", "spanNulls": false,
            "stacking": {"mode": stacking, "group": "A"}, "thresholdsStyle": {"mode": limit},
        })
    };
    match panel.kind {
        Kind::Stat => {
            let text = if panel.queries.len() > 1 { "value_and_name" } else { "value" };
            let options = json!({
                "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": false},
                "colorMode": "value", "graphMode": "none", "justifyMode": "auto", "orientation": "auto",
                "textMode": text, "wideLayout": true, "showPercentChange": false,
                "percentChangeColorMode": "standard",
            });
            ("stat", options, json!({}))
        }
        Kind::Lines => {
            let limit = if panel.limit.is_some() { "dashed" } else { "off" };
            ("timeseries", json!({"legend": legend, "tooltip": tooltip}), series("none", 0, limit))
        }
        Kind::Stack => {
            ("timeseries", json!({"legend": legend, "tooltip": tooltip}), series("normal", 30, "off"))
        }
        Kind::Heatmap => {
            let color = json!({
                "mode": "scheme", "scheme": "Oranges", "steps": 64, "reverse": false, "scale": "exponential",
                "exponent": 0.5, "fill": "dark-orange",
            });
            let options = json!({
                "calculate": false, "color": color, "yAxis": {"axisPlacement": "left", "unit": SECONDS},
                "rowsFrame": {"layout": "auto"}, "cellGap": 1, "cellValues": {"unit": PER_SECOND},
                "filterValues": {"le": 1e-9}, "showValue": "never", "legend": {"show": true},
                "tooltip": {"mode": "single", "yHistogram": true, "showColorScale": false},
                "exemplars": {"color": "rgba(255,0,255,0.7)"},
            });
            ("heatmap", options, json!({"scaleDistribution": {"type": "linear"}}))
        }
        Kind::States => {
            let options = json!({
                "showValue": "auto", "rowHeight": 0.9, "mergeValues": true, "alignValue": "left",
                "legend": {"showLegend": false, "displayMode": "list", "placement": "bottom", "calcs": []},
                "tooltip": {"mode": "single", "sort": "none"},
            });
            ("state-timeline", options, json!({"lineWidth": 0, "fillOpacity": 70}))
        }
        Kind::Table(_) => {
            let custom = json!({"align": "auto", "cellOptions": {"type": "auto"}, "filterable": true, "inspect": false});
            ("table", json!({"showHeader": true, "frameIndex": 0, "cellHeight": "sm"}), custom)
        }
    }
}

/// For a table: the columns that it names, one row per set of labels.
fn transformations(panel: &Panel) -> Vec<Value> {
    let Kind::Table(labels) = panel.kind else { return Vec::new() };
    let values = panel.queries.iter().zip('A'..).filter(|((legend, _), _)| !legend.is_empty());
    // Grafana names the value of the only query differently.
    let value = |id| if panel.queries.len() == 1 { "Value".to_owned() } else { format!("Value #{id}") };
    let columns = labels.iter().map(|(label, name)| ((*label).to_owned(), *name));
    let columns: Vec<_> = columns.chain(values.map(|((legend, _), id)| (value(id), *legend))).collect();
    // A query without a result has a time only: without it the queries would have nothing in common, and
    // nothing would be merged.
    let names: Vec<&str> =
        columns.iter().map(|(field, _)| field.as_str()).chain(std::iter::once(TIME)).collect();
    let order: Value =
        columns.iter().zip(0..).map(|((field, _), place)| (field.clone(), json!(place))).collect();
    let renamed: Value = columns.iter().map(|(field, name)| (field.clone(), json!(name))).collect();
    vec![
        json!({"id": "filterFieldsByName", "options": {"include": {"names": names}}}),
        json!({"id": "merge", "options": {}}),
        json!({"id": "organize", "options": {
            "excludeByName": {(TIME): true}, "includeByName": {}, "indexByName": order, "renameByName": renamed,
        }}),
    ]
}

fn overrides(panel: &Panel) -> Vec<Value> {
    let of = |column: &str, id: &str, value: Value| {
        json!({
            "matcher": {"id": "byName", "options": column},
            "properties": [{"id": id, "value": value}],
        })
    };
    let units = panel.units.iter().map(|(column, unit)| of(column, "unit", json!(unit)));
    let links = panel.link.iter().map(|(column, dashboard, variable)| {
        // The value itself becomes the variable of its name; the other variables and the time are passed on.
        let kept = ["datasource", "job", "instance"].iter().filter(|name| *name != variable);
        let kept: String = kept.map(|name| format!("${{{name}:queryparam}}&")).collect();
        let url =
            format!("/d/{}?{kept}var-{variable}=${{__value.raw}}&${{__url_time_range}}", uid(dashboard));
        of(column, "links", json!([{"title": format!("Show this {column}"), "url": url}]))
    });
    units.chain(links).collect()
}

#[cfg(test)]
mod tests;
