//! The probe table: one row a probe. Nothing is attached that does not stand here.

use super::table::{Row, Site, When};
use kfd_trace_common::counter::ProbeId;

/// What a queue is told by: its owner, and where its properties are.
const QUEUE: &[&str] =
    &["QUEUE_PROCESS", "QUEUE_PROPERTIES", "QUEUE_ID", "KFD_PROCESS_LEAD_THREAD", "TASK_TGID"];

const EVICTION: &[&str] =
    &["QPD_EVICTED", "PDD_QPD", "PDD_PROCESS", "PDD_DEV", "KFD_PROCESS_LEAD_THREAD", "TASK_TGID"];

const FILE: &[&str] = &["FILE_PRIVATE_DATA"];

const UPDATE_QUEUE: Site = Site::Function(&["update_queue"]);

const INIT_MQD: &[&str] = &["init_mqd", "init_mqd_sdma", "init_mqd_v9_4_3", "init_mqd_v12_1"];
const UPDATE_MQD: &[&str] = &[
    "update_mqd",
    "update_mqd_sdma",
    "update_mqd_v9_4_3",
    "update_mqd_v12_1",
    "update_mqd_tonga",
    "update_mqd_hawaii",
];
const RESTORE_MQD: &[&str] =
    &["restore_mqd", "restore_mqd_sdma", "restore_mqd_v9_4_3", "restore_mqd_v12_1", "restore_mqd_sdma_v12_1"];

/// What evicts a process with a reason: asked for, and after a fault.
const PROCESS_EVICT: &[&str] = &["kfd_process_evict_queues"];
const FAULT_EVICT: &[&str] = &["kfd_dqm_evict_pasid", "kfd_evict_process_device"];

const EVICT: &[&str] = &["evict_process_queues_cpsch", "evict_process_queues_nocpsch"];
const RESTORE: &[&str] = &["restore_process_queues_cpsch", "restore_process_queues_nocpsch"];

/// The kernel's own queues (HIQ) pass these; they belong to nobody.
pub(super) const NOT_OF_USERS: &str = "_hiq";

/// All probes. Returns stand before entries, so that no entry is seen whose return could not be.
pub const PROBES: &[Row] = &[
    Row::exit(ProbeId::IoctlReturn, "ioctl_return", Site::Handlers, "errno and latency of ioctls")
        .needs(FILE),
    Row::entry(ProbeId::IoctlHandler, "ioctl_handler", Site::Handlers, "arguments of ioctls")
        .when(When::IoctlRecords)
        .needs(FILE),
    Row::entry(ProbeId::Ioctl, "ioctl", Site::Function(&["kfd_ioctl"]), "ioctls: counts, refused calls")
        .needs(FILE)
        .required(),
    Row::exit(
        ProbeId::CreateProcess,
        "create_process",
        // The latter makes the further contexts of a PID (7.2); elsewhere it is part of the former.
        Site::Each(&[&["kfd_create_process", "create_process"]]),
        "new KFD processes, before they end",
    ),
    Row::exit(ProbeId::Open, "open", Site::Function(&["kfd_open"]), "opens of /dev/kfd, failed ones too"),
    Row::entry(ProbeId::Release, "release", Site::Function(&["kfd_release"]), "closes of /dev/kfd")
        .needs(FILE),
    Row::entry(ProbeId::QueueAdd, "queue_add", Site::Function(&["kfd_procfs_add_queue"]), "births of queues")
        .needs(QUEUE)
        .required(),
    Row::entry(ProbeId::QueueDel, "queue_del", Site::Function(&["kfd_procfs_del_queue"]), "ends of queues")
        .needs(QUEUE)
        .required(),
    Row::exit(ProbeId::QueueUpdateReturn, "queue_update_return", UPDATE_QUEUE, "changes of queues")
        .needs(QUEUE),
    Row::entry(ProbeId::QueueUpdate, "queue_update", UPDATE_QUEUE, "changes of queues").needs(QUEUE),
    Row::exit(
        ProbeId::MqdReturn,
        "mqd_return",
        Site::Each(&[INIT_MQD, UPDATE_MQD, RESTORE_MQD]),
        "which MQD writes are part of another",
    )
    .needs(QUEUE)
    .of_gpus(),
    Row::entry(
        ProbeId::MqdInit,
        "mqd_init",
        Site::Family { prefixes: &["init_mqd"], members: INIT_MQD },
        "MQDs of new queues",
    )
    .needs(QUEUE)
    .of_gpus(),
    Row::entry(
        ProbeId::MqdUpdate,
        "mqd_update",
        Site::Family { prefixes: &["update_mqd"], members: UPDATE_MQD },
        "MQDs that change",
    )
    .needs(QUEUE)
    .of_gpus(),
    Row::entry(
        ProbeId::MqdRestore,
        "mqd_restore",
        Site::Family { prefixes: &["restore_mqd"], members: RESTORE_MQD },
        "MQDs restored by CRIU",
    )
    .needs(QUEUE)
    .of_gpus(),
    Row::exit(
        ProbeId::EvictReturn,
        "evict_return",
        Site::Each(&[PROCESS_EVICT, FAULT_EVICT]),
        "where the reason of an eviction ends",
    )
    .needs(EVICTION),
    Row::entry(ProbeId::EvictProcess, "evict_process", Site::Function(PROCESS_EVICT), "reasons of evictions")
        .needs(EVICTION),
    Row::entry(ProbeId::EvictFault, "evict_fault", Site::Function(FAULT_EVICT), "evictions after faults")
        .needs(EVICTION),
    Row::exit(
        ProbeId::EvictGpuReturn,
        "evict_gpu_return",
        Site::Each(&[EVICT, RESTORE]),
        "evictions and restores",
    )
    .needs(EVICTION),
    Row::entry(ProbeId::EvictGpu, "evict_gpu", Site::Each(&[EVICT]), "evictions").needs(EVICTION),
    Row::entry(ProbeId::RestoreGpu, "restore_gpu", Site::Each(&[RESTORE]), "restores").needs(EVICTION),
    Row::entry(ProbeId::VmFault, "vm_fault", Site::Function(&["kfd_signal_vm_fault_event"]), "VM faults")
        .needs(&["KFD_PROCESS_LEAD_THREAD", "PDD_PROCESS", "DEVICE_ID"]),
    Row::entry(
        ProbeId::GpuReset,
        "gpu_reset",
        Site::Function(&["kfd_smi_event_update_gpu_reset"]),
        "resets of GPUs",
    )
    .needs(&["DEVICE_ID"]),
    Row::entry(ProbeId::HwsHang, "hws_hang", Site::Function(&["kfd_hws_hang"]), "hangs of the scheduler")
        .needs(&["DQM_DEV", "DEVICE_ID"])
        // Inlined on 6.1: then the next row tells.
        .may_lack(),
    Row::entry(
        ProbeId::HwException,
        "hw_exception",
        Site::Function(&["kfd_process_hw_exception"]),
        "hangs of the scheduler",
    )
    .when(When::Without("kfd_hws_hang"))
    .needs(&["DQM_DEV", "DQM_HW_EXCEPTION_WORK", "DEVICE_ID"]),
    Row::exit(
        ProbeId::UserQueueReturn,
        "user_queue_return",
        Site::Function(&["amdgpu_userq_ioctl"]),
        "DRM user queues",
    )
    .may_lack(),
    Row::entry(ProbeId::UserQueue, "user_queue", Site::Function(&["amdgpu_userq_ioctl"]), "DRM user queues")
        .may_lack(),
    Row::entry(
        ProbeId::NotifierRelease,
        "notifier_release",
        Site::Function(&["kfd_process_notifier_release"]),
        "ends of address spaces",
    )
    .needs(&["KFD_PROCESS_MMU_NOTIFIER"]),
    Row::exit(
        ProbeId::WqReleaseReturn,
        "wq_release_return",
        Site::Function(&["kfd_process_wq_release"]),
        "ends of KFD processes",
    )
    .needs(&["KFD_PROCESS_RELEASE_WORK"]),
    Row::entry(
        ProbeId::WqRelease,
        "wq_release",
        Site::Function(&["kfd_process_wq_release"]),
        "begin of the release of KFD processes",
    )
    .needs(&["KFD_PROCESS_RELEASE_WORK"]),
    Row::tracepoint(ProbeId::TpCs, "tp_cs", "amdgpu", &["amdgpu_cs"], "submissions through DRM"),
    Row::tracepoint(ProbeId::TpInterrupt, "tp_interrupt", "amdgpu", &["amdgpu_iv"], "interrupts"),
    Row::tracepoint(
        ProbeId::TpJobQueue,
        "tp_job_queue",
        "gpu_scheduler",
        &["drm_sched_job_queue", "drm_sched_job"],
        "jobs of the DRM scheduler: queued",
    ),
    Row::tracepoint(
        ProbeId::TpJobRun,
        "tp_job_run",
        "gpu_scheduler",
        &["drm_sched_job_run", "drm_run_job"],
        "jobs of the DRM scheduler: begun",
    ),
    Row::tracepoint(
        ProbeId::TpJobDone,
        "tp_job_done",
        "gpu_scheduler",
        &["drm_sched_job_done", "drm_sched_process_job"],
        "jobs of the DRM scheduler: ended",
    ),
    Row::tracepoint(
        ProbeId::TpEvictStart,
        "tp_evict_start",
        "amdkfd",
        &["kfd_evict_process_worker_start"],
        "evictions by ROCm's driver: begun",
    ),
    Row::tracepoint(
        ProbeId::TpEvictEnd,
        "tp_evict_end",
        "amdkfd",
        &["kfd_evict_process_worker_end"],
        "evictions by ROCm's driver: ended",
    ),
    Row::tracepoint(
        ProbeId::TpRestoreStart,
        "tp_restore_start",
        "amdkfd",
        &["kfd_restore_process_worker_start"],
        "restores by ROCm's driver: begun",
    ),
    Row::tracepoint(
        ProbeId::TpRestoreEnd,
        "tp_restore_end",
        "amdkfd",
        &["kfd_restore_process_worker_end"],
        "restores by ROCm's driver: ended",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use kfd_trace_common::offset;
    use std::collections::BTreeSet;

    #[test]
    fn the_alert_on_required_probes_names_them_all() {
        let rules = include_str!("../../../deploy/prometheus/kfd-trace.rules.yml");
        let required = |id: &ProbeId| PROBES.iter().any(|row| row.id == *id && row.required);
        let names: Vec<_> = ProbeId::ALL.iter().copied().filter(required).map(ProbeId::name).collect();
        // The first one apart: nothing stands in for it.
        let [first, rest @ ..] = &names[..] else { panic!("no probe is required") };
        for selector in
            [format!("{{probe=\"{first}\", verdict"), format!("{{probe=~\"{}\", verdict", rest.join("|"))]
        {
            assert!(rules.contains(&selector), "{selector}");
        }
    }

    #[test]
    fn every_probe_has_one_row_and_needs_only_known_fields() {
        let ids: BTreeSet<_> = PROBES.iter().map(|row| row.id).collect();
        assert_eq!(ids.len(), PROBES.len());
        assert_eq!(ids.len(), ProbeId::ALL.len());
        for row in PROBES {
            for need in row.needs {
                assert!(offset::field(need).is_some(), "{}: {need}", row.program);
            }
        }
    }
}
