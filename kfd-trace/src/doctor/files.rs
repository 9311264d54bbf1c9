//! stat(2), which tests replace.

use super::seen::{Device, Node};
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::Path;

/// Result of stat(2) for a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    pub node: Node,
    /// Device number of a character device.
    pub number: Option<Device>,
}

/// stat(2), following links. A descriptor's link leads to the open file, in any mount namespace.
pub trait Files {
    /// # Errors
    /// As stat(2).
    fn stat(&self, path: &Path) -> io::Result<Stat>;
}

/// The files of this machine.
#[derive(Clone, Copy, Debug)]
pub struct Real;

impl Files for Real {
    fn stat(&self, path: &Path) -> io::Result<Stat> {
        let metadata = fs::metadata(path)?;
        let number = metadata.file_type().is_char_device().then(|| device(metadata.rdev()));
        Ok(Stat { node: Node { filesystem: device(metadata.dev()), inode: metadata.ino() }, number })
    }
}

fn device(number: u64) -> Device {
    Device { major: libc::major(number), minor: libc::minor(number) }
}
