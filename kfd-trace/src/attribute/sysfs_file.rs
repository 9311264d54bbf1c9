//! Reads small sysfs files, and keeps a named error for each that cannot be read.

use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// A file or folder that exists but could not be read or parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("cannot read {}: {why}", path.display())]
pub struct Unreadable {
    pub path: PathBuf,
    pub why: String,
}

/// ENODEV: returned for a file whose object was removed after the open (fs/kernfs/file.c, kernfs_get_active).
const NO_SUCH_DEVICE: i32 = 19;

/// Largest accepted file size; a sysfs file has at most one page.
const LONGEST: u64 = 64 << 10;
/// Characters shown of a value that is not a number.
const SHOWN: usize = 80;

/// Whether the object behind a path was removed; usual when a process ends during the scan of its folder.
fn gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(NO_SUCH_DEVICE)
}

/// Collects read errors.
#[derive(Debug, Default)]
pub(super) struct Reader {
    pub(super) errors: Vec<Unreadable>,
}

impl Reader {
    /// The trimmed text of a file; `None` if it does not exist (no error) or cannot be read (an error is
    /// kept).
    pub(super) fn text(&mut self, path: &Path) -> Option<String> {
        let mut bytes = Vec::new();
        match File::open(path).and_then(|file| file.take(LONGEST + 1).read_to_end(&mut bytes)) {
            Ok(read) if u64::try_from(read).is_ok_and(|read| read > LONGEST) => {
                self.fail(path, format!("it has more than {LONGEST} bytes"))
            }
            Ok(_) => Some(String::from_utf8_lossy(&bytes).trim().to_owned()),
            Err(error) if gone(&error) => None,
            Err(error) => self.fail(path, error.to_string()),
        }
    }

    pub(super) fn number<T: FromStr>(&mut self, path: &Path) -> Option<T> {
        let text = self.text(path)?;
        text.parse()
            .ok()
            .or_else(|| self.fail(path, format!("{:?} is not a number of the expected size", begin(&text))))
    }

    /// Names and paths in a folder, sorted by name; empty if the folder does not exist.
    pub(super) fn entries(&mut self, folder: &Path) -> Vec<(String, PathBuf)> {
        self.listed(folder).unwrap_or_default()
    }

    /// As `entries`, but `None` if the folder does not exist (no error) or cannot be read (an error is kept).
    pub(super) fn listed(&mut self, folder: &Path) -> Option<Vec<(String, PathBuf)>> {
        let read: io::Result<Vec<fs::DirEntry>> = fs::read_dir(folder).and_then(Iterator::collect);
        match read {
            Ok(entries) => {
                let named =
                    |entry: &fs::DirEntry| (entry.file_name().to_string_lossy().into_owned(), entry.path());
                let mut found: Vec<_> = entries.iter().map(named).collect();
                found.sort();
                Some(found)
            }
            Err(error) if gone(&error) => None,
            Err(error) => self.fail(folder, error.to_string()),
        }
    }

    /// Entries whose whole name is a number, by number: nodes, PIDs, queue ids.
    pub(super) fn numbered(&mut self, folder: &Path) -> Vec<(u32, PathBuf)> {
        numbered(self.entries(folder))
    }

    pub(super) fn fail<T>(&mut self, path: &Path, why: String) -> Option<T> {
        self.errors.push(Unreadable { path: path.to_owned(), why });
        None
    }
}

/// The value of a line `NAME VALUE`.
pub(super) fn property<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(' '))
}

/// A prefix long enough to recognise the text.
pub(super) fn begin(text: &str) -> &str {
    text.char_indices().nth(SHOWN).map_or(text, |(at, _)| &text[..at])
}

/// The entries of a folder whose whole name is a number, by number.
pub(super) fn numbered(entries: Vec<(String, PathBuf)>) -> Vec<(u32, PathBuf)> {
    let numbers = entries.into_iter().filter_map(|(name, path)| Some((name.parse().ok()?, path)));
    let mut found: Vec<_> = numbers.collect();
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_file_is_an_error_and_a_long_text_is_cut() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("size");
        let mut reader = Reader::default();
        fs::write(&path, "é".repeat(1000)).unwrap();
        assert_eq!(reader.number::<u32>(&path), None);
        fs::write(&path, vec![b'1'; 70_000]).unwrap();
        assert_eq!(reader.text(&path), None);
        let why: Vec<_> = reader.errors.iter().map(|error| error.why.as_str()).collect();
        let begin = format!("{:?} is not a number of the expected size", "é".repeat(80));
        assert_eq!(why, [begin.as_str(), "it has more than 65536 bytes"]);
    }
}
