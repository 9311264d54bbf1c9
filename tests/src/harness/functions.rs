//! The functions of the loaded driver: what it supports. In: /proc/kallsyms, read once. Out: whether it has one.

use std::collections::HashSet;
use std::fs;
use std::sync::OnceLock;

/// Whether amdgpu has a function of this name that is not inlined.
///
/// # Panics
/// When the kernel's symbols cannot be read, or amdgpu is not loaded.
pub fn driver_has(function: &str) -> bool {
    static OWN: OnceLock<HashSet<String>> = OnceLock::new();
    let own = OWN.get_or_init(|| {
        let symbols = fs::read_to_string("/proc/kallsyms").expect("/proc/kallsyms");
        let own = of_amdgpu(&symbols);
        assert!(!own.is_empty(), "amdgpu is loaded");
        own
    });
    own.contains(function)
}

fn of_amdgpu(kallsyms: &str) -> HashSet<String> {
    let own = kallsyms.lines().filter_map(|line| line.strip_suffix("\t[amdgpu]"));
    own.filter_map(|line| Some(line.split(' ').nth(2)?.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::of_amdgpu;

    #[test]
    fn symbols_of_other_modules_do_not_count() {
        let own = of_amdgpu("ff81 T vfs_open\nffa1 t kfd_ioctl_criu\t[amdgpu]\nffa2 t kfd_x\t[kfdsim]\n");
        assert_eq!(own.into_iter().collect::<Vec<_>>(), ["kfd_ioctl_criu"]);
    }
}
