//! The make command that builds a module for one kernel. In: the folders of headers, driver headers and
//! module. Out: the command to run: on this machine where its C library and compiler suffice, otherwise in
//! the root of a newer Debian.
//!
//! That root is unpacked from packages, never set up: only compiler, linker and a shell run in it. It is
//! entered in a new mount namespace, so that nothing stays mounted however the build ends.

use crate::apt::{self, Apt};
use crate::paths;
use crate::run::step;
use crate::stamp::Stamp;
use crate::vm::kernels::Kernel;
use anyhow::{Context as _, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The driver within the kernel's sources.
pub(crate) const AMD: &str = "drivers/gpu/drm/amd";

/// Packages that kbuild needs to build a module. gcc-14 is Debian's compiler of its 7.2.
const PACKAGES: [&str; 10] =
    ["bash", "coreutils", "dash", "findutils", "gcc-14", "grep", "libelf1t64", "make", "mawk", "sed"];

/// Mounted in the root, in the order in which [`ENTER`] takes them.
const MOUNTED: [&str; 3] = ["/headers", "/driver", "/module"];

/// Enters the root from outside, in a mount namespace made for it. Arguments: the root, the three folders,
/// the command to run inside. objtool reads /proc.
const ENTER: &str = r#"set -e
PATH=$PATH:/usr/sbin:/sbin
mount --rbind /dev "$1/dev"
mount --rbind /proc "$1/proc"
mount --bind "$2" "$1/headers"
mount --bind "$3" "$1/driver"
mount --bind "$4" "$1/module"
root=$1; shift 4
exec chroot "$root" "$@"
"#;

/// Symbols of other modules that the module may use, in its folder.
pub(crate) const SYMVERS: &str = "driver.symvers";

pub(crate) struct Folders<'a> {
    /// Root of the unpacked packages of headers and kbuild's tools.
    pub(crate) headers: &'a Path,
    /// Root of the driver's sources: the kernel's with the driver's headers alone, or those of a driver that was
    /// built elsewhere.
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
        command = enter(&root()?, [headers, driver, module]);
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

/// `kfd-trace driver-types` for one kernel, ready to run: in the folder of the module, which has the program and
/// `amdgpu.ko`, and gets `types.btf`.
pub(crate) fn driver_types(kernel: &Kernel, folders: &Folders<'_>) -> Result<Command> {
    let Folders { headers, driver, module, .. } = *folders;
    point(headers, &kernel.release, if kernel.has_newer_kbuild() { Path::new(MOUNTED[0]) } else { headers })?;
    let (mut command, [headers, driver, module]) = if kernel.has_newer_kbuild() {
        let mut command = enter(&root()?, [headers, driver, module]);
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

/// Whether this machine has the compiler that the headers name: Debian 12 no longer has the one of 5.10. Another
/// gcc gives structures the same layout.
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

/// Runs the command added to it inside `root`. A user who is not root becomes so in a user namespace.
fn enter(root: &Path, folders: [&Path; 3]) -> Command {
    let mut command = Command::new("unshare");
    // SAFETY: no arguments, cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        command.args(["--user", "--map-root-user"]);
    }
    command.args(["--mount", "sh"]).arg(root.join("enter")).arg(root).args(folders);
    command
}

/// The root folder of a Debian 13 with compiler and make, from packages at first use.
fn root() -> Result<PathBuf> {
    let root = paths::cache().join("trixie");
    let key = format!("{}\n{ENTER}", PACKAGES.join(" "));
    let stamp = Stamp::at(root.join("unpacked-for"), key);
    if stamp.holds() {
        return Ok(root);
    }
    let clear = |dir: &Path| match dir.exists() {
        true => fs::remove_dir_all(dir).with_context(|| format!("cannot clear {}", dir.display())),
        false => Ok(()),
    };
    clear(&root)?;
    step("fetching compiler and make of Debian 13");
    let debs = Apt::trixie()?.download_closure(&PACKAGES)?;
    apt::unpack(&debs, &root)?;
    // Links that maintainer scripts would have created.
    let awk = root.join("usr/bin/awk");
    std::os::unix::fs::symlink("mawk", &awk).with_context(|| format!("cannot make {}", awk.display()))?;
    for place in MOUNTED {
        let dir = root.join(place.trim_start_matches('/'));
        fs::create_dir(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
    }
    fs::write(root.join("enter"), ENTER).context("cannot write to the root")?;
    stamp.set()?;
    Ok(root)
}
