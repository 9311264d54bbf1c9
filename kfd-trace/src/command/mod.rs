//! The commands, one file each: from arguments to an exit code.

pub mod amd_log;
pub mod daemon;
pub mod doctor;
pub mod driver_types;
pub mod fleet;
pub mod hw;
pub mod manual;
pub mod metrics;
pub mod ps;
pub mod replay;
pub mod return_probes;
pub mod runlist;
pub mod status;
pub mod timeline;
pub mod top;
pub mod trace;
