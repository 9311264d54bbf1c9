//! A private copy of a source, so that nothing of the host is changed. In: a folder. Out: its copy, owned by the
//! user that builds in it, and the number of bytes.

use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt as _, lchown, symlink};
use std::path::Path;

/// Copies files, folders and links below `from` into the new folder `to`; special files are left out. `seen` is
/// called with the bytes of each file, and ends the copy by an error.
///
/// # Errors
/// One line that names the file.
pub(super) fn tree(
    from: &Path,
    to: &Path,
    owner: Option<(u32, u32)>,
    seen: &mut impl FnMut(u64) -> Result<(), String>,
) -> Result<(), String> {
    let cannot = |path: &Path, error: io::Error| format!("cannot copy {}: {error}", path.display());
    fs::create_dir(to).map_err(|error| cannot(to, error))?;
    own(to, owner)?;
    for entry in fs::read_dir(from).map_err(|error| cannot(from, error))? {
        let entry = entry.map_err(|error| cannot(from, error))?;
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        let kind = entry.file_type().map_err(|error| cannot(&path, error))?;
        if kind.is_dir() {
            tree(&path, &target, owner, seen)?;
        } else if kind.is_symlink() {
            let link = fs::read_link(&path).map_err(|error| cannot(&path, error))?;
            symlink(link, &target).map_err(|error| cannot(&path, error))?;
            own(&target, owner)?;
        } else if kind.is_file() {
            let bytes = fs::copy(&path, &target).map_err(|error| cannot(&path, error))?;
            // A build step edits sources that a package may have installed read-only.
            let mut mode = fs::metadata(&target).map_err(|error| cannot(&target, error))?.permissions();
            mode.set_mode(mode.mode() | 0o600);
            fs::set_permissions(&target, mode).map_err(|error| cannot(&target, error))?;
            own(&target, owner)?;
            seen(bytes)?;
        }
    }
    Ok(())
}

/// Gives a file to a user, if there is one to give it to.
pub(super) fn own(path: &Path, owner: Option<(u32, u32)>) -> Result<(), String> {
    let Some((user, group)) = owner else { return Ok(()) };
    lchown(path, Some(user), Some(group))
        .map_err(|error| format!("cannot give {} to user {user}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_is_copied_with_its_links_and_can_be_written() {
        let root = tempfile::tempdir().unwrap();
        let from = root.path().join("from");
        fs::create_dir_all(from.join("a/b")).unwrap();
        fs::write(from.join("a/b/file"), "12345").unwrap();
        fs::set_permissions(from.join("a/b/file"), fs::Permissions::from_mode(0o444)).unwrap();
        symlink("a/b/file", from.join("link")).unwrap();
        let to = root.path().join("to");
        let mut bytes = 0;
        tree(&from, &to, None, &mut |more| {
            bytes += more;
            Ok(())
        })
        .unwrap();
        assert_eq!((bytes, fs::read_to_string(to.join("link")).unwrap().as_str()), (5, "12345"));
        fs::write(to.join("a/b/file"), "6").unwrap();
        assert_eq!(fs::read_to_string(from.join("a/b/file")).unwrap(), "12345", "the original is as before");
        let again = tree(&from, &root.path().join("other"), None, &mut |_| Err("time is over".to_owned()));
        assert_eq!(again, Err("time is over".to_owned()));
        assert!(tree(&from.join("none"), &root.path().join("x"), None, &mut |_| Ok(())).is_err());
    }
}
