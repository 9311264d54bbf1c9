//! `cargo xtask manifests`: the manifests below deploy/kubernetes, as kustomize makes them of the base and
//! each component, checked against the published schemas (tests/manifests) and the daemon
//! (kfd-trace/tests/kubernetes.rs).
//!
//! kustomize comes from Debian 13's package, unpacked below target/: Debian 12 has none.

use crate::apt::{self, Apt};
use crate::paths;
use crate::run::{self, step};
use crate::vm::guest;
use anyhow::{Context as _, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const PACKAGE: &str = "kustomize";
const FOLDER: &str = "deploy/kubernetes";
/// The variable through which the tests find kustomize's output.
pub(crate) const VARIABLE: &str = "KFD_TRACE_MANIFESTS";
/// `tls` changes files that this one adds.
const FIRST: &str = "podmonitor";

/// # Errors
/// When kustomize refuses a folder, or its output is not valid.
pub(crate) fn manifests() -> Result<()> {
    schemas()?;
    let fits = ["test", "--quiet", "-p", "kfd-trace", "--test", "kubernetes", "--", "--include-ignored"];
    run::run(guest::cargo().args(fits).env(VARIABLE, render()?))
}

/// Checks against the schemas only.
///
/// # Errors
/// As [`manifests`].
pub(crate) fn schemas() -> Result<()> {
    let crates = ["test", "--quiet", "-p", "kfd-trace-manifests", "--features", "schemas"];
    run::run(guest::cargo().args(crates).args(["--", "--include-ignored"]).env(VARIABLE, render()?))
}

/// Makes a file of the base, of the example, and of each component on the base; returns their folder.
///
/// # Errors
/// When kustomize is not available, or refuses a folder.
pub(crate) fn render() -> Result<PathBuf> {
    let kustomize = kustomize()?;
    let work = paths::target().join("manifests");
    if work.exists() {
        fs::remove_dir_all(&work).with_context(|| format!("cannot clear {}", work.display()))?;
    }
    let (made, sources) = (work.join("made"), work.join("sources"));
    make(&made)?;
    // A copy: kustomize accepts no absolute path of a folder, and target/ may be anywhere.
    run::output(Command::new("cp").arg("-r").arg(paths::root().join(FOLDER)).arg(&sources))?;
    let build = |folder: &str, name: &str| -> Result<()> {
        let text = run::output(Command::new(&kustomize).arg("build").arg(sources.join(folder)))
            .with_context(|| format!("{FOLDER}/{folder}"))?;
        let file = made.join(name).with_extension("yaml");
        fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))
    };
    build("base", "base")?;
    build("example", "example")?;
    let components = names(&sources.join("components"))?;
    ensure!(!components.is_empty(), "{FOLDER}/components is empty");
    for name in &components {
        let folder = format!("on-base/{name}");
        make(&sources.join(&folder))?;
        let file = sources.join(&folder).join("kustomization.yaml");
        fs::write(&file, on_base(name)).with_context(|| format!("cannot write {}", file.display()))?;
        build(&folder, name)?;
    }
    step(format!("kustomize made {} manifests in {}", components.len() + 2, made.display()));
    Ok(made)
}

fn on_base(component: &str) -> String {
    let first = if component == FIRST { "" } else { "  - ../../components/podmonitor\n" };
    format!(
        "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources:\n  - ../../base\n\
         components:\n{first}  - ../../components/{component}\n"
    )
}

fn names(folder: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

fn make(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))
}

/// kustomize, fetched at first use.
fn kustomize() -> Result<PathBuf> {
    Ok(apt::unpacked(PACKAGE, Apt::trixie)?.join("usr/bin/kustomize"))
}
