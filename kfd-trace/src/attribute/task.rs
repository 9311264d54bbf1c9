//! Chooses the task of a process to inspect.

use super::process::{self, Life};
use std::fs;
use std::path::{Path, PathBuf};

/// Returns the leader's folder in procfs or, if the leader is dead, that of a live thread. Files and memory
/// belong to tasks, and a dead task has released them (exit_files, exit_mm). `None`: all tasks are dead.
#[must_use]
pub fn living(procfs: &Path, tgid: u32, life: &Life) -> Option<PathBuf> {
    let folder = procfs.join(tgid.to_string());
    if !life.lives_without_leader() {
        return (!matches!(life.state, 'Z' | 'X')).then_some(folder);
    }
    let tasks = folder.join("task");
    let lives = |tid: &u32| process::life(&tasks, *tid).is_ok_and(|life| !matches!(life.state, 'Z' | 'X'));
    let entries = fs::read_dir(&tasks).into_iter().flatten().flatten();
    let mut tids: Vec<u32> = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    tids.sort_unstable();
    tids.into_iter().filter(|tid| *tid != tgid).find(lives).map(|tid| tasks.join(tid.to_string()))
}
