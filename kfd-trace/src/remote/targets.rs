//! Nodes of a fleet, as Prometheus' service discovery by files lists them (`file_sd_configs`). In: the text of a file. Out:
//! URLs.

use crate::runtime::exit::Stop;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

/// Bytes of a file at most: some 200,000 nodes.
const LARGEST: u64 = 16 << 20;

/// One entry of the list. Other labels say nothing about the way to a node.
#[derive(Debug, Deserialize)]
struct Group {
    #[serde(default)]
    targets: Vec<String>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

/// The nodes of these files, in their order, each once: `http://node1:20200`.
///
/// # Errors
/// One line: a file that cannot be read, or what in it is no target.
pub fn read(files: &[impl AsRef<Path>]) -> Result<Vec<String>, Stop> {
    let (mut known, mut all) = (BTreeSet::new(), Vec::new());
    for file in files.iter().map(AsRef::as_ref) {
        let failed = |why: String| Stop::failed(format!("{}: {why}", file.display()));
        let yaml = match file.extension().and_then(|name| name.to_str()) {
            Some("json") => false,
            Some("yml" | "yaml") => true,
            _ => {
                return Err(failed(
                    "Prometheus names such a file *.json, *.yml or *.yaml: rename it".to_owned(),
                ));
            }
        };
        let mut text = String::new();
        let opened = File::open(file).map_err(|error| failed(format!("cannot be read: {error}")))?;
        let read = opened.take(LARGEST + 1).read_to_string(&mut text);
        read.map_err(|error| failed(format!("cannot be read: {error}")))?;
        if text.len() as u64 > LARGEST {
            return Err(failed(format!("it is larger than {} MiB: split it", LARGEST >> 20)));
        }
        let urls = urls(&text, yaml).map_err(failed)?;
        all.extend(urls.into_iter().filter(|url| known.insert(url.clone())));
    }
    if all.is_empty() {
        return Err(Stop::failed(
            "there are no targets in the files: list them as [{\"targets\": [\"node1:20200\"]}]",
        ));
    }
    Ok(all)
}

/// The scheme is that of the label `__scheme__`; where `__metrics_path__` ends with `/metrics`, the daemon is below what
/// comes before.
fn urls(text: &str, yaml: bool) -> Result<Vec<String>, String> {
    let groups: Result<Vec<Group>, String> = if yaml {
        serde_saphyr::from_str(text).map_err(|error| error.to_string())
    } else {
        serde_json::from_str(text).map_err(|error| error.to_string())
    };
    let groups = groups.map_err(|why| {
        let first = why.lines().next().unwrap_or_default().to_owned();
        format!("it is no list of targets: {first}; see file_sd_configs of Prometheus")
    })?;
    let mut all = Vec::new();
    for Group { targets, labels } in groups {
        let label = |name: &str| labels.get(name).map(String::as_str);
        let scheme = label("__scheme__").unwrap_or("http");
        let prefix =
            label("__metrics_path__").and_then(|path| path.strip_suffix("/metrics")).unwrap_or_default();
        for target in targets {
            if target.contains(['/', '@', '?', '#']) {
                return Err(format!(
                    "a target is HOST:PORT, and {target:?} is not: put https into the label __scheme__"
                ));
            }
            all.push(format!("{scheme}://{target}{prefix}"));
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn both_forms_of_a_file_give_the_same_nodes_each_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let (json, yaml) = (folder.path().join("a.json"), folder.path().join("b.yml"));
        fs::write(
            &json,
            r#"[{"targets": ["node1:20200", "node2:20200"], "labels": {"rack": "7"}},
                {"targets": ["gate:443"], "labels": {"__scheme__": "https", "__metrics_path__": "/gpu7/metrics"}}]"#,
        )
        .expect("written");
        fs::write(
            &yaml,
            "- targets: ['node2:20200', '[::1]:20200']\n  labels:\n    rack: 8\n- targets: []\n",
        )
        .expect("written");
        let all = read(&[&json, &yaml]).expect("targets");
        let expected =
            ["http://node1:20200", "http://node2:20200", "https://gate:443/gpu7", "http://[::1]:20200"];
        assert_eq!(all, expected);
    }

    #[test]
    fn what_is_no_list_of_targets_is_one_line() {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, text, word) in [
            ("a.json", "{}", "no list of targets"),
            ("b.json", "[{\"targets\": [7]}]", "no list of targets"),
            ("c.yml", "a: [", "no list of targets"),
            ("d.json", "[{\"targets\": [\"https://node1\"]}]", "__scheme__"),
            ("e.json", "[{\"targets\": [\"ann:s@node1:1\"]}]", "HOST:PORT"),
            ("f.json", "[]", "no targets"),
            ("g.txt", "[]", "*.json"),
        ] {
            let file = folder.path().join(name);
            fs::write(&file, text).expect("written");
            let stop = read(&[&file]).expect_err(name);
            assert!(stop.line.contains(word) && stop.line.lines().count() == 1, "{name}: {stop:?}");
        }
        let stop = read(&[folder.path().join("none.json")]).expect_err("no file");
        assert!(stop.line.contains("none.json: cannot be read"), "{stop:?}");
    }
}
