//! What users see.
//!
//! Takes in: events with what the state says about them, snapshots, sums, verdicts; all as arguments, so that
//! nothing here does I/O or reads a clock. Gives out: text and JSON into any writer ([`stream`], [`json`],
//! [`summary`], [`ps`], [`status`]), Prometheus families ([`metrics`]), the API's documents ([`api`]), the page for
//! people ([`page`]), and an HTTP router ([`http`]); [`web`] serves that, and so is the one that does I/O. No output uses another one, but that the API tells events as [`json`] and
//! probes as [`status`] do, and the page shows what the API's documents are made from; `activity`, [`belongs`],
//! [`budget`], [`clock`], [`errno`], [`escape`], `names`,
//! `queue_fields` and `table` are what they share; [`crate::amd_log`] uses `escape`, `clock` and `table`.

mod activity;
pub mod api;
pub mod belongs;
pub mod budget;
pub mod event;
pub mod metrics;
mod names;
pub mod page;
pub mod ps;
mod queue_fields;
pub mod status;
pub mod summary;

#[cfg(test)]
mod golden;
#[cfg(test)]
pub(crate) mod samples;
