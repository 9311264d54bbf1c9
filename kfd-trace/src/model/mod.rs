//! KFD as plain data: processes, queues, ioctls, evictions, faults, and the status of each probe.
//!
//! No I/O, no state, no text for people. Every other module may use these types.

pub mod compute_units;
pub mod counters;
pub mod event;
pub mod incident;
pub mod inventory;
pub mod ioctl;
pub mod layout;
pub mod memory;
pub mod mes;
pub mod missed;
pub mod pointers;
pub mod queue;
pub mod runlist;
pub mod selected;
pub mod suspension;
pub mod verdict;
