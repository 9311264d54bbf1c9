//! The kernel matrix, and which release of a series is the newest. Pure.

use debversion::Version;

/// One column of the matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Series {
    V5_10,
    V6_1,
    V6_12,
    V7_2,
}

impl Series {
    pub(crate) const ALL: [Self; 4] = [Self::V5_10, Self::V6_1, Self::V6_12, Self::V7_2];

    /// As Debian names it in package names, and as in the guest's `KFD_VM_SERIES`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::V5_10 => "5.10",
            Self::V6_1 => "6.1",
            Self::V6_12 => "6.12",
            Self::V7_2 => "7.2",
        }
    }

    /// Whether kfdsim is built for it. kfdsim supports no driver as old as 5.10's.
    pub(crate) fn has_kfdsim(self) -> bool {
        self != Self::V5_10
    }

    /// Whether kbuild needs a C library and compiler newer than those of Debian 12.
    pub(crate) fn newer_kbuild(self) -> bool {
        self == Self::V7_2
    }

    /// The release in an image package's name, if it is a plain amd64 kernel of this series: no meta
    /// package, no cloud or rt flavour, no rebuild for an older Debian (`6.1.0-0.deb11.52-amd64`).
    pub(crate) fn release_of(self, package: &str) -> Option<&str> {
        let release = package.strip_prefix("linux-image-")?;
        let release = release.strip_suffix("-unsigned").unwrap_or(release);
        let rest = release.strip_prefix(self.name())?.strip_prefix('.')?;
        let abi = rest.strip_suffix("-amd64")?;
        let (numbers, debian) = abi.split_once("+deb").unwrap_or((abi, "0"));
        let plain = numbers.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-');
        (plain && debian.bytes().all(|byte| byte.is_ascii_digit())).then_some(release)
    }

    /// The releases of this series among `packages`, newest first, each once.
    pub(crate) fn releases<'a>(self, packages: impl Iterator<Item = &'a str>) -> Vec<String> {
        let mut found: Vec<(Version, &str)> = packages
            .filter_map(|package| self.release_of(package))
            .filter_map(|release| Some((release.parse().ok()?, release)))
            .collect();
        found.sort_by(|a, b| b.0.cmp(&a.0));
        found.dedup_by(|a, b| a.1 == b.1);
        found.into_iter().map(|(_, release)| release.to_owned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::Series;

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
            "linux-image-6.1.0-56-cloud-amd64",
            "linux-image-6.1.0-56-rt-amd64",
            "linux-image-6.1.0+deb12-rt-amd64",
            "linux-image-6.1.0-56-amd64-dbg",
            "linux-image-6.1.0-0.deb11.52-amd64",
            "linux-image-6.12.117+deb12-amd64",
            "linux-headers-6.1.0-56-amd64",
        ] {
            assert_eq!(Series::V6_1.release_of(package), None, "{package}");
        }
    }
}
