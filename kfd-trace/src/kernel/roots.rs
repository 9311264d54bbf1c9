//! Where a machine's files are.

use super::types::TypesPlaces;
use std::path::{Path, PathBuf};

/// Where procfs and sysfs are mounted: `--path.procfs`, `--path.sysfs`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Roots {
    pub procfs: PathBuf,
    pub sysfs: PathBuf,
    /// Where the kubelet's log folders `pods` and `containers` are.
    pub logs: PathBuf,
    /// Where the data folders of Docker (`docker`) and Podman (`containers`) are.
    pub engines: PathBuf,
    /// Where the prolog of Slurm puts a file for each job.
    pub slurm: PathBuf,
    /// Also read the arguments of processes; they may hold secrets.
    pub arguments: bool,
    /// Where types of a driver without BTF may be.
    pub types: TypesPlaces,
}

impl Default for Roots {
    fn default() -> Self {
        Roots::under(Path::new("/"))
    }
}

impl Roots {
    /// `proc`, `sys`, `var/log`, `var/lib` and `run` under one folder: a fixture, or a host's root inside a container.
    #[must_use]
    pub fn under(root: &Path) -> Self {
        Roots {
            procfs: root.join("proc"),
            sysfs: root.join("sys"),
            logs: root.join("var/log"),
            engines: root.join("var/lib"),
            slurm: root.join("run/kfd-trace/slurm"),
            arguments: false,
            types: TypesPlaces::default(),
        }
    }
}

/// Where tracefs may be mounted; the kernel itself mounts the second one with debugfs (`tracing_init_dentry`,
/// kernel/trace/trace.c).
pub(crate) fn tracefs_folders(sysfs: &Path) -> [PathBuf; 2] {
    ["kernel/tracing", "kernel/debug/tracing"].map(|place| sysfs.join(place))
}
