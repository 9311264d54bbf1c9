//! Names of containers outside of pods, from the files in which Docker and Podman keep them. Uses no socket.
//!
//! Docker: `docker/containers/ID/config.v2.json`, `Name` with a slash before it (daemon/container/container.go).
//! Podman: `containers/storage/overlay-containers/containers.json` and `volatile-containers.json`, a list of objects
//! with `id` and `names` (containers/storage, containers.go).

use super::cgroup::{Container, Runtime};
use serde::Deserialize;
use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

/// Longest file that is read: of Podman's a few kB per container.
const LONGEST: u64 = 16 << 20;

const PODMAN: [&str; 2] = ["containers.json", "volatile-containers.json"];

#[derive(Deserialize)]
struct OfDocker {
    #[serde(rename = "Name")]
    name: String,
}

#[derive(Deserialize)]
struct OfPodman {
    id: String,
    #[serde(default)]
    names: Vec<String>,
}

/// `lib`: the parent of `docker` and `containers`, usually /var/lib. `None`: it has none, or only root may read it.
#[must_use]
pub fn name(lib: &Path, container: &Container) -> Option<String> {
    let name = match container.runtime {
        Some(Runtime::Docker) => docker(lib, &container.id),
        Some(Runtime::Podman) => podman(lib, &container.id),
        // Those of containerd and CRI-O are in pods, or have no names.
        Some(_) => None,
        None => docker(lib, &container.id).or_else(|| podman(lib, &container.id)),
    };
    name.filter(|name| !name.is_empty())
}

/// What was read of files that have not changed: processes begin more often than containers.
static KEPT: Mutex<BTreeMap<PathBuf, Kept>> = Mutex::new(BTreeMap::new());

/// Files that are kept; then all are read again.
const MOST: usize = 4096;

#[derive(Clone)]
struct Kept {
    changed: (SystemTime, u64),
    /// Names by id.
    names: Arc<HashMap<String, String>>,
}

fn docker(lib: &Path, id: &str) -> Option<String> {
    let read = |text: &[u8]| {
        let OfDocker { name } = serde_json::from_slice(text).ok()?;
        Some([(id.to_owned(), name.strip_prefix('/').unwrap_or(&name).to_owned())].into())
    };
    names(&lib.join("docker/containers").join(id).join("config.v2.json"), read)?.get(id).cloned()
}

fn podman(lib: &Path, id: &str) -> Option<String> {
    let folder = lib.join("containers/storage/overlay-containers");
    let read = |text: &[u8]| {
        let all: Vec<OfPodman> = serde_json::from_slice(text).ok()?;
        Some(all.into_iter().filter_map(|one| Some((one.id, one.names.into_iter().next()?))).collect())
    };
    PODMAN.iter().find_map(|file| names(&folder.join(file), read)?.get(id).cloned())
}

/// What a file has; read again where it has changed.
fn names(
    path: &Path,
    read: impl FnOnce(&[u8]) -> Option<HashMap<String, String>>,
) -> Option<Arc<HashMap<String, String>>> {
    let file = fs::metadata(path).ok()?;
    let changed = (file.modified().ok()?, file.len());
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = kept.get(path).filter(|known| known.changed == changed) {
        return Some(known.names.clone());
    }
    let names = Arc::new(read(&text(path)?)?);
    if kept.len() >= MOST {
        kept.clear();
    }
    kept.insert(path.to_owned(), Kept { changed, names: names.clone() });
    Some(names)
}

/// The whole file, unless it is longer than any of theirs.
fn text(path: &Path) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    let read = File::open(path).ok()?.take(LONGEST + 1).read_to_end(&mut text).ok()?;
    (read as u64 <= LONGEST).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(lib: &Path, path: &str, text: &str) {
        let path = lib.join(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("folders");
        fs::write(path, text).expect("a file");
    }

    fn of(lib: &Path, id: &str, runtime: Option<Runtime>) -> Option<String> {
        name(lib, &Container { id: id.to_owned(), runtime })
    }

    #[test]
    fn a_container_has_the_name_that_its_engine_keeps() {
        let root = tempfile::tempdir().expect("a folder");
        let lib = root.path();
        put(lib, "docker/containers/aa/config.v2.json", r#"{"ID":"aa","Name":"/train","State":{}}"#);
        let podman = r#"[{"id":"bb","names":["serve","alias"],"flags":{}},{"id":"dd"}]"#;
        put(lib, "containers/storage/overlay-containers/containers.json", podman);
        put(
            lib,
            "containers/storage/overlay-containers/volatile-containers.json",
            r#"[{"id":"cc","names":["short"]}]"#,
        );
        let (docker, podman) = (Some(Runtime::Docker), Some(Runtime::Podman));
        assert_eq!(
            (of(lib, "aa", docker), of(lib, "aa", None)),
            (Some("train".into()), Some("train".into()))
        );
        assert_eq!(
            (of(lib, "bb", podman), of(lib, "cc", podman)),
            (Some("serve".into()), Some("short".into()))
        );
        assert_eq!((of(lib, "dd", podman), of(lib, "ee", podman), of(lib, "bb", docker)), (None, None, None));
        assert_eq!(of(lib, "aa", Some(Runtime::Containerd)), None, "another engine's id");
    }

    #[test]
    fn a_container_that_is_renamed_has_its_new_name() {
        let root = tempfile::tempdir().expect("a folder");
        let path = "docker/containers/aa/config.v2.json";
        put(root.path(), path, r#"{"Name":"/train"}"#);
        assert_eq!(of(root.path(), "aa", None), Some("train".into()));
        put(root.path(), path, r#"{"Name":"/another"}"#);
        assert_eq!(of(root.path(), "aa", None), Some("another".into()));
    }

    #[test]
    fn what_is_no_such_file_has_no_name() {
        let root = tempfile::tempdir().expect("a folder");
        let lib = root.path();
        for (id, text) in [("aa", "{"), ("bb", r#"{"Name":"/"}"#), ("cc", r#"{"Name":7}"#)] {
            put(lib, &format!("docker/containers/{id}/config.v2.json"), text);
            assert_eq!(of(lib, id, Some(Runtime::Docker)), None, "{text}");
        }
        assert_eq!(of(&lib.join("none"), "aa", None), None);
    }
}
