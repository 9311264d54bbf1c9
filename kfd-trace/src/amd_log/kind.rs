//! The name of a kind of command.

use super::limits::LONGEST_NAME;

/// Stored without an allocation; truncated to [`LONGEST_NAME`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CommandName([u8; LONGEST_NAME]);

impl CommandName {
    #[must_use]
    pub fn new(name: &[u8]) -> CommandName {
        let mut bytes = [0; LONGEST_NAME];
        for (to, from) in bytes.iter_mut().zip(name) {
            *to = *from;
        }
        CommandName(bytes)
    }

    /// The name; invalid UTF-8 is replaced.
    #[must_use]
    pub fn name(&self) -> String {
        let end = self.0.iter().position(|byte| *byte == 0).unwrap_or(LONGEST_NAME);
        String::from_utf8_lossy(&self.0[..end]).into_owned()
    }
}
