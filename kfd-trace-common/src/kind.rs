//! The kinds of records in the ring buffer.

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $value:literal, $text:literal;)*) => {
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

            /// The kind with this number, if there is one.
            #[must_use]
            pub const fn from_raw(raw: u16) -> Option<Kind> {
                match raw { $($value => Some(Kind::$name),)* _ => None }
            }
        }
    };
}

kinds! {
    /// A KFD process was seen for the first time: created, or existing since before the tracer.
    ProcessSeen = 0, "process_seen";
    /// `kfd_open` returned.
    Open = 1, "open";
    /// `kfd_release`: the last reference to an open file of /dev/kfd was dropped.
    Close = 2, "close";
    /// `kfd_process_notifier_release`: the address space of the process was released.
    MmRelease = 3, "mm_release";
    /// `kfd_process_wq_release`: the KFD process is being freed; its queues are removed by then.
    ProcessRelease = 4, "process_release";
    /// `kfd_procfs_add_queue`: a queue was created.
    QueueCreate = 5, "queue_create";
    /// `kfd_procfs_del_queue`: a queue is removed.
    QueueDestroy = 6, "queue_destroy";
    /// A DESTROY_QUEUE ioctl failed after `kfd_procfs_del_queue` had been called for its queue.
    QueueDestroyFailed = 7, "queue_destroy_failed";
    /// One ioctl, with its arguments and its result.
    Ioctl = 8, "ioctl";
    /// `update_queue` returned: the queue's state after an update, a CU mask or a change of its GWS.
    QueueUpdate = 9, "queue_update";
    /// The outermost call of `init_mqd*`, `update_mqd*` or `restore_mqd*` for a queue of a process.
    MqdWrite = 10, "mqd_write";
    /// The queues of a process on one GPU were evicted: `qpd->evicted` went from 0.
    Evict = 11, "evict";
    /// They were restored: `qpd->evicted` returned to 0.
    Restore = 12, "restore";
    /// `kfd_signal_vm_fault_event`: a VM fault of a process.
    VmFault = 13, "vm_fault";
    /// `kfd_smi_event_update_gpu_reset` before a reset of a GPU.
    GpuResetBegin = 14, "gpu_reset_begin";
    /// The same after it.
    GpuResetEnd = 15, "gpu_reset_end";
    /// The hardware scheduler of a GPU hangs: a preemption timed out.
    HwsHang = 16, "hws_hang";
    /// `amdgpu_userq_ioctl` returned: a DRM user queue, which does not pass KFD.
    UserQueue = 17, "user_queue";
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
