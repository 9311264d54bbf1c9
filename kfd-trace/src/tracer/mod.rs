//! The engine: probes on the loaded driver, and the state that is kept current by their records, the driver's
//! lists and samples.
//!
//! In: the roots of procfs and sysfs, what to trace. Out: events with their changes, and the state. The
//! stream and the daemon both run it.

pub mod debugfs;
pub mod doctor;
pub mod driver;
pub mod engine;
pub mod enrich;
pub mod follow;
pub mod history;
pub mod intake;
pub mod inventory;
mod past;
pub mod preflight;
pub mod reconcile;
pub mod sample;
pub mod taping;
pub mod types;
pub mod waiting;
