//! Reads the files to be packed: from the workspace, and from the binary itself, which contains its pages and
//! completions.

use super::contents::Parts;
use super::{Machine, third_party};
use crate::{paths, run};
use anyhow::{Context as _, Result};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Files below deploy that are used as they are.
const DEPLOY: [&str; 13] = [
    "prometheus/kfd-trace.rules.yml",
    "prometheus/fleet.rules.yml",
    "grafana/fleet.json",
    "grafana/node.json",
    "grafana/process.json",
    "grafana/sums.json",
    "selinux/kfd_trace.fc",
    "selinux/kfd_trace.if",
    "selinux/kfd_trace.te",
    "slurm/epilog",
    "slurm/prolog",
    "systemd/apparmor.conf",
    "systemd/record.conf",
];

/// `native`: the same program for this machine, which writes its pages to the folder `pages`.
pub(super) fn gather(binary: &Path, native: &Path, machine: Machine, pages: &Path) -> Result<Parts> {
    let root = paths::root();
    let file = |path: &str| {
        let path = root.join(path);
        fs::read(&path).with_context(|| format!("cannot read {}", path.display()))
    };
    if pages.exists() {
        fs::remove_dir_all(pages).with_context(|| format!("cannot clear {}", pages.display()))?;
    }
    run::output(Command::new(native).arg("man").arg(pages))?;
    let complete =
        |shell| run::output(Command::new(native).args(["completions", shell])).map(String::into_bytes);
    let mut licences = files(&root.join("docs"), |name| name.starts_with("LICENSE-"))?;
    licences.push(("THIRD-PARTY".to_owned(), third_party::notices(machine.target)?.into_bytes()));
    Ok(Parts {
        binary: fs::read(binary).with_context(|| format!("cannot read {}", binary.display()))?,
        pages: files(pages, |_| true)?,
        completions: [complete("bash")?, complete("zsh")?, complete("fish")?],
        units: files(&root.join("deploy/systemd"), |name| name.ends_with(".service"))?,
        options: file("deploy/systemd/kfd-trace.env")?,
        apparmor: file("deploy/apparmor/kfd-trace")?,
        deploy: DEPLOY
            .iter()
            .map(|path| Ok(((*path).to_owned(), file(&format!("deploy/{path}"))?)))
            .collect::<Result<_>>()?,
        docs: files(&root.join("docs"), |name| name.ends_with(".md"))?,
        licences,
    })
}

/// The files of a folder whose names are wanted, by name.
fn files(folder: &Path, wanted: impl Fn(&str) -> bool) -> Result<Vec<(String, Vec<u8>)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_file() && wanted(&name) {
            let bytes = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
            found.push((name, bytes));
        }
    }
    found.sort();
    Ok(found)
}
