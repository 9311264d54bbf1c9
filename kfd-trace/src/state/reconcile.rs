//! The state against the driver's own lists.

/// What the probes and a list of the driver did not agree on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Difference {
    /// Here a queue lives that the driver does not have any more.
    Ghost,
    /// The driver has a queue that is not known here.
    Missing,
    /// The kernel has it, its sysfs does not list it.
    Unlisted,
    /// The driver has other properties.
    Properties,
}

impl Difference {
    /// Every one.
    pub const ALL: &'static [Difference] =
        &[Difference::Ghost, Difference::Missing, Difference::Unlisted, Difference::Properties];

    /// The name in metrics and JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Difference::Ghost => "ghost",
            Difference::Missing => "missing",
            Difference::Unlisted => "unlisted",
            Difference::Properties => "properties",
        }
    }
}
