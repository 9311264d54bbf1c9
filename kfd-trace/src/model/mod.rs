//! What KFD is, as plain data: processes, queues, ioctls, evictions, faults, and what became of each probe.
//!
//! No I/O, no state, no text for people. Every other module may name these types.

pub mod counters;
pub mod event;
pub mod incident;
pub mod ioctl;
pub mod layout;
pub mod missed;
pub mod pointers;
pub mod queue;
pub mod verdict;
