//! Timelines: a recording as a trace for Perfetto (<https://ui.perfetto.dev>). In: the items of a recording. Out: packets
//! of its protobuf format. Logs of AMD_LOG_LEVEL join it (log/).
//!
//! Times are CLOCK_MONOTONIC, as the kernel's records have them; snapshots of the clocks join them with the wall clock and
//! with traces of other programs.

mod gpus;
mod known;
mod lives;
mod log;
mod not_shown;
mod packets;
mod proto;
mod queues;
mod tracks;
mod words;

pub use lives::{Filter, Shown, Timeline};
pub use log::{LogPlan, LogReport, Placer, Survey};

#[cfg(test)]
mod tests;
