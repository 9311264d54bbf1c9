//! A folder of recordings: a daemon's, bounded by size and age. Each file begins with the state before it, so that it can
//! be read alone.
//!
//! In: items, handed over by the thread that follows the ring buffer, which never waits. Out: files, the oldest of which
//! are removed in time; and for readers their items, as if they were one file.

mod feed;
mod files;
mod merged;
mod name;
mod past;
mod plan;
mod shared;
mod writer;

pub use feed::Feed;
pub use merged::{Folder, Merged};
pub use past::{Boot, MOST_FILES, Past};
pub use shared::{Figures, Watch};

use std::path::PathBuf;
use std::time::Duration;

/// Where a daemon records, and how much.
#[derive(Clone, Debug)]
pub struct FolderLimits {
    pub folder: PathBuf,
    /// Bytes of all files.
    pub max_bytes: u64,
    /// Since the last change of a file.
    pub max_age: Duration,
    /// Bytes of one file without its initial state: then the next one begins.
    pub file_bytes: u64,
}

impl FolderLimits {
    /// After this time the next file begins, also where little happens: else one file would keep what is older than it may
    /// become.
    fn file_age(&self) -> Duration {
        LONGEST_FILE.min(self.max_age / 4)
    }
}

const LONGEST_FILE: Duration = Duration::from_secs(60 * 60);
