//! The files that `kfd-trace driver-types` makes from the sources of Debian's kernels: all that is known of a
//! driver by its file equals what its own BTF says. `cargo xtask fixtures` lays out kernels and files below
//! $KFD_TRACE_FIXTURES as <series>/{proc,sys} and <series>/types.btf.

mod fixture;

use kfd_trace::kernel::types::{TypesPlaces, TypesSource};
use kfd_trace::kernel::{Kernel, Roots};
use kfd_trace::probes::facts::{Facts, ReturnRoom};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// Kernels whose module has BTF to compare with.
const WITH_BTF: [&str; 4] = ["6.1", "6.12", "7.2", "7.3"];

/// `None`: Debian no longer has it, or not what its types file is made of.
fn series(name: &str) -> Option<PathBuf> {
    fixture::folder(name).filter(|folder| !folder.join("TYPES-LEFT-OUT").exists())
}

/// The machine of a series without the module's BTF, and without the kernel's if `vmlinux` is false; with its
/// types file.
fn without_btf(from: &Path, vmlinux: bool) -> (tempfile::TempDir, Roots) {
    let root = tempfile::tempdir().expect("a folder");
    symlink(from.join("proc"), root.path().join("proc")).expect("procfs");
    let sys = root.path().join("sys");
    fs::create_dir_all(sys.join("kernel/btf")).expect("sysfs");
    symlink(from.join("sys/module"), sys.join("module")).expect("modules");
    symlink(from.join("sys/class"), sys.join("class")).ok();
    if vmlinux {
        symlink(from.join("sys/kernel/btf/vmlinux"), sys.join("kernel/btf/vmlinux")).expect("vmlinux");
    }
    let types = TypesPlaces { file: Some(from.join("types.btf")), ..TypesPlaces::default() };
    let roots = Roots { types, ..Roots::under(root.path()) };
    (root, roots)
}

fn facts(name: &str, roots: &Roots) -> (Facts, TypesSource) {
    let kernel = Kernel::read(roots).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_eq!(kernel.btf_problems, [""; 0], "{name}");
    (Facts::gather(&kernel), kernel.types)
}

/// Shows what differs, not all that there is. A module's BTF leaves out the arguments of ioctls that no
/// function of it takes by their type.
fn same(found: &Facts, expected: &Facts, name: &str) {
    let mut found = found.clone();
    assert!(found.ioctl_sizes.len() >= expected.ioctl_sizes.len(), "{name}");
    found.ioctl_sizes.retain(|ioctl, _| expected.ioctl_sizes.contains_key(ioctl));
    let lines = |facts: &Facts| format!("{facts:#?}").lines().map(str::to_owned).collect::<Vec<_>>();
    let (found_lines, expected_lines) = (lines(&found), lines(expected));
    let differ: Vec<_> =
        found_lines.iter().zip(&expected_lines).filter(|(one, other)| one != other).collect();
    assert!(
        found == *expected,
        "{name}: {} lines of {}, {differ:#?}",
        found_lines.len(),
        expected_lines.len()
    );
}

#[test]
#[ignore = "needs cargo xtask fixtures"]
fn a_file_equals_the_modules_own_types_in_every_fact() {
    for name in WITH_BTF {
        let Some(folder) = series(name) else { continue };
        let (expected, source) = facts(name, &Roots::under(&folder));
        assert_eq!(source, TypesSource::Module, "{name}");
        assert!(expected.mqds.is_some() && expected.evict_parameters.is_some(), "{name}");
        let (_root, roots) = without_btf(&folder, true);
        let (found, source) = facts(name, &roots);
        assert!(matches!(source, TypesSource::File(_)), "{name}: {source}");
        same(&found, &expected, name);
    }
}

#[test]
#[ignore = "needs cargo xtask fixtures"]
fn a_file_stands_in_for_the_kernels_own_types_too() {
    for name in WITH_BTF {
        let Some(folder) = series(name) else { continue };
        let (expected, _) = facts(name, &Roots::under(&folder));
        // Of links on many functions it has nothing: then only those are used that have enough room anyway.
        let expected = Facts { return_room: ReturnRoom::Unknown, session: None, ..expected };
        let (_root, roots) = without_btf(&folder, false);
        same(&facts(name, &roots).0, &expected, name);
    }
}
