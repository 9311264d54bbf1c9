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
        deploy: deployed(root)?,
        docs: docs(root)?,
        licences,
    })
}

/// README and documents with their pictures, below the folder of documents.
fn docs(root: &Path) -> Result<Vec<(String, Vec<u8>)>> {
    let mut all = files(&root.join("docs"), |name| !name.starts_with("LICENSE-"))?;
    all.extend(
        files(&root.join("docs/tour"), |_| true)?
            .into_iter()
            .map(|(name, text)| (format!("tour/{name}"), text)),
    );
    all.extend(files(root, |name| name == "README.md")?);
    for (name, text) in all.iter_mut().filter(|(name, _)| name.ends_with(".md")) {
        let up = if name == "README.md" { "](deploy/" } else { "](../deploy/" };
        *text = relinked(text, &[("](docs/", "]("), (up, "](../../kfd-trace/")]);
    }
    all.sort();
    Ok(all)
}

/// What is used as it is, and the README of each folder.
fn deployed(root: &Path) -> Result<Vec<(String, Vec<u8>)>> {
    let readmes = ["grafana", "kubernetes", "prometheus"].map(|folder| format!("{folder}/README.md"));
    let names = DEPLOY.iter().map(|path| (*path).to_owned()).chain(readmes);
    let file = |path: String| {
        let from = root.join("deploy").join(&path);
        let text = fs::read(&from).with_context(|| format!("cannot read {}", from.display()))?;
        let is_readme = path.ends_with(".md");
        Ok((
            path,
            if is_readme { relinked(&text, &[("](../../docs/", "](../../doc/kfd-trace/")]) } else { text },
        ))
    };
    names.map(file).collect()
}

/// A document's links, where both ends are in other folders when they are installed.
fn relinked(text: &[u8], links: &[(&str, &str)]) -> Vec<u8> {
    let text = String::from_utf8_lossy(text).into_owned();
    links.iter().fold(text, |text, (here, there)| text.replace(here, there)).into_bytes()
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::{Component, PathBuf};

    /// Without `.` and `..`.
    fn normal(path: &Path) -> PathBuf {
        path.components().fold(PathBuf::new(), |mut all, part| {
            match part {
                Component::ParentDir => drop(all.pop()),
                Component::CurDir => {}
                part => all.push(part),
            }
            all
        })
    }

    #[test]
    fn links_of_installed_documents_lead_to_installed_files() {
        let root = paths::root();
        let below = |folder: &str, files: Vec<(String, Vec<u8>)>| -> Vec<(PathBuf, Vec<u8>)> {
            files.into_iter().map(|(name, text)| (Path::new(folder).join(name), text)).collect()
        };
        let mut all = below("usr/share/doc/kfd-trace", docs(root).unwrap());
        all.extend(below("usr/share/kfd-trace", deployed(root).unwrap()));
        let known = |path: &Path| all.iter().any(|(file, _)| file == path || file.starts_with(path));
        let mut broken = Vec::new();
        let documents = all.iter().filter(|(file, _)| file.extension().is_some_and(|ending| ending == "md"));
        for (file, text) in documents {
            let text = String::from_utf8_lossy(text);
            // An rpm has its licences in a folder of their own.
            let links = text.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next());
            for link in links.filter(|link| {
                !link.is_empty() && !link.contains([':', ' ']) && !link.starts_with("LICENSE-")
            }) {
                if !known(&normal(&file.parent().unwrap().join(link))) {
                    broken.push(format!("{}: {link}", file.display()));
                }
            }
        }
        assert_eq!(broken, Vec::<String>::new());
    }
}
