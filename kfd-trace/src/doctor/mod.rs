//! `kfd-trace doctor`: the users of KFD according to each view of a node, and why views differ.
//!
//! In: procfs and sysfs by their roots ([`read`], [`devices`]), and what the caller read from the kernel's
//! own table; all of it is a [`Observed`]. Out: a [`Diagnosis`] ([`diagnose()`], pure), as JSON ([`json`],
//! docs/doctor.md). What is printed is read from that ([`reported`], [`text`]): it may be another node's.

mod descriptors;
pub mod devices;
pub mod diagnose;
pub mod evicted;
mod files;
pub mod finding;
pub mod json;
mod mappings;
mod not_restored;
pub mod progress;
pub mod read;
pub mod report;
pub mod reported;
pub mod sampled;
pub mod seen;
pub mod text;
mod views;
mod vram;

pub use diagnose::diagnose;
pub use evicted::AllEvicted;
pub use report::{Diagnosis, DoctorOutcome};
pub use seen::Observed;

#[cfg(test)]
mod samples;
#[cfg(test)]
mod tests;
