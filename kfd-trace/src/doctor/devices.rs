//! Relevant device numbers, from sysfs; the host's own /dev/kfd; and how much memory of each chip is
//! allocated.

use super::files::Files;
use super::seen::{Chip, Device, Node};
use crate::attribute::Topology;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Read as _;
use std::path::Path;

/// Device numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Devices {
    pub kfd: Option<Device>,
    /// DRM nodes of amdgpu, card and render nodes.
    pub drm: BTreeSet<Device>,
}

impl Devices {
    /// Reads `class/kfd/kfd/dev`, and `dev` of the nodes below `class/drm` whose driver is amdgpu.
    #[must_use]
    pub fn read(sysfs: &Path) -> Devices {
        let folders = fs::read_dir(sysfs.join("class/drm")).into_iter().flatten().flatten();
        let of_amdgpu = folders.map(|entry| entry.path()).filter(|folder| {
            let driver = fs::read_link(folder.join("device/driver"));
            driver.is_ok_and(|driver| driver.file_name().is_some_and(|name| name == "amdgpu"))
        });
        Devices {
            kfd: number(&sysfs.join("class/kfd/kfd/dev")),
            drm: of_amdgpu.filter_map(|folder| number(&folder.join("dev"))).collect(),
        }
    }
}

/// The beginning of a sysfs file, which has at most one page.
fn small(path: &Path) -> Option<String> {
    let mut text = String::new();
    File::open(path).ok()?.take(4096).read_to_string(&mut text).ok()?;
    Some(text)
}

/// Parses a number such as `511:0`.
fn number(path: &Path) -> Option<Device> {
    let text = small(path)?;
    let (major, minor) = text.trim().split_once(':')?;
    Some(Device { major: major.parse().ok()?, minor: minor.parse().ok()? })
}

/// /dev/kfd as the host's first process sees it, which is also right in a container with the host's procfs.
/// If that process may not be inspected: as this process sees it. `None`: the node does not exist, or is
/// another device of that name.
pub fn host_node(files: &impl Files, procfs: &Path, kfd: Option<Device>) -> Option<Node> {
    let of_first = files.stat(&procfs.join("1/root/dev/kfd"));
    let stat = of_first.or_else(|_| files.stat(Path::new("/dev/kfd"))).ok()?;
    (kfd.is_some() && stat.number == kfd).then_some(stat.node)
}

/// The chips of a topology, by PCI address.
#[must_use]
pub fn chips(sysfs: &Path, topology: &Topology) -> Vec<Chip> {
    let mut chips: Vec<Chip> = Vec::new();
    for gpu in &topology.gpus {
        let Some(pci) = &gpu.pci else { continue };
        if let Some(chip) = chips.iter_mut().find(|chip| chip.pci == *pci) {
            chip.gpu_ids.insert(gpu.gpu_id);
            continue;
        }
        let used = small(&sysfs.join("bus/pci/devices").join(pci).join("mem_info_vram_used"));
        let vram_used = used.and_then(|text| text.trim().parse().ok());
        chips.push(Chip { pci: pci.clone(), gpu_ids: BTreeSet::from([gpu.gpu_id]), vram_used });
    }
    chips
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attribute::Gpu;
    use crate::doctor::files::Stat;
    use std::collections::BTreeMap;
    use std::io;
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    const KFD: Device = Device { major: 511, minor: 0 };

    fn put(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn numbers_are_those_of_kfd_and_of_amdgpus_nodes() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(Devices::read(root.path()), Devices::default());
        put(root.path(), "class/kfd/kfd/dev", "511:0\n");
        for (name, dev, driver) in [
            ("renderD128", "226:128\n", "amdgpu"),
            ("renderD129", "226:129\n", "xe"),
            ("card0", "226:0\n", "amdgpu"),
        ] {
            put(root.path(), &format!("class/drm/{name}/dev"), dev);
            let device = root.path().join("class/drm").join(name).join("device");
            fs::create_dir(&device).unwrap();
            symlink(Path::new("../../../../bus/pci/drivers").join(driver), device.join("driver")).unwrap();
        }
        put(root.path(), "class/drm/version", "drm 1.1.0\n");
        let of = |minor| Device { major: 226, minor };
        let expected = Devices { kfd: Some(KFD), drm: BTreeSet::from([of(0), of(128)]) };
        assert_eq!(Devices::read(root.path()), expected);
    }

    struct FakeFiles(BTreeMap<PathBuf, Stat>);

    impl Files for FakeFiles {
        fn stat(&self, path: &Path) -> io::Result<Stat> {
            self.0.get(path).copied().ok_or_else(|| io::ErrorKind::PermissionDenied.into())
        }
    }

    #[test]
    fn the_hosts_node_is_that_of_its_first_process() {
        let stat = |inode, number| Stat {
            node: Node { filesystem: Device { major: 0, minor: 5 }, inode },
            number: Some(number),
        };
        let own = [(PathBuf::from("/dev/kfd"), stat(9, KFD))];
        let first = (PathBuf::from("/host/1/root/dev/kfd"), stat(371, KFD));
        let inode = |files: &[(PathBuf, Stat)], kfd| {
            host_node(&FakeFiles(files.iter().cloned().collect()), Path::new("/host"), kfd)
                .map(|node| node.inode)
        };
        assert_eq!(inode(&[own[0].clone(), first], Some(KFD)), Some(371));
        assert_eq!(inode(&own, Some(KFD)), Some(9), "the node of the first process cannot be read");
        assert_eq!(inode(&own, None), None, "whether it is KFD's is not known");
        let other = [(PathBuf::from("/dev/kfd"), stat(9, Device { major: 1, minor: 3 }))];
        assert_eq!((inode(&other, Some(KFD)), inode(&[], Some(KFD))), (None, None));
    }

    #[test]
    fn partitions_of_a_chip_share_its_memory() {
        let root = tempfile::tempdir().unwrap();
        put(root.path(), "bus/pci/devices/0000:c1:00.0/mem_info_vram_used", "4096\n");
        let gpu = |gpu_id, pci: Option<&str>| Gpu { gpu_id, pci: pci.map(str::to_owned), ..Gpu::default() };
        let gpus = vec![
            gpu(1, Some("0000:c1:00.0")),
            gpu(2, Some("0000:c1:00.0")),
            gpu(3, Some("0000:c2:00.0")),
            gpu(4, None),
        ];
        let found = chips(root.path(), &Topology { gpus, errors: Vec::new() });
        let chip = |pci: &str, ids: &[u32], vram_used| Chip {
            pci: pci.to_owned(),
            gpu_ids: ids.iter().copied().collect(),
            vram_used,
        };
        assert_eq!(found, [chip("0000:c1:00.0", &[1, 2], Some(4096)), chip("0000:c2:00.0", &[3], None)]);
    }
}
