//! A fleet of several parts, of which a store keeps sums only (deploy/prometheus/fleet.rules.yml): who holds GPUs, where
//! trouble is, and what is not seen. A node has some 30 series there: docs/fleet.md has what a panel takes at 1,000 nodes.

use super::panel::{
    BYTES, Dashboard, PACKETS_PER_SECOND, PER_SECOND, Panel, SHARE, lines, stack, stat, table,
};
use super::variable;

pub(super) const NAME: &str = "sums";

pub(super) fn dashboard() -> Dashboard {
    Dashboard {
        name: NAME,
        title: "kfd-trace / Sums of a fleet",
        text: "All nodes of all parts of a fleet, by what fleet.rules.yml keeps of them.",
        from: "now-6h",
        variables: vec![variable::CLUSTERS],
        selects: "cluster=~\"$clusters\"",
        rows: vec![
            ("Now", now()),
            ("Trouble", trouble()),
            ("Who holds GPUs", holders()),
            ("Nodes", nodes()),
            ("Over time", over_time()),
        ],
    }
}

fn now() -> Vec<Panel> {
    vec![
        stat("Nodes that answer", "Daemons that can be scraped.").query("", "sum(fleet:kfd_trace_up:max{@})"),
        stat(
            "Nodes that do not answer",
            "Of all that were known within a day, also where their part of the fleet sends nothing. Nothing is known of their GPUs.",
        )
            .query(
                "",
                "count(last_over_time(fleet:kfd_trace_up:max{@}[1d])) - (sum(fleet:kfd_trace_up:max{@}) or vector(0))",
            )
            .warn_from(1.0)
            .see(&["KfdTraceDown", "KfdTraceRestarts"]),
        stat("Nodes not traced", "amdgpu is loaded there, and the daemon has no probes.")
            .query(
                "",
                "count(fleet:kfd_trace_driver_loaded:max{@} == 1 unless fleet:kfd_trace_probes_off:sum{@}) \
                 or 0 * count(fleet:kfd_trace_driver_loaded:max{@})",
            )
            .warn_from(1.0)
            .see(&["KfdTraceNothingTraced"]),
        stat("GPUs", "GPUs, or partitions of GPUs, that KFD knows.")
            .query("", "sum(fleet:kfd_gpus:count{@})"),
        stat("GPUs held", "GPUs that a process has a queue on.")
            .query("", "sum(fleet:kfd_gpus_held:count{@})"),
        stat("Share held", "Of the nodes where both numbers are known.")
            .query(
                "",
                "sum(fleet:kfd_gpus_held:count{@} and fleet:kfd_gpus:count{@}) \
                 / sum(fleet:kfd_gpus:count{@} and fleet:kfd_gpus_held:count{@})",
            )
            .unit(SHARE),
        stat("GPUs held and not used", "Processes have queues there, and none used it for ten minutes.")
            .query("", "sum(fleet:kfd_gpus_idle:count{@})")
            .see(&["KfdProcessIdle"]),
        stat(
            "GPUs oversubscribed",
            "They have more active compute queues than slots, and run them in turns.",
        )
        .query("", "sum(fleet:kfd_gpus_oversubscribed:count{@})")
        .warn_from(1.0)
        .see(&["KfdQueuesOversubscribed"]),
    ]
}

fn trouble() -> Vec<Panel> {
    vec![
        stat("GPU resets", "In the time shown. The work of those who had queues on the GPU is lost.")
            .query("", "sum(increase(fleet:kfd_gpu_resets_total:sum{@}[$__range]))")
            .lost_from(1.0)
            .see(&["KfdGpuReset"]),
        stat("Scheduler hangs", "In the time shown. The hardware scheduler of a GPU did not answer in time.")
            .query("", "sum(increase(fleet:kfd_hws_hangs_total:sum{@}[$__range]))")
            .lost_from(1.0)
            .see(&["KfdHwsHang"]),
        stat("VM faults", "In the time shown. A process accessed memory on the GPU that it may not.")
            .query("", "sum(increase(fleet:kfd_vm_faults_total:sum{@}[$__range]))")
            .warn_from(1.0)
            .see(&["KfdVmFaults"]),
        stat("Failed creations of queues", "In the time shown. The node's dashboard has the errnos.")
            .query("", "sum(increase(fleet:kfd_create_queue_errors_total:sum{@}[$__range]))")
            .warn_from(1.0)
            .see(&["KfdQueueCreationFails"]),
        stat("Queues of dead processes", "In the time shown: the driver destroyed them, as their process had not.")
            .query("", "sum(increase(fleet:kfd_queues_of_dead_processes_total:sum{@}[$__range]))"),
        stat("Records lost", "In the time shown: what happened and did not get to a tracer.")
            .query("", "sum(increase(fleet:kfd_trace_records_lost_total:sum{@}[$__range]))")
            .warn_from(1.0)
            .see(&["KfdTraceRecordsLost"]),
        stat("Nodes with probes that are off", "What these probes would see is in no number of theirs.")
            .query(
                "",
                "count(fleet:kfd_trace_probes_off:sum{@} > 0) or 0 * count(fleet:kfd_trace_probes_off:sum{@})",
            )
            .warn_from(1.0)
            .see(&["KfdTraceRequiredProbeOff"]),
        stat("Processes without series", "More than --metrics.max-processes or --metrics.max-new-processes: in no sum by namespace, of memory and of packets.")
            .query("", "sum(fleet:kfd_trace_metrics_processes_dropped:max{@})")
            .warn_from(1.0),
    ]
}

fn holders() -> Vec<Panel> {
    vec![
        table(
            "Namespaces",
            "By Kubernetes namespace; the row without one is all that is in no pod, or in one whose name is not known. A GPU \
             that namespaces share counts for each. GPU-hours are those of the time shown, one value a minute.",
            &[("namespace", "namespace")],
        )
        .query("GPUs held", "sum by (namespace) (fleet:kfd_gpus_held_by_namespace:count{@})")
        .query("of these not used", "sum by (namespace) (fleet:kfd_gpus_idle_by_namespace:count{@})")
        .query(
            "GPU-hours held",
            "sum by (namespace) (sum_over_time(fleet:kfd_gpus_held_by_namespace:count{@}[$__range:1m])) / 60",
        )
        .query(
            "of these not used, hours",
            "sum by (namespace) (sum_over_time(fleet:kfd_gpus_idle_by_namespace:count{@}[$__range:1m])) / 60",
        ),
        lines("GPUs held by namespace", "The ten namespaces with most.").query(
            "{{namespace}}",
            "topk(10, sum by (namespace) (fleet:kfd_gpus_held_by_namespace:count{@}))",
        ),
        lines("GPUs held and not used by namespace", "Not for ten minutes; the ten namespaces with most.")
            .query(
                "{{namespace}}",
                "topk(10, sum by (namespace) (fleet:kfd_gpus_idle_by_namespace:count{@}))",
            )
            .see(&["KfdProcessIdle"]),
    ]
}

fn nodes() -> Vec<Panel> {
    vec![
        table(
            "Nodes",
            "What a node does not tell is empty. Evictions, VM faults and lost records are those of the time shown.",
            &[("cluster", "cluster"), ("instance", "node"), ("version", "version")],
        )
        .query("answers", "max by (cluster, instance) (fleet:kfd_trace_up:max{@})")
        .query("", "max by (cluster, instance, version) (fleet:kfd_trace_build_info:group{@})")
        .query("GPUs", "max by (cluster, instance) (fleet:kfd_gpus:count{@})")
        .query("held", "max by (cluster, instance) (fleet:kfd_gpus_held:count{@})")
        .query("not used", "max by (cluster, instance) (fleet:kfd_gpus_idle:count{@})")
        .query("oversubscribed", "max by (cluster, instance) (fleet:kfd_gpus_oversubscribed:count{@})")
        .query("processes", "max by (cluster, instance) (fleet:kfd_processes:max{@})")
        .query("queues", "sum by (cluster, instance) (fleet:kfd_queues:sum{@})")
        .query("evictions", "sum by (cluster, instance) (increase(fleet:kfd_evictions_total:sum{@}[$__range]))")
        .query("VM faults", "sum by (cluster, instance) (increase(fleet:kfd_vm_faults_total:sum{@}[$__range]))")
        .query(
            "records lost",
            "sum by (cluster, instance) (increase(fleet:kfd_trace_records_lost_total:sum{@}[$__range]))",
        ),
    ]
}

fn over_time() -> Vec<Panel> {
    vec![
        lines("GPUs", "Held: a process has a queue there. Not used: by nobody, for ten minutes.")
            .query("GPUs", "sum(fleet:kfd_gpus:count{@})")
            .query("held", "sum(fleet:kfd_gpus_held:count{@})")
            .query("held and not used", "sum(fleet:kfd_gpus_idle:count{@})"),
        stack("Queues by type", "User queues of all nodes.")
            .query("{{queue_type}}", "sum by (queue_type) (fleet:kfd_queues:sum{@})"),
        lines("Packets retired by node", "AQL packets: kernels, barriers and others alike; the ten nodes with most.")
            .query(
                "{{cluster}} {{instance}}",
                "topk(10, sum by (cluster, instance) (fleet:kfd_process_packets_retired:rate5m{@}))",
            )
            .unit(PACKETS_PER_SECOND),
        lines("VRAM of processes by node", "The ten nodes with most.")
            .query(
                "{{cluster}} {{instance}}",
                "topk(10, sum by (cluster, instance) (fleet:kfd_process_vram_bytes:sum{@}))",
            )
            .unit(BYTES),
        lines("Evictions by node", "Of a process's queues on a GPU; the ten nodes with most.")
            .query(
                "{{cluster}} {{instance}}",
                "topk(10, sum by (cluster, instance) (rate(fleet:kfd_evictions_total:sum{@}[5m])))",
            )
            .unit(PER_SECOND)
            .see(&["KfdEvictionStorm"]),
        lines(
            "Time evicted by node",
            "Seconds within ten minutes, of all processes and GPUs, of evictions that ended; the ten nodes with most.",
        )
        .query(
            "{{cluster}} {{instance}}",
            "topk(10, sum by (cluster, instance) (increase(fleet:kfd_evicted_seconds_total:sum{@}[10m])))",
        )
        .see(&["KfdEvictionStorm"]),
        lines("Faults, hangs and resets", "Within 10 minutes.")
            .query("VM faults", "sum(increase(fleet:kfd_vm_faults_total:sum{@}[10m]))")
            .query("scheduler hangs", "sum(increase(fleet:kfd_hws_hangs_total:sum{@}[10m]))")
            .query("GPU resets", "sum(increase(fleet:kfd_gpu_resets_total:sum{@}[10m]))")
            .see(&["KfdVmFaults", "KfdHwsHang", "KfdGpuReset"]),
        lines("Nodes by version", "Those that answer.")
            .query("{{version}}", "count by (version) (fleet:kfd_trace_build_info:group{@})"),
    ]
}
