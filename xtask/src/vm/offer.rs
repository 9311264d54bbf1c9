//! What Debian's archive still has of a kernel. In: the package index. Out: the packages to fetch, or what is
//! missing, in words. Pure but for the index.

use crate::vm::kbuild;
use crate::vm::series::Series;
use anyhow::Result;

/// A package index.
pub(crate) trait Index {
    /// Names of all packages with this prefix.
    fn names(&self, prefix: &str) -> Result<Vec<String>>;

    /// Versions of a package, newest first; empty if there is none.
    fn versions(&self, package: &str) -> Result<Vec<String>>;
}

/// The packages of one release, all of one version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Packages {
    pub(crate) release: String,
    pub(crate) version: String,
    /// Image and modules.
    pub(crate) images: Vec<String>,
}

/// What there is of a series.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Offer {
    /// All that is used of it, with headers and source.
    Whole(Packages),
    /// It boots, but no module can be built for it: why.
    Image(Packages, String),
    /// No image: why.
    Nothing(String),
}

/// The newest release that is whole, else the newest image.
pub(crate) fn of_series(index: &impl Index, series: Series) -> Result<Offer> {
    let prefix = format!("linux-image-{}.", series.name());
    let names = index.names(&prefix)?;
    let mut image = None;
    let mut why = None;
    for release in series.releases(names.iter().map(String::as_str)) {
        match of_release(index, &names, &release)? {
            Ok(packages) => match lacks(index, series, &packages)? {
                None => return Ok(Offer::Whole(packages)),
                Some(why) => image = image.or(Some((packages, why))),
            },
            Err(missing) => why = why.or(Some(missing)),
        }
    }
    Ok(match image {
        Some((packages, why)) => Offer::Image(packages, why),
        None => Offer::Nothing(why.unwrap_or_else(|| gone(&format!("{prefix}*")))),
    })
}

/// The packages of an image, signed or not, or what is missing. `names`: those of all images.
pub(crate) fn of_release(
    index: &impl Index,
    names: &[String],
    release: &str,
) -> Result<Result<Packages, String>> {
    let signed = format!("linux-image-{release}");
    let unsigned = format!("{signed}-unsigned");
    for image in [&signed, &unsigned].into_iter().filter(|image| names.contains(image)) {
        let Some(version) = index.versions(image)?.into_iter().next() else { continue };
        let mut images = vec![image.clone()];
        // Newer Debian splits the image in three. Signed parts stay in the archive for longer than modules.
        let [binary, modules] = ["binary", "modules"].map(|part| format!("linux-{part}-{release}"));
        if index.versions(&binary)?.contains(&version) {
            images.push(binary);
            if !index.versions(&modules)?.contains(&version) {
                return Ok(Err(gone(&format!("{modules} {version}"))));
            }
            images.push(modules);
        }
        return Ok(Ok(Packages { release: release.to_owned(), version, images }));
    }
    Ok(Err(gone(&signed)))
}

fn gone(package: &str) -> String {
    format!("Debian no longer has {package}")
}

/// What the build of a module needs and the archive has not in the image's version.
fn lacks(index: &impl Index, series: Series, packages: &Packages) -> Result<Option<String>> {
    let Packages { release, version, .. } = packages;
    let needed = [
        format!("linux-headers-{release}"),
        kbuild::common_headers(release),
        format!("linux-source-{}", series.name()),
    ];
    for package in needed {
        if !index.versions(&package)?.contains(version) {
            return Ok(Some(gone(&format!("{package} {version}"))));
        }
    }
    Ok(None)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Package to versions.
    #[derive(Clone, Default)]
    pub(crate) struct Listed(pub(crate) BTreeMap<String, Vec<String>>);

    impl Listed {
        pub(crate) fn add(&mut self, package: &str, version: &str) {
            self.0.entry(package.to_owned()).or_default().push(version.to_owned());
        }

        /// An index with everything of these releases.
        pub(crate) fn of(releases: &[(&str, &str)]) -> Self {
            let mut listed = Self::default();
            for (release, version) in releases {
                let series = release.splitn(3, '.').take(2).collect::<Vec<_>>().join(".");
                let common = kbuild::common_headers(release);
                let packages = [
                    format!("linux-image-{release}"),
                    format!("linux-headers-{release}"),
                    common,
                    format!("linux-source-{series}"),
                ];
                packages.iter().for_each(|package| listed.add(package, version));
            }
            listed
        }

        pub(crate) fn without(mut self, prefix: &str) -> Self {
            self.0.retain(|package, _| !package.starts_with(prefix));
            self
        }
    }

    impl Index for Listed {
        fn names(&self, prefix: &str) -> Result<Vec<String>> {
            Ok(self.0.keys().filter(|name| name.starts_with(prefix)).cloned().collect())
        }

        fn versions(&self, package: &str) -> Result<Vec<String>> {
            Ok(self.0.get(package).cloned().unwrap_or_default())
        }
    }

    fn packages(release: &str, version: &str, images: &[&str]) -> Packages {
        let images = images.iter().map(|name| (*name).to_owned()).collect();
        Packages { release: release.to_owned(), version: version.to_owned(), images }
    }

    #[test]
    fn the_newest_release_that_is_whole_comes_first() -> Result<()> {
        let mut index = Listed::of(&[("6.1.0-55-amd64", "6.1.190-1"), ("6.1.0-56-amd64", "6.1.192-2")]);
        let newest = packages("6.1.0-56-amd64", "6.1.192-2", &["linux-image-6.1.0-56-amd64"]);
        assert_eq!(of_series(&index, Series::V6_1)?, Offer::Whole(newest.clone()));
        index = index.without("linux-headers-6.1.0-56-amd64");
        let older = packages("6.1.0-55-amd64", "6.1.190-1", &["linux-image-6.1.0-55-amd64"]);
        assert_eq!(of_series(&index, Series::V6_1)?, Offer::Whole(older));
        index = index.without("linux-headers-");
        let why = "Debian no longer has linux-headers-6.1.0-56-amd64 6.1.192-2".to_owned();
        assert_eq!(of_series(&index, Series::V6_1)?, Offer::Image(newest, why));
        Ok(())
    }

    #[test]
    fn what_is_missing_is_named() -> Result<()> {
        let index = Listed::of(&[("7.2.12+deb13-amd64", "7.2.12-1")]);
        let why = |index: &Listed| match of_series(index, Series::V7_2) {
            Ok(Offer::Image(_, why) | Offer::Nothing(why)) => Some(why),
            _ => None,
        };
        assert_eq!(why(&index), None);
        let sourceless = index.clone().without("linux-source");
        assert_eq!(why(&sourceless).as_deref(), Some("Debian no longer has linux-source-7.2 7.2.12-1"));
        // A source of another version does not fit.
        let mut other = sourceless.clone();
        other.add("linux-source-7.2", "7.2.11-1");
        assert_eq!(why(&other), why(&sourceless));
        let common = why(&index.clone().without("linux-headers-7.2.12+deb13-common"));
        assert!(common.is_some_and(|why| why.contains("deb13-common 7.2.12-1")));
        assert_eq!(
            why(&index.without("linux-image-")).as_deref(),
            Some("Debian no longer has linux-image-7.2.*")
        );
        Ok(())
    }

    #[test]
    fn an_image_in_parts_needs_its_modules() -> Result<()> {
        let mut index = Listed::default();
        index.add("linux-image-7.2.1-amd64-unsigned", "7.2.1-2");
        index.add("linux-binary-7.2.1-amd64", "7.2.1-2");
        index.add("linux-modules-7.2.1-amd64", "7.2.1-1");
        let of = |index: &Listed| of_release(index, &index.names("linux-image-")?, "7.2.1-amd64");
        let missing = "Debian no longer has linux-modules-7.2.1-amd64 7.2.1-2".to_owned();
        assert_eq!(of(&index)?, Err(missing.clone()));
        assert_eq!(of_series(&index, Series::V7_2)?, Offer::Nothing(missing));
        index.add("linux-modules-7.2.1-amd64", "7.2.1-2");
        let images =
            ["linux-image-7.2.1-amd64-unsigned", "linux-binary-7.2.1-amd64", "linux-modules-7.2.1-amd64"];
        assert_eq!(of(&index)?, Ok(packages("7.2.1-amd64", "7.2.1-2", &images)));
        let other = of_release(&index, &index.names("linux-image-")?, "7.2.2-amd64")?;
        assert_eq!(other, Err("Debian no longer has linux-image-7.2.2-amd64".to_owned()));
        Ok(())
    }
}
