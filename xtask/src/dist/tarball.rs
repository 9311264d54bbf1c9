//! The tarball: one folder, with the files that belong below /.

use super::contents::{Layout, Parts, entries};
use super::{About, gzip};
use anyhow::{Context as _, Result};
use std::fs;
use std::path::Path;
use tar::{Builder, EntryType, Header, HeaderMode};

pub(super) fn build(parts: &Parts, about: &About, name: &str, file: &Path) -> Result<()> {
    let mut archive = Builder::new(Vec::new());
    archive.mode(HeaderMode::Deterministic);
    for entry in entries(parts, Layout::Tarball, gzip) {
        let mut header = Header::new_gnu();
        header.set_entry_type(EntryType::Regular);
        header.set_size(entry.bytes.len() as u64);
        header.set_mode(entry.mode());
        header.set_mtime(about.epoch);
        header.set_uid(0);
        header.set_gid(0);
        archive.append_data(&mut header, format!("{name}/{}", entry.path), &*entry.bytes)?;
    }
    let bytes = gzip(&archive.into_inner().context("cannot make the tarball")?);
    fs::write(file, bytes).with_context(|| format!("cannot write {}", file.display()))
}
