//! `kfd-trace doctor`: who uses KFD by each of the views that a node has, and why one of them shows another thing.
//!
//! Takes in: procfs and sysfs by their roots ([`read`], [`devices`]), and what the caller asked of the kernel's own table; all of
//! it is a [`Seen`]. Gives out: a [`Report`] ([`diagnose()`], pure), as text ([`text`]) and as JSON ([`json`], docs/doctor.md).

mod descriptors;
pub mod devices;
pub mod diagnose;
mod files;
pub mod finding;
pub mod json;
mod mappings;
pub mod read;
pub mod report;
pub mod sampled;
pub mod seen;
pub mod text;
mod views;
mod vram;

pub use diagnose::diagnose;
pub use report::{Outcome, Report};
pub use seen::Seen;

#[cfg(test)]
mod samples;
#[cfg(test)]
mod tests;
