//! The client side of `/dev/kfd`, as ROCm's thunk uses it: argument structures, one call per ioctl, the
//! memory behind a queue, and the GPUs the driver lists. Takes in nothing of kfd-trace, so that what it
//! counts is independent of what kfd-trace counts.

pub mod client;
pub mod criu;
pub mod errno;
pub mod memory;
pub mod pointers;
pub mod tally;
pub mod topology;
pub mod uapi;

pub use client::{Client, Queue};
pub use errno::Errno;
pub use memory::QueueMemory;
pub use pointers::{Counts, Pointers};
pub use tally::Tally;
pub use topology::Gpu;
