use super::*;

const METRICS: &str = "# Metrics\n| name | kind | labels | help |\n|---|---|---|---|\n\
    | `kfd_queues` | gauge | `gpu_id` `kfd_process` | Queues. |\n\
    | `kfd_wait_seconds` | histogram | `ioctl` | A | B. |\n";

const RULES: &str = "
groups:
  - name: one
    rules:
      - record: gpu_id:kfd_queues:sum
        expr: sum by (gpu_id, kfd_process) (kfd_queues) + kfd_wait_seconds_count
      - alert: KfdMany
        expr: gpu_id:kfd_queues:sum > 1
        labels: { severity: warning }
        annotations:
          summary: many
          description: 'kfd-trace: {{ \"kfd_queues\" | query }}'
          runbook_url: docs/runbooks.md#kfdmany
";

const FIRES: &str = "
tests:
  - input_series: [{ series: 'kfd_queues{gpu_id=\"9\"}', values: 2x9 }]
    alert_rule_test:
      - { alertname: KfdMany, eval_time: 0m }
      - { alertname: KfdMany, eval_time: 1m, exp_alerts: [{ exp_labels: { gpu_id: 9 } }] }
";

const QUIET: &str = "
tests:
  - input_series: [{ series: 'kfd_queues{gpu_id=\"9\"}', values: 1x9 }]
    alert_rule_test: [{ alertname: KfdMany, eval_time: 1m }]
";

const RUNBOOKS: &str = "# Runbooks\n## First steps\n## KfdMany\n";

fn found(rules: &str, fires: &str, quiet: &str, runbooks: &str) -> Vec<String> {
    let tests = [("fires.yml", fires), ("quiet.yml", quiet)]
        .map(|(name, text)| (name.to_owned(), serde_saphyr::from_str(text).unwrap()));
    let rules = serde_saphyr::from_str(rules).unwrap();
    problems(&Files { rules: &rules, tests: &tests, metrics: METRICS, runbooks })
}

#[test]
fn rules_that_have_all_are_well() {
    assert_eq!(found(RULES, FIRES, QUIET, RUNBOOKS), [""; 0]);
}

#[test]
fn a_name_that_nobody_exports_is_found_wherever_it_stands() {
    let unknown = |place, name| vec![format!("{place}: neither docs/metrics.md nor a record has {name}")];
    let rules = |from, to| found(&RULES.replacen(from, to, 1), FIRES, QUIET, RUNBOOKS);
    assert_eq!(rules("(kfd_queues)", "(kfd_queue)"), unknown("gpu_id:kfd_queues:sum", "kfd_queue"));
    assert_eq!(
        rules("kfd_wait_seconds_count", "kfd_queues_count"),
        unknown("gpu_id:kfd_queues:sum", "kfd_queues_count")
    );
    assert_eq!(rules("\"kfd_queues\"", "\"kfd_quest\""), unknown("KfdMany", "kfd_quest"));
    assert_eq!(rules("sum > 1", "avg > 1"), unknown("KfdMany", "gpu_id:kfd_queues:avg"));
    let test = found(RULES, &FIRES.replace("kfd_queues", "kfd_cues"), QUIET, RUNBOOKS);
    assert_eq!(test, unknown("fires.yml", "kfd_cues"));
}

#[test]
fn a_test_with_a_label_that_its_metric_has_not_is_found() {
    let with = |labels| found(RULES, &FIRES.replace("gpu_id=\"9\"", labels), QUIET, RUNBOOKS);
    assert_eq!(with("job=\"a=b, c\", gpu_id=\"9\",instance=\"x\""), [""; 0]);
    assert_eq!(with("gpu_id=\"9\", ioctl=\"x\""), ["fires.yml: kfd_queues has no label ioctl"]);
}

#[test]
fn an_incomplete_alert_is_found() {
    let rules = |from, to| found(&RULES.replacen(from, to, 1), FIRES, QUIET, RUNBOOKS);
    assert_eq!(rules("summary: many", ""), ["alert KfdMany has no summary"]);
    assert_eq!(rules("description:", "details:"), ["alert KfdMany has no description"]);
    assert_eq!(rules("severity", "urgency"), ["alert KfdMany has no severity"]);
    assert_eq!(rules("#kfdmany", "#kfdfew"), ["alert KfdMany has no runbook_url: docs/runbooks.md#kfdmany"]);
}

#[test]
fn an_alert_without_a_test_or_a_section_is_found() {
    let fires =
        found(RULES, &FIRES.replace(", exp_alerts: [{ exp_labels: { gpu_id: 9 } }]", ""), QUIET, RUNBOOKS);
    assert_eq!(fires, ["alert KfdMany has no test in which it fires"]);
    let quiet = found(RULES, FIRES, &QUIET.replace("KfdMany", "KfdFew"), RUNBOOKS);
    assert_eq!(quiet, ["alert KfdMany has no test in quiet.yml"]);
    let renamed = found(RULES, FIRES, QUIET, &RUNBOOKS.replace("KfdMany", "KfdFew"));
    let expected =
        ["alert KfdMany has no section in docs/runbooks.md", "docs/runbooks.md: there is no alert KfdFew"];
    assert_eq!(renamed, expected);
}
