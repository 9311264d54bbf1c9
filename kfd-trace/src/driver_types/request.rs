//! What is sent to the process that builds, and what it reports. In: values. Out: messages of bounded length, and back.

use super::find::Layout;
use crate::runtime::frames::{read_frame, write_frame};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// The hidden subcommand.
pub(super) const SUBCOMMAND: &str = "types-builder";

/// A request has some hundred bytes, an answer one line.
pub(super) const LONGEST: u32 = 1 << 20;

/// A types file has some 50 KB.
const LONGEST_TYPES: u32 = 64 << 20;

/// The first message to the process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Request {
    /// The user to become, and its group; `None`: the process stays who it is.
    pub(super) user: Option<u32>,
    /// A folder of that user.
    pub(super) work: PathBuf,
    /// `None`: only what an earlier process left is ended and removed.
    pub(super) job: Option<Job>,
}

/// What to build. The source follows the request as a stream (`source_stream`).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Job {
    pub(super) layout: Layout,
    pub(super) headers: PathBuf,
    /// Release of the kernel that the headers belong to.
    pub(super) release: String,
    pub(super) timeout: Duration,
    /// Texts that the types file carries.
    pub(super) tags: Vec<String>,
}

/// What the process reports.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Answer {
    /// The file follows. `note`: a line for the user.
    Types {
        note: Option<String>,
    },
    Failed(String),
}

impl Request {
    /// # Errors
    /// Those of `out`.
    pub(super) fn send(&self, out: &mut impl io::Write) -> io::Result<()> {
        write_frame(out, &serde_json::to_vec(self)?)
    }
}

/// Reads what the process reports, and the types file.
///
/// # Errors
/// If it ended before.
pub(super) fn read_answer(from: &mut impl io::Read) -> io::Result<(Answer, Vec<u8>)> {
    let answer = serde_json::from_slice(&read_frame(from, LONGEST)?)?;
    let types = match &answer {
        Answer::Types { .. } => read_frame(from, LONGEST_TYPES)?,
        Answer::Failed(_) => Vec::new(),
    };
    Ok((answer, types))
}
