//! What users see.
//!
//! Takes in: events with what the state says about them, snapshots, sums, verdicts; all as arguments, so that
//! nothing here does I/O or reads a clock. Gives out: text and JSON into any writer ([`stream`], [`json`],
//! [`summary`], [`ps`], [`status`]), Prometheus families ([`metrics`]), and an HTTP router ([`http`]). No output
//! uses another one; [`clock`], [`errno`], [`escape`] and `table` are the notation that they share.

pub mod clock;
pub mod context;
pub mod errno;
pub mod escape;
pub mod http;
pub mod json;
pub mod metrics;
pub mod ps;
pub mod status;
pub mod stream;
pub mod summary;
mod table;

#[cfg(test)]
pub(crate) mod samples;
