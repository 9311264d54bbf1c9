//! Identifies processes and GPUs. In: PIDs, gpu_ids and the roots of procfs and sysfs. Out: processes, GPUs,
//! and the driver's own list of processes and queues.

mod births;
pub mod cgroup;
pub mod driver_sysfs;
pub mod engines;
pub mod gpu;
pub mod memory;
pub mod pods;
pub mod process;
pub mod regular_file;
pub mod slurm_jobs;
mod sysfs_file;
pub mod task;

pub use births::births;
pub use cgroup::{Belongs, Container, Runtime, Share, SlurmStep, belongs, share};
pub use driver_sysfs::{Costly, KfdSysfs, SysfsProcess, SysfsQueue};
pub use gpu::{Gpu, GpuOrder, Pool, Slots, Topology};
pub use pods::PodNames;
pub use process::{Identity, ProcessError, ProcessInfo};
pub use slurm_jobs::SlurmJob;
pub use sysfs_file::Unreadable;
