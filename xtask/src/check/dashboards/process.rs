//! One process: its queues, its calls to the driver, the driver's actions on it, and the processes that share
//! its GPUs.

use super::panel::{BYTES, Dashboard, PER_SECOND, Panel, SECONDS, SHARE, lines, stack, stat, table};
use super::{activity, variable};

pub(super) fn dashboard() -> Dashboard {
    Dashboard {
        name: "process",
        title: "kfd-trace / Process",
        text: "One process: its queues, ioctls, evictions and faults, and who shares its GPUs.",
        from: "now-1h",
        variables: vec![variable::JOB, variable::INSTANCE, variable::PID],
        selects: r#"job="$job", instance="$instance""#,
        rows: vec![
            ("Process", process()),
            ("Queues", queues()),
            ("Memory", memory()),
            ("Activity", activity::of_process()),
            ("Evictions", evictions()),
            ("Ioctls", ioctls()),
        ],
    }
}

fn process() -> Vec<Panel> {
    vec![
        table(
            "Process",
            "Who it is. Several rows: several contexts of one process, or a PID that was used again. Empty: not reported.",
            &[
                ("pid", "PID"),
                ("comm", "process"),
                ("kfd_process", "KFD process"),
                ("ns_pid", "PID inside"),
                ("uid", "UID"),
                ("namespace", "namespace"),
                ("pod", "pod"),
                ("container", "container"),
                ("container_id", "container id"),
                ("slurm_job", "Slurm job"),
                ("slurm_step", "Slurm step"),
                ("unit", "unit"),
                ("cgroup", "cgroup"),
            ],
        )
        .query("", "kfd_process_info{@, pid=\"$pid\"}"),
        stat("Queues", "User queues of all types. No number: it has none.")
            .query("", "sum(kfd_process_queues{@, pid=\"$pid\"})")
            .width(6),
        stat("Evictions", "In the time shown.")
            .query("", "sum(increase(kfd_process_evictions_total{@, pid=\"$pid\"}[$__range]))")
            .width(6)
            .see(&["KfdEvictionStorm"]),
        stat("Time evicted", "In the time shown, over all its GPUs: time in which it computed nothing there.")
            .query("", "sum(increase(kfd_process_evicted_seconds_total{@, pid=\"$pid\"}[$__range]))")
            .unit(SECONDS)
            .width(6)
            .see(&["KfdEvictionStorm", "KfdProcessNotRestored"]),
        stat("VM faults", "In the time shown. It accessed memory on the GPU that it may not.")
            .query("", "sum(increase(kfd_process_vm_faults_total{@, pid=\"$pid\"}[$__range]))")
            .warn_from(1.0)
            .width(6)
            .see(&["KfdVmFaults"]),
    ]
}

fn queues() -> Vec<Panel> {
    vec![
        stack("Queues by GPU", "User queues of the process.").query(
            "gpu {{gpu}} ({{pci}})",
            "sum by (gpu, pci) (kfd_process_queues{@, pid=\"$pid\"} NAMED)",
        ),
        stack("Queues by type", "User queues of the process.")
            .query("{{queue_type}}", "sum by (queue_type) (kfd_process_queues{@, pid=\"$pid\"})"),
        stack("Processes on its GPUs", "Queues of all that have some on one of its GPUs, itself among them.").query(
            "{{comm}} ({{pid}})",
            "topk(10, sum by (pid, comm) (kfd_process_queues{@} \
             and on (job, instance, gpu_id) kfd_process_queues{@, pid=\"$pid\"}))",
        ),
        lines(
            "Slots of its GPUs",
            "Queues of all processes by hardware slots. Of cp (compute), above 100 % the scheduler runs queues in turns; \
             of sdma and sdma_xgmi, at 100 % the next creation fails.",
        )
        .query(
            "gpu {{gpu}} ({{pci}}) {{kind}}",
            "(instance_gpu_id_kind:kfd_gpu_queue_slots_used:ratio{@} \
             and on (job, instance, gpu_id) kfd_process_queues{@, pid=\"$pid\"}) NAMED",
        )
        .unit(SHARE)
        .warn_from(1.0)
        .see(&["KfdQueuesOversubscribed", "KfdSdmaSlotsUsedUp"]),
    ]
}

fn memory() -> Vec<Panel> {
    vec![
        stack("VRAM", "As the driver counts it, by GPU; also what existed before the tracer.")
            .query("gpu {{gpu}} ({{pci}})", "kfd_process_vram_bytes{@, pid=\"$pid\"} NAMED")
            .unit(BYTES),
        stack("Memory by kind", "Allocated by ioctls of KFD and not freed.")
            .query("{{domain}}", "sum by (domain) (kfd_process_memory_bytes{@, pid=\"$pid\"})")
            .unit(BYTES),
        lines("Allocations", "Not freed; a line that rises for hours may be a leak.")
            .query("{{domain}}", "sum by (domain) (kfd_process_memory_allocations{@, pid=\"$pid\"})"),
    ]
}

fn evictions() -> Vec<Panel> {
    vec![
        lines("Evictions", "From each GPU. The node's dashboard has the causes.")
            .query(
                "gpu {{gpu}} ({{pci}})",
                "sum by (gpu, pci) (rate(kfd_process_evictions_total{@, pid=\"$pid\"}[$__rate_interval]) NAMED)",
            )
            .unit(PER_SECOND)
            .see(&["KfdEvictionStorm"]),
        lines("Time evicted", "Share of the time in which it has no queue on the GPU: it computes nothing there.")
            .query(
                "gpu {{gpu}} ({{pci}})",
                "sum by (gpu, pci) (rate(kfd_process_evicted_seconds_total{@, pid=\"$pid\"}[$__rate_interval]) NAMED)",
            )
            .unit(SHARE)
            .see(&["KfdEvictionStorm", "KfdProcessNotRestored"]),
    ]
}

fn ioctls() -> Vec<Panel> {
    vec![
        lines("Ioctls", "Calls by the process; the ten with most.")
            .query(
                "{{ioctl}}",
                "topk(10, sum by (ioctl) (rate(kfd_process_ioctls_total{@, pid=\"$pid\"}[$__rate_interval])))",
            )
            .unit(PER_SECOND),
        lines("Queues created and destroyed", "Calls by the process, failed ones included. All the time: it does not keep its queues.")
            .query(
                "{{ioctl}}",
                "sum by (ioctl) (rate(kfd_process_ioctls_total{@, pid=\"$pid\", \
                 ioctl=~\"CREATE_QUEUE|DESTROY_QUEUE\"}[$__rate_interval]))",
            )
            .unit(PER_SECOND),
        lines("Errors on the node", "Of the ioctls that it calls, by any caller: errors are not counted by process.")
            .query(
                "{{ioctl}}",
                "topk(10, rate(instance_ioctl:kfd_ioctl_errors_total:sum{@}[$__rate_interval]) \
                 and on (job, instance, ioctl) kfd_process_ioctls_total{@, pid=\"$pid\"})",
            )
            .unit(PER_SECOND)
            .see(&["KfdQueueCreationFails"]),
        lines(
            "Slowest ioctls on the node",
            "99 of 100 calls took no longer; of the ioctls that it calls, by any caller: durations are not counted by process.",
        )
        .query(
            "{{ioctl}}",
            "topk(10, histogram_quantile(0.99, sum by (le, ioctl) (rate(kfd_ioctl_duration_seconds_bucket{@}[$__rate_interval]) \
             and on (job, instance, ioctl) kfd_process_ioctls_total{@, pid=\"$pid\"})))",
        )
        .unit(SECONDS),
    ]
}
