//! statx(2), which tests replace.

use super::seen::{Device, Node};
use rustix::fs::{AtFlags, CWD, FileType, StatxFlags, statx};
use std::io;
use std::path::Path;

/// AT_STATX_DONT_SYNC (uapi linux/fcntl.h): a server that is gone is not asked. musl's headers do not have it.
const DONT_SYNC: AtFlags = AtFlags::from_bits_retain(0x4000);

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
        // As the kernel has it in memory: a network file system whose server is dead would block this reader.
        let stat = statx(CWD, path, DONT_SYNC, StatxFlags::TYPE | StatxFlags::INO)?;
        let is_character_device = FileType::from_raw_mode(stat.stx_mode.into()).is_char_device();
        let number =
            is_character_device.then_some(Device { major: stat.stx_rdev_major, minor: stat.stx_rdev_minor });
        let filesystem = Device { major: stat.stx_dev_major, minor: stat.stx_dev_minor };
        Ok(Stat { node: Node { filesystem, inode: stat.stx_ino }, number })
    }
}
