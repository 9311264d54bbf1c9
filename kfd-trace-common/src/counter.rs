//! Counters that the BPF programs keep in one array, one part per CPU: probe hits and records sent. Also the
//! names of everything that is counted; what does not get through has separate counters ([`crate::loss`]).

use crate::kind::Kind;

macro_rules! ids {
    ($(#[$enum_doc:meta])* $enum:ident { $($(#[$doc:meta])* $name:ident = $text:literal,)* }) => {
        $(#[$enum_doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u32)]
        pub enum $enum { $($(#[$doc])* $name,)* }

        impl $enum {
            /// All of them, in the order of their index.
            pub const ALL: &'static [$enum] = &[$($enum::$name,)*];

            /// The name in metrics, JSON and the summary.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $($enum::$name => $text,)* }
            }
        }
    };
}

ids! {
    /// One row of the probe table per BPF program that is attached to the kernel.
    ProbeId {
        /// kprobe on `kfd_ioctl`.
        Ioctl = "ioctl",
        /// kprobe on every ioctl handler; only where the arguments are requested.
        IoctlHandler = "ioctl_handler",
        /// kretprobe on every ioctl handler but WAIT_EVENTS.
        IoctlReturn = "ioctl_return",
        /// kprobe on the handlers that allocate, import, restore, map, unmap and free memory, where the one on every handler is not attached.
        MemoryCall = "memory_call",
        /// kretprobe on `kfd_open`.
        Open = "open",
        /// kretprobe on `kfd_create_process`.
        CreateProcess = "create_process",
        /// kprobe on `kfd_release`.
        Release = "release",
        /// kprobe on `kfd_procfs_add_queue`.
        QueueAdd = "queue_add",
        /// kprobe on `kfd_procfs_del_queue`.
        QueueDel = "queue_del",
        /// kprobe on `kfd_process_notifier_release`.
        NotifierRelease = "notifier_release",
        /// kprobe on `kfd_process_wq_release`.
        WqRelease = "wq_release",
        /// kretprobe on the same.
        WqReleaseReturn = "wq_release_return",
        /// kprobe on `update_queue`.
        QueueUpdate = "queue_update",
        /// kretprobe on the same.
        QueueUpdateReturn = "queue_update_return",
        /// kprobe on every copy of `init_mqd*`.
        MqdInit = "mqd_init",
        /// kprobe on every copy of `update_mqd*`.
        MqdUpdate = "mqd_update",
        /// kprobe on every copy of `update_mqd_gpu_addr*`.
        MqdAddress = "mqd_address",
        /// kprobe on every copy of `restore_mqd*`.
        MqdRestore = "mqd_restore",
        /// kprobe on `kfd_process_evict_queues`.
        EvictProcess = "evict_process",
        /// kprobe on the eviction of a process after a fault.
        EvictFault = "evict_fault",
        /// kretprobe on both.
        EvictReturn = "evict_return",
        /// kprobe on `evict_process_queues_*`.
        EvictGpu = "evict_gpu",
        /// kprobe on `restore_process_queues_*`.
        RestoreGpu = "restore_gpu",
        /// kretprobe on both.
        EvictGpuReturn = "evict_gpu_return",
        /// kprobe on `kfd_signal_vm_fault_event`.
        VmFault = "vm_fault",
        /// kprobe on `kfd_smi_event_update_gpu_reset`.
        GpuReset = "gpu_reset",
        /// kprobe on `kfd_hws_hang`.
        HwsHang = "hws_hang",
        /// kprobe on `kfd_process_hw_exception`, where `kfd_hws_hang` is inlined.
        HwException = "hw_exception",
        /// kprobe on `reset_queues_on_hws_hang`.
        HungQueues = "hung_queues",
        /// kprobe on the functions that change what a GPU runs, where a hang is inlined in them.
        HangScope = "hang_scope",
        /// kprobe on `amdgpu_amdkfd_gpu_reset`.
        ResetRequest = "reset_request",
        /// kprobe on `amdgpu_userq_ioctl`.
        UserQueue = "user_queue",
        /// kretprobe on the same.
        UserQueueReturn = "user_queue_return",
        /// kprobe on `process_termination_cpsch`.
        RunlistProcessEnd = "runlist_process_end",
        /// kprobe on `execute_queues_cpsch`.
        RunlistExecute = "runlist_execute",
        /// kprobe on `unmap_queues_cpsch`.
        RunlistUnmap = "runlist_unmap",
        /// kprobe on the functions that change what a GPU runs, where `unmap_queues_cpsch` is inlined.
        RunlistChange = "runlist_change",
        /// kprobe on `pm_send_unmap_queue`.
        PreemptBegin = "preempt_begin",
        /// kretprobe on `amdkfd_fence_wait_timeout`.
        PreemptWaited = "preempt_waited",
        /// kprobe on `pm_release_ib`.
        PreemptEnd = "preempt_end",
        /// kretprobe on `pm_send_runlist`.
        RunlistSent = "runlist_sent",
        /// kprobe on `suspend_queues`.
        SuspendQueues = "suspend_queues",
        /// kprobe on `resume_queues`.
        ResumeQueues = "resume_queues",
        /// kretprobe on both.
        SuspensionReturn = "suspension_return",
        /// kprobe on `add_queue_mes`.
        MesAdd = "mes_add",
        /// kprobe on `remove_queue_mes`.
        MesRemove = "mes_remove",
        /// kprobe on `mes_v*_add_hw_queue` and `mes_v*_remove_hw_queue`.
        MesCall = "mes_call",
        /// kretprobe on the same.
        MesCallReturn = "mes_call_return",
        /// Tracepoint `amdgpu:amdgpu_cs`: a submission through DRM.
        TpCs = "tp_cs",
        /// Tracepoint `amdgpu:amdgpu_iv`: an interrupt.
        TpInterrupt = "tp_interrupt",
        /// Tracepoint `gpu_scheduler:drm_sched_job*`: a job is queued.
        TpJobQueue = "tp_job_queue",
        /// Tracepoint `gpu_scheduler:drm_run_job` or `drm_sched_job_run`.
        TpJobRun = "tp_job_run",
        /// Tracepoint `gpu_scheduler:drm_sched_process_job` or `drm_sched_job_done`.
        TpJobDone = "tp_job_done",
        /// Tracepoint `amdkfd:kfd_evict_process_worker_start` of ROCm's out-of-tree driver.
        TpEvictStart = "tp_evict_start",
        /// Its `kfd_evict_process_worker_end`.
        TpEvictEnd = "tp_evict_end",
        /// Its `kfd_restore_process_worker_start`.
        TpRestoreStart = "tp_restore_start",
        /// Its `kfd_restore_process_worker_end`.
        TpRestoreEnd = "tp_restore_end",
    }
}

ids! {
    /// Errors inside the BPF programs. None of these is silent: each is exported by name.
    Trouble {
        /// The `kfd_process` behind a file, queue or work item could not be read.
        ProcessUnreadable = "process_unreadable",
        /// A `struct queue` or its properties could not be read.
        QueueUnreadable = "queue_unreadable",
        /// The arguments of an ioctl could not be read.
        ArgsUnreadable = "args_unreadable",
        /// The credentials needed to derive EACCES could not be read.
        CredUnreadable = "cred_unreadable",
        /// The table of KFD processes was full: the process is not tracked.
        ProcessesFull = "processes_full",
        /// The table of calls under way was full: the result of a call is not measured.
        InFlightFull = "in_flight_full",
        /// The table of releases under way was full: the end of a process is not reported.
        ReleasingFull = "releasing_full",
        /// The table of (process, command) was full: a call is counted by its number only, for no process.
        IoctlStatsFull = "ioctl_stats_full",
        /// The table of (process, command, errno) was full: an errno is not counted.
        IoctlErrorsFull = "ioctl_errors_full",
        /// The process device behind an eviction could not be read.
        EvictionUnreadable = "eviction_unreadable",
        /// Another eviction or restore of the same process on the same GPU overlapped with one, or a restore
        /// failed: a transition may be missing, be reported twice, or in the wrong order.
        EvictionRaced = "eviction_raced",
        /// The GPU behind a queue, an eviction, a fault, a reset or a hang could not be read.
        DeviceUnreadable = "device_unreadable",
        /// A VM fault of an unknown process.
        FaultOfUnknownProcess = "fault_of_unknown_process",
        /// A map of calls under way inside the driver was full: an update, MQD write or eviction is not
        /// reported.
        NestedFull = "nested_full",
        /// The return of an update or an eviction was missed, so that it was not reported, or an update without its
        /// result: found by the thread's next one, or next ioctl.
        NestedReturnMissed = "nested_return_missed",
        /// A call returned for which no entry was seen (it began before the tracer, or its entry was missed).
        ReturnWithoutEntry = "return_without_entry",
    }
}

impl ProbeId {
    /// Those that together show which queues a debugger has suspended.
    pub const SUSPENSIONS: [ProbeId; 3] =
        [ProbeId::SuspendQueues, ProbeId::ResumeQueues, ProbeId::SuspensionReturn];

    /// The probe with this number, if there is one.
    #[must_use]
    pub fn from_raw(raw: u32) -> Option<ProbeId> {
        usize::try_from(raw).ok().and_then(|index| ProbeId::ALL.get(index)).copied()
    }
}

impl Trouble {
    /// Those due to which an event was not reported that the driver's own lists may show.
    pub const UNREPORTED: &'static [Trouble] = &[
        Trouble::QueueUnreadable,
        Trouble::ProcessesFull,
        Trouble::EvictionUnreadable,
        Trouble::EvictionRaced,
        Trouble::NestedFull,
        Trouble::NestedReturnMissed,
    ];
}

/// Index of a probe's hits in the counters of a CPU.
#[must_use]
pub const fn hits(probe: ProbeId) -> u32 {
    probe as u32
}

/// Index of the records of a kind that reached the ring buffer.
#[must_use]
pub const fn sent(kind: Kind) -> u32 {
    SENT_BASE + kind as u32
}

/// Counters of one CPU.
pub const COUNTERS: u32 = SENT_BASE + count(Kind::ALL.len());

/// From a CPU's first counter to the next CPU's: whole cache lines, so that no two CPUs write to one line.
/// Counter `n` of CPU `c` is at `c * STRIDE + n`.
pub const STRIDE: u32 = COUNTERS.next_multiple_of(LINE);

/// Counters in a cache line of 64 bytes.
const LINE: u32 = 8;

const SENT_BASE: u32 = count(ProbeId::ALL.len());

#[expect(clippy::cast_possible_truncation, reason = "lists of a few dozen names, and try_into is not const")]
pub(crate) const fn count(len: usize) -> u32 {
    len as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_counter_has_an_index_of_its_own() {
        let mut seen = BTreeSet::new();
        let all = ProbeId::ALL.iter().map(|p| hits(*p)).chain(Kind::ALL.iter().map(|k| sent(*k)));
        for index in all {
            assert!(index < COUNTERS && seen.insert(index), "index {index}");
        }
        assert_eq!(seen.len(), COUNTERS as usize);
    }

    #[test]
    fn a_probe_is_found_by_its_number() {
        for probe in ProbeId::ALL {
            assert_eq!(ProbeId::from_raw(*probe as u32), Some(*probe));
        }
        assert_eq!(ProbeId::from_raw(count(ProbeId::ALL.len())), None);
    }
}
