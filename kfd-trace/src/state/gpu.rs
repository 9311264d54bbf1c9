//! State of one GPU: resets, hangs and faults.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One GPU, or one partition of one, under KFD's gpu_id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct GpuState {
    /// Resets that began.
    pub resets: u64,
    /// Start of the reset under way, if any.
    pub resetting_since_ns: Option<u64>,
    /// Resets whose end was not reported before the next one began or the driver was unloaded. The driver
    /// reports an end only if the whole device came back (`kgd2kfd_post_reset`, kfd_device.c); until then
    /// such a reset counts as under way.
    pub unfinished_resets: u64,
    /// Time in resets whose begin and end were both seen, nanoseconds.
    pub reset_ns: u64,
    /// Incidents: from the first time the scheduler did not respond until the end of the next reset.
    pub hangs: u64,
    pub hung_since_ns: Option<u64>,
    pub vm_faults: u64,
}

impl GpuState {
    /// What is wrong now, if anything.
    #[must_use]
    pub fn trouble(&self) -> Option<&'static str> {
        match (self.resetting_since_ns, self.hung_since_ns) {
            (Some(_), _) => Some("resetting"),
            (None, Some(_)) => Some("hung"),
            (None, None) => None,
        }
    }
}

/// By gpu_id.
pub type GpuStates = BTreeMap<u32, GpuState>;
