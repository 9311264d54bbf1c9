//! Names of a pod and its container, from the entries that the kubelet creates in its log folders. Uses no
//! API.
//!
//! `pods/NAMESPACE_POD_UID/` (BuildPodLogsDirectory, pkg/kubelet/kuberuntime) and links
//! `containers/POD_NAMESPACE_CONTAINER-ID.log` (legacyLogSymlink). Kubernetes names contain no `_`.
//!
//! Processes begin and end more often than pods, and a node may have hundreds of these: what a folder has is kept,
//! and listed anew when something is not in it and the folder has changed since.

use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

/// Most folder entries read: a node has some hundred pods.
const MOST: usize = 100_000;

/// A folder that was listed within this time after a change may change again without another mtime: the kernel's
/// clock for these is coarse, and so are some file systems'.
const SETTLED: Duration = Duration::from_secs(2);

/// Names of a pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodNames {
    pub namespace: String,
    pub pod: String,
    /// `None`: the container is not known, or has no log.
    pub container: Option<String>,
}

/// The folders of the last `logs`: there is one in a process.
static KEPT: Mutex<Option<Kept>> = Mutex::new(None);

/// Finds a pod by its UID, and its container by the id. `logs`: the parent of `pods` and `containers`. `None`
/// if there is no such pod: no kubelet, or the pod was deleted before it was first asked for.
#[must_use]
pub fn read(logs: &Path, uid: &str, container_id: Option<&str>) -> Option<PodNames> {
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    if kept.as_ref().is_none_or(|kept| kept.logs != logs) {
        *kept = Some(Kept::new(logs));
    }
    kept.as_mut()?.find(uid, container_id)
}

struct Kept {
    logs: PathBuf,
    /// Names of folders by the UID of the pod.
    pods: Folder,
    /// Names of links by the id of the container.
    containers: Folder,
}

impl Kept {
    fn new(logs: &Path) -> Self {
        let pods = Folder::new(logs.join("pods"), |name| pod(name).map(|(_, _, uid)| uid));
        let containers = Folder::new(logs.join("containers"), |name| {
            name.strip_suffix(".log")?.rsplit_once('-').map(|(_, id)| id)
        });
        Kept { logs: logs.to_owned(), pods, containers }
    }

    fn find(&mut self, uid: &str, container_id: Option<&str>) -> Option<PodNames> {
        let (namespace, pod, _) = pod(self.pods.find(uid)?)?;
        let container = container_id.and_then(|id| {
            let name = self.containers.find(id)?.strip_prefix(&format!("{pod}_{namespace}_"))?;
            name.strip_suffix(&format!("-{id}.log")).filter(|name| !name.is_empty())
        });
        Some(PodNames {
            namespace: namespace.to_owned(),
            pod: pod.to_owned(),
            container: container.map(str::to_owned),
        })
    }
}

/// Namespace, name and UID of a pod.
fn pod(name: &str) -> Option<(&str, &str, &str)> {
    let mut parts = name.split('_');
    let parsed = (parts.next()?, parts.next()?, parts.next()?);
    let whole = parts.next().is_none() && !parsed.0.is_empty() && !parsed.1.is_empty();
    whole.then_some(parsed)
}

/// A folder as it was last listed.
struct Folder {
    path: PathBuf,
    key: fn(&str) -> Option<&str>,
    by_key: HashMap<String, String>,
    /// When it had last changed before it was listed; `None`: it may have changed since.
    changed: Option<SystemTime>,
}

impl Folder {
    fn new(path: PathBuf, key: fn(&str) -> Option<&str>) -> Self {
        Folder { path, key, by_key: HashMap::new(), changed: None }
    }

    /// The name with this key.
    fn find(&mut self, key: &str) -> Option<&str> {
        if !self.by_key.contains_key(key) && (self.changed.is_none() || self.changed != changed(&self.path)) {
            self.list(SystemTime::now());
        }
        self.by_key.get(key).map(String::as_str)
    }

    fn list(&mut self, now: SystemTime) {
        let settled = |changed: &SystemTime| now.duration_since(*changed).is_ok_and(|past| past >= SETTLED);
        // As long as one is not known whole, each search lists again.
        let before = changed(&self.path).filter(settled);
        let Ok(names) = names(&self.path) else {
            self.changed = None;
            return;
        };
        self.changed = before.filter(|_| names.len() < MOST);
        self.by_key.clear();
        for name in names {
            if let Some(key) = (self.key)(&name) {
                let key = key.to_owned();
                self.by_key.entry(key).or_insert(name);
            }
        }
    }
}

fn changed(folder: &Path) -> Option<SystemTime> {
    fs::metadata(folder).and_then(|folder| folder.modified()).ok()
}

/// # Errors
/// Where it cannot be read to its end, as without a free descriptor. A folder that is missing has none.
fn names(folder: &Path) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let names: Vec<OsString> =
        entries.take(MOST).map(|entry| Ok(entry?.file_name())).collect::<io::Result<_>>()?;
    Ok(names.into_iter().filter_map(|name| name.into_string().ok()).collect())
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

    /// Sets when a folder changed.
    fn change(folder: &Path, changed: SystemTime) {
        fs::File::open(folder).unwrap().set_modified(changed).unwrap();
    }

    #[test]
    fn a_folder_is_listed_again_only_where_it_lacks_something_and_has_changed() {
        let root = logs();
        let pods = root.path().join("pods");
        let long_ago = SystemTime::now() - Duration::from_secs(100);
        change(&pods, long_ago);
        let mut kept = Kept::new(root.path());
        assert_eq!(kept.find(UID, None), found(None));
        assert_eq!(kept.find("new", None), None);
        // Later changes than those that the mtime shows: they show whether the folder is read.
        fs::create_dir(pods.join("ml_other_new")).unwrap();
        change(&pods, long_ago);
        assert_eq!(kept.find("new", None), None, "nothing has changed");
        change(&pods, SystemTime::now());
        assert!(kept.find("new", None).is_some());
        fs::remove_dir_all(pods.join("ml_other_new")).unwrap();
        assert!(kept.find("new", None).is_some(), "a UID is never that of another pod");
        fs::create_dir(pods.join("ml_third_newer")).unwrap();
        change(&pods, SystemTime::now() - SETTLED / 2);
        assert!(kept.find("newer", None).is_some() && kept.find("new", None).is_none());
        fs::create_dir(pods.join("ml_fourth_newest")).unwrap();
        change(&pods, SystemTime::now() - SETTLED / 2);
        assert!(kept.find("newest", None).is_some(), "it was listed too soon after its change");
    }

    #[test]
    fn without_a_kubelet_there_are_no_names() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(read(root.path(), UID, Some("aa")), None);
    }

    #[test]
    fn a_folder_that_could_not_be_listed_is_listed_again() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("pods");
        let mut folder = Folder::new(path.clone(), |name| Some(name));
        fs::create_dir_all(path.join("a")).unwrap();
        let later = SystemTime::now() + 2 * SETTLED;
        folder.list(later);
        assert_eq!(folder.changed, changed(&path), "it is not listed again without a change");
        // As without a free descriptor: it exists and cannot be read.
        let aside = root.path().join("aside");
        fs::rename(&path, &aside).unwrap();
        fs::write(&path, "").unwrap();
        folder.list(later);
        assert_eq!(folder.changed, None);
        assert_eq!(folder.find("a"), Some("a"), "what was known stays");
        fs::remove_file(&path).unwrap();
        fs::rename(&aside, &path).unwrap();
        fs::create_dir(path.join("b")).unwrap();
        assert_eq!(folder.find("b"), Some("b"));
    }
}
