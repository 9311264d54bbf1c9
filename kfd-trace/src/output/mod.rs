//! User-visible output.
//!
//! In: events with the related state, snapshots, sums, verdicts; all as arguments, so that nothing here does
//! I/O or reads a clock. Out: text and JSON to any writer ([`stream`], [`json`], [`summary`], [`ps`],
//! [`status`]), Prometheus families ([`metrics`]), the API's documents ([`api`]), the HTML page ([`page`]),
//! and an HTTP router ([`http`]). [`web`] serves that router, so it is the one module that does I/O. Outputs
//! do not use each other, with two exceptions: the API formats events as [`json`] and probes as [`status`]
//! do, and the page has the same input as the API's documents. Shared: `activity`, [`belongs`], [`budget`],
//! [`clock`], [`controls`], [`errno`], [`escape`], `names`, `queue_fields` and `table`; [`crate::amd_log`] uses `escape`,
//! `clock` and `table`.

mod activity;
pub mod api;
pub mod belongs;
pub mod budget;
pub mod controls;
pub mod event;
mod headline;
pub mod metrics;
mod names;
pub mod page;
mod preemptions;
pub mod ps;
mod queue_fields;
pub mod runlist;
pub mod status;
pub mod summary;
pub mod top;

#[cfg(test)]
mod golden;
#[cfg(test)]
pub(crate) mod samples;
