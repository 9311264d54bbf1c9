//! The probe table: one row per probe. Only what is in this table is attached.

use super::changes::{CHANGES, HANGING};
use super::table::{ProbeRow, Site, When};
use kfd_trace_common::counter::ProbeId;

/// What identifies a queue: its owner, and where its properties are.
const QUEUE: &[&str] =
    &["QUEUE_PROCESS", "QUEUE_PROPERTIES", "QUEUE_ID", "KFD_PROCESS_LEAD_THREAD", "TASK_TGID"];

const EVICTION: &[&str] =
    &["QPD_EVICTED", "PDD_QPD", "PDD_PROCESS", "PDD_DEV", "KFD_PROCESS_LEAD_THREAD", "TASK_TGID"];

const FILE: &[&str] = &["FILE_PRIVATE_DATA"];

/// Handlers, as in [`rules::changes_memory`](kfd_trace_common::rules::changes_memory).
const MEMORY_CALLS: &[&str] = &[
    "kfd_ioctl_alloc_memory_of_gpu",
    "kfd_ioctl_free_memory_of_gpu",
    "kfd_ioctl_map_memory_to_gpu",
    "kfd_ioctl_unmap_memory_from_gpu",
    "kfd_ioctl_import_dmabuf",
    "kfd_ioctl_criu",
    "kfd_ioctl_ipc_import_handle",
];

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
/// Their third parameter is where the MQD lies now: the properties of the queue come after that.
const MOVE_MQD: &[&str] = &["update_mqd_gpu_addr", "update_mqd_gpu_addr_v9_4_3"];
const RESTORE_MQD: &[&str] =
    &["restore_mqd", "restore_mqd_sdma", "restore_mqd_v9_4_3", "restore_mqd_v12_1", "restore_mqd_sdma_v12_1"];

/// What evicts a process with a reason: on request, and after a fault.
const PROCESS_EVICT: &[&str] = &["kfd_process_evict_queues"];
const FAULT_EVICT: &[&str] = &["kfd_process_vm_fault", "kfd_dqm_evict_pasid", "kfd_evict_process_device"];

const EVICT: &[&str] = &["evict_process_queues_cpsch", "evict_process_queues_nocpsch"];
const RESTORE: &[&str] = &["restore_process_queues_cpsch", "restore_process_queues_nocpsch"];

/// A change of what a GPU runs: the GPU, and the process that causes it.
const SCHEDULE: &[&str] =
    &["DQM_DEV", "DEVICE_ID", "PDD_QPD", "PDD_PROCESS", "KFD_PROCESS_LEAD_THREAD", "TASK_TGID"];
const PREEMPTIONS: &str = "preemptions, by reason and process";
const RUNLISTS: &str = "lists of queues that GPUs run";

const SUSPEND: &[&str] = &["suspend_queues"];
const RESUME: &[&str] = &["resume_queues"];

/// The kernel's own queues (HIQ) pass these; they are not owned by a user process.
pub(super) const NOT_OF_USERS: &str = "_hiq";

/// Functions of the firmware scheduler MES, by generation of GPUs.
const MES_ADD: &[&str] = &["mes_v11_0_add_hw_queue", "mes_v12_0_add_hw_queue", "mes_v12_1_add_hw_queue"];
const MES_REMOVE: &[&str] =
    &["mes_v11_0_remove_hw_queue", "mes_v12_0_remove_hw_queue", "mes_v12_1_remove_hw_queue"];

/// A queue, and what identifies it to the firmware.
const MES_QUEUE: &[&str] = &[
    "QUEUE_PROCESS",
    "QUEUE_DEVICE",
    "QUEUE_ID",
    "QUEUE_DOORBELL",
    "MES_ADD_DOORBELL",
    "MES_REMOVE_DOORBELL",
    "KFD_PROCESS_LEAD_THREAD",
    "TASK_TGID",
];

/// Not on 5.10.
const fn mes(row: ProbeRow) -> ProbeRow {
    row.when(When::Runlists).needs(MES_QUEUE).optional()
}

const fn scheduler(row: ProbeRow) -> ProbeRow {
    row.when(When::Runlists).needs(SCHEDULE)
}

const HANGS_OF_QUEUES: &str = "hangs after queues that firmware gave up";

/// On 7.2 and 7.3 `kfd_hws_hang` is inlined after a failed reset of queues. Up to 6.12 it is called there, or leads
/// to `kfd_process_hw_exception`: the rows of these two see all hangs.
const fn hang_of_queues(row: ProbeRow) -> ProbeRow {
    row.when(When::Without("kfd_process_hw_exception")).needs(&["DQM_DEV", "DEVICE_ID"])
}

/// Not on 5.10 and 6.1. ROCm's 6.0.5 has functions of these names with other parameters: drivers with the debugger of
/// kernel 6.5 have nodes, and it does not.
const fn suspension(row: ProbeRow) -> ProbeRow {
    row.needs(&["NODE_ID", "KFD_PROCESS_LEAD_THREAD", "TASK_TGID"]).optional()
}

/// All probes. Returns come before entries, so that no entry is seen whose return could be missed.
pub const PROBES: &[ProbeRow] = &[
    ProbeRow::exit(ProbeId::IoctlReturn, Site::CallReturns, "errno and latency of ioctls")
        .needs(FILE)
        .crowded(),
    ProbeRow::entry(ProbeId::IoctlHandler, Site::Handlers, "arguments of ioctls")
        .when(When::IoctlRecords)
        .needs(FILE),
    ProbeRow::entry(ProbeId::MemoryCall, Site::Each(&[MEMORY_CALLS]), "memory of processes, by their ioctls")
        .when(When::NoIoctlRecords)
        .needs(FILE),
    ProbeRow::entry(ProbeId::Ioctl, Site::Function(Site::WHOLE_CALL), "ioctls: counts, refused calls")
        .needs(FILE)
        .required(),
    ProbeRow::exit(
        ProbeId::CreateProcess,
        // `create_process` makes the further contexts of a PID (7.2); elsewhere it is part of
        // `kfd_create_process`.
        Site::Each(&[&["kfd_create_process", "create_process"]]),
        "new KFD processes, before they end",
    )
    .crowded(),
    ProbeRow::exit(ProbeId::Open, Site::Function(&["kfd_open"]), "opens of /dev/kfd, failed ones too")
        .crowded(),
    ProbeRow::entry(ProbeId::Release, Site::Function(&["kfd_release"]), "closes of /dev/kfd").needs(FILE),
    ProbeRow::entry(ProbeId::QueueAdd, Site::Function(&["kfd_procfs_add_queue"]), "creation of queues")
        .needs(QUEUE)
        .required(),
    ProbeRow::entry(ProbeId::QueueDel, Site::Function(&["kfd_procfs_del_queue"]), "end of queues")
        .needs(QUEUE)
        .required(),
    ProbeRow::exit(ProbeId::QueueUpdateReturn, UPDATE_QUEUE, "changes of queues").needs(QUEUE).crowded(),
    ProbeRow::entry(ProbeId::QueueUpdate, UPDATE_QUEUE, "changes of queues").needs(QUEUE),
    ProbeRow::entry(
        ProbeId::MqdInit,
        Site::Family { prefixes: &["init_mqd"], members: INIT_MQD },
        "MQDs of new queues",
    )
    .needs(QUEUE)
    .of_gpus(),
    ProbeRow::entry(
        ProbeId::MqdUpdate,
        Site::Family { prefixes: &["update_mqd"], members: UPDATE_MQD },
        "MQDs that change",
    )
    .needs(QUEUE)
    .of_gpus(),
    ProbeRow::entry(
        ProbeId::MqdAddress,
        Site::Family { prefixes: &["update_mqd_gpu_addr"], members: MOVE_MQD },
        "MQDs that are moved",
    )
    .needs(QUEUE)
    .of_gpus()
    // Since 7.3.
    .optional(),
    ProbeRow::entry(
        ProbeId::MqdRestore,
        Site::Family { prefixes: &["restore_mqd"], members: RESTORE_MQD },
        "MQDs restored by CRIU",
    )
    .needs(QUEUE)
    .of_gpus(),
    ProbeRow::exit(
        ProbeId::EvictReturn,
        Site::Each(&[PROCESS_EVICT, FAULT_EVICT]),
        "failed evictions, and the end of an eviction's reason",
    )
    .needs(EVICTION),
    ProbeRow::entry(ProbeId::EvictProcess, Site::Function(PROCESS_EVICT), "reasons of evictions")
        .needs(EVICTION),
    ProbeRow::entry(ProbeId::EvictFault, Site::Function(FAULT_EVICT), "evictions after faults")
        .needs(EVICTION),
    ProbeRow::exit(ProbeId::EvictGpuReturn, Site::Each(&[EVICT, RESTORE]), "evictions and restores")
        .needs(EVICTION),
    ProbeRow::entry(ProbeId::EvictGpu, Site::Each(&[EVICT]), "evictions").needs(EVICTION),
    ProbeRow::entry(ProbeId::RestoreGpu, Site::Each(&[RESTORE]), "restores").needs(EVICTION),
    ProbeRow::entry(ProbeId::VmFault, Site::Function(&["kfd_signal_vm_fault_event"]), "VM faults").needs(&[
        "KFD_PROCESS_LEAD_THREAD",
        "PDD_PROCESS",
        "DEVICE_ID",
    ]),
    ProbeRow::entry(ProbeId::GpuReset, Site::Function(&["kfd_smi_event_update_gpu_reset"]), "resets of GPUs")
        .needs(&["DEVICE_ID"]),
    ProbeRow::entry(ProbeId::HwsHang, Site::Function(&["kfd_hws_hang"]), "hangs of the scheduler")
        .needs(&["DQM_DEV", "DEVICE_ID"])
        // Inlined on 6.1: there the next row covers it.
        .optional(),
    ProbeRow::entry(
        ProbeId::HwException,
        Site::Function(&["kfd_process_hw_exception"]),
        "hangs of the scheduler",
    )
    .when(When::Without("kfd_hws_hang"))
    .needs(&["DQM_DEV", "DQM_HW_EXCEPTION_WORK", "DEVICE_ID"]),
    // ROCm's 6.12.12 inlines `reset_queues_on_hws_hang`, and the call of `kfd_hws_hang` after it.
    ProbeRow::entry(ProbeId::HangScope, Site::Each(&[CHANGES, HANGING]), "hangs of the scheduler")
        .when(When::InPlaceOf(&[ProbeId::HungQueues, ProbeId::HwsHang]))
        .needs(&["DQM_DEV", "DEVICE_ID"]),
    hang_of_queues(ProbeRow::entry(
        ProbeId::ResetRequest,
        Site::Function(&["amdgpu_amdkfd_gpu_reset"]),
        HANGS_OF_QUEUES,
    )),
    hang_of_queues(ProbeRow::entry(
        ProbeId::HungQueues,
        Site::Function(&["reset_queues_on_hws_hang"]),
        HANGS_OF_QUEUES,
    )),
    ProbeRow::exit(ProbeId::UserQueueReturn, Site::Function(&["amdgpu_userq_ioctl"]), "DRM user queues")
        .optional(),
    ProbeRow::entry(ProbeId::UserQueue, Site::Function(&["amdgpu_userq_ioctl"]), "DRM user queues")
        .optional(),
    ProbeRow::entry(
        ProbeId::NotifierRelease,
        Site::Function(&["kfd_process_notifier_release"]),
        "ends of address spaces",
    )
    .needs(&["KFD_PROCESS_MMU_NOTIFIER"]),
    ProbeRow::exit(
        ProbeId::WqReleaseReturn,
        Site::Function(&["kfd_process_wq_release"]),
        "ends of KFD processes",
    )
    .needs(&["KFD_PROCESS_RELEASE_WORK"])
    .crowded(),
    ProbeRow::entry(
        ProbeId::WqRelease,
        Site::Function(&["kfd_process_wq_release"]),
        "begin of the release of KFD processes",
    )
    .needs(&["KFD_PROCESS_RELEASE_WORK"]),
    suspension(ProbeRow::exit(
        ProbeId::SuspensionReturn,
        Site::Each(&[SUSPEND, RESUME]),
        "queues that a debugger suspends and resumes",
    )),
    suspension(ProbeRow::entry(
        ProbeId::SuspendQueues,
        Site::Function(SUSPEND),
        "queues that a debugger suspends",
    )),
    suspension(ProbeRow::entry(
        ProbeId::ResumeQueues,
        Site::Function(RESUME),
        "queues that a debugger resumes",
    )),
    // What ends comes before what begins: no begin is seen whose end could be missed.
    scheduler(ProbeRow::exit(ProbeId::RunlistSent, Site::Function(&["pm_send_runlist"]), RUNLISTS)),
    scheduler(ProbeRow::entry(ProbeId::PreemptEnd, Site::Function(&["pm_release_ib"]), PREEMPTIONS)),
    scheduler(ProbeRow::exit(
        ProbeId::PreemptWaited,
        Site::Function(&["amdkfd_fence_wait_timeout"]),
        "preemptions that time out",
    )),
    scheduler(ProbeRow::entry(ProbeId::PreemptBegin, Site::Function(&["pm_send_unmap_queue"]), PREEMPTIONS)),
    scheduler(ProbeRow::entry(
        ProbeId::RunlistUnmap,
        Site::Function(&["unmap_queues_cpsch", "unmap_queues_cpsch.constprop.0"]),
        PREEMPTIONS,
    )),
    scheduler(ProbeRow::entry(
        ProbeId::RunlistExecute,
        Site::Function(&["execute_queues_cpsch", "execute_queues_cpsch.constprop.0"]),
        PREEMPTIONS,
    ))
    // On 5.10 and 6.1 it is a part of its callers.
    .optional(),
    // ROCm's 6.0.5 inlines `unmap_queues_cpsch`.
    scheduler(ProbeRow::entry(ProbeId::RunlistChange, Site::Each(&[CHANGES]), PREEMPTIONS))
        .when(When::InPlaceOf(&[ProbeId::RunlistUnmap])),
    scheduler(ProbeRow::entry(
        ProbeId::RunlistProcessEnd,
        Site::Function(&["process_termination_cpsch"]),
        PREEMPTIONS,
    )),
    mes(ProbeRow::exit(
        ProbeId::MesCallReturn,
        Site::Each(&[MES_ADD, MES_REMOVE]),
        "requests to the firmware scheduler MES: result and duration",
    )),
    mes(ProbeRow::entry(
        ProbeId::MesCall,
        Site::Each(&[MES_ADD, MES_REMOVE]),
        "requests to the firmware scheduler MES",
    )),
    mes(ProbeRow::entry(
        ProbeId::MesAdd,
        Site::Function(&["add_queue_mes"]),
        "queues that MES is to run, and why",
    )),
    mes(ProbeRow::entry(
        ProbeId::MesRemove,
        Site::Function(&[
            "remove_queue_mes",
            "remove_queue_mes.constprop.0",
            "remove_queue_mes.isra.0",
            "remove_queue_mes_on_reset_option",
            "remove_queue_mes_on_reset_option.constprop.0",
            "remove_queue_mes_on_reset_option.isra.0",
        ]),
        "queues that MES is to stop, and why",
    )),
    ProbeRow::tracepoint(ProbeId::TpCs, "amdgpu", &["amdgpu_cs"], "submissions through DRM"),
    ProbeRow::tracepoint(ProbeId::TpInterrupt, "amdgpu", &["amdgpu_iv"], "interrupts"),
    ProbeRow::tracepoint(
        ProbeId::TpJobQueue,
        "gpu_scheduler",
        &["drm_sched_job_queue", "drm_sched_job"],
        "jobs of the DRM scheduler: queued",
    ),
    ProbeRow::tracepoint(
        ProbeId::TpJobRun,
        "gpu_scheduler",
        &["drm_sched_job_run", "drm_run_job"],
        "jobs of the DRM scheduler: begun",
    ),
    ProbeRow::tracepoint(
        ProbeId::TpJobDone,
        "gpu_scheduler",
        &["drm_sched_job_done", "drm_sched_process_job"],
        "jobs of the DRM scheduler: ended",
    ),
    ProbeRow::tracepoint(
        ProbeId::TpEvictStart,
        "amdkfd",
        &["kfd_evict_process_worker_start"],
        "evictions by ROCm's driver: begun",
    ),
    ProbeRow::tracepoint(
        ProbeId::TpEvictEnd,
        "amdkfd",
        &["kfd_evict_process_worker_end"],
        "evictions by ROCm's driver: ended",
    ),
    ProbeRow::tracepoint(
        ProbeId::TpRestoreStart,
        "amdkfd",
        &["kfd_restore_process_worker_start"],
        "restores by ROCm's driver: begun",
    ),
    ProbeRow::tracepoint(
        ProbeId::TpRestoreEnd,
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
        // The first one is separate: nothing can replace it.
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
                assert!(offset::field(need).is_some(), "{}: {need}", row.program());
            }
        }
    }
}
