//! The usual checks, as Debian ships them: which processes lsof, fuser and rocm-smi show to root or to
//! another user.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// The user that runs the check.
#[derive(Clone, Copy, Debug)]
pub(super) enum Eyes {
    Root,
    /// A user and group with this id, without any capability.
    User(u32),
}

impl Eyes {
    /// A program's standard output, and its other output. These tools also use exit codes to report that
    /// something could not be seen.
    fn output(self, words: &[&str]) -> Result<(String, String)> {
        let mut command = Command::new(words[0]);
        command.args(&words[1..]);
        if let Self::User(uid) = self {
            command.uid(uid).gid(uid);
        }
        let output = command.output().with_context(|| format!("run {words:?}"))?;
        let failure = format!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr));
        Ok((String::from_utf8(output.stdout)?, failure))
    }

    /// Runs `lsof /dev/kfd` and `fuser /dev/kfd`; returns the users they find.
    pub(super) fn found_by(self, tool: &str) -> Result<String> {
        Ok(self.output(&[tool, "/dev/kfd"])?.0)
    }

    /// Names by PID from `rocm-smi --showpids`: rows of `PID  PROCESS NAME  GPU(s)  ...`. Without a render
    /// node it cannot determine the GPU of a process, which its exit code reports.
    pub(super) fn listed(self) -> Result<BTreeMap<u32, String>> {
        let (reported, failure) = self.output(&["rocm-smi", "--showpids"])?;
        ensure!(reported.contains("KFD Processes"), "{reported}{failure}");
        let row = |line: &str| {
            let mut words = line.split_whitespace();
            Some((words.next()?.parse().ok()?, words.next()?.to_owned()))
        };
        Ok(reported.lines().filter_map(row).collect())
    }

    /// Checks that each tool shows a process as a row of the doctor states.
    pub(super) fn see_what_is_reported(self, pid: u32, row: &Value) -> Result<()> {
        self.tool_sees_what_is_reported("lsof", pid, row)?;
        self.tool_sees_what_is_reported("fuser", pid, row)?;
        self.rocm_smi_sees_what_is_reported(pid, row)
    }

    pub(super) fn tool_sees_what_is_reported(self, tool: &str, pid: u32, row: &Value) -> Result<()> {
        let found = self.found_by(tool)?;
        let finds = found.split_whitespace().any(|word| word == pid.to_string());
        // Where this user has no access, the doctor reports that they show nothing.
        let reported = row["seen_by"]["lsof"].as_bool().unwrap_or(false);
        assert_eq!(reported, finds, "{tool}, {self:?}: {found:?}, doctor: {row}");
        Ok(())
    }

    pub(super) fn rocm_smi_sees_what_is_reported(self, pid: u32, row: &Value) -> Result<()> {
        let listed = self.listed()?;
        let expected = match listed.get(&pid).map(String::as_str) {
            None if row["kfd"] == false => Value::Null,
            None => json!("missed"),
            Some("UNKNOWN") => json!("unknown"),
            Some(_) => json!("named"),
        };
        assert_eq!(row["rocm_smi"], expected, "rocm-smi, {self:?}: {listed:?}, doctor: {row}");
        Ok(())
    }
}
