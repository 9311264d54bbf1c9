//! Finds what a types file is made from. In: the root folder, what names the driver, and what the user gave. Out:
//! the driver's source and how it is built, and the kernel's headers; or one line that says what is missing and
//! what to install.

use crate::kernel::types::DriverIdentity;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// How a source is configured and built.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Layout {
    /// A package of DKMS: `dkms.conf` says how. Its PACKAGE_VERSION.
    Dkms(String),
    /// drivers/gpu/drm/amd of the kernel's own tree.
    InTree,
}

/// A driver's source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DriverSource {
    /// Of DKMS: the folder with dkms.conf. In the kernel's tree: drivers/gpu/drm/amd.
    pub(super) folder: PathBuf,
    pub(super) layout: Layout,
}

/// Where dkms.conf is in ROCm's package, if not at its top (there it is a link).
const CONF: [&str; 2] = ["dkms.conf", "amd/dkms/dkms.conf"];

/// Bytes of a dkms.conf that are read: real ones have some 3,000.
const LONGEST_CONF: u64 = 1 << 20;

/// The configuration of a DKMS package in this folder.
pub(super) fn conf(folder: &Path) -> Option<PathBuf> {
    CONF.iter().map(|name| folder.join(name)).find(|path| path.is_file())
}

impl DriverSource {
    /// The source in a folder that the user gave.
    ///
    /// # Errors
    /// One line: there is none.
    pub(super) fn given(folder: &Path) -> Result<Self, String> {
        if let Some(version) = dkms_version(folder) {
            return Ok(DriverSource { folder: folder.to_owned(), layout: Layout::Dkms(version) });
        }
        let amd = [folder.join("drivers/gpu/drm/amd"), folder.to_owned()];
        match amd.into_iter().find(|amd| amd.join("amdkfd/kfd_priv.h").is_file()) {
            Some(folder) => Ok(DriverSource { folder, layout: Layout::InTree }),
            None => Err(format!(
                "no source of amdgpu in {}: it has neither dkms.conf nor drivers/gpu/drm/amd",
                folder.display()
            )),
        }
    }

    /// The source of a driver below a root folder: among DKMS's packages the one of its version, preferably one
    /// that was built for this kernel.
    ///
    /// # Errors
    /// One line: there is none, or there are several.
    pub(super) fn search(root: &Path, driver: &DriverIdentity) -> Result<Self, String> {
        let Some(version) = &driver.version else {
            return Err(
                "the driver has no version, so it is the kernel's own: unpack the kernel's source (Debian, \
                        Ubuntu: linux-source) and give it with --source DIR"
                    .to_owned(),
            );
        };
        let packages = packages(root);
        let mut fitting: Vec<&(String, PathBuf)> =
            packages.iter().filter(|(package, _)| is_version_of(package, version)).collect();
        if fitting.len() > 1
            && let Some(release) = &driver.release
        {
            let built = |package: &str| root.join("var/lib/dkms/amdgpu").join(package).join(release).exists();
            let of_kernel: Vec<_> = fitting.iter().copied().filter(|(package, _)| built(package)).collect();
            if !of_kernel.is_empty() {
                fitting = of_kernel;
            }
        }
        match &*fitting {
            [(package, folder)] => {
                Ok(DriverSource { folder: folder.clone(), layout: Layout::Dkms(package.clone()) })
            }
            [] => Err(format!(
                "no source of driver {version} in /usr/src or /var/lib/dkms{}: install amdgpu-dkms of that version, or \
                 give its source with --source DIR",
                others(&packages)
            )),
            several => Err(format!(
                "several sources of driver {version} ({}): choose one with --source DIR",
                several.iter().map(|(_, folder)| folder.display().to_string()).collect::<Vec<_>>().join(", ")
            )),
        }
    }
}

fn others(packages: &[(String, PathBuf)]) -> String {
    let names: Vec<&str> = packages.iter().map(|(version, _)| version.as_str()).collect();
    if names.is_empty() { String::new() } else { format!(" (there is {})", names.join(", ")) }
}

/// `6.12.12-2194681.el8` is a package of 6.12.12, and not one of 6.12.1.
fn is_version_of(package: &str, version: &str) -> bool {
    package
        .strip_prefix(version)
        .is_some_and(|rest| !rest.starts_with(|next: char| next.is_ascii_digit() || next == '.'))
}

/// DKMS's packages of amdgpu: version and folder.
fn packages(root: &Path) -> Vec<(String, PathBuf)> {
    let folders = |path: &str| fs::read_dir(root.join(path)).into_iter().flatten().filter_map(Result::ok);
    let sources = folders("usr/src").map(|entry| entry.path());
    let sources = sources
        .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("amdgpu-")));
    let registered = folders("var/lib/dkms/amdgpu").map(|entry| entry.path().join("source"));
    let mut found: Vec<(String, PathBuf)> =
        sources.chain(registered).filter_map(|folder| Some((dkms_version(&folder)?, folder))).collect();
    found.sort();
    // The second is usually a link to the first.
    found.dedup_by(|one, other| one.0 == other.0);
    found
}

/// PACKAGE_VERSION of a package of amdgpu.
fn dkms_version(folder: &Path) -> Option<String> {
    let mut text = String::new();
    File::open(conf(folder)?).ok()?.take(LONGEST_CONF).read_to_string(&mut text).ok()?;
    let value = |name: &str| {
        let line = text.lines().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix('='))?;
        Some(line.trim_matches(['"', '\'']).to_owned())
    };
    value("PACKAGE_NAME").filter(|name| name.starts_with("amdgpu"))?;
    // It becomes the name of a folder.
    let is_plain = |version: &String| {
        version.starts_with(|first: char| first.is_ascii_alphanumeric())
            && version.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_+~:".contains(&byte))
    };
    value("PACKAGE_VERSION").filter(is_plain)
}

/// The headers of a kernel, and its release.
///
/// # Errors
/// One line: they are missing.
pub(super) fn headers(
    root: &Path,
    given: Option<&Path>,
    release: Option<&str>,
) -> Result<(PathBuf, String), String> {
    let folder = match (given, release) {
        (Some(folder), _) => folder.to_owned(),
        (None, Some(release)) => root.join("lib/modules").join(release).join("build"),
        (None, None) => return Err("this kernel does not report its release: give --headers DIR".to_owned()),
    };
    // The build has another working folder.
    let folder = fs::canonicalize(&folder).unwrap_or(folder);
    if !folder.join("Makefile").is_file() {
        let name = release.unwrap_or("of that kernel");
        return Err(format!(
            "no headers of the kernel in {}: install linux-headers-{name} (Debian, Ubuntu), kernel-devel-{name} (RHEL) \
             or kernel-default-devel (SUSE), or give --headers DIR",
            folder.display()
        ));
    }
    // Debian's include/config/kernel.release has another text than `uname -r`.
    let file = folder.join("include/generated/utsrelease.h");
    let text = fs::read_to_string(&file)
        .map_err(|error| format!("{}: these headers are not configured ({error})", file.display()))?;
    let release = text.lines().find_map(|line| line.trim().strip_prefix("#define UTS_RELEASE"));
    let release = release.map(|rest| rest.trim().trim_matches('"').to_owned());
    release.map(|release| (folder, release)).ok_or_else(|| format!("{}: no UTS_RELEASE", file.display()))
}

/// A program of this name in one of the folders.
pub(super) fn program(path: &[PathBuf], name: &str) -> Option<PathBuf> {
    path.iter().map(|folder| folder.join(name)).find(|file| file.is_file())
}

/// Programs that a build needs besides a compiler.
///
/// # Errors
/// One line that names all missing ones.
pub(super) fn programs(path: &[PathBuf]) -> Result<(), String> {
    let missing: Vec<&str> =
        ["bash", "make"].into_iter().filter(|name| program(path, name).is_none()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(format!("{} not found: install {}", missing.join(" and "), missing.join(" ")))
}

/// The program to run where the kernel's build runs `named`: itself, or another version of it, which gives
/// structures the same layout. By its full path.
///
/// # Errors
/// One line: no compiler is installed.
pub(super) fn compiler(path: &[PathBuf], named: &str) -> Result<PathBuf, String> {
    let family = if named.contains("clang") { "clang" } else { "gcc" };
    let exact = [named, family].into_iter().flat_map(|name| path.iter().map(move |folder| folder.join(name)));
    let is_version = |file: &Path| {
        let rest = file.file_name().and_then(|name| name.to_str()?.strip_prefix(family)?.strip_prefix('-'));
        rest.is_some_and(|rest| {
            !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
        })
    };
    let entries = path.iter().filter_map(|folder| fs::read_dir(folder).ok()).flatten().filter_map(Result::ok);
    let versions = entries.map(|entry| entry.path()).filter(|file| is_version(file));
    exact
        .filter(|file| file.is_file())
        .chain(versions)
        .next()
        .ok_or_else(|| format!("no compiler ({named}, or another {family}): install {named}"))
}

/// Whether clang built a kernel: its own options are then needed.
pub(super) fn is_clang(headers: &Path) -> bool {
    let text = fs::read_to_string(headers.join(".config"))
        .or_else(|_| fs::read_to_string(headers.join("include/config/auto.conf")));
    text.is_ok_and(|text| text.lines().any(|line| line == "CONFIG_CC_IS_CLANG=y"))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Host(tempfile::TempDir);

    impl Host {
        fn put(&self, path: &str, text: &str) -> PathBuf {
            let path = self.0.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, text).unwrap();
            path
        }

        fn package(&self, folder: &str, version: &str) {
            let text = format!("PACKAGE_NAME=\"amdgpu\"\nPACKAGE_VERSION=\"{version}\"\n");
            self.put(&format!("{folder}/dkms.conf"), &text);
        }

        fn search(&self, version: Option<&str>) -> Result<DriverSource, String> {
            let driver = DriverIdentity {
                version: version.map(str::to_owned),
                release: Some("5.10".to_owned()),
                ..DriverIdentity::default()
            };
            DriverSource::search(self.0.path(), &driver)
        }
    }

    fn host() -> Host {
        Host(tempfile::tempdir().unwrap())
    }

    #[test]
    fn the_package_of_the_drivers_version_is_found() {
        let host = host();
        assert!(host.search(Some("6.12.12")).unwrap_err().contains("install amdgpu-dkms of that version"));
        host.package("usr/src/amdgpu-6.12.1-5", "6.12.1-5");
        host.package("usr/src/amdgpu-6.12.12-2194681.el8", "6.12.12-2194681.el8");
        host.package("var/lib/dkms/amdgpu/6.12.12-2194681.el8/source", "6.12.12-2194681.el8");
        let found = host.search(Some("6.12.12")).unwrap();
        assert_eq!(found.layout, Layout::Dkms("6.12.12-2194681.el8".to_owned()));
        let why = host.search(Some("6.7.0")).unwrap_err();
        assert!(why.contains("(there is 6.12.1-5, 6.12.12-2194681.el8)"), "{why}");
        assert!(host.search(None).unwrap_err().contains("--source DIR"), "the kernel's own");
    }

    #[test]
    fn of_several_packages_the_one_built_for_this_kernel_is_taken() {
        let host = host();
        host.package("usr/src/amdgpu-6.7.0-1", "6.7.0-1");
        host.package("usr/src/amdgpu-6.7.0-2", "6.7.0-2");
        assert!(host.search(Some("6.7.0")).unwrap_err().contains("several sources"));
        host.put("var/lib/dkms/amdgpu/6.7.0-2/5.10/x86_64/log/make.log", "");
        assert_eq!(host.search(Some("6.7.0")).unwrap().layout, Layout::Dkms("6.7.0-2".to_owned()));
    }

    #[test]
    fn a_given_folder_is_a_package_or_a_kernels_tree() {
        let host = host();
        let root = host.0.path();
        assert!(DriverSource::given(root).unwrap_err().contains("neither dkms.conf nor"));
        host.put("linux/drivers/gpu/drm/amd/amdkfd/kfd_priv.h", "");
        let found = DriverSource::given(&root.join("linux")).unwrap();
        assert_eq!((found.layout, found.folder), (Layout::InTree, root.join("linux/drivers/gpu/drm/amd")));
        host.put("rocm/amd/dkms/dkms.conf", "PACKAGE_NAME=\"amdgpu\"\nPACKAGE_VERSION=\"6.0.5-1\"\n");
        let found = DriverSource::given(&root.join("rocm")).unwrap();
        assert_eq!(found.layout, Layout::Dkms("6.0.5-1".to_owned()));
        host.put("up/dkms.conf", "PACKAGE_NAME=amdgpu\nPACKAGE_VERSION=../../etc\n");
        assert!(DriverSource::given(&root.join("up")).is_err(), "no folder above");
        host.put("other/dkms.conf", "PACKAGE_NAME=\"zfs\"\nPACKAGE_VERSION=\"2\"\n");
        assert!(DriverSource::given(&root.join("other")).is_err());
    }

    #[test]
    fn missing_headers_name_the_package() {
        let host = host();
        let root = host.0.path();
        let why = headers(root, None, Some("5.10.0-46-amd64")).unwrap_err();
        assert!(why.contains("install linux-headers-5.10.0-46-amd64"), "{why}");
        assert!(headers(root, None, None).unwrap_err().contains("--headers DIR"));
        host.put("lib/modules/5.10/build/Makefile", "");
        assert!(headers(root, None, Some("5.10")).unwrap_err().contains("not configured"));
        let text = "#define UTS_RELEASE \"5.10.0-46-amd64\"\n";
        host.put("lib/modules/5.10/build/include/generated/utsrelease.h", text);
        assert_eq!(headers(root, None, Some("5.10")).unwrap().1, "5.10.0-46-amd64");
    }

    #[test]
    fn missing_programs_are_one_line() {
        let host = host();
        let path = [host.0.path().join("bin")];
        assert_eq!(programs(&path).unwrap_err(), "bash and make not found: install bash make");
        for name in ["bash", "make"] {
            host.put(&format!("bin/{name}"), "");
        }
        assert_eq!(programs(&path), Ok(()));
    }

    #[test]
    fn another_version_of_the_compiler_will_do() {
        let host = host();
        let path = [host.0.path().join("bin")];
        host.put("bin/gcc-ar-12", "");
        let why = compiler(&path, "gcc-10").unwrap_err();
        assert_eq!(why, "no compiler (gcc-10, or another gcc): install gcc-10");
        for better in ["gcc-12", "gcc", "gcc-10"] {
            let file = host.put(&format!("bin/{better}"), "");
            assert_eq!(compiler(&path, "gcc-10"), Ok(file));
        }
        assert!(compiler(&path, "clang-19").unwrap_err().contains("install clang-19"));
    }

    #[test]
    fn the_configuration_says_who_built_the_kernel() {
        let host = host();
        assert!(!is_clang(host.0.path()));
        host.put("include/config/auto.conf", "CONFIG_CC_IS_CLANG=y\n");
        assert!(is_clang(host.0.path()));
        host.put(".config", "CONFIG_CC_IS_GCC=y\n");
        assert!(!is_clang(host.0.path()));
    }
}
