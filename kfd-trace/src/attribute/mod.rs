//! Who a number is. Takes in PIDs, gpu_ids and the roots of procfs and sysfs; gives out processes, GPUs, and the
//! driver's own list of processes and queues.

pub mod cgroup;
pub mod gpu;
pub mod kfd_sysfs;
pub mod memory;
pub mod pod_names;
pub mod process;
mod sysfs_file;
pub mod task;

pub use cgroup::{Belongs, Container, Runtime, SlurmStep, belongs};
pub use gpu::{Gpu, Pool, Slots, Topology};
pub use kfd_sysfs::{Costly, KfdSysfs, SysfsProcess, SysfsQueue};
pub use pod_names::PodNames;
pub use process::{Identity, ProcessError, ProcessInfo};
pub use sysfs_file::Unreadable;
