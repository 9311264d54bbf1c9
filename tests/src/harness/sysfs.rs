//! KFD's processes and queues as `/sys/class/kfd/kfd/proc` shows them: the driver's own view.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SysfsQueue {
    pub gpu_id: u32,
    /// The kernel's enum, not the uapi's.
    pub queue_type: u32,
    /// Of the ring, in bytes.
    pub size: u64,
}

/// Queues by (host PID, queue id). What vanishes while it is read is left out.
pub fn queues(sysfs: &Path) -> Result<BTreeMap<(u32, u32), SysfsQueue>> {
    let mut queues = BTreeMap::new();
    for (pid, process) in numbered(&sysfs.join("class/kfd/kfd/proc"))? {
        for (queue_id, dir) in numbered(&process.join("queues"))? {
            let read = || {
                Some(SysfsQueue {
                    gpu_id: number(&dir.join("gpuid"))?.try_into().ok()?,
                    queue_type: number(&dir.join("type"))?.try_into().ok()?,
                    size: number(&dir.join("size"))?,
                })
            };
            queues.extend(read().map(|queue| ((pid, queue_id), queue)));
        }
    }
    Ok(queues)
}

/// Host PIDs with a KFD process, with or without queues.
pub fn processes(sysfs: &Path) -> Result<Vec<u32>> {
    Ok(numbered(&sysfs.join("class/kfd/kfd/proc"))?.into_keys().collect())
}

fn numbered(dir: &Path) -> Result<BTreeMap<u32, PathBuf>> {
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(BTreeMap::new()),
        entries => entries.with_context(|| format!("list {}", dir.display()))?,
    };
    Ok(entries
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            Some((path.file_name()?.to_str()?.parse().ok()?, path))
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
        let expected = SysfsQueue { gpu_id: 7, queue_type: 7, size: 7 };
        assert_eq!(queues(sysfs.path()).unwrap(), BTreeMap::from([((42, 0), expected)]));
        assert_eq!(processes(sysfs.path()).unwrap(), [42]);
    }

    #[test]
    fn without_the_driver_there_are_none() {
        let sysfs = tempfile::tempdir().unwrap();
        assert!(queues(sysfs.path()).unwrap().is_empty());
    }
}
