//! Nodes of a fleet, as Prometheus' service discovery by files lists them (`file_sd_configs`). In: files. Out: where each
//! node's daemon is.

use super::target::Target;
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

/// A node, or what its entry has instead, and why it is none.
pub type Listed = Result<Target, (String, String)>;

/// The nodes of these files, in their order, each once.
///
/// # Errors
/// One line: a file that cannot be read, or is no list.
pub fn read(files: &[impl AsRef<Path>]) -> Result<Vec<Listed>, Stop> {
    let (mut known, mut all) = (BTreeSet::new(), Vec::new());
    for file in files.iter().map(AsRef::as_ref) {
        let failed = |why: String| Stop::failed(format!("{}: {why}", file.display()));
        let yaml = match file.extension().and_then(|name| name.to_str()) {
            Some("json") => false,
            Some("yml" | "yaml") => true,
            _ => {
                let why = "Prometheus names such a file *.json, *.yml or *.yaml: rename it";
                return Err(failed(why.to_owned()));
            }
        };
        let mut text = String::new();
        let opened = File::open(file).map_err(|error| failed(format!("cannot be read: {error}")))?;
        let read = opened.take(LARGEST + 1).read_to_string(&mut text);
        read.map_err(|error| failed(format!("cannot be read: {error}")))?;
        if text.len() as u64 > LARGEST {
            return Err(failed(format!("it is larger than {} MiB: split it", LARGEST >> 20)));
        }
        all.extend(nodes(&text, yaml).map_err(failed)?.into_iter().filter(|node| match node {
            Ok(to) => known.insert((to.tls, to.host.clone(), to.port(), to.prefix.clone())),
            Err(_) => true,
        }));
    }
    if all.is_empty() {
        return Err(Stop::failed(
            "the files have no targets: list them as [{\"targets\": [\"node1:20200\"]}]",
        ));
    }
    Ok(all)
}

fn nodes(text: &str, yaml: bool) -> Result<Vec<Listed>, String> {
    let groups: Result<Vec<Group>, String> = if yaml {
        serde_saphyr::from_str(text).map_err(|error| error.to_string())
    } else {
        serde_json::from_str(text).map_err(|error| error.to_string())
    };
    let groups = groups.map_err(|why| {
        let first = why.lines().next().unwrap_or_default().to_owned();
        format!("it is no list of targets: {first}; see file_sd_configs of Prometheus")
    })?;
    let each = |Group { targets, labels }: Group| {
        let node = move |text: String| node(&text, &labels).map_err(|why| (without_login(&text), why));
        targets.into_iter().map(node).collect::<Vec<_>>()
    };
    Ok(groups.into_iter().flat_map(each).collect())
}

/// The scheme is that of the label `__scheme__`; the daemon is below what comes before `/metrics` in `__metrics_path__`.
fn node(text: &str, labels: &BTreeMap<String, String>) -> Result<Target, String> {
    let label = |name: &str| labels.get(name).map(String::as_str);
    let scheme = label("__scheme__").unwrap_or("http");
    if text.contains('@') {
        return Err("a target has no user and password: give them with --user".to_owned());
    }
    if text.contains(['/', '?', '#']) {
        return Err(
            "a target is HOST:PORT: put https into the label __scheme__, a path into __metrics_path__"
                .to_owned(),
        );
    }
    let path = label("__metrics_path__").unwrap_or("/metrics");
    let Some(prefix) = path.strip_suffix("/metrics") else {
        return Err(
            "its __metrics_path__ does not end with /metrics: where the daemon's API is, is not known"
                .to_owned(),
        );
    };
    let (target, _) = Target::parse(&format!("{scheme}://{text}{prefix}"))?;
    Ok(target)
}

fn without_login(text: &str) -> String {
    text.rsplit_once('@').map_or(text, |(_, place)| place).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn both_forms_of_a_file_give_the_same_nodes_each_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let (json, yaml) = (folder.path().join("a.json"), folder.path().join("b.yml"));
        let text = r#"[{"targets": ["node1:20200", "node2", "Node2:80"], "labels": {"rack": "7"}},
            {"targets": ["gate:443"], "labels": {"__scheme__": "https", "__metrics_path__": "/gpu7/metrics"}},
            {"targets": ["gate"], "labels": {"__scheme__": "https", "__metrics_path__": "/gpu8/metrics"}}]"#;
        fs::write(&json, text).expect("written");
        let text = "- targets: ['node2:80', '[::1]:20200']\n  labels:\n    rack: 8\n- targets: []\n";
        fs::write(&yaml, text).expect("written");
        let all = read(&[&json, &yaml]).expect("targets");
        let all: Vec<String> = all.into_iter().map(|node| node.expect("a node").to_string()).collect();
        let expected = [
            "http://node1:20200",
            "http://node2",
            "https://gate:443/gpu7",
            "https://gate/gpu8",
            "http://[::1]:20200",
        ];
        assert_eq!(all, expected);
    }

    #[test]
    fn an_entry_that_is_no_node_is_named_beside_the_others_and_without_its_password() {
        let text = r#"[{"targets": ["https://node1", "ann:s3cret@node2:1", "n\u00f6de:1", "node3:1"]},
            {"targets": ["node4:1"], "labels": {"__metrics_path__": "/prom"}},
            {"targets": ["node5:1"], "labels": {"__scheme__": "ftp"}}]"#;
        let all = nodes(text, false).expect("a list");
        let words =
            ["__scheme__", "--user", "ASCII", "", "does not end with /metrics", "neither http nor https"];
        for (node, word) in all.iter().zip(words) {
            match node {
                Ok(target) => assert_eq!((target.to_string(), word), ("http://node3:1".to_owned(), "")),
                Err((name, why)) => {
                    assert!(!word.is_empty() && why.contains(word), "{name}: {why}");
                    assert!(!format!("{name} {why}").contains("s3cret"), "{name}: {why}");
                }
            }
        }
        assert_eq!(all.len(), words.len());
    }

    #[test]
    fn what_is_no_list_of_targets_is_one_line() {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, text, word) in [
            ("a.json", "{}", "no list of targets"),
            ("b.json", "[{\"targets\": [7]}]", "no list of targets"),
            ("c.yml", "a: [", "no list of targets"),
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
