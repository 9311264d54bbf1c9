//! Hardware queues from the driver's own dumps: debugfs `kfd/mqds` (what the driver and firmware last wrote to memory)
//! and `kfd/hqds` (the registers of each slot).
//!
//! In: the text of either or both. Out: one row per queue with its slots, and what is in slots without a queue. Dwords are
//! taken by position, since addresses of registers differ between generations; HQDs are joined to MQDs by
//! CP_MQD_BASE_ADDR and ring, per XCC. `existing` joins the MQDs with the queues of sysfs. Pure.

mod existing;
mod gaps;
mod hqds;
mod join;
pub mod json;
mod layout;
mod moved;
mod mqds;
mod progress;
mod report;
mod rows;
mod slots;
pub mod text;

pub use existing::{Listing, existing};
pub use hqds::HqdFile;
pub use join::report;
pub use layout::Generation;
pub use mqds::{MqdFile, MqdProcess, MqdQueue};
pub use report::{Gpu, HwReport, QueueRow, Slot, Source, State};

/// How GPUs and processes are called.
pub trait Names {
    /// In a column.
    fn gpu(&self, gpu_id: u32) -> String;
    fn gpu_in_full(&self, gpu_id: u32) -> String;
    /// `None`: it is not known, as of a dump of another machine.
    fn process(&self, pid: u32) -> Option<String>;
}

#[cfg(test)]
mod tests;
