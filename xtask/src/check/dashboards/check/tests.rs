use super::*;
use crate::check::dashboards::panel::{Variable, lines, stat, table};
use crate::check::dashboards::variable;

const METRICS: &str =
    "| `kfd_queues` | gauge | `gpu_id` | Queues. |\n| `kfd_gpu_info` | gauge | `gpu` `pci` | GPUs. |\n";
const RUNBOOKS: &str = "# Runbooks\n## KfdMany\n";

fn one(name: &'static str, variables: Vec<Variable>, panel: Panel) -> Dashboard {
    let rows = vec![("Row", vec![panel])];
    Dashboard { name, title: name, text: "", from: "now-1h", variables, selects: r#"job="$job""#, rows }
}

fn found(dashboards: &[Dashboard]) -> Vec<String> {
    let rules = r#"{"groups": [{"rules": [{"record": "gpu_id:kfd_queues:sum", "expr": ""}]}]}"#;
    let rules = serde_json::from_str(rules).unwrap();
    problems(dashboards, &Names::read(METRICS, &rules), RUNBOOKS)
}

fn of_panel(panel: Panel) -> Vec<String> {
    found(&[one("a", vec![variable::JOB], panel)])
}

#[test]
fn a_panel_that_has_all_is_well() {
    let panel = lines("Title", "What it is.").query("", "kfd_queues{@} NAMED + gpu_id:kfd_queues:sum");
    assert_eq!(of_panel(panel.see(&["KfdMany"])), [""; 0]);
}

#[test]
fn a_panel_that_names_what_is_not_there_is_found() {
    let query = |expr| of_panel(stat("Title", "What it is.").query("", expr));
    assert_eq!(query("kfd_cues{@}"), ["a: Row: Title: neither docs/metrics.md nor a record has kfd_cues"]);
    assert_eq!(
        query("gpu_id:kfd_queues:avg"),
        ["a: Row: Title: neither docs/metrics.md nor a record has gpu_id:kfd_queues:avg"]
    );
    assert_eq!(query("kfd_queues{pid=\"$pid\"}[$__range]"), ["a: Row: Title: there is no variable pid"]);
    let panel = stat("Title", "What it is.").query("", "up").see(&["KfdFew"]);
    assert_eq!(of_panel(panel), ["a: Row: Title: docs/runbooks.md has no section KfdFew"]);
}

#[test]
fn a_panel_without_query_or_description_is_found() {
    assert_eq!(
        of_panel(stat("Title", "")),
        ["a: Row: Title: has no description", "a: Row: Title: has no query"]
    );
}

#[test]
fn a_column_that_is_not_there_is_found() {
    let table = || table("Title", "What it is.", &[("gpu", "GPU")]).query("queues", "kfd_queues");
    assert_eq!(of_panel(table().unit_of("queues", "short")), [""; 0]);
    assert_eq!(of_panel(table().unit_of("gpu", "short")), ["a: Row: Title: there is no column gpu"]);
    let both = |panel| {
        let other = one("b", vec![variable::PID], stat("Title", "What it is.").query("", "up"));
        found(&[one("a", vec![], panel), other])
    };
    assert_eq!(both(table().link("GPU", "b", "pid")), [""; 0]);
    assert_eq!(both(table().link("gpu", "b", "pid")), ["a: Row: Title: there is no column gpu"]);
    assert_eq!(
        both(table().link("GPU", "b", "gpu")),
        ["a: Row: Title: leads to b, which has no variable gpu"]
    );
}

#[test]
fn queries_are_whole_as_rules() {
    let panel = stat("Title", "").query("", "rate(kfd_queues{@}[$__rate_interval]) NAMED");
    let rules = as_rules(&[one("a", vec![variable::JOB, variable::GPU], panel)]);
    let expected = r#"rate(kfd_queues{job="$job"}[5m]) * on (job, instance, gpu_id) group_left (gpu, pci) kfd_gpu_info{job="$job", gpu=~"$gpu"}"#;
    assert_eq!(rules["groups"][0]["rules"], json!([{"record": "a:0", "expr": expected}]));
}
