//! Which container, pod, Slurm job and unit a process belongs to, by the paths of its cgroups alone.
//!
//! Takes in the paths as /proc/PID/cgroup has them, of any hierarchy; gives out a [`Belongs`]. Pure. Each file beside this one
//! knows the names that one kind of manager gives. A path of a form that none knows tells nothing, and harms nothing.

mod container;
mod pod;
mod slurm;
mod unit;

pub use container::{Container, Runtime};
pub use slurm::SlurmStep;

/// What the paths tell; `None` is "not told".
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Belongs {
    pub container: Option<Container>,
    /// UID of the Kubernetes pod, with its dashes; a static pod has 32 hexadecimal digits without any.
    pub pod_uid: Option<String>,
    pub slurm: Option<SlurmStep>,
    /// The systemd service or scope, where it is neither a container's nor Slurm's own.
    pub unit: Option<String>,
}

/// What the paths of one process tell together: each is asked in turn, the one worth most first (v2, or on v1 that of a
/// controller which everybody uses).
#[must_use]
pub fn belongs<'a>(paths: impl IntoIterator<Item = &'a str>) -> Belongs {
    let mut told = Belongs::default();
    for path in paths {
        let names: Vec<&str> = path.split('/').filter(|name| !name.is_empty()).collect();
        let pod = pod::find(&names);
        // A container that is run inside a pod's one, and a pod that is run inside a container (kind), are its own matter.
        let outer = pod.as_ref().map_or(&names[..], |(_, below)| &names[*below..]);
        // Where the pod is told, so is its container: another hierarchy may stop at the pod.
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
