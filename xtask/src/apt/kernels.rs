//! What the indexes have of kernels. In: names that begin alike. Out: names, and versions of each, kept until
//! the indexes are fetched anew.

use super::Apt;
use crate::run;
use crate::vm::offer::Index;
use anyhow::{Context as _, Result, ensure};
use std::collections::BTreeMap;
use std::fs;

/// Prefixes of package names, separated by commas: the indexes act as if they had none of these. For trying
/// what becomes of the tests when the archive drops a kernel.
const WITHOUT: &str = "KFD_XTASK_WITHOUT";

/// How the names of kernels' packages begin.
const OF_KERNELS: &str = "linux-";

/// What the indexes have of kernels, in an apt root.
pub(super) const KERNELS: &str = "kernels.json";

impl Apt {
    /// Packages of kernels with their versions. The answer is kept until the indexes are fetched anew: apt
    /// takes half a second for each question.
    fn of_kernels(&self) -> Result<Vec<(String, Option<String>)>> {
        let kept = self.dir.join(KERNELS);
        let read = fs::read(&kept).ok().and_then(|text| serde_json::from_slice(&text).ok());
        if let Some(packages) = read {
            return Ok(packages);
        }
        let names = run::output(self.cache().args(["pkgnames", OF_KERNELS]))?;
        let madison = run::output(self.cache().arg("madison").args(names.lines()))?;
        let packages = with_versions(&names, &madison);
        // Under its own name only when it is whole.
        let partial = kept.with_extension("partial");
        fs::write(&partial, serde_json::to_vec(&packages)?)
            .and_then(|()| fs::rename(&partial, &kept))
            .with_context(|| format!("cannot write {}", kept.display()))?;
        Ok(packages)
    }
}

/// Answers for packages of kernels alone.
impl Index for Apt {
    fn names(&self, prefix: &str) -> Result<Vec<String>> {
        let mut names: Vec<String> = self.of_kernels()?.into_iter().map(|(name, _)| name).collect();
        names.dedup();
        names.retain(|name| name.starts_with(prefix) && !is_hidden(name));
        Ok(names)
    }

    fn versions(&self, package: &str) -> Result<Vec<String>> {
        ensure!(package.starts_with(OF_KERNELS), "{package} is no package of a kernel");
        if is_hidden(package) {
            return Ok(Vec::new());
        }
        let of_it = self.of_kernels()?.into_iter().filter(|(name, _)| name == package);
        Ok(of_it.filter_map(|(_, version)| version).collect())
    }
}

/// Names by which apt knows packages, and versions that `apt-cache madison` lists: each name with each of its
/// versions, newest first, or with none.
pub(super) fn with_versions(names: &str, madison: &str) -> Vec<(String, Option<String>)> {
    let mut versions: BTreeMap<&str, Vec<&str>> = names.lines().map(|name| (name, Vec::new())).collect();
    for line in madison.lines() {
        let mut fields = line.split('|').map(str::trim);
        if let (Some(name), Some(version)) = (fields.next(), fields.next()) {
            versions.entry(name).or_default().push(version);
        }
    }
    let of_name = |(name, versions): (&str, Vec<&str>)| {
        let none = versions.is_empty().then_some(None);
        let all = versions.into_iter().map(|version| Some(version.to_owned()));
        let name = name.to_owned();
        all.chain(none).map(move |version| (name.clone(), version)).collect::<Vec<_>>()
    };
    versions.into_iter().flat_map(of_name).collect()
}

/// Whether the user wants this package to be missing.
fn is_hidden(package: &str) -> bool {
    let prefixes = std::env::var(WITHOUT).unwrap_or_default();
    prefixes.split(',').any(|prefix| !prefix.is_empty() && package.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::with_versions;

    #[test]
    fn a_name_has_its_versions_in_the_order_of_apt() {
        let madison = "\
 linux-image-b |    2-1 | http://deb.debian.org/debian bookworm/main amd64 Packages
 linux-image-b |    1-1 | http://deb.debian.org/debian bookworm-security/main amd64 Packages
linux-headers-a | 3-1~bpo12+1 | http://deb.debian.org/debian bookworm-backports/main amd64 Packages
";
        let found = with_versions("linux-image-b\nlinux-headers-a\nlinux-image-gone\n", madison);
        let found: Vec<_> = found.iter().map(|(name, version)| (name.as_str(), version.as_deref())).collect();
        let expected = [
            ("linux-headers-a", Some("3-1~bpo12+1")),
            ("linux-image-b", Some("2-1")),
            ("linux-image-b", Some("1-1")),
            ("linux-image-gone", None),
        ];
        assert_eq!(found, expected);
    }
}
