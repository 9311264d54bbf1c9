//! Names of a pod and its container, from the entries that the kubelet creates in its log folders. Uses no
//! API.
//!
//! `pods/NAMESPACE_POD_UID/` (BuildPodLogsDirectory, pkg/kubelet/kuberuntime) and links
//! `containers/POD_NAMESPACE_CONTAINER-ID.log` (legacyLogSymlink). Kubernetes names contain no `_`.

use std::ffi::OsString;
use std::fs;
use std::path::Path;

/// Most folder entries read: a node has some hundred pods.
const MOST: usize = 100_000;

/// Names of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodNames {
    pub namespace: String,
    pub pod: String,
    /// `None`: the container is not known, or has no log.
    pub container: Option<String>,
}

/// Finds a pod by its UID, and its container by the id. `logs`: the parent of `pods` and `containers`. `None`
/// if there is no such pod: no kubelet, or the pod was deleted.
#[must_use]
pub fn read(logs: &Path, uid: &str, container_id: Option<&str>) -> Option<PodNames> {
    let (namespace, pod) = names(&logs.join("pods")).find_map(|name| {
        let mut parts = name.split('_');
        let parsed = (parts.next()?, parts.next()?, parts.next()?);
        let whole = parts.next().is_none() && parsed.2 == uid && !parsed.0.is_empty() && !parsed.1.is_empty();
        whole.then(|| (parsed.0.to_owned(), parsed.1.to_owned()))
    })?;
    let container = container_id.and_then(|id| {
        let (before, after) = (format!("{pod}_{namespace}_"), format!("-{id}.log"));
        let own = |name: String| Some(name.strip_prefix(&before)?.strip_suffix(&after)?.to_owned());
        names(&logs.join("containers")).find_map(own).filter(|name| !name.is_empty())
    });
    Some(PodNames { namespace, pod, container })
}

fn names(folder: &Path) -> impl Iterator<Item = String> + use<> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().take(MOST);
    entries.map(|entry| entry.file_name()).filter_map(|name: OsString| name.into_string().ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStringExt as _;
    use std::os::unix::fs::symlink;

    const UID: &str = "6d1f4a3c-0b7e-4d8a-9c11-5e2f7a90b3c4";

    fn logs() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let own = root.path().join("pods").join(format!("ml_train-0_{UID}/trainer"));
        fs::create_dir_all(own).unwrap();
        fs::create_dir(root.path().join("containers")).unwrap();
        root
    }

    /// The kubelet's link, which dangles once the log is rotated away.
    fn link(root: &Path, name: &str) {
        symlink("/var/log/pods/gone", root.join("containers").join(name)).unwrap();
    }

    fn found(container: Option<&str>) -> Option<PodNames> {
        let names = PodNames { namespace: "ml".into(), pod: "train-0".into(), container: None };
        Some(PodNames { container: container.map(str::to_owned), ..names })
    }

    #[test]
    fn a_pod_and_its_container_are_found_by_folder_names() {
        let root = logs();
        for name in ["train-0_ml_side-car-aa.log", "train-0_ml_trainer-bb.log", "other_ml_x-cc.log"] {
            link(root.path(), name);
        }
        let of = |id| read(root.path(), UID, id);
        assert_eq!(of(Some("aa")), found(Some("side-car")));
        assert_eq!(of(Some("bb")), found(Some("trainer")));
        assert_eq!(of(Some("cc")), found(None), "of another pod");
        assert_eq!(of(None), found(None));
        assert_eq!(read(root.path(), "another", None), None);
    }

    #[test]
    fn names_of_another_form_are_skipped() {
        let root = logs();
        for name in [format!("a_b_c_{UID}"), format!("_x_{UID}"), UID.to_owned(), "a_b".to_owned()] {
            fs::create_dir(root.path().join("pods").join(name)).unwrap();
        }
        let strange = OsString::from_vec(vec![0xff, b'_']);
        fs::create_dir(root.path().join("pods").join(strange)).unwrap();
        link(root.path(), "train-0_ml_-dd.log");
        assert_eq!(read(root.path(), UID, Some("dd")), found(None));
    }

    #[test]
    fn without_a_kubelet_there_are_no_names() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(read(root.path(), UID, Some("aa")), None);
    }
}
