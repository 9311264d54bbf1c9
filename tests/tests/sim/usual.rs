//! The usual checks, as Debian has them: whom lsof, fuser and rocm-smi show, to root or to another user.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// Who looks.
#[derive(Clone, Copy, Debug)]
pub(super) enum Eyes {
    Root,
    /// A user and group of this number, without any capability.
    User(u32),
}

impl Eyes {
    /// What a program prints on standard output, and what else it says. Exit codes of these tools say that something could not be
    /// seen, too.
    fn output(self, words: &[&str]) -> Result<(String, String)> {
        let mut command = Command::new(words[0]);
        command.args(&words[1..]);
        if let Self::User(uid) = self {
            command.uid(uid).gid(uid);
        }
        let output = command.output().with_context(|| format!("run {words:?}"))?;
        let said = format!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr));
        Ok((String::from_utf8(output.stdout)?, said))
    }

    /// What `lsof /dev/kfd` and `fuser /dev/kfd` print: the users they find.
    pub(super) fn found_by(self, tool: &str) -> Result<String> {
        Ok(self.output(&[tool, "/dev/kfd"])?.0)
    }

    /// Names by PID of `rocm-smi --showpids`: rows of `PID  PROCESS NAME  GPU(s)  ...`. Where there is no render node it cannot tell on
    /// which GPU a process is, which its exit code says.
    pub(super) fn listed(self) -> Result<BTreeMap<u32, String>> {
        let (told, said) = self.output(&["rocm-smi", "--showpids"])?;
        ensure!(told.contains("KFD Processes"), "{told}{said}");
        let row = |line: &str| {
            let mut words = line.split_whitespace();
            Some((words.next()?.parse().ok()?, words.next()?.to_owned()))
        };
        Ok(told.lines().filter_map(row).collect())
    }

    /// That each of them shows of a process what a row of the doctor says that it does.
    pub(super) fn see_what_is_told(self, pid: u32, row: &Value) -> Result<()> {
        self.tool_sees_what_is_told("lsof", pid, row)?;
        self.tool_sees_what_is_told("fuser", pid, row)?;
        self.rocm_smi_sees_what_is_told(pid, row)
    }

    pub(super) fn tool_sees_what_is_told(self, tool: &str, pid: u32, row: &Value) -> Result<()> {
        let found = self.found_by(tool)?;
        let finds = found.split_whitespace().any(|word| word == pid.to_string());
        // Where this user may not look, the doctor says that they show nothing.
        let told = row["seen_by"]["lsof"].as_bool().unwrap_or(false);
        assert_eq!(told, finds, "{tool}, {self:?}: {found:?}, doctor: {row}");
        Ok(())
    }

    pub(super) fn rocm_smi_sees_what_is_told(self, pid: u32, row: &Value) -> Result<()> {
        let listed = self.listed()?;
        let said = match listed.get(&pid).map(String::as_str) {
            None if row["kfd"] == false => Value::Null,
            None => json!("missed"),
            Some("UNKNOWN") => json!("unknown"),
            Some(_) => json!("named"),
        };
        assert_eq!(row["rocm_smi"], said, "rocm-smi, {self:?}: {listed:?}, doctor: {row}");
        Ok(())
    }
}
