//! What is linked into the program, and under which licence: names from cargo's metadata, texts from the
//! crates.

use crate::run;
use crate::vm::guest;
use anyhow::{Context as _, Result};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// Packages whose code is shipped.
const ROOTS: [&str; 2] = ["kfd-trace", "kfd-trace-ebpf"];
const PREFACE: &str = "\
kfd-trace is linked with the libraries below, with Rust's standard library (MIT OR Apache-2.0, Copyright (c) The Rust
Project Contributors) and with musl (MIT, Copyright (c) 2005-2020 Rich Felker, et al.).
";

#[derive(Debug, Deserialize)]
pub(super) struct Metadata {
    packages: Vec<Package>,
    resolve: Resolve,
}

#[derive(Debug, Deserialize)]
struct Package {
    id: String,
    name: String,
    version: String,
    license: Option<String>,
    /// `None`: of the workspace.
    source: Option<String>,
    manifest_path: PathBuf,
    targets: Vec<Target>,
}

#[derive(Debug, Deserialize)]
struct Target {
    kind: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Debug, Deserialize)]
struct Node {
    id: String,
    deps: Vec<Dependency>,
}

#[derive(Debug, Deserialize)]
struct Dependency {
    pkg: String,
    dep_kinds: Vec<DependencyKind>,
}

#[derive(Debug, Deserialize)]
struct DependencyKind {
    /// `None`: neither for builds nor for tests.
    kind: Option<String>,
}

/// The list, and each text once.
pub(super) fn notices(target: &str) -> Result<String> {
    let reported = run::output(guest::cargo().args([
        "metadata",
        "--locked",
        "--format-version=1",
        "--filter-platform",
        target,
    ]))?;
    let metadata: Metadata = serde_json::from_str(&reported).context("cannot understand cargo's metadata")?;
    let linked = linked(&metadata);
    let mut texts = BTreeMap::<String, Vec<String>>::new();
    let mut list = String::from(PREFACE);
    for package in linked {
        let licence = package.license.as_deref().unwrap_or("see below");
        let name = format!("{} {}", package.name, package.version);
        let _ = writeln!(list, "\n{name}: {licence}");
        let folder = package.manifest_path.parent().unwrap_or(Path::new("/"));
        for text in licence_texts(folder)? {
            texts.entry(text).or_default().push(name.clone());
        }
    }
    for (text, names) in &texts {
        let _ = write!(list, "\n\n======== {}\n\n{}\n", names.join(", "), text.trim_end());
    }
    Ok(list)
}

/// Packages of third parties, without those only for builds or tests: by name and version. Pure.
fn linked(metadata: &Metadata) -> Vec<&Package> {
    let by_id: BTreeMap<&str, &Package> = metadata.packages.iter().map(|p| (p.id.as_str(), p)).collect();
    let nodes: BTreeMap<&str, &Node> = metadata.resolve.nodes.iter().map(|n| (n.id.as_str(), n)).collect();
    let is_root = |package: &&Package| package.source.is_none() && ROOTS.contains(&package.name.as_str());
    let mut open: Vec<&str> = metadata.packages.iter().filter(is_root).map(|p| p.id.as_str()).collect();
    let mut seen: BTreeSet<&str> = open.iter().copied().collect();
    while let Some(id) = open.pop() {
        for dependency in nodes.get(id).into_iter().flat_map(|node| &node.deps) {
            let links = dependency.dep_kinds.iter().any(|kind| kind.kind.is_none());
            let runs_here = by_id.get(dependency.pkg.as_str()).is_some_and(|package| !is_proc_macro(package));
            if links && runs_here && seen.insert(&dependency.pkg) {
                open.push(&dependency.pkg);
            }
        }
    }
    let mut found: Vec<&Package> = seen.iter().filter_map(|id| by_id.get(id).copied()).collect();
    found.retain(|package| package.source.is_some());
    found.sort_by(|one, other| (&one.name, &one.version).cmp(&(&other.name, &other.version)));
    found
}

/// It runs in the compiler.
fn is_proc_macro(package: &Package) -> bool {
    package.targets.iter().any(|target| target.kind.iter().any(|kind| kind == "proc-macro"))
}

fn licence_texts(folder: &Path) -> Result<Vec<String>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_uppercase();
        let prefixes = ["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE", "UNLICENSE"];
        if path.is_file() && prefixes.iter().any(|prefix| name.starts_with(prefix)) {
            paths.push(path);
        }
    }
    paths.sort();
    let read = |path: &PathBuf| {
        let text = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    };
    paths.iter().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_only_builds_or_tests_is_not_linked() {
        let package = |name: &str, source: &str, kind: &str| {
            format!(
                r#"{{"id":"{name}","name":"{name}","version":"1.0.0","license":"MIT","source":{source},
                    "manifest_path":"/x/Cargo.toml","targets":[{{"kind":["{kind}"]}}]}}"#
            )
        };
        let dependency =
            |name: &str, kind: &str| format!(r#"{{"pkg":"{name}","dep_kinds":[{{"kind":{kind}}}]}}"#);
        let theirs = r#""registry""#;
        let packages = [
            package("kfd-trace", "null", "bin"),
            package("ours", "null", "lib"),
            package("zlib", theirs, "lib"),
            package("deep", theirs, "lib"),
            package("derive", theirs, "proc-macro"),
            package("syn", theirs, "lib"),
            package("tests", theirs, "lib"),
            package("builds", theirs, "lib"),
        ];
        let own = [
            dependency("ours", "null"),
            dependency("derive", "null"),
            dependency("tests", r#""dev""#),
            dependency("builds", r#""build""#),
        ];
        let nodes = [
            format!(r#"{{"id":"kfd-trace","deps":[{}]}}"#, own.join(",")),
            format!(r#"{{"id":"ours","deps":[{}]}}"#, dependency("zlib", "null")),
            format!(r#"{{"id":"zlib","deps":[{}]}}"#, dependency("deep", "null")),
            format!(r#"{{"id":"derive","deps":[{}]}}"#, dependency("syn", "null")),
        ];
        let text =
            format!(r#"{{"packages":[{}],"resolve":{{"nodes":[{}]}}}}"#, packages.join(","), nodes.join(","));
        let metadata = serde_json::from_str(&text).unwrap();
        let names: Vec<_> = linked(&metadata).iter().map(|package| package.name.clone()).collect();
        assert_eq!(names, ["deep", "zlib"]);
    }
}
