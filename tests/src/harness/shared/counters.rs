//! The counters of a running tracer, read from its BPF map: what it sends, loses, and cannot do is told by the daemon's
//! metrics, but by a stream only in its summary.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context, Result};
use aya::maps::{Map, MapData, MapInfo, PerCpuArray};
use kfd_trace_common::counter::{self, Trouble};
use kfd_trace_common::kind::Kind;

/// kfd-trace-ebpf/src/counters.rs
const NAME: &str = "COUNTERS";

pub(super) struct Counters(PerCpuArray<MapData, u64>);

/// Since the tracer started, by the names of the metrics; none of them 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Records that reached the ring buffer, by kind.
    pub(super) sent: BTreeMap<&'static str, u64>,
    /// Records that found it full, by kind, and what the programs could not do.
    pub(super) missing: BTreeMap<&'static str, u64>,
}

impl Counters {
    /// Those of this process.
    pub(super) fn of(pid: u32) -> Result<Self> {
        for id in map_ids(pid)? {
            if MapInfo::from_id(id)?.name_as_str() == Some(NAME) {
                let map = Map::PerCpuArray(MapData::from_id(id)?);
                return map.try_into().map(Self).context("the map of counters");
            }
        }
        anyhow::bail!("process {pid} has no map {NAME}")
    }

    pub(super) fn read(&self) -> Result<Counts> {
        let sum = |index: u32| -> Result<u64> { Ok(self.0.get(&index, 0)?.iter().sum()) };
        let mut counts = Counts::default();
        for kind in Kind::ALL {
            counts.sent.insert(kind.name(), sum(counter::sent(*kind))?);
            counts.missing.insert(kind.name(), sum(counter::lost(*kind))?);
        }
        for trouble in Trouble::ALL {
            counts.missing.insert(trouble.name(), sum(counter::trouble(*trouble))?);
        }
        Ok(counts.since(&Counts::default()))
    }
}

impl Counts {
    /// What has come after `before`.
    pub(super) fn since(&self, before: &Counts) -> Counts {
        let since = |now: &BTreeMap<&'static str, u64>, then: &BTreeMap<&'static str, u64>| {
            let more = now.iter().map(|(name, count)| (*name, count - then.get(name).unwrap_or(&0)));
            more.filter(|(_, count)| *count > 0).collect()
        };
        Counts { sent: since(&self.sent, &before.sent), missing: since(&self.missing, &before.missing) }
    }
}

/// Ids of the BPF maps that a process has open (`map_id:` in /proc/PID/fdinfo, kernel/bpf/syscall.c).
fn map_ids(pid: u32) -> Result<Vec<u32>> {
    let dir = format!("/proc/{pid}/fdinfo");
    let mut ids = Vec::new();
    for entry in fs::read_dir(&dir).with_context(|| format!("list {dir}"))? {
        // closed meanwhile: no map that stays
        let Ok(text) = fs::read_to_string(entry?.path()) else { continue };
        let id = text.lines().find_map(|line| line.strip_prefix("map_id:"));
        ids.extend(id.and_then(|id| id.trim().parse::<u32>().ok()));
    }
    Ok(ids)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_came_after_is_left() {
        let counts = |sent, missing| Counts {
            sent: BTreeMap::from([("ioctl", sent), ("open", 1)]),
            missing: BTreeMap::from([("ioctl", missing)]),
        };
        let since = counts(5, 2).since(&counts(3, 2));
        assert_eq!(since.sent, BTreeMap::from([("ioctl", 2)]));
        assert_eq!(since.missing, BTreeMap::new());
    }
}
