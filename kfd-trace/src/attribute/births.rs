//! The order in which the driver created queues. In: sysfs. Out: a number of each queue, larger for a later one.
//!
//! It is the inode number of the queue's folder: sysfs numbers whatever it creates upwards, and uses no number twice, in
//! 64 bits since Linux 5.5 (fs/kernfs/dir.c, __kernfs_new_node). Ids of queues are used again.

use super::driver_sysfs::{PROC, SysfsProcess};
use rustix::fs::statfs;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// SYSFS_MAGIC, include/uapi/linux/magic.h.
const SYSFS: u64 = 0x6265_6572;

/// By PID and queue id, of the first context of each process. `None`: this is a copy of sysfs, with inode numbers of its
/// own. A queue that has ended meanwhile is missing.
#[must_use]
pub fn births(sysfs: &Path, processes: &[SysfsProcess]) -> Option<BTreeMap<(u32, u32), u64>> {
    let folder = sysfs.join(PROC);
    statfs(&folder).ok().filter(|found| u64::try_from(found.f_type) == Ok(SYSFS))?;
    Some(numbers(&folder, processes))
}

fn numbers(folder: &Path, processes: &[SysfsProcess]) -> BTreeMap<(u32, u32), u64> {
    let first = processes.iter().filter(|process| process.context_id.is_none());
    let queues = first.flat_map(|process| process.queues.iter().map(|queue| (process.tgid, queue.queue_id)));
    let born = |(tgid, queue_id): (u32, u32)| {
        let folder = folder.join(format!("{tgid}/queues/{queue_id}"));
        Some(((tgid, queue_id), fs::metadata(folder).ok()?.ino()))
    };
    queues.filter_map(born).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attribute::SysfsQueue;

    #[test]
    fn only_sysfs_itself_numbers_its_folders_in_order() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join(PROC).join("7/queues/1")).unwrap();
        let queue = |queue_id| SysfsQueue { queue_id, gpu_id: None, size: None, queue_type_raw: None };
        let process = |context_id| SysfsProcess {
            tgid: 7,
            context_id,
            queues: vec![queue(1), queue(2)],
            ..Default::default()
        };
        let both = [process(None), process(Some(5))];
        assert_eq!(births(root.path(), &both), None);
        let found = numbers(&root.path().join(PROC), &both);
        assert_eq!(found.keys().collect::<Vec<_>>(), [&(7, 1)], "one has ended, and contexts are left out");
    }
}
