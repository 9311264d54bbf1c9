//! Why a command ends early.

use std::fmt;

/// Exit codes; 1 to 5 are documented in the user's manual and in `--help`.
pub const FAILED: u8 = 1;
/// Bad usage: the request makes no sense.
pub const USAGE: u8 = 2;
/// There is no amdgpu driver here.
pub const NOTHING_TO_TRACE: u8 = 3;
/// `doctor`: one of the usual checks misses a process that KFD has.
pub const HIDDEN: u8 = 4;
/// `doctor`: KFD or a GPU holds what no process owns, or a process is evicted and not restored.
pub const WRONG: u8 = 5;

/// An exit code with one line: what, where, and what to do; without a line where that was printed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stop {
    pub code: u8,
    pub line: String,
}

impl Stop {
    #[must_use]
    pub fn failed(line: impl fmt::Display) -> Self {
        Stop { code: FAILED, line: line.to_string() }
    }

    /// The reason is in what was printed.
    #[must_use]
    pub fn reported(code: u8) -> Self {
        Stop { code, line: String::new() }
    }

    #[must_use]
    pub fn usage(line: impl fmt::Display) -> Self {
        Stop { code: USAGE, line: line.to_string() }
    }
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.line)
    }
}

impl std::error::Error for Stop {}
