//! The BPF maps that a process has open, by name.

use anyhow::{Context, Result};
use aya::maps::{HashMap, Map, MapData, MapInfo};
use std::fs;

/// The map of this name, and how many entries it can have.
pub(super) fn find(pid: u32, name: &str) -> Result<(MapData, usize)> {
    for id in map_ids(pid)? {
        let info = MapInfo::from_id(id)?;
        if info.name_as_str() == Some(name) {
            return Ok((MapData::from_id(id)?, info.max_entries() as usize));
        }
    }
    anyhow::bail!("process {pid} has no map {name}")
}

/// Number of claimed slots in a tracer (kfd-trace-ebpf/src/in_flight.rs).
pub fn claims(pid: u32) -> Result<usize> {
    let map: HashMap<_, u32, u64> = Map::HashMap(find(pid, "CLAIMS")?.0).try_into()?;
    // Only keys are read: a lookup of a value would keep the tracer's programs from running.
    let keys: Vec<u32> = map.keys().collect::<Result<_, _>>()?;
    Ok(keys.len())
}

/// Ids of the BPF maps that a process has open (`map_id:` in /proc/PID/fdinfo, kernel/bpf/syscall.c).
fn map_ids(pid: u32) -> Result<Vec<u32>> {
    let dir = format!("/proc/{pid}/fdinfo");
    let mut ids = Vec::new();
    for entry in fs::read_dir(&dir).with_context(|| format!("list {dir}"))? {
        // closed meanwhile: not a permanent map
        let Ok(text) = fs::read_to_string(entry?.path()) else { continue };
        let id = text.lines().find_map(|line| line.strip_prefix("map_id:"));
        ids.extend(id.and_then(|id| id.trim().parse::<u32>().ok()));
    }
    Ok(ids)
}
