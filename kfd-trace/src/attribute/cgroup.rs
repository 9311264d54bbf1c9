//! Finds the container, pod, Slurm job and unit of a process from its cgroup paths alone.
//!
//! In: paths as in /proc/PID/cgroup, of any hierarchy. Out: a [`Belongs`]. Pure. Each file beside this one
//! knows the names that one kind of manager uses. A path of an unknown form is ignored.

mod container;
mod pod;
mod slurm;
mod unit;

pub use container::{Container, Runtime};
use serde::{Deserialize, Serialize};
pub use slurm::SlurmStep;

/// Result of parsing the paths; `None`: not known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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
    let mut found = Belongs::default();
    for path in paths {
        let names: Vec<&str> = path.split('/').filter(|name| !name.is_empty()).collect();
        let pod = pod::find(&names);
        // A container inside a pod's container, and a pod inside a container (kind), are ignored.
        let outer = pod.as_ref().map_or(&names[..], |(_, below)| &names[*below..]);
        // The path that has the pod also has its container: another hierarchy may stop at the pod.
        if found.container.is_none() || (found.pod_uid.is_none() && pod.is_some()) {
            found.container = container::find(outer, pod.is_some()).or(found.container);
        }
        found.pod_uid = found.pod_uid.or(pod.map(|(uid, _)| uid));
        found.slurm = found.slurm.or_else(|| slurm::find(&names));
        found.unit = found.unit.or_else(|| unit::find(&names));
    }
    if found.container.is_some() || found.pod_uid.is_some() || found.slurm.is_some() {
        found.unit = None;
    }
    found
}

/// The beginning of a cgroup path that managers of the node have made. What is below that, its tenant may have made, under
/// any name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share<'p> {
    /// Up to the outermost container, pod, Slurm job or user's slice: all that is in it is one tenant's, whatever its users.
    Whole(&'p str),
    /// Else up to the outermost unit, which may have several users; empty if there is none. A service that may make cgroups
    /// (`Delegate=`) can name them as containers are named, and so be several tenants.
    ByUser(&'p str),
}

/// Which share of a node a cgroup path is in.
#[must_use]
pub fn share(path: &str) -> Share<'_> {
    let mut names: Vec<&str> = Vec::new();
    let mut unit = "";
    let mut end = 0;
    for part in path.split_inclusive('/') {
        end += part.len();
        let name = part.trim_end_matches('/');
        if name.is_empty() {
            continue;
        }
        names.push(name);
        let upto = path[..end].trim_end_matches('/');
        if unit.is_empty() && unit::find(&[name]).is_some() {
            unit = upto;
        }
        if is_of_user(&names)
            || pod::find(&names).is_some()
            || container::find(&names, false).is_some()
            || slurm::find(&names).is_some()
        {
            return Share::Whole(upto);
        }
    }
    Share::ByUser(unit)
}

/// systemd's slice of one user. Its parent may be above what a tracer in a namespace sees.
fn is_of_user(names: &[&str]) -> bool {
    let [.., parent, name] = names else { return false };
    ["user.slice", ".."].contains(parent) && name.starts_with("user-") && name.ends_with(".slice")
}

#[cfg(test)]
mod tests;
