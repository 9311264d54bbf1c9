//! `kfd-trace metrics` (hidden): the table of metrics, of which docs/metrics.md is made.

use super::stop::Stop;
use crate::output::metrics::describe;
use std::io::{self, Write as _};

/// Prints the table as Markdown.
///
/// # Errors
/// When the output cannot be written.
pub fn run() -> Result<(), Stop> {
    io::stdout().lock().write_all(text().as_bytes()).map_err(Stop::failed)
}

/// What stands above the table.
const PREFACE: &str = r#"# Metrics

Made by `kfd-trace metrics` from the table that the exposition is built from; a test compares.

A family whose probe is not attached is not exported: 0 would say that nothing happened. `kfd_trace_probe_attached` tells
which are.

## GPUs
`gpu_id` is KFD's own number. `kfd_gpu_info` has the names: `gpu` is the position among the GPUs in the order of topology
nodes, as in `gpu 3 (0000:c1:00.0, gfx942)`; partitions of a chip have the same `pci` and each a `gpu_partition_id` (0 on a
chip that is not partitioned). What a kernel or board does not tell is an empty label. Queues by GPU, with names:

```promql
sum by (instance, gpu_id) (kfd_queues) * on (instance, gpu_id) group_left (gpu, pci, gfx) kfd_gpu_info
```

GPUs with more active compute queues than slots:

```promql
kfd_gpu_queue_slots_used{kind="cp"} > on (instance, gpu_id, kind) kfd_gpu_queue_slots
```

AMD's Device Metrics Exporter has the labels `serial_number` and `gpu_partition_id`, too, while its `gpu_id` is another
number. Its power with the names from here, on boards that tell a serial number:

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
