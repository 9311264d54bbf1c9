//! The daemon's JSON API: documents of the current state and of the recorded past, described in docs/api.md.
//!
//! In: a snapshot, the topology, the kept history, and the time. Out: values for serde. Every field is always
//! present; `null` is "not known" or "not measured". Addresses, `unique_id` and `kfd_process` are strings,
//! because readers hold numbers as doubles. A change that breaks a reader raises [`SCHEMA`].

use serde::Serialize;

mod events;
mod gpus;
mod held;
mod memory;
mod processes;
mod query;
mod queues;
mod status;
mod view;
mod who;

pub use events::{EventsView, events};
pub use held::{HeldView, held};
pub(super) use held::{HoldingRow, Holdings, holdings};
pub use memory::{MemoryFilter, memory};
pub(super) use query::QueryPairs;
pub use query::{ApiQuery, Refusal, Resource};
pub use status::{Tracing, status};
use view::document;
pub use view::{ApiView, SCHEMA};

/// Live queues.
///
/// # Errors
/// Never for these types; serde_json reports errors only at run time.
pub fn queues(view: &ApiView<'_>) -> serde_json::Result<String> {
    #[derive(Serialize)]
    struct List<'a> {
        queues: Vec<queues::QueueRow<'a>>,
    }
    let rows = view.snapshot.queues().map(|(process, queue)| queues::row(process, queue, view));
    document(view, List { queues: rows.collect() })
}

/// Live processes, and remembered ones that ended.
///
/// # Errors
/// As [`queues`].
pub fn processes(view: &ApiView<'_>) -> serde_json::Result<String> {
    #[derive(Serialize)]
    struct List<'a> {
        processes: Vec<processes::ProcessRow<'a>>,
    }
    let rows = view.snapshot.processes.iter().map(|process| processes::row(process, view));
    document(view, List { processes: rows.collect() })
}

/// GPUs and partitions of the topology.
///
/// # Errors
/// As [`queues`].
pub fn gpus(view: &ApiView<'_>) -> serde_json::Result<String> {
    #[derive(Serialize)]
    struct List<'a> {
        gpus: Vec<gpus::GpuRow<'a>>,
    }
    document(view, List { gpus: gpus::rows(view) })
}

#[cfg(test)]
mod tests;
