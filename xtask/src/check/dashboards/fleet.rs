//! All nodes: where work is done, where trouble is, and which nodes are not scraped.

use super::activity::HOLDERS;
use super::panel::{
    BYTES_PER_SECOND, Dashboard, PACKETS_PER_SECOND, PER_SECOND, Panel, SECONDS, SHARE, lines, stack, stat,
    table,
};
use super::{totals, variable};

/// By process and GPU, with names.
const IDLE: &str = "topk(50, kfd_process_idle_seconds{@} NAMED * on (job, instance, pid, kfd_process) \
    group_left (uid, namespace, pod, container, container_id, slurm_job, unit) kfd_process_info{@})";

pub(super) fn dashboard() -> Dashboard {
    Dashboard {
        name: "fleet",
        title: "kfd-trace / Fleet",
        text: "All nodes with kfd-trace: GPUs, queues, evictions, faults, and what cannot be seen.",
        from: "now-6h",
        variables: vec![variable::JOB, variable::INSTANCES],
        selects: r#"job="$job", instance=~"$instances""#,
        rows: vec![
            ("Now", now()),
            ("Trouble", trouble()),
            ("Nodes", nodes()),
            ("Activity", activity()),
            ("Over time", over_time()),
        ],
    }
}

fn now() -> Vec<Panel> {
    vec![
        stat("Nodes that answer", "Daemons that Prometheus can scrape.").query("", "sum(up{@})"),
        stat(
            "Nodes that do not answer",
            "Nothing is known of their GPUs, and no other alert fires for them.",
        )
        .query("", "count(up{@}) - sum(up{@})")
        .warn_from(1.0)
        .see(&["KfdTraceDown", "KfdTraceRestarts"]),
        stat("Nodes not traced", "amdgpu is loaded there and no probe is on it.")
            .query(
                "",
                "sum(kfd_trace_driver_loaded{@}) - (sum(max by (job, instance) (kfd_trace_probe_attached{@}) \
                 * on (job, instance) kfd_trace_driver_loaded{@}) or vector(0))",
            )
            .warn_from(1.0)
            .see(&["KfdTraceNothingTraced"]),
        totals::alerts_firing(),
        stat("GPUs", "GPUs, or partitions of GPUs, that KFD knows.").query("", "count(kfd_gpu_info{@})"),
        stat("GPUs in use", "GPUs that a process has a queue on.")
            .query("", "sum(sum by (job, instance, gpu_id) (kfd_queues{@, gpu_id!=\"unknown\"}) > bool 0)"),
        totals::processes(),
        totals::queues(),
    ]
}

fn trouble() -> Vec<Panel> {
    vec![
        totals::resets(),
        totals::hangs(),
        totals::faults(),
        stat("Failed creations of queues", "In the time shown. The node's dashboard has the errnos.")
            .query(
                "",
                "sum(increase(instance_ioctl:kfd_ioctl_errors_total:sum{@, ioctl=\"CREATE_QUEUE\"}[$__range]))",
            )
            .warn_from(1.0)
            .see(&["KfdQueueCreationFails"]),
        stat("GPUs oversubscribed", "They have more active compute queues than slots, and run them in turns.")
            .query("", "sum(instance_gpu_id_kind:kfd_gpu_queue_slots_used:ratio{@, kind=\"cp\"} > bool 1)")
            .warn_from(1.0)
            .see(&["KfdQueuesOversubscribed"]),
        stat("Fullest SDMA pool", "At 100 % the next SDMA queue cannot be created.")
            .query(
                "",
                "max(instance_gpu_id_kind:kfd_gpu_queue_slots_used:ratio{@, kind=~\"sdma|sdma_xgmi\"})",
            )
            .unit(SHARE)
            .warn_from(1.0)
            .see(&["KfdSdmaSlotsUsedUp"]),
        stat("Processes evicted", "Their queues are off a GPU now: they compute nothing there meanwhile.")
            .query("", "sum(kfd_evicted_processes{@})")
            .see(&["KfdEvictionStorm", "KfdProcessNotRestored"]),
        stat("Records lost", "Within 10 minutes: what happened and did not get to the tracer.")
            .query("", "sum(instance_probe_cause:kfd_trace_probe_records_lost:increase10m{@})")
            .warn_from(1.0)
            .see(&["KfdTraceRecordsLost"]),
    ]
}

fn nodes() -> Vec<Panel> {
    vec![
        table(
            "Nodes",
            "A node leads to its dashboard. What a node does not tell is empty.",
            &[("instance", "node"), ("version", "version")],
        )
        .query("answers", "max by (instance) (up{@})")
        .query("", "max by (instance, version) (kfd_trace_build_info{@})")
        .query("GPUs", "count by (instance) (kfd_gpu_info{@})")
        .query(
            "GPUs in use",
            "sum by (instance) (sum by (instance, gpu_id) (kfd_queues{@, gpu_id!=\"unknown\"}) > bool 0)",
        )
        .query("processes", "sum by (instance) (kfd_processes{@})")
        .query("queues", "sum by (instance) (kfd_queues{@})")
        .query(
            "fullest GPU",
            "max by (instance) (instance_gpu_id_kind:kfd_gpu_queue_slots_used:ratio{@, kind=\"cp\"})",
        )
        .unit_of("fullest GPU", SHARE)
        .query(
            "packets retired",
            "sum by (instance) (rate(kfd_process_packets_retired_total{@}[$__rate_interval]))",
        )
        .unit_of("packets retired", PACKETS_PER_SECOND)
        .query("evictions", "sum by (instance) (instance_gpu_id:kfd_evictions:rate5m{@})")
        .unit_of("evictions", PER_SECOND)
        .query(
            "alerts",
            "count by (instance) (ALERTS{@, alertname=~\"Kfd.+\", alertstate=\"firing\"}) \
             or 0 * count by (instance) (instance_reason:kfd_trace_trouble:increase10m{@})",
        )
        .link("node", "node", "instance"),
        table(
            "Alerts firing",
            "Empty where none fires. docs/runbooks.md has a section for each.",
            &[
                ("instance", "node"),
                ("severity", "severity"),
                ("alertname", "alert"),
                ("gpu_id", "gpu_id"),
                ("comm", "process"),
                ("pid", "PID"),
                ("kind", "slots"),
                ("ioctl", "ioctl"),
                ("probe", "probe"),
            ],
        )
        .query("", "ALERTS{@, alertname=~\"Kfd.+\", alertstate=\"firing\"}")
        .link("node", "node", "instance"),
    ]
}

fn activity() -> Vec<Panel> {
    vec![
        totals::packets_submitted(),
        totals::packets_retired(),
        totals::backlog(),
        totals::stalled(),
        totals::gpus_held_idle(),
        totals::not_measured(),
        lines("Packets", "AQL packets of all nodes: kernels, barriers and others alike. More submitted than retired: the backlog grows.")
            .query("submitted", "sum(rate(kfd_process_packets_submitted_total{@}[$__rate_interval]))")
            .query("retired", "sum(rate(kfd_process_packets_retired_total{@}[$__rate_interval]))")
            .unit(PACKETS_PER_SECOND),
        lines("Packets retired by node", "The ten nodes with most.")
            .query(
                "{{instance}}",
                "topk(10, sum by (instance) (rate(kfd_process_packets_retired_total{@}[$__rate_interval])))",
            )
            .unit(PACKETS_PER_SECOND),
        lines("Backlog by node", "AQL packets that are not retired, those that run included; the ten nodes with most.")
            .query("{{instance}}", "topk(10, sum by (instance) (kfd_process_packets_backlog{@}))")
            .see(&["KfdQueueStalled"]),
        lines("SDMA ring bytes", "Bytes of commands in the rings of SDMA queues of all nodes: not the bytes that they copy.")
            .query("submitted", "sum(rate(kfd_process_sdma_ring_bytes_submitted_total{@}[$__rate_interval]))")
            .query("retired", "sum(rate(kfd_process_sdma_ring_bytes_retired_total{@}[$__rate_interval]))")
            .unit(BYTES_PER_SECOND),
        table(
            "Who holds a GPU and does nothing",
            "The 50 that have not used a GPU for longest on which they have queues. 0: in use. A node leads to its dashboard.",
            &HOLDERS,
        )
        .query("not used for", IDLE)
        .unit_of("not used for", SECONDS)
        .link("node", "node", "instance")
        .see(&["KfdProcessIdle"]),
        lines("Queues stalled by node", "They have a backlog and retired nothing for 10 s; the ten nodes with most.")
            .query("{{instance}}", "topk(10, sum by (instance) (kfd_process_queues_stalled{@}))")
            .warn_from(1.0)
            .see(&["KfdQueueStalled"]),
        lines("Queues not measured by node", "Share of the queues whose packets or SDMA commands are in no counter; the ten nodes with most.")
            .query(
                "{{instance}}",
                "topk(10, sum by (instance) (kfd_process_queues_not_measured{@}) / sum by (instance) (kfd_process_queues{@}))",
            )
            .unit(SHARE)
            .see(&["KfdTraceSamplesFail", "KfdTraceSamplesStuck"]),
    ]
}

fn over_time() -> Vec<Panel> {
    vec![
        stack("Queues by type", "User queues of all nodes.")
            .query("{{queue_type}}", "sum by (queue_type) (kfd_queues{@})"),
        lines("GPUs in use", "GPUs that a process has a queue on, of all that KFD knows.")
            .query("GPUs", "count(kfd_gpu_info{@})")
            .query(
                "in use",
                "sum(sum by (job, instance, gpu_id) (kfd_queues{@, gpu_id!=\"unknown\"}) > bool 0)",
            ),
        lines(
            "Fullest GPUs",
            "Active compute queues by hardware slots. Above 100 % the scheduler runs them in turns, and each waits.",
        )
        .query(
            "{{instance}} gpu {{gpu}} ({{pci}})",
            "topk(10, instance_gpu_id_kind:kfd_gpu_queue_slots_used:ratio{@, kind=\"cp\"} NAMED)",
        )
        .unit(SHARE)
        .warn_from(1.0)
        .see(&["KfdQueuesOversubscribed"]),
        lines("Evictions by node", "The ten nodes with most. More than 1/s of one GPU for 5 minutes is a storm.")
            .query("{{instance}}", "topk(10, sum by (instance) (instance_gpu_id:kfd_evictions:rate5m{@}))")
            .unit(PER_SECOND)
            .see(&["KfdEvictionStorm"]),
        lines("Faults, hangs and resets", "Within 10 minutes, as the alerts have it.")
            .query("VM faults", "sum(increase(kfd_vm_faults_total{@}[10m]))")
            .query("scheduler hangs", "sum(increase(kfd_hws_hangs_total{@}[10m]))")
            .query("GPU resets", "sum(increase(kfd_gpu_resets_total{@}[10m]))")
            .see(&["KfdVmFaults", "KfdHwsHang", "KfdGpuReset"]),
        lines("Failed creations by node", "Calls of CREATE_QUEUE that failed within 10 minutes; the ten nodes with most.")
            .query(
                "{{instance}}",
                "topk(10, increase(instance_ioctl:kfd_ioctl_errors_total:sum{@, ioctl=\"CREATE_QUEUE\"}[10m]))",
            )
            .see(&["KfdQueueCreationFails"]),
        lines("Processes and evicted processes", "Evicted ones have no queue on a GPU until their restore.")
            .query("processes", "sum(kfd_processes{@})")
            .query("evicted", "sum(kfd_evicted_processes{@})")
            .see(&["KfdEvictionStorm", "KfdProcessNotRestored"]),
        lines("Records lost by node", "Within 10 minutes; the ten nodes with most.")
            .query(
                "{{instance}}",
                "topk(10, sum by (instance) (instance_probe_cause:kfd_trace_probe_records_lost:increase10m{@}))",
            )
            .see(&["KfdTraceRecordsLost"]),
    ]
}
