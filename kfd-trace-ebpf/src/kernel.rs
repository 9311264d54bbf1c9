//! Reads of kernel memory at offsets that the daemon took from BTF, and of the running process's own memory. The only place
//! that calls `bpf_probe_read_kernel` and `bpf_probe_read_user`; a field that this kernel lacks reads as `None`, and its code is dropped at load.

use aya_ebpf::Global;
use aya_ebpf::helpers::{
    bpf_probe_read_kernel, bpf_probe_read_kernel_buf, bpf_probe_read_kernel_str_bytes,
    bpf_probe_read_user_buf,
};
use kfd_trace_common::offset::ABSENT;

macro_rules! offsets {
    ($($name:ident)*) => {
        $(#[unsafe(no_mangle)] pub(crate) static $name: Global<u32> = Global::new(ABSENT);)*
    };
}

// One for each entry of kfd_trace_common::offset::FIELDS; the loader fails if one is missing here.
offsets! {
    FILE_PRIVATE_DATA
    TASK_TGID TASK_COMM TASK_START_BOOTTIME TASK_CRED TASK_THREAD_PID TASK_CGROUPS TASK_GROUP_LEADER
    TASK_PTRACE TASK_PARENT
    PID_LEVEL PID_NUMBERS UPID_NR
    CRED_UID CRED_CAP_EFFECTIVE CRED_USER_NS USER_NS_LEVEL
    CSS_SET_DFL_CGRP CGROUP_KN KERNFS_NAME
    KFD_PROCESS_LEAD_THREAD KFD_PROCESS_MMU_NOTIFIER KFD_PROCESS_RELEASE_WORK
    KFD_PROCESS_PASID KFD_PROCESS_CONTEXT_ID KFD_PROCESS_EXCEPTION_STATUS
    QUEUE_PROCESS QUEUE_DEVICE QUEUE_PROPERTIES QUEUE_ID QUEUE_TYPE
    QUEUE_WRITE_PTR QUEUE_READ_PTR DEVICE_ID
    PDD_QPD PDD_PROCESS PDD_DEV PDD_DRM_PRIV QPD_EVICTED DQM_DEV DQM_HW_EXCEPTION_WORK
    MINFO_CU_MASK_COUNT MINFO_CU_MASK_PTR
    FAULT_PAGE_ADDR FAULT_PROT_VALID FAULT_PROT_WRITE FAULT_PROT_EXEC
}

/// Offset of a field, if this kernel has it.
#[inline(always)]
pub(crate) fn offset(field: &Global<u32>) -> Option<u64> {
    let offset = field.load();
    (offset != ABSENT).then_some(u64::from(offset))
}

/// The field of the structure at `base`.
#[inline(always)]
pub(crate) fn read<T: Copy>(base: u64, field: &Global<u32>) -> Option<T> {
    read_at(base, offset(field)?)
}

/// The value at `base + offset`; `None` for a null base or an address that faults.
#[inline(always)]
pub(crate) fn read_at<T: Copy>(base: u64, offset: u64) -> Option<T> {
    if base == 0 {
        return None;
    }
    // SAFETY: the helper itself refuses addresses that cannot be read.
    unsafe { bpf_probe_read_kernel((base + offset) as *const T) }.ok()
}

/// Fills `out` from `address`.
#[inline(always)]
pub(crate) fn read_bytes(address: u64, out: &mut [u8]) -> Option<()> {
    // SAFETY: as above.
    unsafe { bpf_probe_read_kernel_buf(address as *const u8, out) }.ok()
}

/// Fills `out` from an address of the running process; `None` also for a page that is not in memory.
#[inline(always)]
pub(crate) fn read_user(address: u64, out: &mut [u8]) -> Option<()> {
    // SAFETY: as above.
    unsafe { bpf_probe_read_user_buf(address as *const u8, out) }.ok()
}

/// Copies a NUL-terminated text, cut to `out`, and gives its length.
#[inline(always)]
pub(crate) fn read_text(address: u64, out: &mut [u8]) -> Option<usize> {
    if address == 0 {
        return None;
    }
    // SAFETY: as above.
    unsafe { bpf_probe_read_kernel_str_bytes(address as *const u8, out) }.ok().map(<[u8]>::len)
}
