//! Open descriptors of a task: which are of /dev/kfd and of amdgpu's DRM nodes, by st_rdev, and what fdinfo
//! reports for them.

use super::devices::Devices;
use super::files::Files;
use super::progress::Progress;
use super::seen::{DescriptorTotals, DrmDescriptor, KfdDescriptor, Node};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{ErrorKind, Read as _};
use std::path::Path;

/// Most bytes read from an fdinfo file.
const FDINFO: u64 = 64 << 10;
/// Descriptors of each kind that are kept of one process. A process of ROCm has a few per GPU.
pub(super) const KEPT: usize = 64;
/// DRM descriptors of one process whose fdinfo is read: a user can open half a million.
const DRM_READ: usize = 4_096;
/// Bit in `flags` of fdinfo, octal (include/uapi/asm-generic/fcntl.h; 0o2000000 on x86 and arm64).
const O_CLOEXEC: u32 = 0o2_000_000;

/// Open descriptors of a task.
#[derive(Debug, Default)]
pub(super) struct OpenDescriptor {
    pub(super) kfd: Vec<KfdDescriptor>,
    pub(super) drm: Vec<DrmDescriptor>,
    pub(super) totals: DescriptorTotals,
    /// They may not be read.
    pub(super) closed: bool,
}

/// What is read of descriptors, and how many are kept.
pub(super) struct DescriptorReader<'a, F> {
    pub(super) files: &'a F,
    pub(super) devices: &'a Devices,
    /// The host's /dev/kfd: a descriptor of it decides the verdict, so one is always kept.
    pub(super) host_node: Option<Node>,
    pub(super) progress: &'a Progress,
    /// Of each kind, at most.
    pub(super) keep: usize,
}

/// Reads `<task>/fd` and, for matching descriptors, `<task>/fdinfo`.
pub(super) fn read(reader: &DescriptorReader<'_, impl Files>, task: &Path) -> OpenDescriptor {
    let DescriptorReader { files, devices, .. } = reader;
    let mut clients = BTreeMap::new();
    let mut open = OpenDescriptor::default();
    let entries = match fs::read_dir(task.join("fd")) {
        Ok(entries) => entries,
        Err(error) => return OpenDescriptor { closed: error.kind() == ErrorKind::PermissionDenied, ..open },
    };
    for entry in entries.flatten() {
        if reader.progress.is_cancelled() {
            break;
        }
        let Some(fd) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        let stat = match files.stat(&entry.path()) {
            Ok(stat) => stat,
            Err(error) => {
                // The folder belongs to the effective user; following its links needs ptrace permission
                // (proc_pid_get_link).
                open.closed |= error.kind() == ErrorKind::PermissionDenied;
                continue;
            }
        };
        let Some(number) = stat.number else { continue };
        let info = || fdinfo(&task.join("fdinfo").join(fd.to_string()));
        if Some(number) == devices.kfd {
            open.totals.kfd += 1;
            let is_host = |node| Some(node) == reader.host_node;
            let is_first_host = || is_host(stat.node) && !open.kfd.iter().any(|kept| is_host(kept.node));
            if open.kfd.len() < reader.keep || is_first_host() {
                open.kfd.push(KfdDescriptor { fd, node: stat.node, cloexec: cloexec(&info()) });
            }
        } else if devices.drm.contains(&number) {
            open.totals.drm += 1;
            if open.totals.drm > DRM_READ {
                open.totals.vram_incomplete = true;
                continue;
            }
            let drm = drm(fd, &info());
            if let Some(pdev) = &drm.pdev {
                // Descriptors of one client report the same values.
                clients.insert((pdev.clone(), drm.client_id), drm.vram_bytes.unwrap_or(0));
            }
            if open.drm.len() < reader.keep {
                open.drm.push(drm);
            }
        }
    }
    for ((pdev, _), bytes) in clients {
        let sum = open.totals.vram.entry(pdev).or_default();
        *sum = sum.saturating_add(bytes);
    }
    open.kfd.sort_by_key(|descriptor| descriptor.fd);
    open.drm.sort_by_key(|descriptor| descriptor.fd);
    open
}

fn fdinfo(path: &Path) -> String {
    let mut bytes = Vec::new();
    // A file that cannot be read is treated as empty.
    let _ = File::open(path).and_then(|file| file.take(FDINFO).read_to_end(&mut bytes));
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The value after `key:`.
fn value<'a>(info: &'a str, key: &str) -> Option<&'a str> {
    let value = |line: &'a str| line.strip_prefix(key)?.strip_prefix(':');
    info.lines().find_map(value).map(str::trim)
}

fn cloexec(info: &str) -> Option<bool> {
    let flags = u32::from_str_radix(value(info, "flags")?, 8).ok()?;
    Some(flags & O_CLOEXEC != 0)
}

fn drm(fd: u32, info: &str) -> DrmDescriptor {
    let text = |key| value(info, key).map(str::to_owned);
    DrmDescriptor {
        fd,
        driver: text("drm-driver"),
        pdev: text("drm-pdev"),
        client_id: value(info, "drm-client-id").and_then(|id| id.parse().ok()),
        vram_bytes: value(info, "drm-memory-vram").and_then(bytes),
    }
}

/// `1024 KiB`, `7 MiB`, or bytes.
fn bytes(text: &str) -> Option<u64> {
    let (number, unit) = text.split_once(' ').unwrap_or((text, ""));
    let scale = match unit.trim() {
        "" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(scale)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::files::Real;
    use crate::doctor::seen::Device;

    #[test]
    fn fdinfo_is_parsed() {
        let info = "pos:\t0\nflags:\t02100002\nmnt_id:\t27\ndrm-driver:\tamdgpu\ndrm-client-id:\t44\n\
                    drm-pdev:\t0000:c1:00.0\ndrm-memory-vram:\t2048 KiB\n";
        let expected = DrmDescriptor {
            fd: 5,
            driver: Some("amdgpu".to_owned()),
            pdev: Some("0000:c1:00.0".to_owned()),
            client_id: Some(44),
            vram_bytes: Some(2 << 20),
        };
        assert_eq!((drm(5, info), cloexec(info)), (expected, Some(true)));
        assert_eq!(cloexec("flags:\t0100002\n"), Some(false));
        assert_eq!((cloexec(""), cloexec("flags:\t9\n")), (None, None));
        assert_eq!(drm(5, "drm-memory-vram:\tlots KiB\n").vram_bytes, None);
        assert_eq!((bytes("7 MiB"), bytes("12"), bytes("1 GiB")), (Some(7 << 20), Some(12), None));
        assert_eq!(bytes("18446744073709551615 KiB"), None);
    }

    #[test]
    fn a_file_of_this_machine_is_identified_by_its_numbers() {
        let null = Real.stat(Path::new("/dev/null")).unwrap();
        assert_eq!(null.number, Some(Device { major: 1, minor: 3 }));
        assert_eq!(Real.stat(Path::new("/proc/self/exe")).unwrap().number, None);
        let file = File::open("/dev/null").unwrap();
        let fd = std::os::fd::AsRawFd::as_raw_fd(&file);
        assert_eq!(Real.stat(Path::new(&format!("/proc/self/fd/{fd}"))).unwrap(), null);
    }
}
