//! The kernel fields that the programs read: one list for both sides ([`kernel_fields`]).
//!
//! The daemon looks each up in the running kernel's BTF and writes the offset into the read-only global of
//! that name before the programs are loaded. [`ABSENT`] there means that this kernel does not have the field,
//! and the verifier drops the code that would have read it.

/// Value of a global whose field this kernel does not have, or whose BTF does not describe it.
pub const ABSENT: u32 = u32::MAX;

/// Object whose BTF has a field's type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Object {
    /// The kernel image: /sys/kernel/btf/vmlinux.
    Vmlinux,
    /// The driver: /sys/kernel/btf/amdgpu, split BTF on top of vmlinux.
    Amdgpu,
}

/// One field whose offset a program needs.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// The read-only global of the BPF object that takes the offset.
    pub global: &'static str,
    /// The object whose BTF is searched.
    pub object: Object,
    /// (structure, member path) in the order of preference; drivers renamed some structures.
    pub paths: &'static [(&'static str, &'static str)],
}

macro_rules! fields {
    ($($global:ident: $object:ident $(($strukt:literal, $path:literal))+;)*) => {
        /// Every field, by the name of its global.
        pub const FIELDS: &[Field] = &[$(Field {
            global: stringify!($global),
            object: Object::$object,
            paths: &[$(($strukt, $path)),+],
        },)*];
    };
}

/// Passes every field to the macro `$each`, in the form `NAME: Object ("structure", "member.path")...;`. The
/// BPF side makes a global of each.
#[macro_export]
macro_rules! kernel_fields {
    ($each:ident) => {
        $each! {
            FILE_PRIVATE_DATA: Vmlinux ("file", "private_data");
            TASK_TGID: Vmlinux ("task_struct", "tgid");
            TASK_COMM: Vmlinux ("task_struct", "comm");
            TASK_START_BOOTTIME: Vmlinux ("task_struct", "start_boottime");
            TASK_CRED: Vmlinux ("task_struct", "cred");
            TASK_THREAD_PID: Vmlinux ("task_struct", "thread_pid");
            TASK_CGROUPS: Vmlinux ("task_struct", "cgroups");
            TASK_GROUP_LEADER: Vmlinux ("task_struct", "group_leader");
            TASK_PTRACE: Vmlinux ("task_struct", "ptrace");
            TASK_PARENT: Vmlinux ("task_struct", "parent");
            TASK_REAL_PARENT: Vmlinux ("task_struct", "real_parent");
            PID_LEVEL: Vmlinux ("pid", "level");
            PID_NUMBERS: Vmlinux ("pid", "numbers");
            UPID_NR: Vmlinux ("upid", "nr");
            CRED_UID: Vmlinux ("cred", "uid");
            CRED_CAP_EFFECTIVE: Vmlinux ("cred", "cap_effective");
            CRED_USER_NS: Vmlinux ("cred", "user_ns");
            USER_NS_LEVEL: Vmlinux ("user_namespace", "level");
            CSS_SET_DFL_CGRP: Vmlinux ("css_set", "dfl_cgrp");
            CGROUP_KN: Vmlinux ("cgroup", "kn");
            KERNFS_NAME: Vmlinux ("kernfs_node", "name");
            KFD_PROCESS_LEAD_THREAD: Amdgpu ("kfd_process", "lead_thread");
            KFD_PROCESS_MMU_NOTIFIER: Amdgpu ("kfd_process", "mmu_notifier");
            KFD_PROCESS_RELEASE_WORK: Amdgpu ("kfd_process", "release_work");
            QUEUE_PROCESS: Amdgpu ("queue", "process");
            QUEUE_DEVICE: Amdgpu ("queue", "device");
            QUEUE_PROPERTIES: Amdgpu ("queue", "properties");
            QUEUE_ID: Amdgpu ("queue", "properties.queue_id");
            QUEUE_TYPE: Amdgpu ("queue", "properties.type");
            QUEUE_WRITE_PTR: Amdgpu ("queue", "properties.write_ptr");
            QUEUE_READ_PTR: Amdgpu ("queue", "properties.read_ptr");
            QUEUE_DOORBELL: Amdgpu ("queue", "properties.doorbell_off");
            MES_ADD_DOORBELL: Amdgpu ("mes_add_queue_input", "doorbell_offset");
            MES_REMOVE_DOORBELL: Amdgpu ("mes_remove_queue_input", "doorbell_offset");
            DEVICE_ID: Amdgpu ("kfd_node", "id") ("kfd_dev", "id");
            NODE_ID: Amdgpu ("kfd_node", "id");
            KFD_PROCESS_PASID: Amdgpu ("kfd_process", "pasid");
            KFD_PROCESS_EXCEPTION_STATUS: Amdgpu ("kfd_process", "exception_status");
            KFD_PROCESS_CONTEXT_ID: Amdgpu ("kfd_process", "context_id");
            PDD_QPD: Amdgpu ("kfd_process_device", "qpd");
            PDD_PROCESS: Amdgpu ("kfd_process_device", "process");
            PDD_DEV: Amdgpu ("kfd_process_device", "dev");
            PDD_DRM_PRIV: Amdgpu ("kfd_process_device", "drm_priv");
            QPD_EVICTED: Amdgpu ("qcm_process_device", "evicted");
            DQM_DEV: Amdgpu ("device_queue_manager", "dev");
            DQM_HW_EXCEPTION_WORK: Amdgpu ("device_queue_manager", "hw_exception_work");
            DQM_PROCESSES: Amdgpu ("device_queue_manager", "processes_count");
            DQM_ACTIVE_QUEUES: Amdgpu ("device_queue_manager", "active_queue_count");
            DQM_ACTIVE_CP_QUEUES: Amdgpu ("device_queue_manager", "active_cp_queue_count");
            DQM_OVERSUBSCRIBED: Amdgpu ("device_queue_manager", "packet_mgr.is_over_subscription")
                ("device_queue_manager", "packets.is_over_subscription");
            MINFO_CU_MASK_COUNT: Amdgpu ("mqd_update_info", "cu_mask.count");
            MINFO_CU_MASK_PTR: Amdgpu ("mqd_update_info", "cu_mask.ptr");
            QUEUE_CU_MASK_COUNT: Amdgpu ("queue", "properties.cu_mask_count");
            QUEUE_CU_MASK_PTR: Amdgpu ("queue", "properties.cu_mask");
            FAULT_PAGE_ADDR: Amdgpu ("kfd_vm_fault_info", "page_addr");
            FAULT_PROT_VALID: Amdgpu ("kfd_vm_fault_info", "prot_valid");
            FAULT_PROT_WRITE: Amdgpu ("kfd_vm_fault_info", "prot_write");
            FAULT_PROT_EXEC: Amdgpu ("kfd_vm_fault_info", "prot_exec");
        }
    };
}

kernel_fields!(fields);

/// The field of this global.
#[must_use]
pub fn field(global: &str) -> Option<&'static Field> {
    FIELDS.iter().find(|field| field.global == global)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_global_occurs_once() {
        let names: BTreeSet<_> = FIELDS.iter().map(|field| field.global).collect();
        assert_eq!(names.len(), FIELDS.len());
        assert!(field("QUEUE_ID").is_some() && field("NO_SUCH").is_none());
    }
}
