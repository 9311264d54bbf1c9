//! The records of the ring buffer: a [`Header`] and a body of one kind.
//!
//! Times are `bpf_ktime_get_ns` (CLOCK_MONOTONIC). Text is NUL-padded and may be cut. `process` is a number
//! that the BPF side assigns to a `struct kfd_process` when it first sees it: addresses are reused by the
//! kernel's allocator, these numbers are not.

use crate::aql::HEAD_LEN;
use crate::limits::{ARGS_LEN, CGROUP_LEN, COMM_LEN, CU_MASK_LEN, MAP_GPUS, PROPERTIES_LEN};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

pub mod mes;
pub mod runlist;
pub mod suspension;
pub use mes::MesQueue;
pub use runlist::{NOT_COUNTED, Preempt, Runlist, oversubscribed};
pub use suspension::Suspension;

/// A record: begins with a [`Header`], has no padding, and any bytes are a valid value.
///
/// # Safety
/// Only for structures whose first field is a [`Header`].
pub unsafe trait Record: FromBytes + IntoBytes + Immutable + KnownLayout + Copy + 'static {}

macro_rules! records {
    ($($name:ident)*) => {
        $(
            const _: Header = $name::header_of_zeros();

            impl $name {
                /// Compiles if the first field is a [`Header`].
                const fn header_of_zeros() -> Header {
                    assert!(core::mem::offset_of!($name, header) == 0);
                    let record: $name = zerocopy::transmute!([0u8; size_of::<$name>()]);
                    record.header
                }
            }

            // SAFETY: its first field is a `Header`, as checked above.
            unsafe impl Record for $name {}
        )*
    };
}

records! {
    ProcessSeen Open Bare QueueCreate QueueDestroy Ioctl QueueUpdate MqdWrite Eviction VmFault Gpu UserQueue
    Preempt Runlist Suspension MesQueue
}

/// Version of the layout of all records.
pub const VERSION: u16 = 5;

/// Precedes every body.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct Header {
    /// Bytes of the whole record.
    pub size: u32,
    /// [`crate::kind::Kind`].
    pub kind: u16,
    /// [`VERSION`].
    pub version: u16,
    /// CLOCK_MONOTONIC in nanoseconds.
    pub mono_ns: u64,
    /// The KFD process that owns the record's object; 0 when there is none or it could not be read.
    pub process: u64,
    /// tgid of the owner in the initial PID namespace; 0 when it could not be read.
    pub tgid: u32,
    /// The running thread.
    pub tid: u32,
    /// tgid of the running thread: differs from `tgid` in kworkers and in a forked child.
    pub task_tgid: u32,
    /// The CPU.
    pub cpu: u32,
    /// Command of the ioctl that the running thread is in; 0 when it is in none.
    pub ioctl: u32,
    /// The probe whose program sent it: [`crate::counter::ProbeId`].
    pub probe: u32,
}

/// Body of `Kind::ProcessSeen`.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct ProcessSeen {
    pub header: Header,
    /// Start of the thread-group leader on CLOCK_BOOTTIME, nanoseconds; 0 when not readable.
    pub start_boottime_ns: u64,
    /// PID of the leader in its own PID namespace; 0 when not readable.
    pub ns_tgid: u32,
    /// Real UID in the initial user namespace; `u32::MAX` when not readable.
    pub uid: u32,
    /// 1 when the process existed before the tracer saw it, 0 when its creation was seen.
    pub standing: u32,
    /// PASID of all its GPUs; 0 where the driver keeps one per GPU (7.2) or it is not readable.
    pub pasid: u32,
    /// `kfd_process.context_id` (7.2): [`crate::rules::PRIMARY_CONTEXT`] for the first of its PID; `u32::MAX`
    /// when not readable.
    pub context_id: u32,
    /// Always 0.
    pub pad: u32,
    /// Leader's comm.
    pub comm: [u8; COMM_LEN],
    /// Name of the leaf of the cgroup v2 path; empty when not readable.
    pub cgroup: [u8; CGROUP_LEN],
}

/// Body of `Kind::Open`.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct Open {
    pub header: Header,
    /// What `kfd_open` returned: 0 or a negative errno.
    pub result: i32,
    /// Always 0.
    pub pad: u32,
    /// comm of the running thread: a failed open leaves no process that could be queried.
    pub comm: [u8; COMM_LEN],
}

/// Body of the kinds that report no more than the header: `Close`, `MmRelease`, `ProcessRelease`.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct Bare {
    pub header: Header,
}

/// Body of `Kind::QueueCreate`.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct QueueCreate {
    pub header: Header,
    /// KFD's gpu_id; 0 when not readable.
    pub gpu_id: u32,
    /// Bytes of `properties` that are valid; 0 when not readable.
    pub properties_len: u32,
    /// `struct queue_properties` as this kernel lays it out (kfd_priv.h).
    pub properties: [u8; PROPERTIES_LEN],
}

/// Contents of [`QueueDestroy::memory`]; in [`QueueDestroy::pointers`].
pub mod pointers {
    /// Nothing: no DESTROY_QUEUE of the process itself, or not requested.
    pub const NOT_READ: u32 = 0;
    /// Its memory could not be read at that point.
    pub const UNREADABLE: u32 = 1;
    /// The head of `amd_queue_t` ([`crate::aql`]).
    pub const HEAD: u32 = 2;
    /// The word at the write pointer, u64, and then the one at the read pointer.
    pub const WORDS: u32 = 3;
}

/// Body of `Kind::QueueDestroy` and `Kind::QueueDestroyFailed`.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct QueueDestroy {
    pub header: Header,
    /// KFD's queue id, unique within the process while the queue lives.
    pub queue_id: u32,
    /// KFD's gpu_id; 0 when not readable.
    pub gpu_id: u32,
    /// For a failed destroy: the return value of its ioctl, a negative errno. Otherwise 0.
    pub result: i32,
    /// One of [`pointers`].
    pub pointers: u32,
    /// Process memory at the queue's pointers.
    pub memory: [u8; HEAD_LEN],
}

/// Body of `Kind::QueueUpdate`.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct QueueUpdate {
    pub header: Header,
    /// KFD's gpu_id; 0 when not readable.
    pub gpu_id: u32,
    /// Return value of `update_queue`: 0 or a negative errno; [`RESULT_NOT_SEEN`].
    pub result: i32,
    /// Bits of `cu_mask` that this update sets; 0 when it changes something else; [`MASK_NOT_READ`].
    pub cu_mask_bits: u32,
    /// Bytes of `properties` that are valid; 0 when not readable.
    pub properties_len: u32,
    /// The mask as the caller passed it, bit 0 first.
    pub cu_mask: [u8; CU_MASK_LEN],
    /// `struct queue_properties` after the update.
    pub properties: [u8; PROPERTIES_LEN],
}

/// Neither the return of `update_queue` nor that of its ioctl was seen. No result: the driver returns no positive one.
pub const RESULT_NOT_SEEN: i32 = i32::MAX;

/// A mask was set, but could not be read any more.
pub const MASK_NOT_READ: u32 = u32::MAX;

/// The function that wrote an MQD; in [`MqdWrite::op`].
pub mod mqd_op {
    pub const INIT: u32 = 0;
    pub const UPDATE: u32 = 1;
    pub const RESTORE: u32 = 2;
}

/// Body of `Kind::MqdWrite`.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct MqdWrite {
    pub header: Header,
    /// KFD's queue id.
    pub queue_id: u32,
    /// KFD's gpu_id; 0 when not readable.
    pub gpu_id: u32,
    /// One of [`mqd_op`].
    pub op: u32,
    /// Always 0.
    pub pad: u32,
}

/// The reason for an eviction; in [`Eviction::trigger`]. Below [`trigger::FAULT`]: the driver's own numbers
/// (`enum KFD_QUEUE_EVICTION_TRIGGERS`, include/uapi/linux/kfd_ioctl.h).
pub mod trigger {
    /// By `kfd_process_vm_fault`, `kfd_dqm_evict_pasid` or `kfd_evict_process_device`: after a VM fault or a
    /// poisoned memory access.
    pub const FAULT: u32 = 0x100;
    /// By `kfd_process_evict_queues`, of a driver where its trigger is not known to be.
    pub const NOT_READ: u32 = 0x101;
    /// Restored, or not seen.
    pub const NONE: u32 = u32::MAX;
}

/// Body of `Kind::Evict`, `Kind::Restore` and `Kind::EvictFailed`.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct Eviction {
    pub header: Header,
    /// Time inside the driver's function, nanoseconds.
    pub latency_ns: u64,
    /// KFD's gpu_id; 0 when not readable, and for `EvictFailed`, which concerns all GPUs.
    pub gpu_id: u32,
    /// One of [`trigger`].
    pub trigger: u32,
    /// Return value of the function: 0 or a negative errno. For `Evict` and `Restore` the queues count as
    /// evicted or restored all the same.
    pub result: i32,
    /// Always 0.
    pub pad: u32,
}

/// Data of a VM fault; bits of [`VmFault::flags`] (`struct kfd_memory_exception_failure`, uapi kfd_ioctl.h).
pub mod fault {
    /// The driver reported an address and these bits.
    pub const REPORTED: u32 = 1;
    pub const NOT_PRESENT: u32 = 2;
    pub const READ_ONLY: u32 = 4;
    pub const NO_EXECUTE: u32 = 8;
}

/// Body of `Kind::VmFault`.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct VmFault {
    pub header: Header,
    /// GPU virtual address of the page; only with [`fault::REPORTED`].
    pub address: u64,
    /// KFD's gpu_id; 0 when not readable.
    pub gpu_id: u32,
    /// Bits of [`fault`].
    pub flags: u32,
}

/// Body of the kinds that concern a whole GPU: `GpuResetBegin`, `GpuResetEnd`, `HwsHang`.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct Gpu {
    pub header: Header,
    /// KFD's gpu_id; 0 when not readable.
    pub gpu_id: u32,
    /// Always 0.
    pub pad: u32,
}

/// Body of `Kind::UserQueue`: `union drm_amdgpu_userq` (include/uapi/drm/amdgpu_drm.h) before and after the
/// call.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct UserQueue {
    pub header: Header,
    /// GPU virtual address and bytes of the ring.
    pub ring_address: u64,
    pub ring_size: u64,
    /// `AMDGPU_USERQ_OP_*`: 1 create, 2 free.
    pub op: u32,
    /// Assigned by the driver on create, passed by the caller on free.
    pub queue_id: u32,
    /// `AMDGPU_HW_IP_*`: 0 gfx, 1 compute, 2 SDMA.
    pub ip_type: u32,
    /// 0 or a negative errno.
    pub result: i32,
    /// comm of the caller: KFD need not know it.
    pub comm: [u8; COMM_LEN],
}

/// How an ioctl ended; in [`Ioctl::outcome`]. Two of them are only where the returns of handlers are probed, and not that
/// of `kfd_ioctl`.
pub mod outcome {
    /// It returned `result` after `latency_ns`.
    pub const RETURNED: u32 = 0;
    /// Only where handlers are probed: `kfd_ioctl` refuses the call before any; `result` follows from its rules, latency is not
    /// measured.
    pub const REFUSED: u32 = 1;
    /// Only where handlers are probed: WAIT_EVENTS, whose sleepers would hold the instances of a kretprobe. Neither result nor latency
    /// is measured.
    pub const NOT_MEASURED: u32 = 2;
    /// No return was seen before the thread's next call. Neither result nor latency is measured.
    pub const NO_RETURN_SEEN: u32 = 3;
}

/// Body of `Kind::Ioctl`.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct Ioctl {
    pub header: Header,
    /// When the call entered `kfd_ioctl`, CLOCK_MONOTONIC in nanoseconds.
    pub entered_ns: u64,
    /// From the entry into `kfd_ioctl` to its return, or to the handler's where that is probed instead.
    pub latency_ns: u64,
    /// The command as user space passed it.
    pub cmd: u32,
    /// Return value of the handler, or the derived one.
    pub result: i32,
    /// One of [`outcome`].
    pub outcome: u32,
    /// Bytes of `args` that are valid: at most the size in `cmd`, 0 when no handler was entered.
    pub args_len: u32,
    /// The kernel's copy of the arguments as the handler left it, including the fields that the driver filled
    /// in.
    pub args: [u8; ARGS_LEN],
}

/// Body of `Kind::Ioctl` for a call that returned and maps or unmaps memory ([`crate::rules::maps_memory`]): its size
/// distinguishes it.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct MapIoctl {
    pub call: Ioctl,
    /// Valid elements of `gpus`: as many as the call names, 0 where they could not be read or are more.
    pub listed: u32,
    /// Always 0.
    pub pad: u32,
    /// The call's array of gpu_ids.
    pub gpus: [u32; MAP_GPUS],
}

// SAFETY: its first field is a record, whose first field is a `Header`.
unsafe impl Record for MapIoctl {}

const _: () = assert!(core::mem::offset_of!(MapIoctl, call) == 0);
const _: () = assert!(size_of::<Header>() == 48);
const _: () = assert!(size_of::<ProcessSeen>() == 48 + 32 + COMM_LEN + CGROUP_LEN);
const _: () = assert!(size_of::<Open>() == 48 + 8 + COMM_LEN);
const _: () = assert!(size_of::<Bare>() == 48);
const _: () = assert!(size_of::<QueueCreate>() == 48 + 8 + PROPERTIES_LEN);
const _: () = assert!(size_of::<QueueDestroy>() == 48 + 16 + HEAD_LEN);
const _: () = assert!(size_of::<Ioctl>() == 48 + 32 + ARGS_LEN);
const _: () = assert!(size_of::<MapIoctl>() == size_of::<Ioctl>() + 8 + 4 * MAP_GPUS);
const _: () = assert!(size_of::<QueueUpdate>() == 48 + 16 + CU_MASK_LEN + PROPERTIES_LEN);
const _: () = assert!(size_of::<MqdWrite>() == 48 + 16);
const _: () = assert!(size_of::<Eviction>() == 48 + 24);
const _: () = assert!(size_of::<VmFault>() == 48 + 16);
const _: () = assert!(size_of::<Gpu>() == 48 + 8);
const _: () = assert!(size_of::<UserQueue>() == 48 + 32 + COMM_LEN);
