//! One row per ioctl.

use FieldKind::{Dec4, Dec8, Hex4, Hex8};
use kfd_trace_common::rules::FIRST_ROCM;

/// How one member of an argument structure is stored and shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldKind {
    /// u32, decimal.
    Dec4,
    /// u64, decimal.
    Dec8,
    /// u32, hexadecimal.
    Hex4,
    /// u64 address, handle or offset, hexadecimal.
    Hex8,
}

/// One ioctl of KFD.
#[derive(Debug)]
pub struct Def {
    /// `_IOC_NR`.
    pub nr: u8,
    /// Name without the prefix `AMDKFD_IOC_`.
    pub name: &'static str,
    /// The driver's function, called through `amdkfd_ioctls[]`: its name, and those of other drivers.
    pub handlers: &'static [&'static str],
    /// The uapi structure of its arguments; empty if there is none, if drivers disagree, and for SVM, whose
    /// size grows with its attributes.
    pub strukt: &'static str,
    /// Its members in order, without gaps (the uapi structures pad explicitly); `pad` is not shown.
    pub fields: &'static [(&'static str, FieldKind)],
    /// Members that the driver writes; `rest` is what follows the last member.
    pub results: &'static [&'static str],
}

impl Def {
    /// In the range of ROCm's own commands.
    #[must_use]
    pub fn is_rocm(&self) -> bool {
        u32::from(self.nr) >= FIRST_ROCM
    }
}

/// The ioctl that sleeps.
pub const WAIT_EVENTS: u8 = 0x0c;

/// The row of a number.
#[must_use]
pub fn def(nr: u8) -> Option<&'static Def> {
    IOCTLS.iter().find(|def| def.nr == nr)
}

macro_rules! ioctls {
    ($($nr:literal $name:literal $($handler:literal)|+, $strukt:literal [$($field:ident $kind:ident),* $(,)?]
       $(=> [$($result:ident),+])?)*) => {
        /// Every ioctl of the known drivers.
        pub const IOCTLS: &[Def] = &[$(Def {
            nr: $nr,
            name: $name,
            handlers: &[$($handler),+],
            strukt: $strukt,
            fields: &[$((stringify!($field), $kind)),*],
            results: &[$($(stringify!($result)),+)?],
        },)*];
    };
}

/// By number of the command: bit `i` for the word of four bytes at `4 * i` of its arguments, if the driver writes it (the
/// members that include/uapi/linux/kfd_ioctl.h calls "from KFD", and what a command of an unknown structure has).
#[must_use]
pub fn result_words() -> [u32; 256] {
    let mut words = [0; 256];
    for def in IOCTLS {
        let mut at = 0;
        for (field, kind) in def.fields {
            let length = if matches!(kind, Dec4 | Hex4) { 1 } else { 2 };
            if def.results.contains(field) {
                words[usize::from(def.nr)] |= ((1u32 << length) - 1) << at;
            }
            at += length;
        }
        if def.results.contains(&"rest") {
            words[usize::from(def.nr)] |= u32::MAX << at;
        }
    }
    words
}

ioctls! {
    0x01 "GET_VERSION" "kfd_ioctl_get_version", "kfd_ioctl_get_version_args"
        [major_version Dec4, minor_version Dec4] => [major_version, minor_version]
    0x02 "CREATE_QUEUE" "kfd_ioctl_create_queue", "kfd_ioctl_create_queue_args"
        [ring_base_address Hex8, write_pointer_address Hex8, read_pointer_address Hex8, doorbell_offset Hex8,
         ring_size Dec4, gpu_id Dec4, queue_type Dec4, queue_percentage Dec4, queue_priority Dec4, queue_id Dec4,
         eop_buffer_address Hex8, eop_buffer_size Dec8, ctx_save_restore_address Hex8, ctx_save_restore_size Dec4,
         ctl_stack_size Dec4, sdma_engine_id Dec4, pad Dec4] => [doorbell_offset, queue_id]
    0x03 "DESTROY_QUEUE" "kfd_ioctl_destroy_queue", "kfd_ioctl_destroy_queue_args"
        [queue_id Dec4, pad Dec4]
    0x04 "SET_MEMORY_POLICY" "kfd_ioctl_set_memory_policy", "kfd_ioctl_set_memory_policy_args"
        [alternate_aperture_base Hex8, alternate_aperture_size Dec8, gpu_id Dec4, default_policy Dec4,
         alternate_policy Dec4, pad Dec4]
    0x05 "GET_CLOCK_COUNTERS" "kfd_ioctl_get_clock_counters", "kfd_ioctl_get_clock_counters_args"
        [gpu_clock_counter Dec8, cpu_clock_counter Dec8, system_clock_counter Dec8, system_clock_freq Dec8,
         gpu_id Dec4, pad Dec4]
        => [gpu_clock_counter, cpu_clock_counter, system_clock_counter, system_clock_freq]
    0x06 "GET_PROCESS_APERTURES" "kfd_ioctl_get_process_apertures", "kfd_ioctl_get_process_apertures_args" []
        => [rest]
    0x07 "UPDATE_QUEUE" "kfd_ioctl_update_queue", "kfd_ioctl_update_queue_args"
        [ring_base_address Hex8, queue_id Dec4, ring_size Dec4, queue_percentage Dec4, queue_priority Dec4]
    0x08 "CREATE_EVENT" "kfd_ioctl_create_event", "kfd_ioctl_create_event_args"
        [event_page_offset Hex8, event_trigger_data Dec4, event_type Dec4, auto_reset Dec4, node_id Dec4,
         event_id Dec4, event_slot_index Dec4]
        => [event_page_offset, event_trigger_data, event_id, event_slot_index]
    0x09 "DESTROY_EVENT" "kfd_ioctl_destroy_event", "kfd_ioctl_destroy_event_args"
        [event_id Dec4, pad Dec4]
    0x0a "SET_EVENT" "kfd_ioctl_set_event", "kfd_ioctl_set_event_args"
        [event_id Dec4, pad Dec4]
    0x0b "RESET_EVENT" "kfd_ioctl_reset_event", "kfd_ioctl_reset_event_args"
        [event_id Dec4, pad Dec4]
    0x0c "WAIT_EVENTS" "kfd_ioctl_wait_events", "kfd_ioctl_wait_events_args"
        [events_ptr Hex8, num_events Dec4, wait_for_all Dec4, timeout Dec4, wait_result Dec4]
        => [timeout, wait_result]
    0x0d "DBG_REGISTER" "kfd_ioctl_dbg_register", "kfd_ioctl_dbg_register_args"
        [gpu_id Dec4, pad Dec4]
    0x0e "DBG_UNREGISTER" "kfd_ioctl_dbg_unregister", "kfd_ioctl_dbg_unregister_args"
        [gpu_id Dec4, pad Dec4]
    0x0f "DBG_ADDRESS_WATCH" "kfd_ioctl_dbg_address_watch", "kfd_ioctl_dbg_address_watch_args"
        [content_ptr Hex8, gpu_id Dec4, buf_size_in_bytes Dec4]
    0x10 "DBG_WAVE_CONTROL" "kfd_ioctl_dbg_wave_control", "kfd_ioctl_dbg_wave_control_args"
        [content_ptr Hex8, gpu_id Dec4, buf_size_in_bytes Dec4]
    0x11 "SET_SCRATCH_BACKING_VA" "kfd_ioctl_set_scratch_backing_va", "kfd_ioctl_set_scratch_backing_va_args"
        [va_addr Hex8, gpu_id Dec4, pad Dec4]
    0x12 "GET_TILE_CONFIG" "kfd_ioctl_get_tile_config", "kfd_ioctl_get_tile_config_args"
        [tile_config_ptr Hex8, macro_tile_config_ptr Hex8, num_tile_configs Dec4, num_macro_tile_configs Dec4,
         gpu_id Dec4, gb_addr_config Hex4, num_banks Dec4, num_ranks Dec4]
        => [num_tile_configs, num_macro_tile_configs, gb_addr_config, num_banks, num_ranks]
    0x13 "SET_TRAP_HANDLER" "kfd_ioctl_set_trap_handler", "kfd_ioctl_set_trap_handler_args"
        [tba_addr Hex8, tma_addr Hex8, gpu_id Dec4, pad Dec4]
    0x14 "GET_PROCESS_APERTURES_NEW" "kfd_ioctl_get_process_apertures_new",
        "kfd_ioctl_get_process_apertures_new_args"
        [kfd_process_device_apertures_ptr Hex8, num_of_nodes Dec4, pad Dec4] => [num_of_nodes]
    0x15 "ACQUIRE_VM" "kfd_ioctl_acquire_vm", "kfd_ioctl_acquire_vm_args"
        [drm_fd Dec4, gpu_id Dec4]
    0x16 "ALLOC_MEMORY_OF_GPU" "kfd_ioctl_alloc_memory_of_gpu", "kfd_ioctl_alloc_memory_of_gpu_args"
        [va_addr Hex8, size Dec8, handle Hex8, mmap_offset Hex8, gpu_id Dec4, flags Hex4]
        => [handle, mmap_offset]
    0x17 "FREE_MEMORY_OF_GPU" "kfd_ioctl_free_memory_of_gpu", "kfd_ioctl_free_memory_of_gpu_args"
        [handle Hex8]
    0x18 "MAP_MEMORY_TO_GPU" "kfd_ioctl_map_memory_to_gpu", "kfd_ioctl_map_memory_to_gpu_args"
        [handle Hex8, device_ids_array_ptr Hex8, n_devices Dec4, n_success Dec4] => [n_success]
    0x19 "UNMAP_MEMORY_FROM_GPU" "kfd_ioctl_unmap_memory_from_gpu", "kfd_ioctl_unmap_memory_from_gpu_args"
        [handle Hex8, device_ids_array_ptr Hex8, n_devices Dec4, n_success Dec4] => [n_success]
    0x1a "SET_CU_MASK" "kfd_ioctl_set_cu_mask", "kfd_ioctl_set_cu_mask_args"
        [queue_id Dec4, num_cu_mask Dec4, cu_mask_ptr Hex8]
    0x1b "GET_QUEUE_WAVE_STATE" "kfd_ioctl_get_queue_wave_state", "kfd_ioctl_get_queue_wave_state_args"
        [ctl_stack_address Hex8, ctl_stack_used_size Dec4, save_area_used_size Dec4, queue_id Dec4, pad Dec4]
        => [ctl_stack_used_size, save_area_used_size]
    0x1c "GET_DMABUF_INFO" "kfd_ioctl_get_dmabuf_info", "kfd_ioctl_get_dmabuf_info_args"
        [size Dec8, metadata_ptr Hex8, metadata_size Dec4, gpu_id Dec4, flags Hex4, dmabuf_fd Dec4]
        => [size, metadata_size, gpu_id, flags]
    0x1d "IMPORT_DMABUF" "kfd_ioctl_import_dmabuf", "kfd_ioctl_import_dmabuf_args"
        [va_addr Hex8, handle Hex8, gpu_id Dec4, dmabuf_fd Dec4] => [handle]
    0x1e "ALLOC_QUEUE_GWS" "kfd_ioctl_alloc_queue_gws", "kfd_ioctl_alloc_queue_gws_args"
        [queue_id Dec4, num_gws Dec4, first_gws Dec4, pad Dec4] => [first_gws]
    0x1f "SMI_EVENTS" "kfd_ioctl_smi_events", "kfd_ioctl_smi_events_args"
        [gpuid Dec4, anon_fd Dec4] => [anon_fd]
    0x20 "SVM" "kfd_ioctl_svm", ""
        [start_addr Hex8, size Dec8, op Dec4, nattr Dec4] => [rest]
    0x21 "SET_XNACK_MODE" "kfd_ioctl_set_xnack_mode", "kfd_ioctl_set_xnack_mode_args"
        [xnack_enabled Dec4] => [xnack_enabled]
    0x22 "CRIU_OP" "kfd_ioctl_criu", "kfd_ioctl_criu_args"
        [devices Hex8, bos Hex8, priv_data Hex8, priv_data_size Dec8, num_devices Dec4, num_bos Dec4,
         num_objects Dec4, pid Dec4, op Dec4, pad Dec4]
        => [priv_data_size, num_devices, num_bos, num_objects, pid]
    0x23 "AVAILABLE_MEMORY" "kfd_ioctl_get_available_memory", "kfd_ioctl_get_available_memory_args"
        [available Dec8, gpu_id Dec4, pad Dec4] => [available]
    0x24 "EXPORT_DMABUF" "kfd_ioctl_export_dmabuf", "kfd_ioctl_export_dmabuf_args"
        [handle Hex8, flags Hex4, dmabuf_fd Dec4] => [dmabuf_fd]
    0x25 "RUNTIME_ENABLE" "kfd_ioctl_runtime_enable", "kfd_ioctl_runtime_enable_args"
        [r_debug Hex8, mode_mask Hex4, capabilities_mask Hex4] => [capabilities_mask]
    0x26 "DBG_TRAP" "kfd_ioctl_set_debug_trap", "kfd_ioctl_dbg_trap_args"
        [pid Dec4, op Dec4] => [rest]
    0x27 "CREATE_PROCESS" "kfd_ioctl_create_process", "" [] => [rest]
    0x28 "PROFILER" "kfd_ioctl_profiler", "" [] => [rest]
    0x80 "IPC_IMPORT_HANDLE" "kfd_ioctl_ipc_import_handle", "" [] => [rest]
    0x81 "IPC_EXPORT_HANDLE" "kfd_ioctl_ipc_export_handle", "" [] => [rest]
    0x82 "DBG_TRAP_DEPRECATED" "kfd_ioctl_dbg_set_debug_trap" | "kfd_ioctl_dbg_set_debug_trap_deprecated", "" []
        => [rest]
    0x83 "CROSS_MEMORY_COPY" "kfd_ioctl_cross_memory_copy" | "kfd_ioctl_cross_memory_copy_deprecated", "" []
        => [rest]
    0x84 "RLC_SPM" "kfd_ioctl_rlc_spm", "" [] => [rest]
    0x85 "PC_SAMPLE" "kfd_ioctl_pc_sample", "" [] => [rest]
    0x86 "PROFILER_ROCM" "kfd_ioctl_profiler", "" [] => [rest]
    0x87 "AIS_OP" "kfd_ioctl_ais", "" [] => [rest]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn bytes(def: &Def) -> usize {
        def.fields.iter().map(|(_, kind)| if matches!(kind, Dec4 | Hex4) { 4 } else { 8 }).sum()
    }

    #[test]
    fn numbers_are_unique_and_members_are_aligned() {
        let numbers: BTreeSet<_> = IOCTLS.iter().map(|def| def.nr).collect();
        assert_eq!(numbers.len(), IOCTLS.len());
        for def in IOCTLS {
            let mut offset = 0;
            for (field, kind) in def.fields {
                let size = if matches!(kind, Dec4 | Hex4) { 4 } else { 8 };
                assert_eq!(offset % size, 0, "{}.{field}", def.name);
                offset += size;
            }
        }
    }

    #[test]
    fn what_the_driver_writes_is_known_by_its_words() {
        let words = result_words();
        // CREATE_QUEUE: doorbell_offset at 24, queue_id at 52. ALLOC_MEMORY_OF_GPU: handle and mmap_offset at 16.
        assert_eq!((words[0x02], words[0x16]), (0b11 << 6 | 1 << 13, 0b1111 << 4));
        // MAP_MEMORY_TO_GPU: n_success at 20. DESTROY_QUEUE: nothing. SVM: the attributes behind 24 bytes.
        assert_eq!((words[0x18], words[0x03], words[0x20]), (1 << 5, 0, u32::MAX << 6));
        for def in IOCTLS {
            let is_member =
                |name: &&str| *name == "rest" || def.fields.iter().any(|(field, _)| field == name);
            assert!(def.results.iter().all(is_member), "{}: {:?}", def.name, def.results);
        }
    }

    #[test]
    fn sizes_are_those_of_the_uapi() {
        // _IOC_SIZE of the commands as compiled from the 6.12 header.
        for (nr, size) in [(0x01, 8), (0x02, 96), (0x03, 8), (0x07, 24), (0x16, 40), (0x1a, 16), (0x22, 56)] {
            assert_eq!(def(nr).map(bytes), Some(size), "nr {nr:#x}");
        }
    }
}
