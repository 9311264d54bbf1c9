//! Whether a thread still runs, according to procfs.

use rustix::io::Errno;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

/// Whether the thread has ended; false if that cannot be determined. A procfs that hides PID 1 from this
/// process may hide others, too (its option hidepid); one that may not be searched shows nothing.
#[must_use]
pub fn has_ended(procfs: &Path, tgid: u32, tid: u32) -> bool {
    is_absent(&procfs.join(format!("{tgid}/task/{tid}"))) && !is_absent(&procfs.join("1"))
}

fn is_absent(path: &Path) -> bool {
    let missing = |error: &std::io::Error| {
        error.kind() == ErrorKind::NotFound || Errno::from_io_error(error) == Some(Errno::SRCH)
    };
    fs::symlink_metadata(path).is_err_and(|error| missing(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

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
