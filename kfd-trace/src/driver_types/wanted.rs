//! What a types file has: one list of structures, enums and functions. Out: the C file that names each, for the
//! driver's own compiler.

/// The C file, without its ending.
pub(super) const NAME: &str = "kfd_trace_types";

/// Structures of the driver (amdkfd/*.h), of its user interface, and of the kernel. One that a driver does not
/// have is only declared, and left out.
const STRUCTURES: [&str; 35] = [
    "kfd_process",
    "kfd_process_device",
    "qcm_process_device",
    "process_queue_manager",
    "process_queue_node",
    "queue",
    "queue_properties",
    "kfd_node",
    "kfd_dev",
    "device_queue_manager",
    "mqd_manager",
    "mqd_update_info",
    "kfd_topology_device",
    "kfd_vm_fault_info",
    "kfd_hsa_memory_exception_data",
    "amdgpu_usermode_queue",
    "mes_add_queue_input",
    "mes_remove_queue_input",
    "task_struct",
    "cred",
    "file",
    "pid",
    "upid",
    "user_namespace",
    "css_set",
    "cgroup",
    "kernfs_node",
    "mmu_notifier",
    "work_struct",
    "delayed_work",
    "mutex",
    "kref",
    "idr",
    "bpf_prog_info",
    "bpf_link_info",
];

/// Enums whose numbers differ between drivers.
const ENUMS: [&str; 2] = ["kfd_queue_type", "kfd_queue_format"];

/// Functions whose number of parameters differs between drivers.
const FUNCTIONS: [&str; 1] = ["kfd_process_evict_queues"];

/// The driver's headers that every version has, and others.
const HEADERS: [&str; 4] =
    ["kfd_priv.h", "kfd_device_queue_manager.h", "kfd_mqd_manager.h", "amdgpu_amdkfd.h"];
const OPTIONAL_HEADERS: [&str; 2] = ["kfd_topology.h", "amdgpu_userqueue.h"];
const KERNEL_HEADERS: [&str; 9] = [
    "linux/sched.h",
    "linux/cred.h",
    "linux/fs.h",
    "linux/pid.h",
    "linux/user_namespace.h",
    "linux/cgroup.h",
    "linux/kernfs.h",
    "linux/mmu_notifier.h",
    "uapi/linux/bpf.h",
];

/// Begins the names of the variables that stand for functions.
pub(super) const FUNCTION: &str = "kfd_trace_function_";

/// Arguments of ioctls, by the names of their structures.
fn arguments() -> impl Iterator<Item = &'static str> {
    crate::model::ioctl::IOCTLS.iter().map(|ioctl| ioctl.strukt).filter(|name| !name.is_empty())
}

/// Whether a structure or an enum of this name belongs into a types file.
pub(super) fn has(name: &str) -> bool {
    STRUCTURES.contains(&name) || ENUMS.contains(&name) || arguments().any(|other| other == name)
}

/// The C file. A compiler leaves a type out that nothing names; a pointer is enough for a structure.
pub(super) fn source() -> String {
    let mut text = String::new();
    for header in KERNEL_HEADERS {
        text += &format!("#include <{header}>\n");
    }
    for header in HEADERS {
        text += &format!("#include \"{header}\"\n");
    }
    for header in OPTIONAL_HEADERS {
        text += &format!("#if __has_include(\"{header}\")\n#include \"{header}\"\n#endif\n");
    }
    let mut named: Vec<&str> = STRUCTURES.into_iter().chain(arguments()).collect();
    named.sort_unstable();
    named.dedup();
    for name in named {
        text += &format!("struct {name} *kfd_trace_structure_{name};\n");
    }
    for name in ENUMS {
        text += &format!("enum {name} kfd_trace_enum_{name};\n");
    }
    for name in FUNCTIONS {
        text += &format!("typeof({name}) *{FUNCTION}{name};\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use kfd_trace_common::offset::FIELDS;

    #[test]
    fn every_structure_that_the_programs_read_is_named() {
        let source = source();
        for (structure, _) in FIELDS.iter().flat_map(|field| field.paths) {
            assert!(has(structure), "{structure}");
            assert!(source.contains(&format!("struct {structure} *")), "{structure}");
        }
        assert!(has("kfd_ioctl_create_queue_args") && has("kfd_queue_type") && !has("list_head"));
    }
}
