//! User-visible output.
//!
//! In: events with the related state, snapshots, sums, verdicts; all as arguments, so that nothing here does
//! I/O or reads a clock. Out: text and JSON to any writer ([`event`], [`summary`], [`ps`], [`status`],
//! [`runlist`]), Prometheus families ([`metrics`]), the API's documents ([`api`]), the HTML page ([`page`]) and
//! the screen of `top` ([`top`]). The API's documents are read again by [`reported`]. Outputs do not use each other, with these exceptions: the API formats events as
//! [`event::json`] and probes as [`status`] do, the page has the same input as the API's documents, and the page and
//! `top` show events as [`event`], queues as [`ps`] and what is missing as [`status`] do. Shared: `activity`,
//! [`belongs`], [`budget`], [`controls`], `headline`, `load`, `memory`, `names`,
//! `queue_fields` and `standing`.

mod activity;
pub mod api;
pub mod belongs;
pub mod budget;
pub mod controls;
pub mod event;
pub mod exported;
mod headline;
mod load;
mod memory;
pub mod metrics;
mod names;
pub mod page;
mod preemptions;
pub mod ps;
mod queue_fields;
pub mod reported;
pub mod runlist;
mod standing;
pub mod status;
pub mod summary;
pub mod top;

#[cfg(test)]
pub(crate) mod golden;
#[cfg(test)]
pub(crate) mod samples;
