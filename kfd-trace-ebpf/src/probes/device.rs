//! GPUs as the driver's structures name them.

use crate::kernel::{self, read};
use crate::losses;
use kfd_trace_common::counter::{ProbeId, Trouble};

/// KFD's gpu_id of the `struct kfd_node` (`kfd_dev` on 6.1) at this address; 0 where it cannot be read, which
/// is counted.
// One copy: used by many programs.
#[inline(never)]
pub(super) fn gpu_id(probe: ProbeId, device: u64) -> u32 {
    read(device, &kernel::DEVICE_ID).unwrap_or_else(|| {
        losses::trouble(probe, Trouble::DeviceUnreadable);
        0
    })
}
