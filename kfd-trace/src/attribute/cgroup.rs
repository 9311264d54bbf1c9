//! Finds the container, pod, Slurm job and unit of a process from its cgroup paths alone.
//!
//! In: paths as in /proc/PID/cgroup, of any hierarchy. Out: a [`Belongs`]. Pure. Each file beside this one
//! knows the names that one kind of manager uses. A path of an unknown form is ignored.

mod container;
mod pod;
mod slurm;
mod unit;

pub use container::{Container, Runtime};
pub use slurm::SlurmStep;

/// Result of parsing the paths; `None`: not known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Belongs {
    pub container: Option<Container>,
    /// UID of the Kubernetes pod, with its dashes; that of a static pod has 32 hexadecimal digits and no
    /// dashes.
    pub pod_uid: Option<String>,
    pub slurm: Option<SlurmStep>,
    /// The systemd service or scope, unless it is a container's or Slurm's own.
    pub unit: Option<String>,
}

/// Combines the paths of one process. The most useful path comes first (v2, or on v1 that of a widely used
/// controller); later paths fill gaps.
#[must_use]
pub fn belongs<'a>(paths: impl IntoIterator<Item = &'a str>) -> Belongs {
    let mut told = Belongs::default();
    for path in paths {
        let names: Vec<&str> = path.split('/').filter(|name| !name.is_empty()).collect();
        let pod = pod::find(&names);
        // A container inside a pod's container, and a pod inside a container (kind), are ignored.
        let outer = pod.as_ref().map_or(&names[..], |(_, below)| &names[*below..]);
        // The path that has the pod also has its container: another hierarchy may stop at the pod.
        if told.container.is_none() || (told.pod_uid.is_none() && pod.is_some()) {
            told.container = container::find(outer, pod.is_some()).or(told.container);
        }
        told.pod_uid = told.pod_uid.or(pod.map(|(uid, _)| uid));
        told.slurm = told.slurm.or_else(|| slurm::find(&names));
        told.unit = told.unit.or_else(|| unit::find(&names));
    }
    if told.container.is_some() || told.pod_uid.is_some() || told.slurm.is_some() {
        told.unit = None;
    }
    told
}

#[cfg(test)]
mod tests;
