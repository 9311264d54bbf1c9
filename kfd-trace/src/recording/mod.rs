//! Recordings: all that changed the state of a tracer, with what its names mean, in a file. In: the tape of a state
//! ([`crate::state::Input`]). Out: the same state at any time, and the lines of the stream, on any machine.
//!
//! A file is a sequence of blocks. Each is a frame of zstd (RFC 8878) with a checksum, and has whole lines of JSON, so
//! that `zstd -dc` shows them; each line is an [`Item`]. A file that was cut anywhere is read to its last whole block.

mod folder;
mod item;
mod read;
mod replay;
mod when;
mod write;

pub use folder::{Boot, Feed, Figures, Folder, FolderLimits, MOST_FILES, Merged, Past, Watch};
pub use item::{Begin, Closed, Item, Machine, Part};
pub use read::{Items, ReadError, Reader};
pub use replay::{Line, Replay, time_of};
pub use when::When;
pub use write::{Recorder, compress};

/// Version of the format. Raised by a change that makes an older program misread a file; files of all versions before it
/// stay readable.
pub const VERSION: u32 = 2;

/// Two readings of clocks differ by the time between them, and by what is slewed; a clock that was set, or slept, by more.
pub const STEP_NS: u64 = 1_000_000;

#[cfg(test)]
mod samples {
    use super::{Begin, Item, Machine};
    use crate::state::StateLimits;

    pub(super) fn begin() -> Begin {
        Begin { at_ns: 5, ..Begin::new(Machine::default(), StateLimits::default()) }
    }

    /// A block.
    pub(super) fn compressed(items: &[Item]) -> Vec<u8> {
        let line = |item| serde_json::to_string(item).expect("a line") + "\n";
        super::compress(items.iter().map(line).collect::<String>().as_bytes()).expect("a frame")
    }
}

#[cfg(test)]
mod tests;
