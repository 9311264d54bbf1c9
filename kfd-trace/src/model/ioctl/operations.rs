//! Ioctls that do several things: what their `op` says, and the members that only one operation has.

use super::FieldKind::{self, Dec4, Hex4, Hex8};

/// One operation of an ioctl.
#[derive(Debug)]
pub struct Operation {
    /// `op` of its arguments.
    pub op: u64,
    /// Name without the prefix, as in the uapi header.
    pub name: &'static str,
    /// Members of its part of the union, which follows `op`; `pad` is not shown.
    pub fields: &'static [(&'static str, FieldKind)],
}

/// The operation of an ioctl's number.
#[must_use]
pub fn operation(nr: u8, op: u64) -> Option<&'static Operation> {
    let (_, operations) = OPERATIONS.iter().find(|(of, _)| *of == nr)?;
    operations.iter().find(|operation| operation.op == op)
}

macro_rules! operations {
    ($($nr:literal { $($op:literal $name:literal [$($field:ident $kind:ident),* $(,)?])* })*) => {
        const OPERATIONS: &[(u8, &[Operation])] = &[$(($nr, &[$(Operation {
            op: $op,
            name: $name,
            fields: &[$((stringify!($field), $kind)),*],
        },)*]),)*];
    };
}

// include/uapi/linux/kfd_ioctl.h: `enum kfd_ioctl_svm_op`, `enum kfd_criu_op`, `enum
// kfd_dbg_trap_operations` and `struct kfd_ioctl_dbg_trap_*_args`.
operations! {
    0x20 {
        0 "SET_ATTR" []
        1 "GET_ATTR" []
    }
    0x22 {
        0 "PROCESS_INFO" []
        1 "CHECKPOINT" []
        2 "UNPAUSE" []
        3 "RESTORE" []
        4 "RESUME" []
    }
    0x26 {
        0 "ENABLE" [exception_mask Hex8, rinfo_ptr Hex8, rinfo_size Dec4, dbg_fd Dec4]
        1 "DISABLE" []
        2 "SEND_RUNTIME_EVENT" [exception_mask Hex8, gpu_id Dec4, queue_id Dec4]
        3 "SET_EXCEPTIONS_ENABLED" [exception_mask Hex8]
        4 "SET_WAVE_LAUNCH_OVERRIDE" [override_mode Dec4, enable_mask Hex4, support_request_mask Hex4, pad Dec4]
        5 "SET_WAVE_LAUNCH_MODE" [launch_mode Dec4, pad Dec4]
        6 "SUSPEND_QUEUES" [exception_mask Hex8, queue_array_ptr Hex8, num_queues Dec4, grace_period Dec4]
        7 "RESUME_QUEUES" [queue_array_ptr Hex8, num_queues Dec4, pad Dec4]
        8 "SET_NODE_ADDRESS_WATCH" [address Hex8, mode Dec4, mask Hex4, gpu_id Dec4, id Dec4]
        9 "CLEAR_NODE_ADDRESS_WATCH" [gpu_id Dec4, id Dec4]
        10 "SET_FLAGS" [flags Hex4, pad Dec4]
        11 "QUERY_DEBUG_EVENT" [exception_mask Hex8, gpu_id Dec4, queue_id Dec4]
        12 "QUERY_EXCEPTION_INFO" [info_ptr Hex8, info_size Dec4, source_id Dec4, exception_code Dec4, clear_exception Dec4]
        13 "GET_QUEUE_SNAPSHOT" [exception_mask Hex8, snapshot_buf_ptr Hex8, num_queues Dec4, entry_size Dec4]
        14 "GET_DEVICE_SNAPSHOT" [exception_mask Hex8, snapshot_buf_ptr Hex8, num_devices Dec4, entry_size Dec4]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ioctl::def;

    #[test]
    fn operations_are_numbered_from_0_and_fit_their_ioctl() {
        for (nr, operations) in OPERATIONS {
            let numbers: Vec<u64> = operations.iter().map(|operation| operation.op).collect();
            assert_eq!(numbers, (0..).take(numbers.len()).collect::<Vec<u64>>(), "{nr:#x}");
            let fields = def(*nr).expect("an ioctl").fields;
            assert!(fields.iter().any(|(name, _)| *name == "op"), "{nr:#x}");
            for operation in *operations {
                // The union of DBG_TRAP has 24 bytes.
                let bytes: usize = operation
                    .fields
                    .iter()
                    .map(|(_, kind)| if matches!(kind, Dec4 | Hex4) { 4 } else { 8 })
                    .sum();
                assert!(bytes <= 24 && bytes.is_multiple_of(8), "{}", operation.name);
            }
        }
    }
}
