//! One node: its GPUs, their processes, the driver's activity, and the tracer's state.

use super::panel::{
    BYTES, Dashboard, PER_SECOND, Panel, SECONDS, SHARE, heatmap, lines, stack, stat, states, table,
};
use super::{activity, totals, variable};

pub(super) fn dashboard() -> Dashboard {
    Dashboard {
        name: "node",
        title: "kfd-trace / Node",
        text: "One node: GPUs, processes, evictions, preemptions, ioctls, and how well kfd-trace sees them.",
        from: "now-1h",
        variables: vec![variable::JOB, variable::INSTANCE, variable::GPU],
        selects: r#"job="$job", instance="$instance""#,
        rows: vec![
            ("Now", now()),
            ("GPUs", gpus()),
            ("Processes", processes()),
            ("Memory", memory()),
            ("Activity", activity::of_node()),
            ("Evictions", evictions()),
            ("Preemptions", preemptions()),
            ("Ioctls", ioctls()),
            ("Tracer", tracer()),
        ],
    }
}

fn now() -> Vec<Panel> {
    vec![
        stat("GPUs in use", "GPUs that a process has a queue on.")
            .query("", "sum(sum by (gpu_id) (kfd_queues{@, gpu_id!=\"unknown\"}) > bool 0)"),
        totals::processes(),
        totals::queues(),
        totals::alerts_firing(),
        totals::resets(),
        totals::hangs(),
        totals::faults(),
        stat(
            "Oldest dead process",
            "Since when the address space of a process is gone whose queues the driver has not released. 0: there is none.",
        )
        .query(
            "",
            "max(kfd_process_teardown_seconds{@}) \
             or max(0 * (kfd_trace_probe_attached{@, probe=\"notifier_release\"} == 1))",
        )
        .unit(SECONDS)
        .warn_from(60.0)
        .see(&["KfdQueuesLeftByDeadProcess"]),
    ]
}

fn gpus() -> Vec<Panel> {
    vec![
        table(
            "GPUs",
            "Who each GPU is, and its queues against the slots of the hardware.",
            &[
                ("gpu", "GPU"),
                ("pci", "PCI"),
                ("gfx", "gfx"),
                ("product_name", "product"),
                ("serial_number", "serial number"),
                ("gpu_partition_id", "partition"),
                ("gpu_id", "gpu_id"),
            ],
        )
        .query("", "kfd_gpu_info{@, gpu=~\"$gpu\"}")
        .query("queues", "sum by (gpu, gpu_id, pci) (kfd_queues{@} NAMED)")
        .query("active compute queues", "sum by (gpu, gpu_id, pci) (kfd_gpu_queue_slots_used{@, kind=\"cp\"} NAMED)")
        .query("compute slots", "sum by (gpu, gpu_id, pci) (kfd_gpu_queue_slots{@, kind=\"cp\"} NAMED)")
        .query("SDMA slots used", "max by (gpu, gpu_id, pci) (instance_gpu_id_kind:kfd_gpu_queue_slots_used:ratio{@, kind=~\"sdma|sdma_xgmi\"} NAMED)")
        .unit_of("SDMA slots used", SHARE)
        .query("processes evicted", "sum by (gpu, gpu_id, pci) (kfd_evicted_processes{@} NAMED)"),
        stack("Queues by GPU", "User queues of all types.")
            .query("gpu {{gpu}} ({{pci}})", "sum by (gpu, pci) (kfd_queues{@} NAMED)"),
        stack("Queues by type", "User queues of the GPUs chosen.")
            .query("{{queue_type}}", "sum by (queue_type) (kfd_queues{@} NAMED)"),
        lines(
            "Slots in use",
            "Queues by hardware slots. Of cp (compute), above 100 % the scheduler runs queues in turns; of sdma and \
             sdma_xgmi, at 100 % the next creation fails.",
        )
        .query(
            "gpu {{gpu}} ({{pci}}) {{kind}}",
            "instance_gpu_id_kind:kfd_gpu_queue_slots_used:ratio{@} NAMED",
        )
        .unit(SHARE)
        .warn_from(1.0)
        .see(&["KfdQueuesOversubscribed", "KfdSdmaSlotsUsedUp"]),
        lines("Faults, hangs and resets", "Within 10 minutes, as the alerts have it.")
            .query("VM faults, gpu {{gpu}}", "increase(kfd_vm_faults_total{@}[10m]) NAMED")
            .query("scheduler hangs, gpu {{gpu}}", "increase(kfd_hws_hangs_total{@}[10m]) NAMED")
            .query("resets, gpu {{gpu}}", "increase(kfd_gpu_resets_total{@}[10m]) NAMED")
            .query("resets that did not end, gpu {{gpu}}", "increase(kfd_gpu_resets_unfinished_total{@}[10m]) NAMED")
            .see(&["KfdVmFaults", "KfdHwsHang", "KfdGpuReset"]),
    ]
}

fn processes() -> Vec<Panel> {
    vec![
        table(
            "Processes",
            "All that have series of their own, for `--metrics.linger` (five minutes) after their end. A PID leads to the process. Empty: \
             not reported, or no queue.",
            &[
                ("pid", "PID"),
                ("comm", "process"),
                ("kfd_process", "KFD process"),
                ("uid", "UID"),
                ("namespace", "namespace"),
                ("pod", "pod"),
                ("container", "container"),
                ("container_id", "container id"),
                ("slurm_job", "Slurm job"),
                ("unit", "unit"),
            ],
        )
        .query("", "kfd_process_info{@}")
        .query("queues", "sum by (pid, kfd_process, comm) (kfd_process_queues{@})")
        .query("ioctls", "sum by (pid, kfd_process, comm) (rate(kfd_process_ioctls_total{@}[$__rate_interval]))")
        .unit_of("ioctls", PER_SECOND)
        .query("time evicted", "sum by (pid, kfd_process, comm) (increase(kfd_process_evicted_seconds_total{@}[$__range]))")
        .unit_of("time evicted", SECONDS)
        .query("VM faults", "sum by (pid, kfd_process, comm) (increase(kfd_process_vm_faults_total{@}[$__range]))")
        .link("PID", "process", "pid"),
        stack("Queues by process", "The ten with most.")
            .query("{{comm}} ({{pid}})", "topk(10, sum by (pid, comm) (kfd_process_queues{@}))"),
        stack("Queues by owner", "Pod and container, container id, Slurm job or unit: whatever the cgroup shows.").query(
            "{{namespace}} {{pod}} {{container}} {{container_id}} {{slurm_job}} {{unit}}",
            "sum by (namespace, pod, container, container_id, slurm_job, unit) (kfd_process_queues{@} \
             * on (job, instance, pid, kfd_process) \
             group_left (namespace, pod, container, container_id, slurm_job, unit) kfd_process_info{@})",
        ),
        lines("Processes and queues come and go", "Within a second. Many, all the time: a program that does not keep its queues.")
            .query("processes created", "sum(rate(kfd_processes_created_total{@}[$__rate_interval]))")
            .query("queues created", "sum(rate(kfd_queues_created_total{@}[$__rate_interval]))")
            .query("queues gone: {{cause}}", "sum by (cause) (rate(kfd_queues_destroyed_total{@}[$__rate_interval]))")
            .unit(PER_SECOND),
    ]
}

fn memory() -> Vec<Panel> {
    vec![
        stack("VRAM by process", "As the driver counts it, also what existed before the tracer; the ten with most on a GPU.")
            .query("{{comm}} ({{pid}}), gpu {{gpu}} ({{pci}})", "topk(10, kfd_process_vram_bytes{@} NAMED)")
            .unit(BYTES),
        stack("Memory by kind", "Allocated by ioctls of KFD and not freed: of the GPUs (vram), of the machine (gtt), or of processes (userptr).")
            .query("{{domain}}", "sum by (domain) (kfd_process_memory_bytes{@})")
            .unit(BYTES),
        lines("Allocations by process", "Not freed; a line that rises for hours may be a leak. The ten with most.")
            .query("{{comm}} ({{pid}})", "topk(10, sum by (pid, comm) (kfd_process_memory_allocations{@}))"),
    ]
}

fn evictions() -> Vec<Panel> {
    vec![
        lines("Evictions by cause", "The runbook has what each trigger means and what to do about it.")
            .query("{{trigger}}", "sum by (trigger) (rate(kfd_evictions_total{@}[$__rate_interval]) NAMED)")
            .unit(PER_SECOND)
            .see(&["KfdEvictionStorm"]),
        lines("Evictions by GPU", "More than 1/s for 5 minutes is a storm.")
            .query("gpu {{gpu}} ({{pci}})", "instance_gpu_id:kfd_evictions:rate5m{@} NAMED")
            .unit(PER_SECOND)
            .warn_from(1.0)
            .see(&["KfdEvictionStorm"]),
        lines("Evictions by process", "Who is evicted; the ten with most.")
            .query(
                "{{comm}} ({{pid}})",
                "topk(10, sum by (pid, comm) (rate(kfd_process_evictions_total{@}[$__rate_interval])))",
            )
            .unit(PER_SECOND)
            .see(&["KfdEvictionStorm"]),
        lines(
            "Time that processes are evicted",
            "Share of the time in which a process has no queue on a GPU: it computes nothing there.",
        )
        .query(
            "{{comm}} ({{pid}}), gpu {{gpu}} ({{pci}})",
            "topk(10, rate(kfd_process_evicted_seconds_total{@}[$__rate_interval]) NAMED)",
        )
        .unit(SHARE)
        .see(&["KfdEvictionStorm", "KfdProcessNotRestored"]),
    ]
}

/// Data only with `--runlists`.
fn preemptions() -> Vec<Panel> {
    vec![
        lines(
            "Preemptions by process",
            "Who takes all queues off a GPU, and how often. Empty: the daemon runs without `--runlists`; see docs/preemption.md.",
        )
        .query(
            "{{comm}} ({{pid}}), gpu {{gpu}} ({{pci}})",
            "topk(10, rate(kfd_process_preemptions_total{@}[$__rate_interval]) NAMED)",
        )
        .unit(PER_SECOND)
        .see(&["KfdPreemptionSlow"]),
        lines(
            "Time that processes wait for others",
            "Share of the time in which a process has no queue on a GPU since another one's queues change. At least.",
        )
        .query(
            "{{comm}} ({{pid}}), gpu {{gpu}} ({{pci}})",
            "topk(10, rate(kfd_process_preempted_seconds_total{@}[$__rate_interval]) NAMED)",
        )
        .unit(SHARE)
        .see(&["KfdPreemptionSlow"]),
        lines("Preemptions by reason", "docs/preemption.md has what each reason is.")
            .query(
                "{{reason}}",
                "sum by (reason) (rate(kfd_gpu_preemption_duration_seconds_count{@}[$__rate_interval]) NAMED)",
            )
            .unit(PER_SECOND),
        lines("Slowest preemptions", "99 of 100 took no longer. No value: no preemption.")
            .query(
                "gpu {{gpu}} ({{pci}})",
                "histogram_quantile(0.99, sum by (le, gpu, pci) \
                 (rate(kfd_gpu_preemption_duration_seconds_bucket{@}[$__rate_interval]) NAMED))",
            )
            .unit(SECONDS)
            .see(&["KfdPreemptionSlow"]),
    ]
}

fn ioctls() -> Vec<Panel> {
    vec![
        lines("Ioctls", "Calls on /dev/kfd; the ten with most.")
            .query("{{ioctl}}", "topk(10, rate(kfd_ioctls_total{@}[$__rate_interval]))")
            .unit(PER_SECOND),
        lines("Errors by ioctl", "Calls that failed; the ten with most.")
            .query(
                "{{ioctl}}",
                "topk(10, rate(instance_ioctl:kfd_ioctl_errors_total:sum{@}[$__rate_interval]))",
            )
            .unit(PER_SECOND)
            .see(&["KfdQueueCreationFails"]),
        heatmap(
            "Durations of ioctls",
            "Calls by how long they took, from the entry to the return. Waits for events have their own.",
        )
        .query("{{le}}", "sum by (le) (rate(kfd_ioctl_duration_seconds_bucket{@}[$__rate_interval]))"),
        lines("Slowest ioctls", "99 of 100 calls took no longer. No value: no call.")
            .query(
                "{{ioctl}}",
                "topk(10, histogram_quantile(0.99, sum by (le, ioctl) \
                 (rate(kfd_ioctl_duration_seconds_bucket{@}[$__rate_interval]))))",
            )
            .unit(SECONDS),
        lines(
            "Oldest call under way",
            "Minutes of it: a call that is stuck in the driver. 0: none is under way. Waits for events have their own.",
        )
        .query("{{ioctl}}", "topk(10, kfd_ioctl_in_flight_oldest_seconds{@} or 0 * kfd_ioctls_in_flight{@})")
        .unit(SECONDS)
        .warn_from(60.0)
        .see(&["KfdIoctlStuck"]),
        lines(
            "Threads that wait for events",
            "Asleep in WAIT_EVENTS, for as long as their process wants. No value: only the returns of handlers are probed.",
        )
        .query("threads", "kfd_event_waits_in_flight{@}"),
        heatmap("Durations of waits for events", "Calls of WAIT_EVENTS that returned, by how long they slept.")
            .query("{{le}}", "sum by (le) (rate(kfd_event_wait_duration_seconds_bucket{@}[$__rate_interval]))"),
        table(
            "Errors since the tracer began",
            "By errno. Empty: no call failed.",
            &[("ioctl", "ioctl"), ("errno", "errno")],
        )
        .query("calls", "sum by (ioctl, errno) (kfd_ioctl_errors_total{@})")
        .width(12)
        .see(&["KfdQueueCreationFails"]),
    ]
}

fn tracer() -> Vec<Panel> {
    vec![
        states("Seen", "Whether the daemon answers, amdgpu is loaded, and probes are on it.")
            .query("daemon answers", "max(up{@})")
            .query("driver loaded", "max(kfd_trace_driver_loaded{@})")
            .query("driver traced", "max(kfd_trace_probe_attached{@})")
            .see(&["KfdTraceDown", "KfdTraceNothingTraced"]),
        table("Probes that are not attached", "Their metrics are missing. `kfd-trace status` on the node says why.", &[("probe", "probe"), ("kind", "kind"), ("verdict", "verdict")])
            .query("", "kfd_trace_probe_info{@, verdict!=\"attached\"}")
            .width(12)
            .see(&["KfdTraceRequiredProbeOff"]),
        lines("Records lost", "Within 10 minutes.")
            .query("{{cause}}", "sum by (cause) (instance_probe_cause:kfd_trace_probe_records_lost:increase10m{@})")
            .warn_from(1.0)
            .see(&["KfdTraceRecordsLost"]),
        lines("Not reported by the probes", "Within 10 minutes, by reason.")
            .query("{{reason}}", "instance_reason:kfd_trace_trouble:increase10m{@}")
            .see(&["KfdTraceTrouble"]),
        lines("Calls without their probe", "Share of a probe's calls that the kernel left out; the ten with most. Counted from Linux 6.7 on.")
            .query("{{probe}}", "topk(10, instance_probe:kfd_trace_probe_missed:ratio_rate10m{@})")
            .unit(SHARE)
            .warn_from(0.01)
            .see(&["KfdTraceCallsMissed"]),
        lines("Room in the maps", "Of what is beyond 100 % nothing is followed.")
            .query("{{map}}", "kfd_trace_map_entries{@} / kfd_trace_map_capacity{@}")
            .unit(SHARE)
            .warn_from(0.9)
            .see(&["KfdTraceTrouble"]),
        lines("Differences to the driver's lists", "What the probes and the driver did not agree on, within 10 minutes. It is set right at once.")
            .query("{{kind}}", "increase(kfd_trace_differences_total{@}[10m])"),
        lines("Runs of probes", "What tracing costs is their number; the ten with most.")
            .query("{{probe}}", "topk(10, rate(kfd_trace_probe_hits_total{@}[$__rate_interval]))")
            .unit(PER_SECOND),
        lines("Readings of queues", "Looks at what a queue has done, in the memory of its process. Those that failed are reported by reason.")
            .query("reported", "rate(kfd_trace_samples_total{@}[$__rate_interval])")
            .query("{{reason}}", "rate(kfd_trace_sample_errors_total{@}[$__rate_interval])")
            .unit(PER_SECOND)
            .see(&["KfdTraceSamplesFail"]),
        lines("Age of the last sample", "Since when all queues were last sampled, and the time from one sample to the next, which many queues stretch.")
            .query("age", "kfd_trace_sample_age_seconds{@}")
            .query("interval", "kfd_trace_sample_interval_seconds{@}")
            .unit(SECONDS)
            .see(&["KfdTraceSamplesStuck"]),
        lines("CPU time of sampling", "Share of one CPU. Where it would take more than 1 %, the interval is stretched.")
            .query("sampling", "rate(kfd_trace_sample_cpu_seconds_total{@}[$__rate_interval])")
            .unit(SHARE),
        lines("Queues not measured to their end", "They ended within 10 minutes without a last reading: what they did after their last sample is in no counter.")
            .query("queues", "sum(increase(kfd_process_queues_incomplete_total{@}[10m]))"),
        lines("Time of a scrape", "To read maps and state, and as Prometheus saw it.")
            .query("maps and state", "kfd_trace_scrape_duration_seconds{@}")
            .query("whole scrape", "scrape_duration_seconds{@}")
            .unit(SECONDS)
            .see(&["KfdTraceDown"]),
        lines("Processes without series of their own", "More than --metrics.max-processes: tables of processes lack them.")
            .query("dropped", "kfd_trace_metrics_processes_dropped{@}")
            .warn_from(1.0),
    ]
}
