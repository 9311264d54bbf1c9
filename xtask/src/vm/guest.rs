//! The binaries that go into the guest, built for musl: the tracer, the VM's init, workloads and the
//! integration-test executables. Out: name and file of each.

use crate::paths;
use crate::run::{self, step};
use anyhow::{Context as _, Result, bail};
use serde_json::Value;
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

/// cargo, as the process that started us names it.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(paths::root());
    command
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
    use super::artifacts;

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
