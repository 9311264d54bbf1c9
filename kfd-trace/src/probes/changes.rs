//! The driver's functions that change what a GPU runs: what all paths to an inlined one have in common.

/// Functions that change what a GPU runs, kfd_device_queue_manager.c: the first parameter of each is the GPU's
/// `struct device_queue_manager`. The driver calls all but the debugger's by pointer, so that no compiler can inline
/// them.
pub(super) const CHANGES: &[&str] = &[
    "create_queue_cpsch",
    "destroy_queue_cpsch",
    "update_queue",
    "evict_process_queues_cpsch",
    "restore_process_queues_cpsch",
    "start_cpsch",
    "unhalt_cpsch",
    "stop_cpsch",
    "halt_cpsch",
    "reset_queues_cpsch",
    "create_kernel_queue_cpsch",
    "destroy_kernel_queue_cpsch",
    "dqm_debugfs_hang_hws",
    "dqm_debugfs_execute_queues",
    "debug_lock_and_unmap",
    "debug_refresh_runlist",
    "reserve_debug_trap_vmid",
    "release_debug_trap_vmid",
    "remap_queue",
];

/// Further ones that can find a hang. Those before call the functions of MES.
pub(super) const HANGING: &[&str] = &[
    "process_termination_cpsch",
    "execute_queues_cpsch",
    "execute_queues_cpsch.constprop.0",
    "debug_map_and_unlock",
    "add_queue_mes",
    "remove_queue_mes",
    "suspend_all_queues_mes",
    "resume_all_queues_mes",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::runlist::FUNCTIONS;

    #[test]
    fn each_function_that_changes_what_a_gpu_runs_has_a_reason() {
        for name in CHANGES {
            let known = FUNCTIONS.iter().find(|(known, _)| known == name);
            assert!(known.is_some_and(|(_, reason)| reason.is_some()), "{name}");
        }
    }
}
