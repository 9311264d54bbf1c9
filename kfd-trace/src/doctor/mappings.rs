//! Mappings of a task, from `maps` in procfs, which has the file system, inode and path of each, but no
//! device number.

use super::seen::{Device, Mappings, Node};
use procfs::FromBufRead as _;
use procfs::process::{MMapPath, MemoryMap, MemoryMaps};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead as _, BufReader, ErrorKind, Read as _};
use std::path::Path;

/// Most bytes read from `maps`: 65,530 mappings, which a process may have (vm.max_map_count), of some 200
/// bytes each.
const MAPS: u64 = 16 << 20;

/// ROCm's libraries, by the prefix of their names.
const LIBRARIES: [&str; 2] = ["libhsa-runtime64", "libamdhip64"];

/// Reads `<task>/maps`. A mapping counts as /dev/kfd if its file is one of `nodes`, or its path ends in
/// `/dev/kfd`. `None`: not permitted, or not readable.
pub(super) fn read(task: &Path, nodes: &BTreeSet<Node>) -> Option<Mappings> {
    let mut found = Mappings::default();
    let mut lines = BufReader::new(File::open(task.join("maps")).ok()?.take(MAPS));
    let mut line = Vec::new();
    loop {
        line.clear();
        match lines.read_until(b'\n', &mut line) {
            Ok(0) => return Some(found),
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            // The process ended, or may not be inspected.
            Err(_) => return None,
        }
        // Other mappings have no file.
        if line.contains(&b'/')
            && let Some(mapping) = parse(&line)
        {
            add(&mut found, nodes, &mapping);
        }
    }
}

fn parse(line: &[u8]) -> Option<MemoryMap> {
    let text = String::from_utf8_lossy(line);
    MemoryMaps::from_buf_read(text.as_bytes()).ok()?.into_iter().next()
}

fn add(found: &mut Mappings, nodes: &BTreeSet<Node>, mapping: &MemoryMap) {
    let MMapPath::Path(path) = &mapping.pathname else { return };
    let path = path.to_string_lossy();
    let path = path.trim();
    let path = path.strip_suffix(" (deleted)").unwrap_or(path);
    let name = path.rsplit('/').next().unwrap_or(path);
    let filesystem = Device { major: mapping.dev.0.cast_unsigned(), minor: mapping.dev.1.cast_unsigned() };
    let node = Node { filesystem, inode: mapping.inode };
    if nodes.contains(&node) || path.ends_with("/dev/kfd") {
        found.kfd.insert(node);
    } else if name.starts_with("renderD") && path.contains("/dri/") {
        found.render = found.render.saturating_add(1);
    } else {
        found.libraries.extend(LIBRARIES.iter().find(|library| name.starts_with(**library)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn node(minor: u32, inode: u64) -> Node {
        Node { filesystem: Device { major: 0, minor }, inode }
    }

    #[test]
    fn mappings_are_identified_by_file_and_by_path() {
        let folder = tempfile::tempdir().unwrap();
        let text = b"7f0000000000-7f0000002000 rw-s 4000000000000000 00:05 371                        /dev/kfd\n\
            7f0000002000-7f0000004000 rw-s 4000000000000000 00:2a 9                          /moved/node\n\
            7f0000004000-7f0000006000 rw-s 100000000 00:05 402                        /dev/dri/renderD128\n\
            7f0000006000-7f0000008000 r-xp 00000000 08:01 77  /opt/rocm/lib/libhsa-runtime64.so.1.14.0 (deleted)\n\
            7f0000008000-7f000000a000 r-xp 00000000 08:01 78  /srv/libamdhip64.so.6\xff\n\
            no mapping /at/all\n\
            7f000000a000-7f000000c000 rw-p 00000000 00:00 0 [heap]\n\
            7f000000c000-7f000000e000 r--p 00000000 08:01 79  /srv/kfd\n";
        std::fs::write(folder.path().join("maps"), text).unwrap();
        let found = read(folder.path(), &BTreeSet::from([node(0x2a, 9)])).unwrap();
        let expected = Mappings {
            kfd: BTreeSet::from([node(5, 371), node(0x2a, 9)]),
            render: 1,
            libraries: BTreeSet::from(LIBRARIES),
        };
        assert_eq!(found, expected);
        assert_eq!(read(&folder.path().join("none"), &BTreeSet::new()), None);
    }
}
