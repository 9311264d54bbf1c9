//! Container ids: 64 hexadecimal digits, with a prefix that identifies the creator of the cgroup.

use serde::{Deserialize, Serialize};

/// A container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Container {
    /// 64 hexadecimal digits.
    pub id: String,
    /// `None`: the path has only the id.
    pub runtime: Option<Runtime>,
}

/// The container runtime, as far as a path shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Runtime {
    Docker,
    Podman,
    Containerd,
    CriO,
}

impl Runtime {
    /// The name in labels and JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Runtime::Docker => "docker",
            Runtime::Podman => "podman",
            Runtime::Containerd => "containerd",
            Runtime::CriO => "cri-o",
        }
    }

    /// That of a name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let all = [Runtime::Docker, Runtime::Podman, Runtime::Containerd, Runtime::CriO];
        all.into_iter().find(|runtime| runtime.name() == name)
    }
}

/// Prefixes of an id, by runtime. `-conmon` processes run beside a container, not in it, and are not listed.
const PREFIXES: [(&str, Runtime); 7] = [
    ("docker-", Runtime::Docker),
    ("cri-containerd-", Runtime::Containerd),
    ("nerdctl-", Runtime::Containerd),
    ("crio-", Runtime::CriO),
    // `podman run --cgroups=split` in a unit of its own (Quadlet).
    ("libpod-payload-", Runtime::Podman),
    ("libpod-", Runtime::Podman),
    // A pod created by containerd with runc's own driver although the kubelet's is systemd:
    // `SLICE:cri-containerd:ID`.
    ("cri-containerd:", Runtime::Containerd),
];

/// Folders that the cgroupfs driver creates for its containers, whose names are only an id.
const FOLDERS: [(&str, Runtime); 2] = [("docker", Runtime::Docker), ("libpod_parent", Runtime::Podman)];

const DIGITS: usize = 64;

/// The outermost container among these names. `in_pod`: the names are those below a pod's.
pub(super) fn find(names: &[&str], in_pod: bool) -> Option<Container> {
    names.iter().enumerate().find_map(|(at, name)| {
        let parent = at.checked_sub(1).map(|at| names[at]);
        prefixed(name).or_else(|| alone(name, parent, in_pod && at == 0))
    })
}

fn prefixed(name: &str) -> Option<Container> {
    let name = name.strip_suffix(".scope").unwrap_or(name);
    // For `SLICE:cri-containerd:ID`, the part after the slice.
    let name = name.split_once(':').map_or(name, |(_, rest)| rest);
    PREFIXES.iter().find_map(|(prefix, runtime)| {
        let id = name.strip_prefix(prefix).filter(|id| is_id(id))?;
        Some(Container { id: id.to_owned(), runtime: Some(*runtime) })
    })
}

/// A bare id, accepted in a pod or among other containers; elsewhere it may be anything.
fn alone(name: &str, parent: Option<&str>, in_pod: bool) -> Option<Container> {
    let by_folder = || FOLDERS.iter().find(|(folder, _)| parent == Some(folder)).map(|(_, runtime)| *runtime);
    if !is_id(name) {
        return None;
    }
    let runtime = by_folder();
    (in_pod || runtime.is_some() || parent.is_none()).then(|| Container { id: name.to_owned(), runtime })
}

fn is_id(text: &str) -> bool {
    text.len() == DIGITS && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}
