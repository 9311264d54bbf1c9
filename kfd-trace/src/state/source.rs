//! Sources that report that something exists.

use serde::{Deserialize, Serialize};
use std::fmt;

/// One way to learn of a queue or a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[repr(u8)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// A probe saw it happen.
    Probe = 1,
    /// Read from the kernel's own structures.
    Kernel = 2,
    /// /sys/class/kfd.
    Sysfs = 4,
    /// The driver's dump of MQDs, joined with sysfs, where the kernel's structures cannot be read.
    Debugfs = 8,
}

impl Source {
    /// Every source.
    pub const ALL: &'static [Source] = &[Source::Probe, Source::Kernel, Source::Sysfs, Source::Debugfs];

    /// The name in tables and JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Source::Probe => "probe",
            Source::Kernel => "kernel",
            Source::Sysfs => "sysfs",
            Source::Debugfs => "debugfs",
        }
    }
}

/// A set of sources.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Sources(u8);

impl Sources {
    #[must_use]
    pub fn with(self, source: Source) -> Self {
        Self(self.0 | source as u8)
    }

    #[must_use]
    pub fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    #[must_use]
    pub fn has(self, source: Source) -> bool {
        self.0 & source as u8 != 0
    }

    /// Whether both have a source in common.
    #[must_use]
    pub fn overlaps(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    pub fn iter(self) -> impl Iterator<Item = Source> {
        Source::ALL.iter().copied().filter(move |source| self.has(*source))
    }
}

impl From<Source> for Sources {
    fn from(source: Source) -> Self {
        Self::default().with(source)
    }
}

impl fmt::Display for Sources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.iter().map(Source::name).collect();
        f.write_str(&names.join("+"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_names_its_members_once_and_in_order() {
        let both = Sources::from(Source::Sysfs).with(Source::Probe).with(Source::Sysfs);
        assert_eq!(both.to_string(), "probe+sysfs");
        assert!(both.overlaps(Source::Probe.into()) && !both.overlaps(Source::Kernel.into()));
    }
}
