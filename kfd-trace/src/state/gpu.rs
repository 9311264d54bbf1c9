//! What is known of one GPU: resets, hangs and faults.

use std::collections::BTreeMap;

/// One GPU, or one partition of one, under KFD's gpu_id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GpuState {
    /// Resets that began.
    pub resets: u64,
    /// A reset is under way since.
    pub resetting_since_ns: Option<u64>,
    /// Resets after which the next one began, or the driver was unloaded, and whose end was not told. The driver tells it
    /// only where all of the device came back (`kgd2kfd_post_reset`, kfd_device.c); until then such a reset is under way.
    pub unfinished_resets: u64,
    /// Time in resets whose begin and end were seen, nanoseconds.
    pub reset_ns: u64,
    /// Incidents: from the first time that the scheduler did not answer to the end of the next reset.
    pub hangs: u64,
    pub hung_since_ns: Option<u64>,
    pub vm_faults: u64,
}

/// By gpu_id.
pub type GpuStates = BTreeMap<u32, GpuState>;
