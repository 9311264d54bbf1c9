//! The kinds of events: one row per kind. Both sides read it; names, colours, filters, the history's classes
//! and docs/events.md come from here.

use crate::record;

/// What an event is about: decides how its owner is found, and what `--comm` selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// The calling process: KFD need not know it, so the record has its comm.
    Caller,
    /// A KFD process: [`crate::record::Header::process`].
    Process,
    /// A queue of a KFD process.
    Queue,
    /// A whole GPU: it concerns all processes with queues there.
    Gpu,
}

impl Subject {
    /// Word in docs/events.md.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Subject::Caller => "caller",
            Subject::Process => "process",
            Subject::Queue => "queue",
            Subject::Gpu => "GPU",
        }
    }
}

/// How much attention an event deserves: the colours of stream and screen, and the severity of OTLP's records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// So frequent that it is shown only on request.
    Requested,
    /// Frequent, for those who look for it.
    Detail,
    Info,
    /// Something was created.
    Created,
    /// Something ended.
    Ended,
    /// Queues are not run for a while.
    Stopped,
    /// A failure in itself. Of other severities, an event that has an errno counts as a failure, too.
    Failure,
}

/// Events of the history that share one bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(usize)]
pub enum Class {
    /// Resets, hangs, and driver load and unload.
    Gpus,
    Faults,
    Evictions,
    Queues,
    Processes,
}

impl Class {
    /// All classes, in the order of their numbers.
    pub const ALL: [Class; 5] =
        [Class::Gpus, Class::Faults, Class::Evictions, Class::Queues, Class::Processes];

    /// The name in the API.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Class::Gpus => "gpus",
            Class::Faults => "faults",
            Class::Evictions => "evictions",
            Class::Queues => "queues",
            Class::Processes => "processes",
        }
    }
}

/// Class of a kind that the history keeps; `-` for one that it does not keep.
macro_rules! class {
    (-) => {
        None
    };
    ($class:ident) => {
        Some(Class::$class)
    };
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $value:literal {
        $text:literal, $label:literal, $record:ident, $subject:ident, $severity:ident, $class:tt, $source:literal
    })*) => {
        /// The event that a record reports; in [`crate::record::Header::kind`].
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u16)]
        pub enum Kind { $($(#[$doc])* $name = $value,)* }

        impl Kind {
            /// Every kind, in the order of its number.
            pub const ALL: &'static [Kind] = &[$(Kind::$name,)*];

            /// The name used in JSON (`event`), on the command line (`--event`) and in metrics.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Kind::$name => $text,)* }
            }

            /// The word in the stream's column EVENT.
            #[must_use]
            pub const fn label(self) -> &'static str {
                match self { $(Kind::$name => $label,)* }
            }

            /// Bytes of its record.
            #[must_use]
            pub const fn record_size(self) -> usize {
                match self { $(Kind::$name => size_of::<record::$record>(),)* }
            }

            /// What the event is about.
            #[must_use]
            pub const fn subject(self) -> Subject {
                match self { $(Kind::$name => Subject::$subject,)* }
            }

            /// How much attention it deserves.
            #[must_use]
            pub const fn severity(self) -> Severity {
                match self { $(Kind::$name => Severity::$severity,)* }
            }

            /// The history's class; `None` for a kind that is not kept.
            #[must_use]
            pub const fn class(self) -> Option<Class> {
                match self { $(Kind::$name => class!($class),)* }
            }

            /// Whether the stream shows it only on request: its probes are then not attached.
            #[must_use]
            pub const fn on_request(self) -> bool {
                matches!(self.severity(), Severity::Requested)
            }

            /// Where in the kernel it is seen, in Markdown.
            #[must_use]
            pub const fn source(self) -> &'static str {
                match self { $(Kind::$name => $source,)* }
            }

            /// The kind with this number, if there is one.
            #[must_use]
            pub const fn from_raw(raw: u16) -> Option<Kind> {
                match raw { $($value => Some(Kind::$name),)* _ => None }
            }
        }
    };
}

// Each row: number { name, label, record, subject, severity, class in the history or -, where it is seen }.
kinds! {
    /// A KFD process was seen for the first time: created, or existing since before the tracer.
    ProcessSeen = 0 {
        "process_seen", "PROCESS", ProcessSeen, Process, Info, Processes,
        "`kfd_create_process`; at the start also every existing process, followed by its queues"
    }
    /// `kfd_open` returned.
    Open = 1 { "open", "OPEN", Open, Caller, Info, -, "return of `kfd_open`" }
    /// `kfd_release`: the last reference to an open file of /dev/kfd was dropped.
    Close = 2 { "close", "CLOSE", Bare, Process, Info, -, "`kfd_release`" }
    /// `kfd_process_notifier_release`: the address space of the process was released.
    MmRelease = 3 {
        "mm_release", "PROCESS_EXIT", Bare, Process, Info, -, "`kfd_process_notifier_release`"
    }
    /// `kfd_process_wq_release`: the KFD process is being freed; its queues are removed by then.
    ProcessRelease = 4 {
        "process_release", "PROCESS_GONE", Bare, Process, Info, Processes,
        "return of `kfd_process_wq_release`; also for each process that is left when the driver was unloaded, \
         after its `queue_destroy` of cause `driver_unloaded`"
    }
    /// `kfd_procfs_add_queue`: a queue was created.
    QueueCreate = 5 {
        "queue_create", "CREATE_QUEUE", QueueCreate, Queue, Created, Queues, "`kfd_procfs_add_queue`"
    }
    /// `kfd_procfs_del_queue`: a queue is removed.
    QueueDestroy = 6 {
        "queue_destroy", "DESTROY_QUEUE", QueueDestroy, Queue, Ended, Queues, "`kfd_procfs_del_queue`"
    }
    /// A DESTROY_QUEUE ioctl failed after `kfd_procfs_del_queue` had been called for its queue.
    QueueDestroyFailed = 7 {
        "queue_destroy_failed", "DESTROY_FAILED", QueueDestroy, Queue, Failure, Queues,
        "a DESTROY_QUEUE that failed after `kfd_procfs_del_queue` (6.1 calls it first): the queue lives on"
    }
    /// One ioctl, with its arguments and its result.
    Ioctl = 8 { "ioctl", "IOC", Ioctl, Process, Detail, -, "`kfd_ioctl`, entry and return" }
    /// `update_queue` returned: the queue's state after an update, a CU mask or a change of its GWS.
    QueueUpdate = 9 {
        "queue_update", "UPDATE_QUEUE", QueueUpdate, Queue, Info, -,
        "return of `update_queue` (UPDATE_QUEUE, SET_CU_MASK, ALLOC_QUEUE_GWS)"
    }
    /// The outermost call of `init_mqd*`, `update_mqd*` or `restore_mqd*` for a queue of a process.
    MqdWrite = 10 {
        "mqd_write", "MQD", MqdWrite, Queue, Detail, -,
        "outermost call of `init_mqd*`, `update_mqd*` or `restore_mqd*`; an init comes before its queue's \
         `queue_create`"
    }
    /// The queues of a process on one GPU were evicted: `qpd->evicted` went from 0.
    Evict = 11 {
        "evict", "EVICT", Eviction, Process, Stopped, Evictions,
        "`evict_process_queues_*`, when it took the process's queues off the GPU; nested calls are not reported"
    }
    /// They were restored: `qpd->evicted` returned to 0.
    Restore = 12 {
        "restore", "RESTORE", Eviction, Process, Info, Evictions,
        "`restore_process_queues_*`, when it put them back"
    }
    /// `kfd_signal_vm_fault_event`: a VM fault of a process.
    VmFault = 13 {
        "vm_fault", "VM_FAULT", VmFault, Process, Failure, Faults, "`kfd_signal_vm_fault_event`"
    }
    /// `kfd_smi_event_update_gpu_reset` before a reset of a GPU.
    GpuResetBegin = 14 {
        "gpu_reset_begin", "GPU_RESET", Gpu, Gpu, Failure, Gpus, "`kfd_smi_event_update_gpu_reset`"
    }
    /// The same after it.
    GpuResetEnd = 15 {
        "gpu_reset_end", "GPU_RESET", Gpu, Gpu, Info, Gpus, "the same, after the reset"
    }
    /// The hardware scheduler of a GPU hangs: a preemption timed out, or left a queue on the GPU that could not be
    /// reset.
    HwsHang = 16 {
        "hws_hang", "HWS_HANG", Gpu, Gpu, Failure, Gpus,
        "`kfd_hws_hang`; where that is inlined `kfd_process_hw_exception`, or `amdgpu_amdkfd_gpu_reset`"
    }
    /// `amdgpu_userq_ioctl` returned: a DRM user queue, which does not pass KFD.
    UserQueue = 17 {
        "user_queue", "USER_QUEUE", UserQueue, Caller, Info, Queues,
        "return of `amdgpu_userq_ioctl` (7.2): queues of DRM that do not pass KFD"
    }
    /// `kfd_process_evict_queues` failed: the driver restores the GPUs on which it had succeeded.
    EvictFailed = 18 {
        "evict_failed", "EVICT_FAILED", Eviction, Process, Failure, Evictions,
        "`kfd_process_evict_queues` that returned an error: the GPUs before the failing one are restored"
    }
    /// The queues of all processes were taken off a GPU, or that failed.
    Preempt = 19 {
        "preempt", "PREEMPT", Preempt, Gpu, Requested, -,
        "`pm_send_unmap_queue` to `pm_release_ib`, or a return of `amdkfd_fence_wait_timeout` with an error"
    }
    /// The list of the queues that a GPU is to run was submitted to its scheduler.
    Runlist = 20 { "runlist", "RUNLIST", Runlist, Gpu, Requested, -, "return of `pm_send_runlist`" }
    /// A debugger suspended queues of a process, or tried to.
    QueuesSuspended = 21 {
        "queues_suspended", "SUSPEND_QUEUES", Suspension, Process, Stopped, Queues,
        "return of `suspend_queues` (6.12 and later): a debugger's SUSPEND_QUEUES"
    }
    /// A debugger resumed queues of a process, or let go of it.
    QueuesResumed = 22 {
        "queues_resumed", "RESUME_QUEUES", Suspension, Process, Info, Queues,
        "return of `resume_queues` (6.12 and later): a debugger's RESUME_QUEUES; all queues when it disables debugging, \
         and when a debugged process ends"
    }
    /// A request to the firmware scheduler MES to run a queue, or to stop it, has returned.
    MesQueue = 23 {
        "mes_queue", "MES_QUEUE", MesQueue, Queue, Requested, -,
        "return of `mes_v*_add_hw_queue` or `mes_v*_remove_hw_queue` (gfx11 and later), called for a queue of KFD"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_dense_and_round_trip() {
        for (index, kind) in Kind::ALL.iter().enumerate() {
            assert_eq!(*kind as usize, index, "{}", kind.name());
            assert_eq!(Kind::from_raw(*kind as u16), Some(*kind));
        }
        assert_eq!(Kind::from_raw(u16::try_from(Kind::ALL.len()).unwrap()), None);
    }
}
