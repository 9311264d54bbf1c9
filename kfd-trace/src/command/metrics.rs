//! `kfd-trace metrics` (hidden): the table of metrics, from which docs/metrics.md is generated.

use crate::output::metrics::describe;
use crate::runtime::exit::Stop;
use std::io::{self, Write as _};

/// Prints the table as Markdown.
///
/// # Errors
/// If the output cannot be written.
pub fn run() -> Result<(), Stop> {
    io::stdout().lock().write_all(text().as_bytes()).map_err(Stop::failed)
}

/// The text above the table.
const PREFACE: &str = r#"# Metrics

Made by `kfd-trace metrics` from the table that the exposition is built from; a test compares.

A family whose probe is not attached is not exported: 0 would say that nothing happened. `kfd_trace_probe_attached` shows
which are.

## Processes and queues
Neither is bounded on a machine; their series are:

| flag of `kfd-trace daemon` | default | what |
|---|---|---|
| `--metrics.per-process`, `--no-metrics.per-process` | on | all series with the label `pid`. Without them KfdQueuesLeftByDeadProcess, KfdProcessNotRestored, KfdQueueStalled and KfdProcessIdle ([runbooks.md](runbooks.md)) cannot fire, and no alert names processes |
| `--metrics.max-processes` | 200 | live ones first, of these the oldest; `kfd_trace_metrics_processes_dropped` counts the others |
| `--metrics.max-new-processes` | 1000 | within any hour; `kfd_trace_metrics_processes_over_budget_total` counts the others. So a tenant of short processes costs a store a bounded number of series |
| `--metrics.linger` | 5m | how long a process has series after its end |
| `--metrics.per-queue`, `--no-metrics.per-queue` | off | series of single queues: all `kfd_queue_`; not together with `--no-metrics.per-process` |
| `--metrics.max-queues` | 1000 | the oldest ones; `kfd_trace_metrics_queues_dropped` counts the others |

What a process did between the last scrape and its end is still scraped, if the linger is longer than the scrape interval: its
counters stay as they were at its end, and are removed with all of its series when the linger is over (zeros of evictions and faults at
once; where queues come from sysfs alone, all are removed at once). What was only true while it lived
(`kfd_process_queues`, `kfd_process_teardown_seconds`, series of its queues) is removed at once. Of ended processes the last 1,024 are
remembered, and none once the driver is unloaded. What they called fills the BPF map `ioctl_stats` as long as they are
remembered, at least five minutes (`kfd_trace_map_entries`). Metrics without `pid` count ended processes for ever.

Queues with what they are, of one process:

```promql
kfd_queue_active * on (instance, pid, kfd_process, queue_id) group_left (queue_type) kfd_queue_info{pid="4321"}
```

## Activity of queues
Activity is sampled: [activity.md](activity.md). With `--sample.interval=0` none of its series are exported.

## Scrapes
A scrape reads its sources (`collector`) one by one. Of a source that cannot be read nothing is exported, and
`kfd_trace_collector_success` is 0; the rest is exported, and of sysfs what could be read. While nothing is traced no source is read.

The text format (0.0.4) is sent, or OpenMetrics 1.0 to clients that prefer it (`Accept`), as Prometheus does: the same series, in both cases
compressed by gzip for clients that accept it (`Accept-Encoding`). Native histograms are not exported: durations are counted between powers of
two of a nanosecond, where no native histogram has an edge (theirs are powers of two of a second), and would have to be guessed. Prometheus 3
makes native histograms with these very edges: `convert_classic_histograms_to_nhcb: true` in its configuration of the scrape.

## GPUs
`gpu_id` is KFD's own number. `kfd_gpu_info` has the names: `gpu` is the position among the GPUs in the order of topology
nodes, as in `gpu 3 (0000:c1:00.0, gfx942)`; partitions of a chip have the same `pci` and each a `gpu_partition_id` (0 on a
chip that is not partitioned). What a kernel or board does not report is an empty label. Queues by GPU, with names:

```promql
sum by (instance, gpu_id) (kfd_queues) * on (instance, gpu_id) group_left (gpu, pci, gfx) kfd_gpu_info
```

GPUs with more active compute queues than slots:

```promql
kfd_gpu_queue_slots_used{kind="cp"} > on (instance, gpu_id, kind) kfd_gpu_queue_slots
```

AMD's Device Metrics Exporter has the labels `serial_number` and `gpu_partition_id`, too, while its `gpu_id` is another
number. Its power with the names from here, on boards that report a serial number:

```promql
gpu_package_power * on (serial_number, gpu_partition_id) group_left (gpu, pci, gfx) kfd_gpu_info{serial_number!=""}
```

## All
| name | kind | labels | help |
|---|---|---|---|
"#;

fn text() -> String {
    let mut text = String::from(PREFACE);
    for metric in describe() {
        let labels: Vec<String> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
        text +=
            &format!("| `{}` | {} | {} | {} |\n", metric.name, metric.kind, labels.join(" "), metric.help);
    }
    text
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_documentation_is_that_of_the_code() {
        let written = include_str!("../../../docs/metrics.md");
        assert!(written == super::text(), "docs/metrics.md is old: kfd-trace metrics > docs/metrics.md");
    }
}
