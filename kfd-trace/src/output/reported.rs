//! Documents of the API of a daemon, read: the inverse of [`super::api`].
//!
//! In: bytes from any server. Out: the state as the daemon's own ([`snapshot`], [`topology`]), what it sees
//! ([`Status`]) and its history ([`ReportedEvent`]). Lists, names and paths have a greatest length, and names of GPUs are made safe
//! for a terminal here; all others are, as always, where they are shown. Times are nanoseconds of the Unix epoch, by the
//! daemon's clock.

mod event;
mod gpu;
pub(crate) mod list;
mod process;
mod queue;
mod rows;
mod status;

pub use event::{Events, ReportedEvent};
pub use gpu::{Gpus, topology};
pub use process::Processes;
pub use queue::{QueueRow, Queues};
pub use rows::snapshot;
pub use status::Status;

use super::api::SCHEMA;
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// A document.
pub trait Document: DeserializeOwned {
    fn schema(&self) -> u64;

    /// # Errors
    /// What is more than a daemon has.
    fn check(&self) -> Result<(), String> {
        Ok(())
    }
}

/// Why it cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotRead {
    /// It is no document of the API, for this reason.
    Foreign(String),
    /// It has another version.
    Version(u64),
}

/// Reads a document.
///
/// # Errors
/// If it is none, or of another version.
pub fn read<D: Document>(bytes: &[u8]) -> Result<D, NotRead> {
    #[derive(Deserialize)]
    struct Head {
        schema: u64,
    }
    let version = |schema| (schema != u64::from(SCHEMA)).then_some(NotRead::Version(schema));
    // Once for all of its strings.
    let text = std::str::from_utf8(bytes).map_err(|error| NotRead::Foreign(error.to_string()))?;
    match serde_json::from_str::<D>(text) {
        Ok(document) => match version(document.schema()) {
            Some(version) => Err(version),
            None => document.check().map(|()| document).map_err(NotRead::Foreign),
        },
        // Another version may have other fields.
        Err(error) => {
            let head = serde_json::from_str::<Head>(text).ok();
            Err(head
                .and_then(|head| version(head.schema))
                .unwrap_or_else(|| NotRead::Foreign(error.to_string())))
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
