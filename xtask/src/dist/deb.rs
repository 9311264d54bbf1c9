//! The Debian package: control files, and a tree that dpkg-deb packs.

use super::contents::{Entry, Kind, Layout, Parts, entries};
use super::{About, gzip, tree};
use crate::run;
use anyhow::{Context as _, Result};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

const SCRIPTS: [&str; 3] = ["postinst", "prerm", "postrm"];
const DOC: &str = "usr/share/doc/kfd-trace";

/// Builds the package at `deb`, from a tree at `stage`, which is created anew. `scripts`: the folder of the
/// maintainer scripts and of lintian's exceptions.
pub(super) fn build(parts: &Parts, about: &About, scripts: &Path, stage: &Path, deb: &Path) -> Result<()> {
    let mut all = entries(parts, Layout::Debian, gzip);
    let path = scripts.join("lintian-overrides");
    let bytes = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
    all.push(Entry { path: "usr/share/lintian/overrides/kfd-trace".to_owned(), bytes, kind: Kind::Plain });
    let texts = [("copyright", copyright(about)), ("changelog.gz", changelog(about)?)];
    for (name, text) in texts {
        let bytes = if name.ends_with(".gz") { gzip(text.as_bytes()) } else { text.into_bytes() };
        all.push(Entry { path: format!("{DOC}/{name}"), bytes, kind: Kind::Doc });
    }
    tree::write(stage, all.iter().map(|entry| (entry.path.as_str(), &*entry.bytes, entry.mode())))?;
    let mut files = vec![("control", control(about, &all).into_bytes(), 0o644)];
    files.push(("conffiles", conffiles(&all).into_bytes(), 0o644));
    files.push(("md5sums", md5sums(&all, stage)?.into_bytes(), 0o644));
    for script in SCRIPTS {
        let path = scripts.join(script);
        let text = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        files.push((script, text, 0o755));
    }
    tree::add(&stage.join("DEBIAN"), files.iter().map(|(path, bytes, mode)| (*path, &**bytes, *mode)))?;
    let mut pack = Command::new("dpkg-deb");
    // xz's output depends on the number of its threads.
    pack.args(["--root-owner-group", "-Zxz", "--threads-max=1", "--build"]).arg(stage).arg(deb);
    run::output(pack.env("SOURCE_DATE_EPOCH", about.epoch.to_string())).map(drop)
}

fn control(about: &About, all: &[Entry]) -> String {
    let kib: usize = all.iter().map(|entry| entry.bytes.len().div_ceil(1024)).sum();
    let mut text = format!(
        "Package: kfd-trace\nVersion: {}\nArchitecture: {}\nMaintainer: {}\nInstalled-Size: {kib}\n\
         Section: admin\nPriority: optional\nDescription: {}\n",
        about.version,
        about.machine.debian,
        about.maintainer,
        super::SUMMARY
    );
    for line in super::DESCRIPTION {
        let _ = writeln!(text, " {line}");
    }
    text
}

fn conffiles(all: &[Entry]) -> String {
    let config = all.iter().filter(|entry| entry.kind == Kind::Config);
    config.map(|entry| format!("/{}\n", entry.path)).collect()
}

/// dpkg knows those of its conffiles itself.
fn md5sums(all: &[Entry], stage: &Path) -> Result<String> {
    let paths = all.iter().filter(|entry| entry.kind != Kind::Config).map(|entry| &entry.path);
    run::output(Command::new("md5sum").arg("--").args(paths).current_dir(stage))
}

/// In the form that Debian's tools read.
fn changelog(about: &About) -> Result<String> {
    let date = run::output(Command::new("date").args(["-R", "-u", "-d"]).arg(format!("@{}", about.epoch)))?;
    Ok(format!(
        "kfd-trace ({}) unstable; urgency=medium\n\n  * What changed is in /{DOC}/CHANGELOG.md.\n\n -- {}  {date}",
        about.version, about.maintainer
    ))
}

fn copyright(about: &About) -> String {
    let texts = format!(" See /{DOC}/LICENSE-");
    format!(
        "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\nUpstream-Name: kfd-trace\n\
         Comment: /{DOC}/THIRD-PARTY names what is linked into the program, with the texts of its licences.\n\n\
         Files: *\nCopyright: {}\nLicense: MIT or Apache-2.0\n\n\
         License: MIT\n{texts}MIT.\n\nLicense: Apache-2.0\n{texts}APACHE, or /usr/share/common-licenses/Apache-2.0.\n",
        about.copyright
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dist::contents::tests::parts;

    #[test]
    fn what_the_administrator_may_change_is_a_conffile_and_has_no_checksum() {
        let all = entries(&parts(), Layout::Debian, gzip);
        assert_eq!(conffiles(&all), "/etc/apparmor.d/kfd-trace\n/etc/default/kfd-trace\n");
        let stage = tempfile::tempdir().unwrap();
        tree::add(stage.path(), all.iter().map(|entry| (entry.path.as_str(), &*entry.bytes, 0o644))).unwrap();
        let sums = md5sums(&all, stage.path()).unwrap();
        assert!(sums.contains("  usr/bin/kfd-trace\n") && !sums.contains("etc/"), "{sums}");
    }

    #[test]
    fn control_shows_machine_and_size() {
        let about = About { version: "1.2.3".to_owned(), ..About::sample() };
        let text = control(&about, &entries(&parts(), Layout::Debian, gzip));
        assert!(text.starts_with("Package: kfd-trace\nVersion: 1.2.3\nArchitecture: amd64\n"), "{text}");
        assert!(text.contains("Installed-Size: 13\n"), "each file takes a block: {text}");
        assert!(
            text.lines()
                .skip_while(|line| !line.starts_with("Description"))
                .skip(1)
                .all(|l| l.starts_with(' '))
        );
    }
}
