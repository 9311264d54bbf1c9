//! What a resumed guest gets: cpio pieces on a disk, each padded to a whole number of blocks. In: the disk.
//! Out: the files, in the place of those of the same names.

use anyhow::{Context as _, Result, bail};
use cpio::newc;
use std::fs::{self, File, Permissions};
use std::io::{self, BufRead as _, BufReader, ErrorKind, Read, Seek};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

const DISK: &str = "/dev/vda";

/// A block; pieces begin at a multiple of it (`Archive::finish` of xtask/src/vm/initramfs.rs).
const BLOCK: u64 = 512;

/// Read at once: each request of a virtual disk costs thousands of instructions.
const BUFFER: usize = 1 << 20;

pub(crate) fn unpack_disk() -> Result<()> {
    let disk = File::open(DISK).with_context(|| format!("cannot open {DISK}"))?;
    unpack(BufReader::with_capacity(BUFFER, disk), Path::new("/"))
}

fn unpack<R: Read + Seek>(mut disk: BufReader<R>, root: &Path) -> Result<()> {
    loop {
        let mut reader = newc::Reader::new(disk).context("no further entry")?;
        while !reader.entry().is_trailer() {
            place(&mut reader, root).with_context(|| format!("cannot make {}", reader.entry().name()))?;
            reader = newc::Reader::new(reader.finish()?)?;
        }
        disk = reader.finish()?;
        let at = disk.stream_position()?;
        disk.seek_relative(i64::try_from(at.next_multiple_of(BLOCK) - at)?)?;
        if disk.fill_buf()?.is_empty() {
            return Ok(());
        }
    }
}

fn place(reader: &mut newc::Reader<impl Read>, root: &Path) -> Result<()> {
    const KIND: u32 = 0o170_000;
    let (mode, place) = (reader.entry().mode(), root.join(reader.entry().name()));
    match mode & KIND {
        0o040_000 if place.is_dir() => {}
        0o040_000 => fs::create_dir(&place)?,
        0o120_000 => {
            absent(&place)?;
            symlink(io::read_to_string(reader)?, &place)?;
        }
        0o100_000 => {
            // A running program cannot be written to, but its name can be that of another file.
            absent(&place)?;
            let mut file = File::create(&place)?;
            io::copy(reader, &mut file)?;
            file.set_permissions(Permissions::from_mode(mode & 0o7777))?;
        }
        other => bail!("an entry of kind {other:o}"),
    }
    Ok(())
}

fn absent(place: &Path) -> Result<()> {
    match fs::remove_file(place) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cpio::newc::{Builder, ModeFileType, trailer};
    use std::io::{Cursor, Write as _};

    fn piece(entries: &[(&str, ModeFileType, &str)]) -> Vec<u8> {
        let mut out = Vec::new();
        for (path, kind, data) in entries {
            let kind = match kind {
                ModeFileType::Directory => ModeFileType::Directory,
                ModeFileType::Symlink => ModeFileType::Symlink,
                _ => ModeFileType::Regular,
            };
            let length = u32::try_from(data.len()).expect("little");
            let mut writer = Builder::new(path).mode(0o755).set_mode_file_type(kind).write(&mut out, length);
            writer.write_all(data.as_bytes()).expect("data");
            writer.finish().expect("an entry");
        }
        trailer(&mut out).expect("a trailer");
        out.resize(out.len().next_multiple_of(512), 0);
        out
    }

    #[test]
    fn later_pieces_replace_what_is_there() {
        let root = tempfile::tempdir().expect("a folder");
        fs::write(root.path().join("init"), "old").expect("a file");
        let mut disk = piece(&[
            ("bin", ModeFileType::Directory, ""),
            ("bin/tool", ModeFileType::Regular, "first"),
            ("sbin", ModeFileType::Symlink, "bin"),
        ]);
        disk.extend(piece(&[
            ("bin", ModeFileType::Directory, ""),
            ("init", ModeFileType::Symlink, "bin/tool"),
            ("bin/tool", ModeFileType::Regular, "second"),
        ]));
        unpack(BufReader::with_capacity(64, Cursor::new(&disk)), root.path()).expect("two pieces");
        let read = |path: &str| fs::read_to_string(root.path().join(path)).expect("a file");
        assert_eq!((read("init"), read("sbin/tool")), ("second".to_owned(), "second".to_owned()));
        let mode = fs::metadata(root.path().join("bin/tool")).expect("a file").permissions().mode();
        assert_eq!(mode & 0o777, 0o755);
    }

    #[test]
    fn half_a_disk_is_an_error() {
        let root = tempfile::tempdir().expect("a folder");
        let disk = piece(&[("tool", ModeFileType::Regular, &"x".repeat(4096))]);
        let half = BufReader::new(Cursor::new(&disk[..2048]));
        assert!(unpack(half, root.path()).is_err());
    }
}
