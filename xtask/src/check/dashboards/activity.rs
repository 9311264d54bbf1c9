//! Queue activity of a node and of a process: packets, SDMA commands, backlog, and idle processes.

use super::panel::{BYTES, BYTES_PER_SECOND, PACKETS_PER_SECOND, Panel, SECONDS, SHARE, lines, stat, table};
use super::totals;

/// For a table of the processes that hold a GPU, the node first: label and column.
pub(super) const HOLDERS: [(&str, &str); 12] = [
    ("instance", "node"),
    ("gpu", "GPU"),
    ("pci", "PCI"),
    ("pid", "PID"),
    ("comm", "process"),
    ("uid", "UID"),
    ("namespace", "namespace"),
    ("pod", "pod"),
    ("container", "container"),
    ("container_id", "container id"),
    ("slurm_job", "Slurm job"),
    ("unit", "unit"),
];

pub(super) fn of_node() -> Vec<Panel> {
    vec![
        totals::packets_submitted(),
        totals::packets_retired(),
        totals::backlog(),
        totals::stalled(),
        totals::gpus_held_idle(),
        totals::not_measured(),
        lines("Packets submitted by GPU", "AQL packets: kernels, barriers and others alike.")
            .query(
                "gpu {{gpu}} ({{pci}})",
                "sum by (gpu, pci) (rate(kfd_process_packets_submitted_total{@}[$__rate_interval]) NAMED)",
            )
            .unit(PACKETS_PER_SECOND),
        lines("Packets retired by GPU", "AQL packets that the GPU has done with. Fewer than are submitted: the backlog grows.")
            .query(
                "gpu {{gpu}} ({{pci}})",
                "sum by (gpu, pci) (rate(kfd_process_packets_retired_total{@}[$__rate_interval]) NAMED)",
            )
            .unit(PACKETS_PER_SECOND),
        lines("Packets retired by process", "Who uses the GPUs; the ten with most.")
            .query(
                "{{comm}} ({{pid}})",
                "topk(10, sum by (pid, comm) (rate(kfd_process_packets_retired_total{@}[$__rate_interval])))",
            )
            .unit(PACKETS_PER_SECOND),
        lines("Backlog by process", "AQL packets that are not retired, those that run included; the ten with most.")
            .query(
                "{{comm}} ({{pid}}), gpu {{gpu}} ({{pci}})",
                "topk(10, kfd_process_packets_backlog{@} NAMED)",
            )
            .see(&["KfdQueueStalled"]),
        lines("SDMA ring bytes by process", "Bytes of commands that they put into the rings of their SDMA queues, not the bytes that these copy; the ten with most.")
            .query(
                "{{comm}} ({{pid}})",
                "topk(10, sum by (pid, comm) (rate(kfd_process_sdma_ring_bytes_submitted_total{@}[$__rate_interval])))",
            )
            .unit(BYTES_PER_SECOND),
        lines("SDMA backlog by process", "Bytes of commands that are not retired: more than 0 means that the engine has work; the ten with most.")
            .query(
                "{{comm}} ({{pid}}), gpu {{gpu}} ({{pci}})",
                "topk(10, kfd_process_sdma_ring_bytes_backlog{@} NAMED)",
            )
            .unit(BYTES)
            .see(&["KfdQueueStalled"]),
        lines("Queues stalled", "They have a backlog and retired nothing for 10 s: a long kernel, an eviction, or a hang; the ten processes with most.")
            .query(
                "{{comm}} ({{pid}}), gpu {{gpu}} ({{pci}})",
                "topk(10, kfd_process_queues_stalled{@} NAMED)",
            )
            .warn_from(1.0)
            .see(&["KfdQueueStalled"]),
        lines("Queues not measured", "Share of a process's queues whose packets or SDMA commands are in no counter; the ten with most.")
            .query(
                "{{comm}} ({{pid}})",
                "topk(10, sum by (pid, comm) (kfd_process_queues_not_measured{@}) / sum by (pid, comm) (kfd_process_queues{@}))",
            )
            .unit(SHARE)
            .see(&["KfdTraceSamplesFail"]),
        table(
            "Who holds a GPU and does nothing",
            "For how long a process has not used a GPU on which it has queues. 0: in use. Empty: not reported. A PID leads to the process.",
            HOLDERS.split_at(1).1,
        )
        .query(
            "not used for",
            "sort_desc(kfd_process_idle_seconds{@} NAMED * on (job, instance, pid, kfd_process) \
             group_left (uid, namespace, pod, container, container_id, slurm_job, unit) kfd_process_info{@})",
        )
        .unit_of("not used for", SECONDS)
        .link("PID", "process", "pid")
        .see(&["KfdProcessIdle"]),
    ]
}

/// For the process whose PID is chosen.
pub(super) fn of_process() -> Vec<Panel> {
    vec![
        stat("Backlog", "AQL packets that are not retired, those that run included, at the last sample.")
            .query("", "sum(kfd_process_packets_backlog{@, pid=\"$pid\"})")
            .width(6),
        stat("Queues stalled", "They have a backlog and retired nothing for 10 s: a long kernel, an eviction, or a hang.")
            .query("", "sum(kfd_process_queues_stalled{@, pid=\"$pid\"})")
            .warn_from(1.0)
            .width(6)
            .see(&["KfdQueueStalled"]),
        stat("Queues not measured", "Share of its queues whose packets or SDMA commands are in no counter. No number: it has no queue.")
            .query(
                "",
                "sum(kfd_process_queues_not_measured{@, pid=\"$pid\"}) / sum(kfd_process_queues{@, pid=\"$pid\"})",
            )
            .unit(SHARE)
            .width(6)
            .see(&["KfdTraceSamplesFail"]),
        stat("Queues not measured to their end", "They ended without a last reading: what they did after their last sample is in no counter.")
            .query("", "sum(kfd_process_queues_incomplete_total{@, pid=\"$pid\"})")
            .width(6),
        lines("Packets", "AQL packets: kernels, barriers and others alike. More submitted than retired: the backlog grows.")
            .query(
                "submitted, gpu {{gpu}} ({{pci}})",
                "sum by (gpu, pci) (rate(kfd_process_packets_submitted_total{@, pid=\"$pid\"}[$__rate_interval]) NAMED)",
            )
            .query(
                "retired, gpu {{gpu}} ({{pci}})",
                "sum by (gpu, pci) (rate(kfd_process_packets_retired_total{@, pid=\"$pid\"}[$__rate_interval]) NAMED)",
            )
            .unit(PACKETS_PER_SECOND),
        lines("Backlog over time", "AQL packets that are not retired, those that run included.")
            .query(
                "gpu {{gpu}} ({{pci}})",
                "sum by (gpu, pci) (kfd_process_packets_backlog{@, pid=\"$pid\"} NAMED)",
            )
            .see(&["KfdQueueStalled"]),
        lines("SDMA ring bytes", "Bytes of commands in the rings of its SDMA queues: not the bytes that they copy.")
            .query(
                "submitted, gpu {{gpu}} ({{pci}})",
                "sum by (gpu, pci) (rate(kfd_process_sdma_ring_bytes_submitted_total{@, pid=\"$pid\"}[$__rate_interval]) NAMED)",
            )
            .query(
                "retired, gpu {{gpu}} ({{pci}})",
                "sum by (gpu, pci) (rate(kfd_process_sdma_ring_bytes_retired_total{@, pid=\"$pid\"}[$__rate_interval]) NAMED)",
            )
            .unit(BYTES_PER_SECOND),
        lines("GPUs that it does not use", "For how long it has not used a GPU on which it has queues. 0: in use. No line: it has none, or one that is not measured.")
            .query(
                "gpu {{gpu}} ({{pci}})",
                "min by (gpu, pci) (kfd_process_idle_seconds{@, pid=\"$pid\"} NAMED)",
            )
            .unit(SECONDS)
            .see(&["KfdProcessIdle"]),
    ]
}
