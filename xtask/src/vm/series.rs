//! The kernel matrix, and which image packages belong to which series. In: names of packages. Out: releases,
//! newest first. Pure.

use debversion::Version;

/// One column of the matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Series {
    V5_10,
    V6_1,
    V6_12,
    V7_2,
    V7_3,
}

impl Series {
    /// Those that the tests know; the archive need not have them all ([`super::matrix`]).
    pub(crate) const ALL: [Self; 5] = [Self::V5_10, Self::V6_1, Self::V6_12, Self::V7_2, Self::V7_3];

    /// As Debian names it in package names, and as in the guest's `KFD_VM_SERIES`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::V5_10 => "5.10",
            Self::V6_1 => "6.1",
            Self::V6_12 => "6.12",
            Self::V7_2 => "7.2",
            Self::V7_3 => "7.3",
        }
    }

    /// Whether its driver has KFD nodes and supports GC 9.4.3.
    pub(crate) fn has_nodes(self) -> bool {
        matches!(self, Self::V6_12 | Self::V7_2 | Self::V7_3)
    }

    /// Whether Debian builds its modules with BTF.
    pub(crate) fn has_module_btf(self) -> bool {
        self != Self::V5_10
    }

    /// The releases of this series among `packages`, newest first, each once.
    pub(crate) fn releases<'a>(self, packages: impl Iterator<Item = &'a str>) -> Vec<String> {
        let images = packages.filter_map(Image::parse);
        let own = images.filter(|image| image.series == self.name() && image.flavour == Flavour::Plain);
        newest_first(own).into_iter().map(|image| image.release.to_owned()).collect()
    }
}

/// How Debian configures an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Flavour {
    Plain,
    /// With PREEMPT_RT.
    Rt,
}

/// An image package. Of no interest: meta packages, rebuilds for an older Debian (`6.1.0-0.deb11.52-amd64`),
/// and the cloud flavour, which Debian builds without amdgpu.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Image<'a> {
    /// `6.12`
    pub(crate) series: &'a str,
    /// The Debian that it is built for, where the name has it: each has another compiler.
    pub(crate) debian: Option<u32>,
    pub(crate) flavour: Flavour,
    /// `6.12.117+deb12-rt-amd64`
    pub(crate) release: &'a str,
}

impl<'a> Image<'a> {
    /// From a package's name.
    pub(crate) fn parse(package: &'a str) -> Option<Self> {
        let release = package.strip_prefix("linux-image-")?;
        Self::of_release(release.strip_suffix("-unsigned").unwrap_or(release))
    }

    /// From `uname -r`.
    pub(crate) fn of_release(release: &'a str) -> Option<Self> {
        let rest = release.strip_suffix("-amd64")?;
        let (abi, flavour) = match rest.strip_suffix("-rt") {
            Some(abi) => (abi, Flavour::Rt),
            None => (rest, Flavour::Plain),
        };
        let (numbers, debian) = abi.split_once("+deb").unwrap_or((abi, ""));
        let is_plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit() || b".-".contains(&byte));
        if !is_plain(numbers) || !is_plain(debian) {
            return None;
        }
        let debian = debian.split('.').next().and_then(|number| number.parse().ok());
        // `MAJOR.MINOR.` is followed by the rest of the release.
        let minor = abi.find('.')? + 1;
        let end = minor + abi[minor..].find('.')?;
        Some(Self { series: &release[..end], debian, flavour, release })
    }

    fn version(&self) -> Option<Version> {
        self.release.parse().ok()
    }
}

/// Each release once.
pub(crate) fn newest_first<'a>(images: impl Iterator<Item = Image<'a>>) -> Vec<Image<'a>> {
    let mut found: Vec<(Version, Image<'a>)> =
        images.filter_map(|image| Some((image.version()?, image))).collect();
    found.sort_by(|a, b| b.0.cmp(&a.0));
    found.dedup_by(|a, b| a.1 == b.1);
    found.into_iter().map(|(_, image)| image).collect()
}

/// Images of one configuration and compiler, newest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Build<'a> {
    pub(crate) newest: Image<'a>,
    pub(crate) releases: Vec<&'a str>,
}

/// The series among `packages`, in ascending order, each once for every Debian and flavour.
pub(crate) fn builds<'a>(packages: impl Iterator<Item = &'a str>) -> Vec<Build<'a>> {
    let kind = |image: &Image<'a>| (image.series, image.debian, image.flavour);
    let mut found: Vec<Build<'_>> = Vec::new();
    for image in newest_first(packages.filter_map(Image::parse)) {
        match found.iter_mut().find(|build| kind(&build.newest) == kind(&image)) {
            Some(build) => build.releases.push(image.release),
            None => found.push(Build { newest: image, releases: vec![image.release] }),
        }
    }
    found.sort_by_key(|Build { newest, .. }| {
        (newest.series.parse::<Version>().ok(), newest.debian, newest.flavour)
    });
    found
}

#[cfg(test)]
mod tests {
    use super::{Image, Series, builds};

    #[test]
    fn newest_release_comes_first_in_debian_order() {
        let packages = [
            "linux-image-6.1.0-9-amd64",
            "linux-image-6.1.0-56-amd64",
            "linux-image-6.1.0-56-amd64-unsigned",
            "linux-image-6.1.0-50-amd64",
            "linux-image-6.12.117+deb12-amd64",
        ];
        let found = Series::V6_1.releases(packages.into_iter());
        assert_eq!(found, ["6.1.0-56-amd64", "6.1.0-50-amd64", "6.1.0-9-amd64"]);
    }

    #[test]
    fn a_longer_number_is_newer() {
        let packages = ["linux-image-6.12.99+deb12-amd64", "linux-image-6.12.117+deb12-amd64-unsigned"];
        let found = Series::V6_12.releases(packages.into_iter());
        assert_eq!(found, ["6.12.117+deb12-amd64", "6.12.99+deb12-amd64"]);
    }

    #[test]
    fn other_flavours_and_rebuilds_do_not_count() {
        for package in [
            "linux-image-6.1-amd64",
            "linux-image-amd64",
            "linux-image-6.1.0-56-cloud-amd64",
            "linux-image-6.1.0+deb12-cloud-amd64",
            "linux-image-6.1.0-56-amd64-dbg",
            "linux-image-6.1.0-0.deb11.52-amd64",
            "linux-image-6.1-amd64-signed-template",
            "linux-headers-6.1.0-56-amd64",
        ] {
            assert_eq!(Image::parse(package), None, "{package}");
        }
        let others = ["linux-image-6.12.117+deb12-amd64", "linux-image-6.1.0-56-rt-amd64"];
        assert_eq!(Series::V6_1.releases(others.into_iter()), [""; 0]);
    }

    #[test]
    fn images_are_listed_by_series_debian_and_flavour() {
        let packages = [
            "linux-image-7.0.4+deb13-amd64",
            "linux-image-6.12.90+deb13.1-rt-amd64",
            "linux-image-6.12.117+deb13-rt-amd64-unsigned",
            "linux-image-6.12.117+deb13-rt-amd64",
            "linux-image-6.12.117+deb13-amd64",
            "linux-image-6.12.117+deb12-amd64",
            "linux-image-6.9.0-1-amd64",
        ];
        let builds = builds(packages.into_iter());
        let found =
            builds.iter().map(|build| (build.newest.series, build.newest.debian, &build.releases[..]));
        let expected = [
            ("6.9", None, &["6.9.0-1-amd64"][..]),
            ("6.12", Some(12), &["6.12.117+deb12-amd64"]),
            ("6.12", Some(13), &["6.12.117+deb13-amd64"]),
            ("6.12", Some(13), &["6.12.117+deb13-rt-amd64", "6.12.90+deb13.1-rt-amd64"]),
            ("7.0", Some(13), &["7.0.4+deb13-amd64"]),
        ];
        assert_eq!(found.collect::<Vec<_>>(), expected);
    }
}
