//! The client side of `/dev/kfd`, as ROCm's thunk uses it: argument structures, one call per ioctl, the
//! memory behind a queue, and the GPUs the driver lists. Uses nothing of kfd-trace, so that its counts are
//! independent of kfd-trace's.

pub mod client;
pub mod criu;
pub mod debug;
pub mod errno;
pub mod events;
pub mod memory;
pub mod pointers;
pub mod save_area;
pub mod tally;
pub mod topology;
pub mod uapi;

pub use client::{Client, Queue};
pub use errno::Errno;
pub use memory::QueueMemory;
pub use pointers::{Counts, Pointers};
pub use tally::Tally;
pub use topology::Gpu;
