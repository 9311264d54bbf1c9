//! A file that the user named for output. In: its path. Out: the open file, which is not where somebody else's link
//! leads.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

/// Opens a file for writing, and makes it if there is none. What is in it stays. A link in its place is followed only if
/// root or this user made it: in a folder of somebody else it may lead to any file that this process may write.
/// `flags` are further ones of open(2).
///
/// # Errors
/// Those of open(2); ELOOP for such a link.
pub fn open(path: &Path, mode: u32, flags: i32) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(mode);
    let opened = options.custom_flags(flags | libc::O_NOFOLLOW).open(path);
    match opened {
        Err(error) if error.raw_os_error() == Some(libc::ELOOP) && is_trusted(path) => {
            options.custom_flags(flags).open(path)
        }
        opened => opened,
    }
}

/// Whether a link is root's or this user's.
fn is_trusted(link: &Path) -> bool {
    let user = rustix::process::geteuid().as_raw();
    fs::symlink_metadata(link).is_ok_and(|about| [0, user].contains(&about.uid()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{lchown, symlink};

    #[test]
    fn a_link_of_somebody_else_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let [file, link] = ["file", "link"].map(|name| folder.path().join(name));
        fs::write(&file, "before").unwrap();
        symlink(&file, &link).unwrap();
        assert!(open(&link, 0o600, 0).is_ok() && open(&file, 0o600, 0).is_ok(), "own ones are");
        assert_eq!(fs::read_to_string(&file).unwrap(), "before");
        if rustix::process::geteuid().is_root() {
            lchown(&link, Some(1000), None).unwrap();
            assert_eq!(open(&link, 0o600, 0).unwrap_err().raw_os_error(), Some(libc::ELOOP));
        }
    }
}
