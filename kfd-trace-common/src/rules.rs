//! When `kfd_ioctl` refuses a call before any handler (kfd_chardev.c, the same from 5.10 to 7.3 but for the errno
//! of an unknown number): where only handlers' returns are probed, the BPF side derives the errno by these rules.

/// `AMDKFD_COMMAND_START`.
pub const FIRST: u32 = 0x01;

/// First number of the commands that only ROCm's out-of-tree driver has (`AMDKFD_COMMAND_START_2`).
pub const FIRST_ROCM: u32 = 0x80;

/// WAIT_EVENTS, which sleeps until an event comes.
pub const WAIT_EVENTS: u32 = 0x0c;

/// DESTROY_QUEUE.
pub const DESTROY_QUEUE: u32 = 0x03;

/// CREATE_QUEUE, UPDATE_QUEUE and SET_CU_MASK.
pub const CREATE_QUEUE: u32 = 0x02;
pub const UPDATE_QUEUE: u32 = 0x07;
pub const SET_CU_MASK: u32 = 0x1a;

/// ALLOC_MEMORY_OF_GPU, FREE_MEMORY_OF_GPU, MAP_MEMORY_TO_GPU, UNMAP_MEMORY_FROM_GPU, IMPORT_DMABUF, and ROCm's
/// IPC_IMPORT_HANDLE.
pub const ALLOC_MEMORY: u32 = 0x16;
pub const FREE_MEMORY: u32 = 0x17;
pub const MAP_MEMORY: u32 = 0x18;
pub const UNMAP_MEMORY: u32 = 0x19;
pub const IMPORT_DMABUF: u32 = 0x1d;
pub const IPC_IMPORT: u32 = 0x80;

/// CREATE_PROCESS of 7.2: the file that it is called on is assigned another process
/// (`kfd_ioctl_create_process`).
pub const CREATE_PROCESS: u32 = 0x27;

/// `KFD_CONTEXT_ID_PRIMARY` of 7.2 (kfd_priv.h).
pub const PRIMARY_CONTEXT: u32 = 0xffff;

/// Commands that change a queue: enough to track queues from the ioctls alone, where the driver's BTF is
/// missing.
#[must_use]
#[inline(always)]
pub const fn changes_queue(nr: u32) -> bool {
    matches!(nr, CREATE_QUEUE | DESTROY_QUEUE | UPDATE_QUEUE | SET_CU_MASK)
}

/// Commands after which a process holds other memory than before, or has it mapped on other GPUs.
#[must_use]
#[inline(always)]
pub const fn changes_memory(nr: u32) -> bool {
    // CRIU_OP restores allocations.
    matches!(nr, ALLOC_MEMORY | FREE_MEMORY | IMPORT_DMABUF | IPC_IMPORT | CRIU) || maps_memory(nr)
}

/// Commands with an array of gpu_ids (`struct kfd_ioctl_map_memory_to_gpu_args`, and the same to unmap).
#[must_use]
#[inline(always)]
pub const fn maps_memory(nr: u32) -> bool {
    matches!(nr, MAP_MEMORY | UNMAP_MEMORY)
}

/// Arguments of such a command: bytes, where the number of gpu_ids is, and where that of the GPUs that were done.
pub const MAP_ARGS: usize = 24;
pub const MAP_ARRAY_AT: usize = 8;
pub const MAP_COUNT_AT: usize = 16;
pub const MAP_DONE_AT: usize = 20;

/// Which calls get a record each.
pub mod records {
    pub const NONE: u32 = 0;
    /// Calls that change a queue, where queues themselves cannot be probed.
    pub const QUEUES: u32 = 1;
    pub const ALL: u32 = 2;
}

/// CRIU_OP: the only command with a flag (`KFD_IOC_FLAG_CHECKPOINT_RESTORE`).
pub const CRIU: u32 = 0x22;

/// CAP_CHECKPOINT_RESTORE or CAP_SYS_ADMIN, as bits of `cred.cap_effective`.
pub const CRIU_CAPS: u64 = 1 << 40 | 1 << 21;

/// Errnos with which DESTROY_QUEUE fails although the queue has been removed: the preemption timed out or
/// failed (`pqm_destroy_queue`, kfd_process_queue_manager.c), or `kfd_ioctl` could not copy the arguments back (EFAULT,
/// which no step of the destruction returns).
#[must_use]
#[inline(always)]
pub const fn destroyed_anyway(errno: u32) -> bool {
    matches!(errno, EIO | ETIME | EFAULT)
}

pub const EIO: u32 = 5;
pub const EBADF: u32 = 9;
pub const EACCES: u32 = 13;
pub const EFAULT: u32 = 14;
pub const EINVAL: u32 = 22;
pub const ENOTTY: u32 = 25;
pub const ETIME: u32 = 62;

/// Number of a command (`_IOC_NR`).
#[must_use]
#[inline(always)]
pub const fn nr(cmd: u32) -> u32 {
    cmd & 0xff
}

/// The driver has no command of this number. `end` and `rocm_end` are one past its last command of
/// either range; 0 when it has none.
#[must_use]
#[inline(always)]
pub const fn unknown(nr: u32, end: u32, rocm_end: u32) -> bool {
    !(nr >= FIRST && nr < end || nr >= FIRST_ROCM && nr < rocm_end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_outside_of_both_ranges_are_unknown() {
        assert!(unknown(0, 0x27, 0) && unknown(0x27, 0x27, 0) && unknown(0x82, 0x27, 0));
        assert!(!unknown(0x01, 0x27, 0) && !unknown(0x26, 0x27, 0));
        assert!(!unknown(0x82, 0x24, 0x85) && unknown(0x85, 0x24, 0x85) && unknown(0x30, 0x24, 0x85));
    }
}
