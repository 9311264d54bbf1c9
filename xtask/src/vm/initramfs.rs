//! The guest's root file system as cpio pieces. Device nodes need no entry: devtmpfs makes them, and
//! the archive can be written without root.

use anyhow::{Context as _, Result};
use cpio::newc::{Builder, ModeFileType, trailer};
use std::io::Write as _;

/// A cpio piece under construction. Pieces may be concatenated; the kernel unpacks all of them.
pub(crate) struct Archive {
    /// Before every path.
    top: &'static str,
    entries: Vec<Entry>,
}

struct Entry {
    path: String,
    kind: ModeFileType,
    mode: u32,
    data: Vec<u8>,
}

impl Archive {
    pub(crate) fn new() -> Self {
        Self::below("")
    }

    /// A piece whose paths are all in this folder (with its `/`), which another piece has.
    pub(crate) fn below(top: &'static str) -> Self {
        Self { top, entries: Vec::new() }
    }

    pub(crate) fn dir(&mut self, path: &str) {
        self.add(path, ModeFileType::Directory, 0o755, Vec::new());
    }

    /// A folder with those above it; each may be there already.
    pub(crate) fn folders(&mut self, path: &str) {
        let ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
        ends.for_each(|end| self.dir(&path[..end]));
    }

    pub(crate) fn symlink(&mut self, path: &str, to: &str) {
        self.add(path, ModeFileType::Symlink, 0o777, to.as_bytes().to_vec());
    }

    /// A regular file; its folder must have been added before.
    pub(crate) fn file(&mut self, path: &str, mode: u32, data: Vec<u8>) {
        self.add(path, ModeFileType::Regular, mode, data);
    }

    fn add(&mut self, path: &str, kind: ModeFileType, mode: u32, data: Vec<u8>) {
        self.entries.push(Entry { path: format!("{}{path}", self.top), kind, mode, data });
    }

    pub(crate) fn finish(self) -> Result<Vec<u8>> {
        let mut out = Vec::new();
        for (inode, entry) in (1u32..).zip(self.entries) {
            let length = u32::try_from(entry.data.len())
                .with_context(|| format!("{} is too large for an initramfs", entry.path))?;
            let builder = Builder::new(&entry.path).ino(inode).nlink(1).mode(entry.mode);
            let mut writer = builder.set_mode_file_type(entry.kind).write(&mut out, length);
            writer.write_all(&entry.data).context("cannot write a cpio entry")?;
            writer.finish().context("cannot write a cpio entry")?;
        }
        trailer(&mut out).context("cannot end a cpio piece")?;
        // The next piece must start on a multiple of four.
        out.resize(out.len().next_multiple_of(512), 0);
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::Archive;

    #[test]
    fn a_piece_reads_back_and_is_aligned() {
        let mut archive = Archive::new();
        archive.dir("etc");
        archive.file("etc/job", 0o644, b"odd".to_vec());
        archive.symlink("sbin", "bin");
        let bytes = archive.finish().expect("a small archive");
        assert_eq!(bytes.len() % 512, 0);
        let mut reader = cpio::newc::Reader::new(&bytes[..]).expect("a first entry");
        let mut names = Vec::new();
        while !reader.entry().is_trailer() {
            names.push(reader.entry().name().to_owned());
            let rest = reader.finish().expect("the entry's end");
            reader = cpio::newc::Reader::new(rest).expect("another entry");
        }
        assert_eq!(names, ["etc", "etc/job", "sbin"]);
    }
}
