//! A child process that prints JSON lines.

use super::child::OwnChild;
use super::json_lines::JsonLines;
use super::wait::until;
use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::Write;
use std::ops::Deref;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

/// Killed and reaped when dropped.
#[derive(Debug)]
pub struct JsonProcess {
    child: OwnChild,
    lines: JsonLines,
}

impl JsonProcess {
    /// Starts `program` with its standard input open; see [`Self::close_stdin`].
    pub fn spawn(program: &str, args: &[&str]) -> Result<Self> {
        Self::start(Command::new(program).args(args))
    }

    /// [`Self::spawn`] of a prepared command, for example for another user.
    pub fn start(command: &mut Command) -> Result<Self> {
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        let name = words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("start `{name}`"))?;
        let stdout = child.stdout.take().context("standard output is piped")?;
        let stderr = child.stderr.take().context("standard error is piped")?;
        Ok(Self { child: OwnChild(child), lines: JsonLines::read(name, stdout, stderr) })
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until its standard error contains this text.
    pub fn wait_stderr(&mut self, text: &str, limit: Duration) -> Result<()> {
        let what = format!("`{text}` of `{}`", self.lines.name());
        until(&what, limit, || {
            if self.stderr().contains(text) {
                return Ok(Some(()));
            }
            if let Some(status) = self.exited()? {
                bail!("it ended: {status}, stderr: {}", self.stderr());
            }
            Ok(None)
        })
    }

    /// Writes one line to its standard input.
    pub fn send_line(&mut self, line: &str) -> Result<()> {
        let stdin = self.child.stdin.as_mut().context("standard input is closed")?;
        writeln!(stdin, "{line}").with_context(|| format!("write to `{}`", self.lines.name()))
    }

    /// Closes its standard input, which makes a workload finish.
    pub fn close_stdin(&mut self) {
        self.child.stdin = None;
    }

    pub fn signal(&self, signal: Signal) -> Result<()> {
        let pid = Pid::from_raw(i32::try_from(self.pid())?);
        kill(pid, signal).with_context(|| format!("{signal} to `{}`", self.lines.name()))
    }

    /// Its exit status, if it has ended.
    pub fn exited(&mut self) -> Result<Option<ExitStatus>> {
        self.child.try_wait().with_context(|| format!("look after `{}`", self.lines.name()))
    }

    /// Waits for its end, and for all of its output.
    pub fn wait_exit(&mut self, limit: Duration) -> Result<ExitStatus> {
        let what = format!("the end of `{}`", self.lines.name());
        let status = until(&what, limit, || Ok(self.child.try_wait()?))?;
        // its own child may still hold the pipe: the caller has to handle that
        let _ = self.lines.wait_lines(&what, Duration::from_secs(1), |_| None::<()>);
        Ok(status)
    }

    /// [`Self::wait_exit`], and checks for success.
    pub fn wait_success(&mut self, limit: Duration) -> Result<()> {
        let status = self.wait_exit(limit)?;
        ensure!(status.success(), "`{}`: {status}, stderr: {}", self.lines.name(), self.stderr());
        Ok(())
    }
}

impl Deref for JsonProcess {
    type Target = JsonLines;
    fn deref(&self) -> &JsonLines {
        &self.lines
    }
}

#[cfg(test)]
mod tests {
    use super::super::wait::SOON;
    use super::*;
    use std::time::Instant;

    #[test]
    fn lines_are_waited_for_as_they_come() {
        let script = "read a; echo '{\"n\":1}'; echo plain; read b; echo '{\"n\":2}'";
        let mut process = JsonProcess::spawn("sh", &["-c", script]).unwrap();
        process.send_line("go").unwrap();
        process.wait_line("one", SOON, |line| line["n"] == 1).unwrap();
        assert_eq!(process.lines().len(), 1);
        process.close_stdin();
        process.wait_line("two", SOON, |line| line["n"] == 2).unwrap();
        process.wait_success(SOON).unwrap();
        assert_eq!(process.other_lines(), ["plain"]);
    }

    #[test]
    fn an_early_end_is_reported_with_what_it_said() {
        let process = JsonProcess::spawn("sh", &["-c", "echo sorry >&2; sleep 0.2"]).unwrap();
        let error = process.wait_line("never", SOON, |_| true).unwrap_err().to_string();
        assert!(error.contains("never") && error.contains("sorry"), "{error}");
    }

    #[test]
    fn dropping_kills() {
        let process = JsonProcess::spawn("sleep", &["30"]).unwrap();
        let proc_entry = format!("/proc/{}", process.pid());
        assert!(std::path::Path::new(&proc_entry).exists());
        let start = Instant::now();
        drop(process);
        assert!(!std::path::Path::new(&proc_entry).exists());
        assert!(start.elapsed() < SOON, "it was left to end by itself");
    }
}
