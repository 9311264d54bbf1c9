//! Resource use of a process, from /proc.

use super::status::number;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::Path;

/// Of one process at one moment. Sizes in KiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Footprint {
    /// Resident memory of all kinds (`VmRSS`).
    pub resident: u64,
    /// The highest value so far (`VmHWM`).
    pub highest: u64,
    /// The part of it not backed by a file: heap and stacks (`RssAnon`).
    pub anonymous: u64,
    pub threads: u64,
    pub descriptors: u64,
    /// Descriptors of BPF maps.
    pub maps: u64,
    /// Kernel memory of these maps, as the kernel reports it (`memlock`,
    /// kernel/bpf/syscall.c:bpf_map_show_fdinfo).
    pub map_memory: u64,
}

impl Footprint {
    /// For a process of this machine, as [`Footprint::read`].
    pub fn of(pid: u32) -> Result<Self> {
        Self::read(Path::new("/proc"), pid)
    }

    /// Reads the values of the process `pid` below `procfs`.
    ///
    /// # Errors
    /// When there is no such process, or its files have another format.
    pub fn read(procfs: &Path, pid: u32) -> Result<Self> {
        let root = procfs.join(pid.to_string());
        let text = |path: &Path| fs::read_to_string(path).with_context(|| format!("read {}", path.display()));
        let status = text(&root.join("status"))?;
        let mut footprint = Self {
            resident: number(&status, "VmRSS")?,
            highest: number(&status, "VmHWM")?,
            anonymous: number(&status, "RssAnon")?,
            threads: number(&status, "Threads")?,
            ..Self::default()
        };
        let mut bytes = 0;
        let fds = root.join("fd");
        for entry in fs::read_dir(&fds).with_context(|| format!("read {}", fds.display()))? {
            let entry = entry?;
            // a connection may close meanwhile
            let Ok(target) = fs::read_link(entry.path()) else { continue };
            footprint.descriptors += 1;
            if target.as_os_str() == "anon_inode:bpf-map" {
                footprint.maps += 1;
                bytes += number(&text(&root.join("fdinfo").join(entry.file_name()))?, "memlock")?;
            }
        }
        ensure!(footprint.descriptors > 0, "process {pid} has no descriptor");
        footprint.map_memory = bytes / 1024;
        Ok(footprint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn maps_are_distinguished_from_other_descriptors() {
        let root = tempfile::tempdir().unwrap();
        let own = root.path().join("7");
        fs::create_dir_all(own.join("fd")).unwrap();
        fs::create_dir_all(own.join("fdinfo")).unwrap();
        fs::write(
            own.join("status"),
            "VmHWM:\t 1000 kB\nVmRSS:\t   900 kB\nRssAnon:\t 400 kB\nThreads:\t2\n",
        )
        .unwrap();
        let kinds = ["anon_inode:bpf-map", "socket:[1]", "anon_inode:bpf-map", "anon_inode:bpf-prog"];
        for (fd, kind) in kinds.iter().enumerate() {
            symlink(kind, own.join(format!("fd/{fd}"))).unwrap();
            fs::write(own.join(format!("fdinfo/{fd}")), "flags:\t02\nmap_type:\t2\nmemlock:\t4096\n")
                .unwrap();
        }
        let expected = Footprint {
            resident: 900,
            highest: 1000,
            anonymous: 400,
            threads: 2,
            descriptors: 4,
            maps: 2,
            map_memory: 8,
        };
        assert_eq!(Footprint::read(root.path(), 7).unwrap(), expected);
        assert!(Footprint::read(root.path(), 8).is_err());
    }

    #[test]
    fn a_real_process_is_read() {
        let own = Footprint::of(std::process::id()).unwrap();
        assert!(
            own.resident > own.anonymous
                && own.anonymous > 0
                && own.highest >= own.resident
                && own.descriptors > 2,
            "{own:?}"
        );
    }
}
