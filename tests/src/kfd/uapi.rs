//! `include/uapi/linux/kfd_ioctl.h`, the part a queue owner needs. Sizes and command numbers are those the
//! header compiles to; the driver dispatches on the number alone and accepts any size.

use serde::{Deserialize, Serialize};

/// An ioctl command: direction, argument size, `'K'`, number.
pub type Command = u32;

pub(super) const WRITE: u32 = 1;
const READ: u32 = 2;

pub(super) const fn command(direction: u32, nr: u8, size: usize) -> Command {
    assert!(size < 1 << 14, "an ioctl command has 14 bits for the size");
    #[expect(clippy::cast_possible_truncation, reason = "bounded by the assertion above")]
    let size = size as u32;
    direction << 30 | size << 16 | (b'K' as u32) << 8 | nr as u32
}

/// `_IOWR('K', nr, size)` for numbers and sizes that are in no header.
pub const fn iowr(nr: u8, size: usize) -> Command {
    command(READ | WRITE, nr, size)
}

/// `_IOC_NR`: the low eight bits.
pub const fn nr(cmd: Command) -> u8 {
    (cmd & 0xff) as u8
}

/// `_IOC_SIZE`, in bytes.
pub const fn size(cmd: Command) -> usize {
    (cmd >> 16 & 0x3fff) as usize
}

pub const GET_VERSION: Command = command(READ, 0x01, size_of::<GetVersion>());
pub const CREATE_QUEUE: Command = iowr(0x02, size_of::<CreateQueue>());
/// As programs built before UAPI 1.17 (Linux 6.12's header has it) issue it.
pub const CREATE_QUEUE_OLD: Command = iowr(0x02, size_of::<CreateQueueOld>());
pub const DESTROY_QUEUE: Command = iowr(0x03, size_of::<DestroyQueue>());
pub const SET_MEMORY_POLICY: Command = command(WRITE, 0x04, size_of::<SetMemoryPolicy>());
pub const GET_CLOCK_COUNTERS: Command = iowr(0x05, size_of::<GetClockCounters>());
pub const UPDATE_QUEUE: Command = command(WRITE, 0x07, size_of::<UpdateQueue>());
pub const GET_PROCESS_APERTURES_NEW: Command = iowr(0x14, size_of::<GetProcessAperturesNew>());
pub const ALLOC_MEMORY_OF_GPU: Command = iowr(0x16, size_of::<AllocMemory>());
pub const FREE_MEMORY_OF_GPU: Command = command(WRITE, 0x17, size_of::<FreeMemory>());
pub const MAP_MEMORY_TO_GPU: Command = iowr(0x18, size_of::<MapMemory>());
pub const UNMAP_MEMORY_FROM_GPU: Command = iowr(0x19, size_of::<MapMemory>());
pub const SET_CU_MASK: Command = command(WRITE, 0x1a, size_of::<SetCuMask>());
pub const IMPORT_DMABUF: Command = iowr(0x1d, size_of::<ImportDmabuf>());
pub const RUNTIME_ENABLE: Command = iowr(0x25, size_of::<RuntimeEnable>());
pub const DBG_TRAP: Command = iowr(0x26, size_of::<DebugTrap>());
pub const CRIU_OP: Command = iowr(0x22, size_of::<Criu>());
/// `_IO('K', 0x27)`, from UAPI 1.19 (Linux 7.x) on.
pub const CREATE_PROCESS: Command = command(0, 0x27, 0);

/// `KFD_IOC_ALLOC_MEM_FLAGS_*`
pub const MEMORY_VRAM: u32 = 1;
pub const MEMORY_GTT: u32 = 1 << 1;
pub const MEMORY_USERPTR: u32 = 1 << 2;
pub const MEMORY_TWICE: u32 = 1 << 27;
pub const MEMORY_WRITABLE: u32 = 1 << 31;

/// Numbers that reach GPU memory or another process: on a GPU made of memory they end in an oops, so they
/// are never issued by number alone.
pub const NEEDS_GPU_MEMORY: &[u8] =
    &[0x11, 0x13, 0x15, 0x16, 0x17, 0x18, 0x19, 0x1c, 0x1d, 0x20, 0x22, 0x24, 0x26, 0x27, 0x28];

/// The uapi's queue types; the kernel's own enum, which sysfs shows, has other numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[repr(u32)]
pub enum QueueType {
    Compute = 0,
    Sdma = 1,
    ComputeAql = 2,
    SdmaXgmi = 3,
    /// On the engine that CREATE_QUEUE names; from UAPI 1.17 (Linux 6.12) on.
    SdmaByEngId = 4,
}

impl QueueType {
    pub fn is_compute(self) -> bool {
        matches!(self, Self::Compute | Self::ComputeAql)
    }
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct GetVersion {
    pub major_version: u32,
    pub minor_version: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct CreateQueueOld {
    pub ring_base_address: u64,
    pub write_pointer_address: u64,
    pub read_pointer_address: u64,
    /// Out: offset for mmap of the doorbell page, with the doorbell's place in its low bits.
    pub doorbell_offset: u64,
    pub ring_size: u32,
    pub gpu_id: u32,
    pub queue_type: u32,
    pub queue_percentage: u32,
    pub queue_priority: u32,
    /// Out.
    pub queue_id: u32,
    pub eop_buffer_address: u64,
    pub eop_buffer_size: u64,
    pub ctx_save_restore_address: u64,
    pub ctx_save_restore_size: u32,
    pub ctl_stack_size: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct CreateQueue {
    pub old: CreateQueueOld,
    pub sdma_engine_id: u32,
    pub pad: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct AllocMemory {
    pub va_addr: u64,
    pub size: u64,
    /// Out.
    pub handle: u64,
    pub mmap_offset: u64,
    pub gpu_id: u32,
    pub flags: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct FreeMemory {
    pub handle: u64,
}

/// Of MAP_MEMORY_TO_GPU and UNMAP_MEMORY_FROM_GPU.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct MapMemory {
    pub handle: u64,
    pub device_ids_array_ptr: u64,
    pub n_devices: u32,
    /// In: the first GPUs are done already. Out: how many are done, also of a call that fails.
    pub n_success: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ImportDmabuf {
    pub va_addr: u64,
    /// Out.
    pub handle: u64,
    pub gpu_id: u32,
    pub dmabuf_fd: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct DestroyQueue {
    pub queue_id: u32,
    pub pad: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct SetMemoryPolicy {
    pub alternate_aperture_base: u64,
    pub alternate_aperture_size: u64,
    pub gpu_id: u32,
    /// 0 is coherent.
    pub default_policy: u32,
    pub alternate_policy: u32,
    pub pad: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct GetClockCounters {
    pub gpu_clock_counter: u64,
    pub cpu_clock_counter: u64,
    pub system_clock_counter: u64,
    pub system_clock_freq: u64,
    pub gpu_id: u32,
    pub pad: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct UpdateQueue {
    pub ring_base_address: u64,
    pub queue_id: u32,
    pub ring_size: u32,
    pub queue_percentage: u32,
    pub queue_priority: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct GetProcessAperturesNew {
    pub apertures_ptr: u64,
    /// In: capacity of the array behind the pointer. Out: entries filled, or number of GPUs if the capacity
    /// is 0.
    pub num_of_nodes: u32,
    pub pad: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ProcessDeviceApertures {
    pub lds_base: u64,
    pub lds_limit: u64,
    pub scratch_base: u64,
    pub scratch_limit: u64,
    pub gpuvm_base: u64,
    pub gpuvm_limit: u64,
    pub gpu_id: u32,
    pub pad: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct SetCuMask {
    pub queue_id: u32,
    /// In bits, a multiple of 32.
    pub num_cu_mask: u32,
    pub cu_mask_ptr: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Criu {
    pub devices: u64,
    pub bos: u64,
    pub priv_data: u64,
    pub priv_data_size: u64,
    pub num_devices: u32,
    pub num_bos: u32,
    pub num_objects: u32,
    /// Out of PROCESS_INFO, in of RESUME.
    pub pid: u32,
    pub op: u32,
    pub pad: u32,
}

/// `enum kfd_criu_op`
pub mod criu_op {
    pub const PROCESS_INFO: u32 = 0;
    pub const CHECKPOINT: u32 = 1;
    pub const UNPAUSE: u32 = 2;
    pub const RESTORE: u32 = 3;
    pub const RESUME: u32 = 4;
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct CriuDeviceBucket {
    /// The process' id of the GPU.
    pub user_gpu_id: u32,
    /// The driver's id of it.
    pub actual_gpu_id: u32,
    /// RESTORE only: its render node, opened.
    pub drm_fd: u32,
    pub pad: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct CriuBoBucket {
    pub addr: u64,
    pub size: u64,
    pub offset: u64,
    pub restored_offset: u64,
    pub gpu_id: u32,
    pub alloc_flags: u32,
    pub dmabuf_fd: u32,
    pub pad: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct RuntimeEnable {
    pub r_debug: u64,
    /// `KFD_RUNTIME_ENABLE_MODE_*`.
    pub mode_mask: u32,
    pub capabilities_mask: u32,
}

/// `KFD_RUNTIME_ENABLE_MODE_ENABLE_MASK`
pub const RUNTIME_ENABLE_MODE_ENABLE: u32 = 1;

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct DebugTrap {
    pub pid: u32,
    pub op: u32,
    /// A union of structures, one for each operation ([`super::debug`]).
    pub rest: [u64; 3],
}

/// `enum kfd_dbg_trap_operations`
pub mod debug_trap_op {
    pub const ENABLE: u32 = 0;
    pub const DISABLE: u32 = 1;
    pub const SUSPEND_QUEUES: u32 = 6;
    pub const RESUME_QUEUES: u32 = 7;
    pub const GET_QUEUE_SNAPSHOT: u32 = 13;
}

/// `struct kfd_queue_snapshot_entry`
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct QueueSnapshot {
    pub exception_status: u64,
    pub ring_base_address: u64,
    pub write_pointer_address: u64,
    pub read_pointer_address: u64,
    pub ctx_save_restore_address: u64,
    pub queue_id: u32,
    pub gpu_id: u32,
    pub ring_size: u32,
    pub queue_type: u32,
    pub ctx_save_restore_area_size: u32,
    pub reserved: u32,
}

const _: () = {
    assert!(size_of::<RuntimeEnable>() == 16);
    assert!(size_of::<DebugTrap>() == 32);
    assert!(size_of::<QueueSnapshot>() == 64);
    assert!(size_of::<GetVersion>() == 8);
    assert!(size_of::<CreateQueueOld>() == 88);
    assert!(size_of::<CreateQueue>() == 96);
    assert!(size_of::<DestroyQueue>() == 8);
    assert!(size_of::<SetMemoryPolicy>() == 32);
    assert!(size_of::<GetClockCounters>() == 40);
    assert!(size_of::<UpdateQueue>() == 24);
    assert!(size_of::<GetProcessAperturesNew>() == 16);
    assert!(size_of::<ProcessDeviceApertures>() == 56);
    assert!(size_of::<SetCuMask>() == 16);
    assert!(size_of::<Criu>() == 56);
    assert!(size_of::<CriuDeviceBucket>() == 16);
    assert!(size_of::<CriuBoBucket>() == 48);
};

#[cfg(test)]
mod tests {
    use super::*;

    /// Values printed by a C program compiled against the headers of Linux 6.1 and 6.12.
    #[test]
    fn commands_equal_the_compiled_header() {
        assert_eq!(GET_VERSION, 0x8008_4b01);
        assert_eq!(CREATE_QUEUE, 0xc060_4b02);
        assert_eq!(CREATE_QUEUE_OLD, 0xc058_4b02);
        assert_eq!(DESTROY_QUEUE, 0xc008_4b03);
        assert_eq!(SET_MEMORY_POLICY, 0x4020_4b04);
        assert_eq!(GET_CLOCK_COUNTERS, 0xc028_4b05);
        assert_eq!(UPDATE_QUEUE, 0x4018_4b07);
        assert_eq!(GET_PROCESS_APERTURES_NEW, 0xc010_4b14);
        assert_eq!(SET_CU_MASK, 0x4010_4b1a);
        assert_eq!(CRIU_OP, 0xc038_4b22);
        assert_eq!(CREATE_PROCESS, 0x4b27);
        assert_eq!(RUNTIME_ENABLE, 0xc010_4b25);
        assert_eq!((MAP_MEMORY_TO_GPU, UNMAP_MEMORY_FROM_GPU), (0xc018_4b18, 0xc018_4b19));
        assert_eq!(DBG_TRAP, 0xc020_4b26);
    }

    #[test]
    fn a_command_gives_back_its_number_and_size() {
        let cmd = iowr(0x82, 0x28);
        assert_eq!((nr(cmd), size(cmd)), (0x82, 0x28));
        assert_eq!(cmd, 0xc028_4b82);
    }

    #[test]
    fn create_queue_fields_stand_where_the_driver_reads_them() {
        use std::mem::offset_of;
        assert_eq!(offset_of!(CreateQueueOld, ring_size), 32);
        assert_eq!(offset_of!(CreateQueueOld, queue_id), 52);
        assert_eq!(offset_of!(CreateQueueOld, eop_buffer_address), 56);
        assert_eq!(offset_of!(CreateQueueOld, ctl_stack_size), 84);
        assert_eq!(offset_of!(CreateQueue, sdma_engine_id), 88);
    }
}
