//! Private apt roots under target/: Debian suites this machine does not use, without touching its own package
//! state. In: package names. Out: verified .deb files and unpacked trees.
//!
//! Archive addresses are those of the machine's own apt configuration, so that a local mirror or a proxy is
//! used here too. The dpkg status is empty: dependency closures are complete.

mod kernels;
mod suites;

use crate::run::{self, note, size, step};
use crate::{lock, paths};
use anyhow::{Context as _, Result, bail};
use kernels::{KERNELS, with_versions};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use suites::Suite;

/// Indexes older than this are fetched anew; kernels change every few days.
const INDEX_AGE: Duration = Duration::from_secs(12 * 60 * 60);

pub(crate) const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

pub(crate) struct Apt {
    dir: PathBuf,
    suites: &'static [Suite],
    index: &'static str,
}

/// Types of an index in sources.list, with apt's options. Without a target, machines with a desktop would
/// also fetch icons and the like.
const PACKAGES: &str = "deb [arch=amd64 target=Packages";
const SOURCES: &str = "deb-src [target=Sources";

impl Apt {
    /// The root of the matrix's kernels and the guest's programs.
    pub(crate) fn open() -> Result<Self> {
        Self::at("apt", &suites::MATRIX, PACKAGES)
    }

    /// The root of Debian 13.
    pub(crate) fn trixie() -> Result<Self> {
        Self::at("apt-trixie", &suites::TRIXIE, PACKAGES)
    }

    /// The root of Debian 13's source packages.
    pub(crate) fn trixie_sources() -> Result<Self> {
        Self::at("apt-trixie-sources", &suites::TRIXIE, SOURCES)
    }

    /// The root of all kernels that Debian has.
    pub(crate) fn images() -> Result<Self> {
        Self::at("apt-images", &suites::IMAGES, PACKAGES)
    }

    /// Makes the root if needed and brings its indexes up to date.
    fn at(name: &str, suites: &'static [Suite], index: &'static str) -> Result<Self> {
        let apt = Self { dir: paths::cache().join(name), suites, index };
        let age = apt.age();
        if age.is_some_and(|age| age < INDEX_AGE) {
            return Ok(apt);
        }
        match apt.refresh() {
            Err(error) if age.is_some() => note(format!("kept the older indexes: {error:#}")),
            refreshed => refreshed?,
        }
        Ok(apt)
    }

    fn stamp(&self) -> PathBuf {
        self.dir.join("updated")
    }

    /// Age of the indexes; `None` if there are none.
    fn age(&self) -> Option<Duration> {
        let modified = fs::metadata(self.stamp()).and_then(|meta| meta.modified()).ok()?;
        Some(modified.elapsed().unwrap_or(Duration::ZERO))
    }

    /// Fetches the indexes. A suite that the archive has dropped is left out, with one line.
    pub(crate) fn refresh(&self) -> Result<()> {
        let mut suites = self.suites.to_vec();
        loop {
            self.configure(&suites)?;
            let names: Vec<&str> = suites.iter().map(|(suite, _)| *suite).collect();
            step(format!("fetching package indexes of {} (private apt root)", names.join(", ")));
            let mut update = self.get();
            let done =
                update.args(["update", "-q", "--error-on=any"]).output().context("cannot run apt-get")?;
            if done.status.success() {
                break;
            }
            let reported = String::from_utf8_lossy(&done.stderr);
            let dropped = suites::dropped(&suites, &reported);
            if dropped.is_empty() || dropped.len() == suites.len() {
                bail!("cannot fetch the package indexes: {}", reported.trim());
            }
            for (suite, line) in dropped {
                note(format!("{}: left out, {line}", suite.0));
                suites.retain(|other| *other != suite);
            }
        }
        let kept = self.dir.join(KERNELS);
        if kept.exists() {
            fs::remove_file(&kept).with_context(|| format!("cannot remove {}", kept.display()))?;
        }
        fs::write(self.stamp(), "").context("cannot write the apt root")
    }

    fn configure(&self, suites: &[Suite]) -> Result<()> {
        let (main, security) = archives()?;
        for sub in ["lists/partial", "archives/partial", "parts"] {
            make(&self.dir.join(sub))?;
        }
        let mut sources = String::new();
        for (suite, is_security) in suites {
            let uri = if *is_security { &security } else { &main };
            sources += &format!("{} signed-by={KEYRING}] {uri} {suite} main\n", self.index);
        }
        fs::write(self.dir.join("sources.list"), sources).context("cannot write the apt root")?;
        fs::write(self.dir.join("status"), "").context("cannot write the apt root")
    }

    fn options(&self, command: &mut Command) {
        let at = |sub: &str| self.dir.join(sub).display().to_string();
        for (key, value) in [
            ("Dir::Etc::sourcelist", at("sources.list")),
            ("Dir::Etc::sourceparts", at("parts")),
            ("Dir::Etc::preferences", at("none")),
            ("Dir::Etc::preferencesparts", at("parts")),
            ("Dir::State", self.dir.display().to_string()),
            ("Dir::State::status", at("status")),
            ("Dir::Cache", self.dir.display().to_string()),
            ("Dir::Cache::archives", at("archives")),
            ("APT::Architecture", "amd64".to_owned()),
            ("APT::Sandbox::User", String::new()),
            ("APT::Install-Recommends", "false".to_owned()),
            // A suite whose support has ended stays in the archive for months, without a new date.
            ("Acquire::Check-Valid-Until", "false".to_owned()),
            ("Acquire::Languages", "none".to_owned()),
            ("Acquire::Retries", "3".to_owned()),
        ] {
            command.arg("-o").arg(format!("{key}={value}"));
        }
        command.env("LC_ALL", "C");
    }

    fn get(&self) -> Command {
        let mut command = Command::new("apt-get");
        self.options(&mut command);
        command
    }

    fn cache(&self) -> Command {
        let mut command = Command::new("apt-cache");
        self.options(&mut command);
        command
    }

    /// Whether the archive has this version of a source package.
    pub(crate) fn has_source(&self, package: &str, version: &str) -> Result<bool> {
        let madison = run::output(self.cache().args(["madison", package]))?;
        Ok(with_versions("", &madison).iter().any(|(_, listed)| listed.as_deref() == Some(version)))
    }

    /// The version that apt would install: of the suite itself before that of its backports.
    pub(crate) fn candidate(&self, package: &str) -> Result<String> {
        let shown = run::output(self.cache().args(["show", "--no-all-versions", package]))?;
        let version = shown.lines().find_map(|line| line.strip_prefix("Version: "));
        version.map(str::to_owned).with_context(|| format!("Debian's indexes hold no {package}"))
    }

    /// Fetches one package into the cache and returns the file.
    pub(crate) fn download(&self, package: &str, version: &str) -> Result<PathBuf> {
        let dir = self.dir.join("debs").join(package);
        make(&dir)?;
        let wanted = format!("{package}={version}");
        let shown = run::output(self.cache().args(["show", &wanted]))?;
        let length = shown.lines().find_map(|line| line.strip_prefix("Size: ")?.parse().ok());
        note(format!("{package} {version}: {}", length.map_or("size unknown".to_owned(), size)));
        let fetched = run::output(self.get().args(["download", "-q", &wanted]).current_dir(&dir));
        match fetched {
            Err(error) if format!("{error:#}").contains(" 404 ") => bail!(Gone(wanted)),
            fetched => fetched.with_context(|| format!("cannot fetch {wanted}"))?,
        };
        newest_deb(&dir)
    }

    /// Fetches the files of a source package into an existing folder.
    pub(crate) fn download_source(&self, package: &str, version: &str, dir: &Path) -> Result<()> {
        let wanted = format!("{package}={version}");
        let mut get = self.get();
        get.args(["source", "-q", "--download-only", &wanted]).current_dir(dir);
        run::output(&mut get).map(drop).with_context(|| format!("cannot fetch the source of {wanted}"))
    }

    /// Fetches packages with all their dependencies.
    pub(crate) fn download_closure(&self, packages: &[&str]) -> Result<Vec<PathBuf>> {
        let archives = self.dir.join("archives");
        run::output(self.get().args(["install", "-q", "-y", "--download-only"]).args(packages))
            .with_context(|| format!("cannot fetch {}", packages.join(" ")))?;
        let debs = debs_in(&archives)?;
        let total = debs.iter().filter_map(|deb| Some(fs::metadata(deb).ok()?.len())).sum();
        note(format!("{} packages, {}", debs.len(), size(total)));
        Ok(debs)
    }
}

/// A package that the index lists and the archive no longer has.
#[derive(Debug)]
pub(crate) struct Gone(String);

impl std::fmt::Display for Gone {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Debian no longer has {}", self.0)
    }
}

impl std::error::Error for Gone {}

fn make(dir: &Path) -> Result<()> {
    fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))
}

/// The Debian and Debian-Security archives this machine's apt uses.
pub(crate) fn archives() -> Result<(String, String)> {
    let format = "$(ORIGIN)|$(LABEL)|$(REPO_URI)";
    let text = run::output(Command::new("apt-get").args(["indextargets", "--format", format]))?;
    let find = |label: &str| {
        let wanted = format!("Debian|{label}|");
        let uris: BTreeSet<&str> = text.lines().filter_map(|line| line.strip_prefix(&wanted)).collect();
        uris.first().map(|uri| (*uri).to_owned())
    };
    match (find("Debian"), find("Debian-Security")) {
        (Some(main), Some(security)) => Ok((main, security)),
        _ => bail!(
            "this machine's apt has no index of Debian and Debian-Security: check its sources and run `apt-get update`"
        ),
    }
}

fn debs_in(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut debs = Vec::new();
    for entry in fs::read_dir(dir).with_context(|| format!("cannot read {}", dir.display()))? {
        let path = entry?.path();
        if path.extension().is_some_and(|ext| ext == "deb") {
            debs.push(path);
        }
    }
    debs.sort();
    Ok(debs)
}

fn newest_deb(dir: &Path) -> Result<PathBuf> {
    let debs = debs_in(dir)?;
    let newest = debs.into_iter().max_by_key(|deb| fs::metadata(deb).and_then(|meta| meta.modified()).ok());
    newest.with_context(|| format!("apt left no package in {}", dir.display()))
}

/// The tree of one package, without its dependencies; fetched at first use.
pub(crate) fn unpacked(package: &str, open: fn() -> Result<Apt>) -> Result<PathBuf> {
    tree(package, || {
        let apt = open()?;
        Ok(vec![apt.download(package, &apt.candidate(package)?)?])
    })
}

/// The same with all its dependencies, including the loader and the C library: its programs are run by these
/// ([`program`]).
pub(crate) fn unpacked_whole(package: &str, open: fn() -> Result<Apt>) -> Result<PathBuf> {
    tree(package, || open()?.download_closure(&[package]))
}

/// An existing tree is complete: [`unpack`] places all or nothing.
fn tree(package: &str, fetch: impl FnOnce() -> Result<Vec<PathBuf>>) -> Result<PathBuf> {
    let _cache = lock::hold(&paths::cache())?;
    let tree = paths::cache().join(package);
    if !tree.exists() {
        step(format!("fetching {package}"));
        unpack(&fetch()?, &tree)?;
    }
    Ok(tree)
}

/// A program of such a tree, run by the tree's own loader. `libraries`: folders within it.
pub(crate) fn program(tree: &Path, path: &str, libraries: &[&str]) -> Command {
    let libraries: Vec<_> = libraries.iter().map(|folder| tree.join(folder).display().to_string()).collect();
    // Debian 13 has it only below usr.
    let loader = ["lib64", "usr/lib64"].map(|folder| tree.join(folder).join("ld-linux-x86-64.so.2"));
    let mut command = Command::new(loader.iter().find(|loader| loader.exists()).unwrap_or(&loader[0]));
    command.args(["--library-path", &libraries.join(":")]).arg(tree.join(path));
    command
}

/// Unpacks packages over each other into `tree`, all or nothing, and deletes them.
pub(crate) fn unpack(debs: &[PathBuf], tree: &Path) -> Result<()> {
    let partial = tree.with_extension("partial");
    if partial.exists() {
        fs::remove_dir_all(&partial).with_context(|| format!("cannot clear {}", partial.display()))?;
    }
    make(&partial)?;
    for deb in debs {
        run::output(Command::new("dpkg-deb").arg("-x").arg(deb).arg(&partial))?;
    }
    fs::rename(&partial, tree).with_context(|| format!("cannot place {}", tree.display()))?;
    for deb in debs {
        fs::remove_file(deb).with_context(|| format!("cannot delete {}", deb.display()))?;
    }
    Ok(())
}
