//! Whether a thread still runs, whether a kworker has work, and when a process started, according to procfs.

use procfs::FromRead as _;
use procfs::process::Stat;
use rustix::io::Errno;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::Path;

/// Whether the thread has ended; false if that cannot be determined. A procfs that hides PID 1 from this
/// process may hide others, too (its option hidepid); one that may not be searched shows nothing.
#[must_use]
pub fn has_ended(procfs: &Path, tgid: u32, tid: u32) -> bool {
    is_absent(&procfs.join(format!("{tgid}/task/{tid}"))) && !is_absent(&procfs.join("1"))
}

/// Whether the thread is in no call of a driver: it has ended, or is a kworker without work. Its name shows that:
/// `wq_worker_comm` (kernel/workqueue.c) adds `+` and the name of the workqueue while it works, else `-`.
#[must_use]
pub fn is_idle(procfs: &Path, tid: u32) -> bool {
    // Each thread has a folder by its own id, too, which is listed nowhere.
    let comm = fs::read(procfs.join(format!("{tid}/comm")));
    has_ended(procfs, tid, tid)
        || comm.is_ok_and(|comm| comm.starts_with(b"kworker/") && !comm.contains(&b'+'))
}

/// When a process started, in clock ticks since the boot (field 22 of its `stat`, fs/proc/array.c:do_task_stat).
#[must_use]
pub fn start(procfs: &Path, pid: u32) -> Option<u64> {
    let stat = File::open(procfs.join(format!("{pid}/stat"))).ok()?;
    Some(Stat::from_read(stat).ok()?.starttime)
}

fn is_absent(path: &Path) -> bool {
    let missing = |error: &std::io::Error| {
        error.kind() == ErrorKind::NotFound || Errno::from_io_error(error) == Some(Errno::SRCH)
    };
    fs::symlink_metadata(path).is_err_and(|error| missing(&error))
}

/// The line of a process that started so many ticks after the boot.
#[cfg(test)]
pub(crate) fn stat_line(pid: u32, name: &str, start: u64) -> String {
    let before = "S 1 9 9 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0";
    format!(
        "{pid} ({name}) {before} {start} 100 200 300 1 1 0 0 0 0 0 0 0 0 0 0 17 1 0 0 0 0 0 0 0 0 0 0 0 0 0\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kworker_shows_whether_it_works() {
        let procfs = tempfile::tempdir().unwrap();
        fs::create_dir_all(procfs.path().join("1")).unwrap();
        let idle = |comm: &str| {
            fs::create_dir_all(procfs.path().join("9/task/9")).unwrap();
            fs::write(procfs.path().join("9/comm"), comm).unwrap();
            is_idle(procfs.path(), 9)
        };
        assert!(idle("kworker/u8:2-kfd_process_wq\n") && idle("kworker/R-kfd_p\n"));
        assert!(!idle("kworker/u8:2+kfd_process_wq\n") && !idle("train\n"));
        assert!(is_idle(procfs.path(), 8), "it has ended");
    }

    #[test]
    fn a_start_is_behind_any_name() {
        let procfs = tempfile::tempdir().unwrap();
        fs::create_dir_all(procfs.path().join("9")).unwrap();
        fs::write(procfs.path().join("9/stat"), stat_line(9, "a) b (c", 4711)).unwrap();
        assert_eq!([start(procfs.path(), 9), start(procfs.path(), 8)], [Some(4711), None]);
        assert!(start(Path::new("/proc"), std::process::id()).is_some());
    }

    #[test]
    fn what_is_hidden_has_not_ended() {
        let procfs = tempfile::tempdir().unwrap();
        fs::create_dir_all(procfs.path().join("7/task/9")).unwrap();
        assert!(!has_ended(procfs.path(), 7, 8), "PID 1 is hidden, so others may be");
        fs::create_dir_all(procfs.path().join("1")).unwrap();
        assert!(has_ended(procfs.path(), 7, 8) && has_ended(procfs.path(), 6, 6));
        assert!(!has_ended(procfs.path(), 7, 9));
        // ENOTDIR: unknown.
        fs::write(procfs.path().join("5"), "").unwrap();
        assert!(!has_ended(procfs.path(), 5, 5));
    }
}
