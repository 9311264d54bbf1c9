//! Identifies the current loading of the driver: one that was removed and loaded again is a different
//! loading.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// One loading of amdgpu, identified by the inode number of its folder in sysfs. The kernel creates the
/// folder anew at each loading (`mod_sysfs_init`, kernel/module/sysfs.c) and does not reuse its number before
/// the next boot: numbers count up, with the number of overflows in the upper half (`__kernfs_new_node`,
/// fs/kernfs/dir.c). A built-in driver keeps its folder for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loading(u64);

impl Loading {
    /// `None`: the driver is not loaded.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn read(sysfs: &Path) -> io::Result<Option<Self>> {
        match fs::metadata(folder(sysfs)) {
            Ok(folder) => Ok(Some(Loading(folder.ino()))),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether a driver with its compute part exists: otherwise there is nothing to trace
    /// ([`findings`](super::findings::findings)).
    #[must_use]
    pub fn can_be_traced(sysfs: &Path) -> bool {
        folder(sysfs).exists() && sysfs.join("class/kfd").exists()
    }

    /// Whether this loading has ended, followed by another or not. One that cannot be read has not ended.
    #[must_use]
    pub fn is_over(self, sysfs: &Path) -> bool {
        matches!(Self::read(sysfs), Ok(now) if now != Some(self))
    }

    /// Whether it is loaded and not being removed. During removal no probe can be attached any more
    /// (`try_module_get` in `check_kprobe_address_safe`, kernel/kprobes.c); attached probes run until it is
    /// removed.
    #[must_use]
    pub fn stays(self, sysfs: &Path) -> bool {
        !is_in_state(sysfs, "going") && !self.is_over(sysfs)
    }

    /// Whether it is loaded but still initialising: what it offers may not exist yet.
    #[must_use]
    pub fn comes(self, sysfs: &Path) -> bool {
        is_in_state(sysfs, "coming") && !self.is_over(sysfs)
    }
}

/// Whether an AMD GPU is on the PCI bus, with a driver or without one: vendor 0x1002, and a display controller or a
/// processing accelerator (include/linux/pci_ids.h, PCI_BASE_CLASS_DISPLAY and PCI_CLASS_ACCELERATOR_PROCESSING). `None`:
/// there is no such bus, or it cannot be read.
pub(super) fn amd_gpu(sysfs: &Path) -> Option<bool> {
    let devices = fs::read_dir(sysfs.join("bus/pci/devices")).ok()?;
    let is_gpu = |device: &Path| {
        let has = |name, values: &[&str]| {
            let text = fs::read_to_string(device.join(name)).unwrap_or_default();
            values.iter().any(|value| text.starts_with(value))
        };
        has("vendor", &["0x1002"]) && has("class", &["0x03", "0x1200"])
    };
    Some(devices.filter_map(Result::ok).any(|device| is_gpu(&device.path())))
}

/// `live`, `coming` or `going` (`show_initstate`, kernel/module/sysfs.c).
fn is_in_state(sysfs: &Path, wanted: &str) -> bool {
    let state = fs::read_to_string(folder(sysfs).join("initstate"));
    state.is_ok_and(|state| state.trim() == wanted)
}

fn folder(sysfs: &Path) -> PathBuf {
    sysfs.join("module/amdgpu")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(sysfs: &Path, name: &str, state: &str) {
        fs::create_dir_all(sysfs.join(name)).unwrap();
        fs::write(sysfs.join(name).join("initstate"), state).unwrap();
    }

    #[test]
    fn a_driver_that_is_loaded_again_is_another_loading() {
        let root = tempfile::tempdir().unwrap();
        let sysfs = root.path();
        assert_eq!(Loading::read(sysfs).unwrap(), None);
        load(sysfs, "module/amdgpu", "live\n");
        let first = Loading::read(sysfs).unwrap().unwrap();
        assert!(!first.is_over(sysfs) && first.stays(sysfs));
        // Created before the other one is removed: file systems on disks reuse numbers.
        load(sysfs, "module/next", "live\n");
        fs::rename(sysfs.join("module/amdgpu"), sysfs.join("module/old")).unwrap();
        assert!(first.is_over(sysfs) && !first.stays(sysfs), "it was unloaded");
        fs::rename(sysfs.join("module/next"), sysfs.join("module/amdgpu")).unwrap();
        assert!(first.is_over(sysfs), "gone and back between two looks");
        assert!(!Loading::read(sysfs).unwrap().unwrap().is_over(sysfs));
    }

    #[test]
    fn a_driver_being_unloaded_still_exists_and_does_not_stay() {
        let root = tempfile::tempdir().unwrap();
        load(root.path(), "module/amdgpu", "going\n");
        let loading = Loading::read(root.path()).unwrap().unwrap();
        assert!(!loading.is_over(root.path()) && !loading.stays(root.path()) && !loading.comes(root.path()));
    }

    #[test]
    fn a_driver_that_is_coming_stays() {
        let root = tempfile::tempdir().unwrap();
        load(root.path(), "module/amdgpu", "coming\n");
        let loading = Loading::read(root.path()).unwrap().unwrap();
        assert!(loading.comes(root.path()) && loading.stays(root.path()));
        load(root.path(), "module/amdgpu", "live\n");
        assert!(!loading.comes(root.path()) && loading.stays(root.path()));
    }

    #[test]
    fn a_built_in_driver_stays() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("module/amdgpu/parameters")).unwrap();
        let loading = Loading::read(root.path()).unwrap().unwrap();
        assert!(loading.stays(root.path()));
    }

    #[test]
    fn a_driver_without_its_compute_part_is_nothing_to_trace() {
        let root = tempfile::tempdir().unwrap();
        let sysfs = root.path();
        fs::create_dir_all(sysfs.join("class/kfd")).unwrap();
        assert!(!Loading::can_be_traced(sysfs), "no driver");
        load(sysfs, "module/amdgpu", "live\n");
        assert!(Loading::can_be_traced(sysfs));
        fs::remove_dir(sysfs.join("class/kfd")).unwrap();
        assert!(!Loading::can_be_traced(sysfs));
    }

    #[test]
    fn an_amd_gpu_is_known_by_vendor_and_class() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(amd_gpu(root.path()), None, "there is no PCI bus");
        let mut number = 0;
        let mut add = |vendor: &str, class: &str| {
            number += 1;
            let device = root.path().join(format!("bus/pci/devices/0000:00:{number:02x}.0"));
            fs::create_dir_all(&device).unwrap();
            fs::write(device.join("vendor"), format!("{vendor}\n")).unwrap();
            fs::write(device.join("class"), format!("{class}\n")).unwrap();
            amd_gpu(root.path())
        };
        assert_eq!(add("0x8086", "0x030000"), Some(false), "another vendor's GPU");
        assert_eq!(add("0x1002", "0x040300"), Some(false), "the sound of an HDMI port");
        assert_eq!(add("0x1002", "0x120000"), Some(true), "as an MI300X");
    }

    #[test]
    fn what_cannot_be_read_is_not_over() {
        let root = tempfile::tempdir().unwrap();
        load(root.path(), "module/amdgpu", "live\n");
        let loading = Loading::read(root.path()).unwrap().unwrap();
        // ENOTDIR
        let file = root.path().join("module/amdgpu/initstate");
        assert!(Loading::read(&file).is_err() && !loading.is_over(&file));
    }
}
