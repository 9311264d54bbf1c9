//! `cargo xtask setup`: installs what is missing and reports it. What is present is left alone; when nothing
//! is missing, nothing is fetched.

use crate::run::{self, note, step};
use crate::vm::guest::{self, TARGET};
use anyhow::{Context as _, Result, bail};
use std::path::PathBuf;
use std::process::Command;

/// Debian package, and its purpose.
const PACKAGES: [Package; 18] = [
    ("binutils", "strip"),
    ("debian-archive-keyring", "signatures of other Debian suites"),
    ("e2fsprogs", "the disk of the guest that is a Debian"),
    ("gcc", "linker of Rust programs"),
    ("gcc-12", "the compiler of Debian's kernels"),
    ("genext2fs", "the disk of the guest that is a Debian"),
    ("kmod", "depmod"),
    ("libc6-dev", "linking"),
    ("libelf1", "objtool, part of kbuild"),
    ("libpolly-22-dev", "bpf-linker"),
    ("libstdc++-12-dev", "bpf-linker"),
    ("llvm-22-dev", "bpf-linker; 22 is the LLVM of Rust 1.95"),
    ("make", "kbuild"),
    ("mmdebstrap", "the disk of the guest that is a Debian"),
    ("mount", "kbuild in the root of a newer Debian"),
    ("uidmap", "mmdebstrap, where it is not run by root"),
    ("xz-utils", "kernel packages"),
    ("zstd", "kernel images"),
];

const COMPONENTS: [&str; 3] = ["rust-src", "clippy", "rustfmt"];

const LINKER: &str = "bpf-linker";
const LINKER_VERSION: &str = "0.13.0";
const LLVM: &str = "/usr/lib/llvm-22";

/// For `cargo xtask fuzz` only.
const FUZZ_PACKAGES: [Package; 1] = [("g++", "libFuzzer")];
const FUZZ: Tool = Tool { name: "cargo-fuzz", version: "0.13.2" };

/// For `cargo xtask deny`.
const DENY: Tool = Tool { name: "cargo-deny", version: "0.20.2" };

/// For `cargo xtask dist`, and the check of packages.
const PACKAGING: [Package; 4] = [
    ("lintian", "checks of the .deb"),
    ("rpm", "the .rpm"),
    ("shellcheck", "checks of the packages' scripts"),
    ("xz-utils", "the .deb and the .rpm"),
];

/// The browser of `cargo xtask browser` and `picture`.
pub(crate) const BROWSER: &str = "chromium-headless-shell";
const BROWSING: [Package; 2] = [(BROWSER, "shows the daemon's pages"), ("fonts-dejavu-core", "their text")];

/// For `cargo xtask dist --arch aarch64`.
const CROSS: [Package; 2] =
    [("gcc-aarch64-linux-gnu", "compiler and linker"), ("libc6-dev-arm64-cross", "headers for parts in C")];

pub(crate) fn setup() -> Result<()> {
    debian(&PACKAGES)?;
    rust()?;
    bpf_linker()
}

/// All of the above, and the additional needs of fuzzing. Returns the folder where cargo finds its
/// subcommand.
pub(crate) fn fuzz() -> Result<PathBuf> {
    setup()?;
    debian(&FUZZ_PACKAGES)?;
    tool(&FUZZ)
}

/// Installs the check of dependencies. Returns the folder it is in.
pub(crate) fn deny() -> Result<PathBuf> {
    tool(&DENY)
}

/// A program of crates.io that only some checks need.
struct Tool {
    name: &'static str,
    version: &'static str,
}

/// Builds it below target/ unless it is there. Returns its folder.
fn tool(Tool { name, version }: &Tool) -> Result<PathBuf> {
    let tools = crate::paths::target().join("tools");
    let folder = tools.join("bin");
    let installed = run::output(Command::new(folder.join(name)).arg("--version")).unwrap_or_default();
    if installed.split_whitespace().any(|word| word == *version) {
        step(format!("{name} {version}: present"));
        return Ok(folder);
    }
    step(format!("building {name} {version} (a minute)"));
    let mut cargo = guest::cargo();
    cargo.args(["install", name, "--version", version, "--locked", "--force", "--root"]).arg(&tools);
    // It runs for a second: an optimised build would take longer than all its runs.
    cargo.env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "0").env("CARGO_PROFILE_RELEASE_LTO", "off");
    run::run(&mut cargo)?;
    Ok(folder)
}

/// Installs the tools that pack and check packages.
pub(crate) fn packaging() -> Result<()> {
    debian(&PACKAGING)
}

/// Installs the browser that shows the daemon's pages.
pub(crate) fn browser() -> Result<()> {
    debian(&BROWSING)
}

/// Installs the tools that build for another machine, by Rust's name of it.
pub(crate) fn cross(target: &str) -> Result<()> {
    debian(&CROSS)?;
    run::run(rustup().args(["target", "add", target]))
}

type Package = (&'static str, &'static str);

/// Installs the missing ones of these: Debian package, and its purpose.
pub(crate) fn debian(packages: &[Package]) -> Result<()> {
    let missing = missing_packages(packages)?;
    if missing.is_empty() {
        step(format!("Debian packages: all {} present", packages.len()));
        return Ok(());
    }
    step("Debian packages missing:");
    for (package, purpose) in packages.iter().filter(|(package, _)| missing.contains(package)) {
        note(format!("{package} ({purpose})"));
    }
    let update = vec!["apt-get", "update"];
    let mut install = vec!["apt-get", "install", "--yes", "--no-install-recommends"];
    install.extend(&missing);
    let Some(prefix) = privilege() else {
        eprintln!("Run as root, then start again:\n  {}\n  {}", update.join(" "), install.join(" "));
        bail!("{} Debian packages are missing and this user may not install them", missing.len());
    };
    for command in [update, install] {
        let words = [prefix, &command].concat();
        note(words.join(" "));
        let (program, arguments) = words.split_first().context("an empty command")?;
        run::run(Command::new(program).args(arguments).env("DEBIAN_FRONTEND", "noninteractive"))?;
    }
    Ok(())
}

fn missing_packages(packages: &[Package]) -> Result<Vec<&'static str>> {
    let names: Vec<_> = packages.iter().map(|(package, _)| *package).collect();
    // dpkg-query fails where one is unknown, but lists the others all the same.
    let listed = Command::new("dpkg-query")
        .args(["-W", "-f", "${db:Status-Status} ${Package}\\n"])
        .args(&names)
        .output()
        .context("cannot run dpkg-query: the set-up knows Debian only")?;
    Ok(not_listed(&names, &String::from_utf8_lossy(&listed.stdout)))
}

/// Names that dpkg does not show as installed.
fn not_listed(names: &[&'static str], listed: &str) -> Vec<&'static str> {
    let installed = |name: &str| listed.lines().any(|line| line.strip_prefix("installed ") == Some(name));
    names.iter().copied().filter(|name| !installed(name)).collect()
}

/// Prefix of a command that needs root; `None` where this user cannot become root without a password.
fn privilege() -> Option<&'static [&'static str]> {
    // SAFETY: no arguments, cannot fail.
    if unsafe { libc::geteuid() } == 0 {
        return Some(&[]);
    }
    let sudo = Command::new("sudo").args(["-n", "true"]).output();
    sudo.is_ok_and(|done| done.status.success()).then_some(&["sudo", "-n"])
}

/// Parts of the pinned toolchain (rust-toolchain.toml names it; rustup reads that in the workspace).
fn rust() -> Result<()> {
    let components = run::output(rustup().args(["component", "list", "--installed"]))?;
    let targets = run::output(rustup().args(["target", "list", "--installed"]))?;
    let have = |name: &str| {
        components.lines().any(|line| line == name || line.starts_with(&format!("{name}-x86_64")))
    };
    let missing: Vec<&str> = COMPONENTS.into_iter().filter(|name| !have(name)).collect();
    let target = targets.lines().any(|line| line == TARGET);
    if missing.is_empty() && target {
        step(format!("Rust: {}, {TARGET}: present", COMPONENTS.join(", ")));
        return Ok(());
    }
    step(format!("Rust: adding {} {}", missing.join(" "), if target { "" } else { TARGET }));
    if !missing.is_empty() {
        run::run(rustup().args(["component", "add"]).args(&missing))?;
    }
    if !target {
        run::run(rustup().args(["target", "add", TARGET]))?;
    }
    Ok(())
}

fn rustup() -> Command {
    let mut command = Command::new("rustup");
    command.current_dir(crate::paths::root());
    command
}

fn bpf_linker() -> Result<()> {
    let version = run::output(Command::new(LINKER).arg("--version")).unwrap_or_default();
    if version.split_whitespace().any(|word| word == LINKER_VERSION) {
        step(format!("{LINKER} {LINKER_VERSION}: present"));
        return Ok(());
    }
    step(format!("building {LINKER} {LINKER_VERSION} with {LLVM} (a few minutes)"));
    let mut cargo = guest::cargo();
    cargo.args(["install", LINKER, "--version", LINKER_VERSION, "--locked", "--force"]);
    cargo.args(["--no-default-features", "--features", "llvm-22"]).env("LLVM_PREFIX", LLVM);
    run::run(&mut cargo)?;
    run::output(Command::new(LINKER).arg("--version"))
        .context("it was installed, but is not found: is cargo's bin folder in PATH?")
        .map(drop)
}

#[cfg(test)]
mod tests {
    use super::not_listed;

    #[test]
    fn only_installed_packages_count() {
        let listed = "installed make\nconfig-files gcc\nnot-installed kmod\n";
        assert_eq!(not_listed(&["make", "gcc", "kmod", "zstd"], listed), ["gcc", "kmod", "zstd"]);
    }
}
