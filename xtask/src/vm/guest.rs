//! The binaries that go into the guest, built for musl: the tracer, the VM's init, workloads and the
//! integration-test executables. Out: name and file of each.

use crate::paths;
use crate::run::{self, step};
use anyhow::{Context as _, Result, bail};
use serde_json::Value;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

pub(crate) const TARGET: &str = "x86_64-unknown-linux-musl";

/// Executables of the tests package.
pub(crate) struct Binaries {
    /// Programs: `vm-init`, `kfd-workload`, `kfd-demo`.
    pub(crate) programs: Vec<(String, PathBuf)>,
    /// Test executables, one per stage.
    pub(crate) tests: Vec<(String, PathBuf)>,
}

impl Binaries {
    pub(crate) fn program(&self, name: &str) -> Result<&Path> {
        find(&self.programs, name).with_context(|| format!("the tests package has no program {name}"))
    }

    pub(crate) fn test(&self, name: &str) -> Option<&Path> {
        find(&self.tests, name)
    }
}

fn find<'a>(list: &'a [(String, PathBuf)], name: &str) -> Option<&'a Path> {
    list.iter().find(|(have, _)| have == name).map(|(_, path)| path.as_path())
}

/// cargo, as the process that started us names it, in the environment of a shell.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(paths::root());
    as_from_a_shell(&mut command);
    command
}

/// Removes from the environment of a program that is or starts cargo what cargo has put into that of xtask. Build
/// scripts, ring's among them, run again whenever a variable that they name has changed, and with them all that depends on
/// their crate is compiled: the same build by xtask and by hand would undo each other.
pub(crate) fn as_from_a_shell(command: &mut Command) -> &mut Command {
    let names = std::env::vars_os().map(|(name, _)| name);
    names.filter(|name| is_of_a_package(name)).for_each(|name| {
        command.env_remove(name);
    });
    command
}

/// Whether this variable describes the package that cargo runs: see "Environment variables Cargo sets for crates" of
/// cargo's book. All other variables of cargo are the user's settings (`CARGO_HOME`, `CARGO_TARGET_DIR`, `CARGO_PROFILE_...`).
fn is_of_a_package(name: &OsStr) -> bool {
    const PREFIXES: [&str; 3] = ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_"];
    const NAMES: [&str; 4] = ["CARGO_CRATE_NAME", "CARGO_PRIMARY_PACKAGE", "CARGO_TARGET_TMPDIR", "OUT_DIR"];
    let Some(name) = name.to_str() else { return false };
    NAMES.contains(&name) || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// Builds the whole tests package.
pub(crate) fn build() -> Result<Binaries> {
    step("building the guest's programs and tests");
    binaries(&["test", "--no-run", "--test=*"])
}

/// Builds only its programs.
pub(crate) fn build_programs() -> Result<Binaries> {
    step("building the guest's programs");
    binaries(&["build", "--bins"])
}

fn binaries(words: &[&str]) -> Result<Binaries> {
    let mut command = cargo();
    command.args(words).args(["--message-format=json-render-diagnostics", "-p", "kfd-trace-tests"]);
    command.args(["--profile=guest", "--target", TARGET]).stderr(Stdio::inherit());
    let done = command.output().context("cannot run cargo")?;
    if !done.status.success() {
        bail!("the tests package does not build");
    }
    let text = String::from_utf8(done.stdout).context("cargo printed no text")?;
    Ok(artifacts(&text))
}

/// Executables among cargo's JSON messages. A program built as its own unit-test harness is neither.
fn artifacts(messages: &str) -> Binaries {
    let mut found = Binaries { programs: Vec::new(), tests: Vec::new() };
    for message in messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
        let Some(path) = message["executable"].as_str() else { continue };
        let Some(name) = message["target"]["name"].as_str() else { continue };
        let entry = (name.to_owned(), PathBuf::from(path));
        match (message["target"]["kind"][0].as_str(), message["profile"]["test"].as_bool()) {
            (Some("bin"), Some(false)) => found.programs.push(entry),
            (Some("test"), Some(true)) => found.tests.push(entry),
            _ => {}
        }
    }
    found
}

/// The file without debug information, which would only fill the guest's memory.
pub(crate) fn stripped(path: &Path, scratch: &Path) -> Result<Vec<u8>> {
    run::output(Command::new("strip").arg("--strip-debug").arg("-o").arg(scratch).arg(path))?;
    let bytes = std::fs::read(scratch).with_context(|| format!("cannot read {}", scratch.display()))?;
    std::fs::remove_file(scratch).with_context(|| format!("cannot delete {}", scratch.display()))?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::{artifacts, cargo, is_of_a_package};
    use std::ffi::OsStr;

    /// These tests are run by cargo, as xtask is.
    #[test]
    fn cargo_gets_nothing_that_describes_xtask() {
        let handed: Vec<_> =
            std::env::vars_os().map(|(name, _)| name).filter(|name| is_of_a_package(name)).collect();
        for name in ["CARGO_MANIFEST_DIR", "CARGO_PKG_NAME", "CARGO_PKG_VERSION_MAJOR"] {
            assert!(handed.iter().any(|handed| handed == name), "{name} is handed to what cargo runs");
        }
        let command = cargo();
        for name in &handed {
            assert!(
                command.get_envs().any(|(key, value)| key == name && value.is_none()),
                "{}",
                name.display()
            );
        }
    }

    #[test]
    fn the_settings_of_the_user_stay() {
        for name in [
            "CARGO_HOME",
            "CARGO_TARGET_DIR",
            "CARGO_PROFILE_DEV_DEBUG",
            "CARGO_TERM_COLOR",
            "RUSTUP_TOOLCHAIN",
            "PATH",
        ] {
            assert!(!is_of_a_package(OsStr::new(name)), "{name}");
        }
        let changed = cargo().get_envs().map(|(name, _)| name.to_owned()).collect::<Vec<_>>();
        assert!(changed.iter().all(|name| is_of_a_package(name)), "{changed:?}");
    }

    #[test]
    fn programs_and_tests_are_distinguished() {
        let messages = r#"
{"reason":"compiler-artifact","target":{"kind":["lib"],"name":"x"},"profile":{"test":false},"executable":null}
{"reason":"compiler-artifact","target":{"kind":["bin"],"name":"vm-init"},"profile":{"test":false},"executable":"/t/vm-init"}
{"reason":"compiler-artifact","target":{"kind":["bin"],"name":"vm-init"},"profile":{"test":true},"executable":"/t/vm-init-1"}
{"reason":"compiler-artifact","target":{"kind":["test"],"name":"sim"},"profile":{"test":true},"executable":"/t/sim-1"}
{"reason":"build-finished","success":true}"#;
        let found = artifacts(messages);
        assert_eq!(found.programs, [("vm-init".to_owned(), "/t/vm-init".into())]);
        assert_eq!(found.tests, [("sim".to_owned(), "/t/sim-1".into())]);
    }
}
