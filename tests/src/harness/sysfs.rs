//! KFD's processes and queues as `/sys/class/kfd/kfd/proc` shows them: the driver's own view.

use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::str::FromStr;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SysfsQueue {
    pub gpu_id: u32,
    /// The kernel's enum, not the uapi's.
    pub queue_type: u32,
    /// Of the ring, in bytes.
    pub size: u64,
}

/// Queues of primary KFD processes by (host PID, queue id). Entries that vanish while being read are left
/// out.
pub fn queues(sysfs: &Path) -> Result<BTreeMap<(u32, u32), SysfsQueue>> {
    let all = all_queues(sysfs)?.into_iter();
    Ok(all
        .filter_map(|((pid, context, id), queue)| context.is_none().then_some(((pid, id), queue)))
        .collect())
}

/// Host PID, id of a secondary KFD process (`None` is the primary one), queue id.
pub type QueueKey = (u32, Option<u64>, u32);

/// Includes secondary KFD processes, which are in `context_<id>` of their PID (Linux 7.x).
pub fn all_queues(sysfs: &Path) -> Result<BTreeMap<QueueKey, SysfsQueue>> {
    let mut queues = BTreeMap::new();
    for (pid, process) in numbered(&sysfs.join("class/kfd/kfd/proc"))? {
        let contexts = prefixed(&process, "context_")?;
        let contexts = contexts.into_iter().map(|(id, dir): (u64, _)| (Some(id), dir));
        for (context, owner) in contexts.chain([(None, process)]) {
            for (queue_id, dir) in numbered(&owner.join("queues"))? {
                queues.extend(queue(&dir).map(|queue| ((pid, context, queue_id), queue)));
            }
        }
    }
    Ok(queues)
}

fn queue(dir: &Path) -> Option<SysfsQueue> {
    Some(SysfsQueue {
        gpu_id: number(&dir.join("gpuid"))?.try_into().ok()?,
        queue_type: number(&dir.join("type"))?.try_into().ok()?,
        size: number(&dir.join("size"))?,
    })
}

/// How long the queues of a process were evicted from a GPU, in milliseconds; an eviction counts only once it
/// has ended (kfd_process_device.evict_duration_counter).
pub fn evicted_ms(sysfs: &Path, pid: u32, gpu_id: u32) -> Result<u64> {
    let path = sysfs.join(format!("class/kfd/kfd/proc/{pid}/stats_{gpu_id}/evicted_ms"));
    number(&path).with_context(|| format!("read {}", path.display()))
}

/// Bytes of VRAM of a process on a GPU (kfd_process_device.vram_usage).
pub fn vram(sysfs: &Path, pid: u32, gpu_id: u32) -> Result<u64> {
    let path = sysfs.join(format!("class/kfd/kfd/proc/{pid}/vram_{gpu_id}"));
    number(&path).with_context(|| format!("read {}", path.display()))
}

/// Host PIDs with a KFD process, with or without queues.
pub fn processes(sysfs: &Path) -> Result<Vec<u32>> {
    Ok(numbered(&sysfs.join("class/kfd/kfd/proc"))?.into_keys().collect())
}

fn numbered(dir: &Path) -> Result<BTreeMap<u32, PathBuf>> {
    prefixed(dir, "")
}

/// Entries whose name is a number after `prefix`, by that number; none if the folder is missing.
fn prefixed<N: FromStr + Ord>(dir: &Path, prefix: &str) -> Result<BTreeMap<N, PathBuf>> {
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(BTreeMap::new()),
        entries => entries.with_context(|| format!("list {}", dir.display()))?,
    };
    Ok(entries
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            Some((path.file_name()?.to_str()?.strip_prefix(prefix)?.parse().ok()?, path))
        })
        .collect())
}

fn number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_are_read_and_half_removed_ones_left_out() {
        let sysfs = tempfile::tempdir().unwrap();
        let queues_dir = sysfs.path().join("class/kfd/kfd/proc/42/queues");
        for (id, files) in [("0", &["gpuid", "type", "size"][..]), ("1", &["gpuid"])] {
            fs::create_dir_all(queues_dir.join(id)).unwrap();
            for file in files {
                fs::write(queues_dir.join(id).join(file), "7\n").unwrap();
            }
        }
        let context = sysfs.path().join("class/kfd/kfd/proc/42/context_3");
        fs::create_dir_all(&context).unwrap();
        fs::create_dir_all(context.join("queues/0")).unwrap();
        for file in ["gpuid", "type", "size"] {
            fs::copy(queues_dir.join("0").join(file), context.join("queues/0").join(file)).unwrap();
        }
        let expected = SysfsQueue { gpu_id: 7, queue_type: 7, size: 7 };
        assert_eq!(queues(sysfs.path()).unwrap(), BTreeMap::from([((42, 0), expected)]));
        let all = BTreeMap::from([((42, None, 0), expected), ((42, Some(3), 0), expected)]);
        assert_eq!(all_queues(sysfs.path()).unwrap(), all);
        assert_eq!(processes(sysfs.path()).unwrap(), [42]);
    }

    #[test]
    fn without_the_driver_there_are_none() {
        let sysfs = tempfile::tempdir().unwrap();
        assert!(queues(sysfs.path()).unwrap().is_empty());
    }
}
