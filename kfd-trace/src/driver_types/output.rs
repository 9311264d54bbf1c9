//! Where a types file is written. In: what the user gave. Out: a file that is there whole or not at all, and beside it
//! what a failed build printed.

use std::fs::{self, Permissions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// A types file that is not there yet: a reader never meets a part of it.
pub(super) struct Output {
    file: NamedTempFile,
    path: PathBuf,
}

impl Output {
    /// As given, else in the folder that the daemon looks into, else in the current one.
    pub(super) fn open(given: Option<&Path>, folder: &Path, name: &str) -> Result<Self, String> {
        let path = match given {
            Some(path) if path.is_dir() => path.join(name),
            Some(path) => path.to_owned(),
            None => {
                let path = folder.join(name);
                match make_readable(folder).and_then(|()| Self::at(&path)) {
                    Err(error)
                        if matches!(
                            error.kind(),
                            ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem
                        ) =>
                    {
                        PathBuf::from(name)
                    }
                    opened => return opened.map_err(|error| cannot_write(&path, &error)),
                }
            }
        };
        Self::at(&path).map_err(|error| cannot_write(&path, &error))
    }

    fn at(path: &Path) -> io::Result<Self> {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        // Not of this user alone: the daemon reads it as another one.
        let file = tempfile::Builder::new()
            .prefix(".kfd-trace-types-")
            .permissions(Permissions::from_mode(0o644))
            .tempfile_in(folder.unwrap_or(Path::new(".")))?;
        file.as_file().set_permissions(Permissions::from_mode(0o644))?;
        Ok(Output { file, path: path.to_owned() })
    }

    pub(super) fn write(mut self, bytes: &[u8]) -> Result<PathBuf, String> {
        let path = self.path;
        self.file.write_all(bytes).map_err(|error| cannot_write(&path, &error))?;
        self.file.persist(&path).map_err(|error| cannot_write(&path, &error.error))?;
        Ok(path)
    }

    /// Writes what a failed build printed beside the types file that is not made; returns where.
    pub(super) fn write_log(&self, bytes: &[u8]) -> Result<PathBuf, String> {
        let path = self.path.with_extension("log");
        Self::at(&path).map_err(|error| cannot_write(&path, &error))?.write(bytes)
    }
}

fn cannot_write(path: &Path, error: &io::Error) -> String {
    format!("cannot write {}: {error}", path.display())
}

/// Makes a folder and those above it that do not exist, so that each user can read them.
fn make_readable(folder: &Path) -> io::Result<()> {
    let missing: Vec<&Path> = folder.ancestors().take_while(|folder| !folder.exists()).collect();
    fs::create_dir_all(folder)?;
    missing.iter().try_for_each(|folder| fs::set_permissions(folder, Permissions::from_mode(0o755)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_there_whole_or_not_at_all_and_others_can_read_it() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("lib/drivers");
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let open = || Output::open(None, &folder, "amdgpu.btf").unwrap();
        drop(open());
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0, "a build that failed leaves nothing");
        let path = open().write(b"types").unwrap();
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
        assert_eq!((mode(&path), mode(&folder)), (0o644, 0o755));
        assert_eq!(open().write(b"new").unwrap(), path);
        assert_eq!(fs::read(&path).unwrap(), b"new");
        let given = root.path().join("mine.btf");
        assert_eq!(Output::open(Some(&given), &folder, "x").unwrap().path, given);
        assert_eq!(Output::open(Some(root.path()), &folder, "x").unwrap().path, root.path().join("x"));
        let nowhere = root.path().join("none/x");
        let Err(why) = Output::open(Some(&nowhere), &folder, "x") else {
            panic!("opened {}", nowhere.display())
        };
        assert!(why.starts_with(&format!("cannot write {}: ", nowhere.display())), "{why}");
    }
}
