//! The readers of procfs: a process, and what this program may do.

use std::fs;
use std::path::Path;

use kfd_trace::attribute::process;
use kfd_trace::kernel::{Preflight, Roots, findings};

use crate::allocation::{Bound, within};
use crate::{parts, shown};

/// The crate that reads `status` keeps a map of its lines, each with two texts.
const BOUND: Bound = Bound { a_byte: 200, always: 64 << 10 };

/// Where each part of an input stands.
pub const FILES: [&str; 8] = [
    "proc/7/stat",
    "proc/7/status",
    "proc/7/cmdline",
    "proc/7/cgroup",
    "proc/self/status",
    "proc/self/mounts",
    "sys/devices/system/cpu/possible",
    "sys/kernel/security/lockdown",
];

/// Reads process 7 from the parts of an input. Gives whether it could be read.
///
/// # Panics
/// When a promise was broken.
#[must_use]
pub fn read(input: &[u8]) -> bool {
    let root = tempfile::tempdir().expect("a folder for the test");
    lay_out(root.path(), input, &FILES);
    let roots = Roots::under(root.path());
    let preflight = within("preflight", input.len(), BOUND, || Preflight::read(&roots));
    findings(&preflight).iter().for_each(|finding| shown::line(&finding.to_string()));
    match within("process", input.len(), BOUND, || process::read(&roots.procfs, 7, None)) {
        Ok(info) => {
            assert_eq!(info.who.tgid, 7);
            let words = process::cmdline(&roots.procfs, 7, None).unwrap_or_default();
            assert!(words.iter().map(String::len).sum::<usize>() <= 3 * 4096 + 3);
            true
        }
        Err(error) => {
            shown::line(&error.to_string());
            false
        }
    }
}

/// Writes each part to its file; a file without a part is not there.
pub(crate) fn lay_out(root: &Path, input: &[u8], files: &[&str]) {
    for (file, part) in files.iter().zip(parts::split(input)) {
        let path = root.join(file);
        let written = fs::create_dir_all(path.parent().unwrap_or(root)).and_then(|()| fs::write(&path, part));
        written.expect("a file for the test");
    }
}
