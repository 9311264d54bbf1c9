//! The make command that builds a module for one kernel. In: the folders of headers, driver headers and
//! module. Out: the command to run: on this machine where its C library and compiler suffice, otherwise in
//! the root of a newer Debian.

use crate::paths;
use crate::vm::kernels::Kernel;
use crate::vm::root::Root;
use anyhow::{Context as _, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The driver within the kernel's sources.
pub(crate) const AMD: &str = "drivers/gpu/drm/amd";

/// Packages that kbuild needs to build a module. gcc-14 is Debian's compiler of its 7.2.
const PACKAGES: [&str; 10] =
    ["bash", "coreutils", "dash", "findutils", "gcc-14", "grep", "libelf1t64", "make", "mawk", "sed"];

/// Places of headers, driver and module in the root.
const MOUNTED: [&str; 3] = ["/headers", "/driver", "/module"];

/// Symbols of other modules that the module may use, in its folder.
pub(crate) const SYMVERS: &str = "driver.symvers";

pub(crate) struct Folders<'a> {
    /// Root of the unpacked packages of headers and kbuild's tools.
    pub(crate) headers: &'a Path,
    /// Root of the driver's sources: the kernel's with the driver's headers alone, or those of a driver that
    /// was built elsewhere.
    pub(crate) driver: &'a Path,
    /// The driver within them.
    pub(crate) amd: &'a str,
    /// The module's own folder, written to.
    pub(crate) module: &'a Path,
}

/// The package of the headers that all flavours of a release share.
pub(crate) fn common_headers(release: &str) -> String {
    format!("linux-headers-{}-common", release.strip_suffix("-amd64").unwrap_or(release))
}

/// `make modules`, ready to run.
pub(crate) fn make(kernel: &Kernel, folders: &Folders<'_>) -> Result<Command> {
    let Folders { headers, driver, amd, module } = *folders;
    let mut command;
    let seen = if kernel.has_newer_kbuild() {
        command = enter([headers, driver, module])?;
        command.arg("make");
        MOUNTED.map(PathBuf::from)
    } else {
        command = Command::new("make");
        if !has_compiler(&tree(headers, &kernel.release))? {
            command.arg("CC=gcc");
        }
        [headers, driver, module].map(Path::to_owned)
    };
    let [seen_headers, seen_driver, seen_module] = seen;
    point(headers, &kernel.release, &seen_headers)?;
    let jobs = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    command.arg("-C").arg(tree(&seen_headers, &kernel.release)).arg(format!("-j{jobs}"));
    command.arg(format!("M={}", seen_module.display()));
    command.arg(format!("AMD={}", seen_driver.join(amd).display()));
    if module.join(SYMVERS).exists() {
        command.arg(format!("KBUILD_EXTRA_SYMBOLS={}", seen_module.join(SYMVERS).display()));
    }
    // For the piece of a Makefile that a driver built elsewhere brings.
    command.arg(format!("SOURCE={}", seen_driver.display()));
    // The module's own BTF is not used, and making it would require pahole.
    command.args(["CONFIG_DEBUG_INFO_BTF_MODULES=", "modules"]);
    // A cargo-set jobserver or flags of the caller must not reach kbuild.
    command.env_remove("MAKEFLAGS").env_remove("CARGO_MAKEFLAGS").env_remove("CFLAGS");
    Ok(command)
}

/// `kfd-trace driver-types` for one kernel, ready to run: in the folder of the module, which has the program
/// and `amdgpu.ko`, and gets `types.btf`.
pub(crate) fn driver_types(kernel: &Kernel, folders: &Folders<'_>) -> Result<Command> {
    let Folders { headers, driver, module, .. } = *folders;
    point(headers, &kernel.release, if kernel.has_newer_kbuild() { Path::new(MOUNTED[0]) } else { headers })?;
    let (mut command, [headers, driver, module]) = if kernel.has_newer_kbuild() {
        let mut command = enter([headers, driver, module])?;
        command.arg("/module/kfd-trace");
        (command, MOUNTED.map(PathBuf::from))
    } else {
        (Command::new(module.join("kfd-trace")), [headers, driver, module].map(Path::to_owned))
    };
    command.env("TMPDIR", &module).arg("driver-types");
    command.arg("--source").arg(driver).arg("--headers").arg(tree(&headers, &kernel.release));
    command.arg("--module").arg(module.join("amdgpu.ko")).arg("--output").arg(module.join("types.btf"));
    Ok(command)
}

/// The folder of a flavour's headers below the root of the unpacked packages.
fn tree(headers: &Path, release: &str) -> PathBuf {
    headers.join("usr/src").join(format!("linux-headers-{release}"))
}

/// Whether this machine has the compiler that the headers name: Debian 12 no longer has the one of 5.10.
/// Another gcc gives structures the same layout.
fn has_compiler(tree: &Path) -> Result<bool> {
    let path = tree.join(".kernelvariables");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let line = text.lines().find(|line| line.starts_with("CC ")).context("the headers name no compiler")?;
    let named = line.rsplit([' ', ')']).next().unwrap_or(line);
    let path = std::env::var_os("PATH").unwrap_or_default();
    Ok(std::env::split_paths(&path).any(|folder| folder.join(named).is_file()))
}

/// The flavour's package names its sibling from the root of the file system. `seen`: where the root of the
/// packages is during the build. Written at each run: the checkout may have moved.
fn point(headers: &Path, release: &str, seen: &Path) -> Result<()> {
    let common = seen.join("usr/src").join(common_headers(release));
    let makefile =
        format!("KBUILD_OUTPUT={}\ninclude {}/Makefile\n", tree(seen, release).display(), common.display());
    fs::write(tree(headers, release).join("Makefile"), makefile)
        .context("cannot point the headers at each other")
}

/// The root of a Debian 13 with compiler and make, in which the command added to it runs.
fn enter(folders: [&Path; 3]) -> Result<Command> {
    let root = Root::at(&paths::cache().join("trixie"), &PACKAGES)?;
    let [headers, driver, module] = folders;
    Ok(root.enter(&[(headers, MOUNTED[0]), (driver, MOUNTED[1]), (module, MOUNTED[2])]))
}
