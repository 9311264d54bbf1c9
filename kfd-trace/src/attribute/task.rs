//! Which task of a process to look into.

use super::process::{self, Life};
use std::fs;
use std::path::{Path, PathBuf};

/// The leader's folder in procfs, or where that is dead a thread's that lives: files and memory are the tasks', and a dead one
/// has let go of them (exit_files, exit_mm). `None`: all of them are dead.
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
