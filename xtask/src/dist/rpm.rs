//! The .rpm: a tree and a list of files that rpmbuild packs by deploy/rpm/kfd-trace.spec.

use super::contents::{Entry, Kind, Layout, Parts, entries};
use super::{About, gzip, tree};
use crate::run;
use anyhow::{Context as _, Result};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Makes the package below `folder`, from trees at `stage`, which is made anew.
pub(super) fn build(parts: &Parts, about: &About, spec: &Path, stage: &Path, file: &Path) -> Result<()> {
    let all = entries(parts, Layout::Rpm, gzip);
    tree::write(stage, [])?;
    tree::write(
        &stage.join("tree"),
        all.iter().map(|entry| (entry.path.as_str(), &*entry.bytes, entry.mode())),
    )?;
    let description = super::DESCRIPTION.join("\n") + "\n";
    tree::add(
        stage,
        [("files", files(&all).as_bytes(), 0o644), ("description", description.as_bytes(), 0o644)],
    )?;
    let mut rpmbuild = Command::new("rpmbuild");
    rpmbuild.args(["-bb", "--quiet", "--target", about.machine.uname]);
    let at = |name: &str| stage.join(name).display().to_string();
    for (name, value) in [
        ("_topdir", &*at("top")),
        ("_rpmdir", &at("out")),
        ("_rpmfilename", "package"),
        ("_buildhost", "localhost"),
        ("kfd_tree", &at("tree")),
        ("kfd_files", &at("files")),
        ("kfd_version", &about.version),
        ("kfd_vendor", &about.maintainer),
        ("kfd_summary", super::SUMMARY),
        ("kfd_description", &at("description")),
    ] {
        rpmbuild.arg("--define").arg(format!("{name} {value}"));
    }
    run::output(rpmbuild.arg(spec).env("SOURCE_DATE_EPOCH", about.epoch.to_string()))?;
    fs::rename(stage.join("out/package"), file).with_context(|| format!("cannot place {}", file.display()))
}

/// As `%files -f` reads it.
fn files(all: &[Entry]) -> String {
    let mut text = "%defattr(-, root, root)\n".to_owned();
    // Its own folders, which are removed with it.
    let parents = all.iter().flat_map(|entry| Path::new(&entry.path).ancestors().skip(1));
    let own = parents.filter(|folder| folder.iter().any(|part| part == "kfd-trace"));
    for folder in own.collect::<BTreeSet<_>>() {
        text += &format!("%dir /{}\n", folder.display());
    }
    for entry in all {
        text += match entry.kind {
            Kind::Program | Kind::Plain => "",
            // A new default is placed beside an administrator's changed file.
            Kind::Config => "%config(noreplace) ",
            Kind::Doc => "%doc ",
            Kind::Licence => "%license ",
        };
        text += &format!("/{}\n", entry.path);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dist::contents::tests::parts;

    #[test]
    fn rpm_is_reported_what_the_administrator_may_change() {
        let text = files(&entries(&parts(), Layout::Rpm, gzip));
        assert!(text.contains("\n%config(noreplace) /etc/sysconfig/kfd-trace\n"), "{text}");
        assert!(
            text.contains("\n%dir /usr/share/kfd-trace\n%dir /usr/share/kfd-trace/apparmor\n%dir /usr/share/kfd-trace/prometheus\n"),
            "{text}"
        );
        assert!(!text.contains("%dir /usr/share\n"), "{text}");
        assert!(text.contains("\n%license /usr/share/licenses/kfd-trace/LICENSE-MIT\n"), "{text}");
        assert!(
            text.contains("\n/usr/bin/kfd-trace\n") && text.contains("%doc /usr/share/man/man1/"),
            "{text}"
        );
    }
}
