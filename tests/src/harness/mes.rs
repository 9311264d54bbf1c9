//! kfdsim's firmware scheduler: how it responds, and the requests that it got (tests/kfdsim/mes.c).

use super::workload::{kfdsim, kfdsim_at};
use anyhow::{Context as _, Result};
use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

const CALLS: &str = "/sys/kernel/debug/kfdsim/mes_calls";

/// Its requests since kfdsim was inserted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MesCalls {
    pub added: u64,
    pub removed: u64,
    /// Of either kind.
    pub failed: u64,
    /// Of all of them.
    pub took: Duration,
}

impl MesCalls {
    pub fn so_far() -> Result<Self> {
        let text = fs::read_to_string(CALLS).with_context(|| format!("read {CALLS}"))?;
        let pair = |line: &str| {
            let (name, value) = line.split_once(' ')?;
            Some((name.to_owned(), value.parse().ok()?))
        };
        let all: BTreeMap<String, u64> = text.lines().filter_map(pair).collect();
        let number = |name: &str| all.get(name).copied().with_context(|| format!("{name} in {text}"));
        Ok(Self {
            added: number("added")?,
            removed: number("removed")?,
            failed: number("failed")?,
            took: Duration::from_nanos(number("ns")?),
        })
    }

    /// Those since an earlier moment.
    pub fn since(&self, before: &Self) -> Self {
        Self {
            added: self.added - before.added,
            removed: self.removed - before.removed,
            failed: self.failed - before.failed,
            took: self.took.saturating_sub(before.took),
        }
    }
}

/// Every request takes a while, or fails, until this is dropped.
#[derive(Debug)]
pub struct Firmware(());

impl Firmware {
    pub fn slow(ms: u32) -> Result<Self> {
        kfdsim("mes", ms)?;
        Ok(Firmware(()))
    }

    /// Positive errno. A GPU reset ends it, too.
    pub fn failing(errno: u32) -> Result<Self> {
        kfdsim_at("mes", 0, errno)?;
        Ok(Firmware(()))
    }
}

impl Drop for Firmware {
    fn drop(&mut self) {
        // a test that fails now does so for another reason
        let _ = kfdsim("mes", 0);
    }
}
