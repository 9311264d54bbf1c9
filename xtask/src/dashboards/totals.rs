//! Single numbers that a node has as the fleet has them: of whatever the dashboard selects.

use super::panel::{Panel, stat};

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
