//! Sizes that both sides must agree on, each with its reason.

/// Bytes of a task's `comm`, with the closing NUL (`TASK_COMM_LEN`, include/linux/sched.h).
pub const COMM_LEN: usize = 16;

/// Bytes kept of the leaf cgroup's name. Container ids take 64 hex digits plus a prefix such as
/// `cri-containerd-` and the suffix `.scope`; the rest of the path comes from /proc.
pub const CGROUP_LEN: usize = 128;

/// Bytes copied of `struct queue_properties`: 136, 200 and 208 bytes on 6.1, 6.12 and 7.2, with room to grow.
pub const PROPERTIES_LEN: usize = 256;

/// Bytes copied of an ioctl's arguments. `kfd_ioctl` keeps up to 128 on its own stack, and only
/// GET_PROCESS_APERTURES (the deprecated form) is larger.
pub const ARGS_LEN: usize = 128;

/// GPUs that the record of a call names which maps memory on them: eight, in eight partitions each.
pub const MAP_GPUS: usize = 64;

/// Longest kernel read of the `peek` program.
pub const PEEK_LEN: usize = 256;

/// Calls of `kfd_ioctl` that can be under way at once, besides those of threads with a slot: one per thread.
pub const IN_FLIGHT_MAX: u32 = 16_384;

/// Threads without a slot whose calls' arguments are kept at once.
pub const ARGS_MAX: u32 = 4_096;

/// Slots of threads that call `kfd_ioctl`, 4.9 kB each; a power of two. With 500 such threads, 56 find their slot
/// occupied.
pub const CALLER_SLOTS: u32 = 2_048;

/// Consecutive slots that the daemon maps together, when one of them is taken for the first time: a divisor of their
/// number.
pub const CALLER_SLOTS_PART: u32 = 64;

/// KFD processes known at once. The driver's own limit is the PASID space (64 Ki); a node runs several
/// hundred.
pub const PROCESSES_MAX: u32 = 8_192;

/// PIDs that `--pid` may name.
pub const FILTER_MAX: u32 = 1_024;

/// Generations between a process and an ancestor by which it is selected.
pub const ANCESTORS: u32 = 128;

/// (process, command) pairs without a place in a slot, 272 bytes each.
pub const IOCTL_STATS_MAX: u32 = 16_384;

/// Numbers that a command can have (`_IOC_NRBITS`).
pub const IOCTL_NUMBERS: u32 = 256;

/// (process, command, errno) triples counted at once.
pub const IOCTL_ERRORS_MAX: u32 = 4_096;

/// Default size of the ring buffer in bytes; the loader may set another power of two.
pub const RING_BYTES: u32 = 1 << 20;

/// Bytes kept of a CU mask. `kfd_ioctl_set_cu_mask` cuts it to 1024 bits (kfd_chardev.c).
pub const CU_MASK_LEN: usize = 128;

/// Calls inside the driver that can be under way at once: updates, MQD writes, evictions; one per thread.
pub const NESTED_MAX: u32 = 4_096;

/// Queues of a suspend or a resume that a record names: a debugger stops all queues of a process at once, and ROCm
/// makes a handful per GPU.
pub const SUSPENSION_QUEUES: usize = 64;

/// Suspends and resumes that can be under way at once; one per debugger.
pub const SUSPENSIONS_MAX: u32 = 256;
