//! The readers of sysfs: GPUs, and the driver's own list of processes and queues.

use crate::allocation::{Bound, within};
use crate::procfs::lay_out;
use crate::shown;
use kfd_trace::attribute::{Costly, KfdSysfs, Topology};
use kfd_trace::events::undecoded::Undecoded;
use kfd_trace::kernel::Roots;
use kfd_trace::state::{History, State, StateLimits};

/// Files are read one at a time.
const BOUND: Bound = Bound { a_byte: 8, always: 64 << 10 };

/// The file of each part of an input.
pub const FILES: [&str; 15] = [
    "sys/class/kfd/kfd/topology/nodes/1/gpu_id",
    "sys/class/kfd/kfd/topology/nodes/1/name",
    "sys/class/kfd/kfd/topology/nodes/1/properties",
    "sys/class/kfd/kfd/topology/nodes/2/gpu_id",
    "sys/class/kfd/kfd/topology/nodes/2/properties",
    "sys/bus/pci/devices/0000:c1:00.0/product_name",
    "sys/bus/pci/devices/0000:c1:00.0/serial_number",
    "sys/class/kfd/kfd/proc/7/pasid",
    "sys/class/kfd/kfd/proc/7/queues/3/gpuid",
    "sys/class/kfd/kfd/proc/7/queues/3/size",
    "sys/class/kfd/kfd/proc/7/queues/3/type",
    "sys/class/kfd/kfd/proc/7/vram_58270",
    "sys/class/kfd/kfd/proc/7/stats_58270/evicted_ms",
    "sys/class/kfd/kfd/proc/7/context_1/queues/0/size",
    "sys/class/kfd/kfd/topology/nodes/1/caches/0/properties",
];

/// Reads the files made from the parts of an input. Returns the number of GPUs.
///
/// # Panics
/// When a guarantee was violated.
#[must_use]
pub fn read(input: &[u8]) -> usize {
    let root = tempfile::tempdir().expect("a folder for the test");
    lay_out(root.path(), input, &FILES);
    let sysfs = Roots::under(root.path()).sysfs;
    let topology = within("topology", input.len(), BOUND, || {
        Topology::read_with_compute_units(&sysfs, &Topology::default())
    });
    let costly = Costly { sdma: true, cu_occupancy: true };
    let listed = within("kfd in sysfs", input.len(), BOUND, || KfdSysfs::read(&sysfs, costly));
    for error in topology.errors.iter().chain(&listed.errors) {
        shown::line(&error.to_string());
    }
    shown::world(
        &State::new(StateLimits::default()),
        &History::default(),
        &topology,
        &[],
        &Undecoded::default(),
    );
    topology.gpus.len()
}
