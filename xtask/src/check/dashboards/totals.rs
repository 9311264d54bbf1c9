//! Single numbers that node and fleet dashboards share: of all series that the dashboard selects.

use super::panel::{PACKETS_PER_SECOND, Panel, SHARE, stat};

pub(super) fn processes() -> Panel {
    stat("Processes", "KFD processes, also those whose descriptor of /dev/kfd is closed.")
        .query("", "sum(kfd_processes{@})")
}

pub(super) fn queues() -> Panel {
    stat("Queues", "User queues of all types.").query("", "sum(kfd_queues{@})")
}

pub(super) fn alerts_firing() -> Panel {
    stat("Alerts firing", "Alerts of kfd-trace. Without its rules in Prometheus there is no number.")
        .query(
            "",
            "count(ALERTS{@, alertname=~\"Kfd.+\", alertstate=\"firing\"}) \
             or 0 * count(instance_reason:kfd_trace_trouble:increase10m{@})",
        )
        .warn_from(1.0)
}

pub(super) fn resets() -> Panel {
    stat("GPU resets", "In the time shown. The work of those who had queues on the GPU is lost.")
        .query("", "sum(increase(kfd_gpu_resets_total{@}[$__range]))")
        .lost_from(1.0)
        .see(&["KfdGpuReset"])
}

pub(super) fn hangs() -> Panel {
    stat("Scheduler hangs", "In the time shown. The hardware scheduler of a GPU did not answer in time.")
        .query("", "sum(increase(kfd_hws_hangs_total{@}[$__range]))")
        .lost_from(1.0)
        .see(&["KfdHwsHang"])
}

pub(super) fn faults() -> Panel {
    stat("VM faults", "In the time shown. A process accessed memory on the GPU that it may not.")
        .query("", "sum(increase(kfd_vm_faults_total{@}[$__range]))")
        .warn_from(1.0)
        .see(&["KfdVmFaults"])
}

pub(super) fn packets_submitted() -> Panel {
    stat(
        "Packets submitted",
        "AQL packets that processes put into their queues: kernels, barriers and others alike.",
    )
    .query("", "sum(rate(kfd_process_packets_submitted_total{@}[$__rate_interval]))")
    .unit(PACKETS_PER_SECOND)
    .width(4)
}

pub(super) fn packets_retired() -> Panel {
    stat("Packets retired", "AQL packets that the GPUs have done with: kernels, barriers and others alike.")
        .query("", "sum(rate(kfd_process_packets_retired_total{@}[$__rate_interval]))")
        .unit(PACKETS_PER_SECOND)
        .width(4)
}

pub(super) fn backlog() -> Panel {
    stat("Backlog", "AQL packets that are not retired, those that run included, at the last sample.")
        .query("", "sum(kfd_process_packets_backlog{@})")
        .width(4)
}

pub(super) fn stalled() -> Panel {
    stat(
        "Queues stalled",
        "They have a backlog and retired nothing for 10 s: a long kernel, an eviction, or a hang.",
    )
    .query("", "sum(kfd_process_queues_stalled{@})")
    .warn_from(1.0)
    .width(4)
    .see(&["KfdQueueStalled"])
}

pub(super) fn gpus_held_idle() -> Panel {
    stat(
        "GPUs held and not used",
        "GPUs that processes hold queues on and none of them has used for an hour. Those with a queue that is not measured \
         do not count.",
    )
    .query("", "sum(instance_gpu_id:kfd_process_idle_seconds:min{@} > bool 3600)")
    .width(4)
    .see(&["KfdProcessIdle"])
}

pub(super) fn not_measured() -> Panel {
    stat(
        "Queues not measured",
        "Share of the queues of processes whose packets or SDMA commands are in no counter.",
    )
    .query("", "sum(kfd_process_queues_not_measured{@}) / sum(kfd_process_queues{@})")
    .unit(SHARE)
    .width(4)
    .see(&["KfdTraceSamplesFail"])
}
