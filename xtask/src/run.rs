//! Runs other programs, and announces what is being done.
//!
//! Progress goes to stderr, one line per step; stdout is for results.

use anyhow::{Context as _, Result, anyhow, bail};
use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

/// A process that is ended when this value is dropped.
pub(crate) struct Ended(pub(crate) Child);

impl Drop for Ended {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The folders in /proc of a process and of those that it started.
pub(crate) fn family(pid: u32) -> Result<Vec<PathBuf>> {
    let own = Path::new("/proc").join(pid.to_string());
    let mut all = vec![own.clone()];
    for task in fs::read_dir(own.join("task")).context("it has ended")? {
        let children = fs::read_to_string(task?.path().join("children"))?;
        all.extend(children.split_whitespace().map(|pid| Path::new("/proc").join(pid)));
    }
    Ok(all)
}

/// The number after a name in a `status` file of procfs.
pub(crate) fn status_number(path: &Path, name: &str) -> Result<i64> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    number(&text, name).with_context(|| format!("{} has no {name}", path.display()))
}

fn number(status: &str, name: &str) -> Option<i64> {
    let mut fields = status.lines().filter_map(|line| line.split_once(':'));
    let (_, value) = fields.find(|(field, _)| *field == name)?;
    value.split_whitespace().next()?.parse().ok()
}

/// Announces a step.
pub(crate) fn step(text: impl std::fmt::Display) {
    eprintln!("==> {text}");
}

/// A detail below a step.
pub(crate) fn note(text: impl std::fmt::Display) {
    eprintln!("    {text}");
}

/// `12.3 MiB` for a number of bytes.
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let (mut whole, mut rest, mut unit) = (bytes / 1024, bytes % 1024, 0);
    while whole >= 1024 && unit + 1 < UNITS.len() {
        (whole, rest, unit) = (whole / 1024, whole % 1024, unit + 1);
    }
    format!("{whole}.{} {}", rest * 10 / 1024, UNITS[unit])
}

/// The program's name as the user would type it, for messages.
fn name(command: &Command) -> String {
    command.get_program().to_string_lossy().into_owned()
}

fn spawn_error(command: &Command, error: std::io::Error) -> anyhow::Error {
    let name = name(command);
    if error.kind() == ErrorKind::NotFound {
        anyhow!("{name} is not installed: run `cargo xtask setup` first")
    } else {
        anyhow::Error::new(error).context(format!("cannot run {name}"))
    }
}

/// Runs with the caller's stdout and stderr; the caller judges the exit status.
pub(crate) fn status(command: &mut Command) -> Result<ExitStatus> {
    command.status().map_err(|error| spawn_error(command, error))
}

/// Runs with the caller's stdout and stderr; anything but success is an error.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = status(command)?;
    if !status.success() {
        bail!("{} failed ({status})", describe(command));
    }
    Ok(())
}

/// Runs and returns stdout; on failure the last lines of stderr become the error.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let done = command.stdin(Stdio::null()).output().map_err(|error| spawn_error(command, error))?;
    if !done.status.success() {
        let reported = String::from_utf8_lossy(&done.stderr);
        bail!("{} failed ({}): {}", describe(command), done.status, complaint(&reported));
    }
    String::from_utf8(done.stdout).with_context(|| format!("{} printed no text", name(command)))
}

/// Runs with all output kept in `log`; on failure the error shows the log's end.
pub(crate) fn logged(command: &mut Command, log: &Path) -> Result<()> {
    let file = File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
    let copy = file.try_clone().context("cannot share a log file")?;
    let status = status(command.stdin(Stdio::null()).stdout(file).stderr(copy))?;
    if !status.success() {
        let text = std::fs::read_to_string(log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        for line in &lines[lines.len().saturating_sub(25)..] {
            eprintln!("    {line}");
        }
        bail!("{} failed ({status}), see {}", describe(command), log.display());
    }
    Ok(())
}

/// The most informative line of a program's error output: apt's first `E:`, otherwise the last one.
fn complaint(reported: &str) -> &str {
    let mut lines = reported.lines().map(str::trim).filter(|line| !line.is_empty());
    let error = lines.clone().find_map(|line| line.strip_prefix("E: "));
    error.or_else(|| lines.next_back()).unwrap_or("it said nothing")
}

/// Program and its first arguments, without `-o KEY=VALUE`: enough to recognise the step.
fn describe(command: &Command) -> String {
    let mut words = vec![name(command)];
    let mut arguments = command.get_args().map(|argument| argument.to_string_lossy().into_owned());
    while let Some(argument) = arguments.next() {
        if argument == "-o" {
            arguments.next();
        } else if words.len() < 5 {
            words.push(argument);
        }
    }
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_reported_in_one_line() {
        let mut command = Command::new("apt-get");
        command.args(["-o", "Dir::State=/x", "download", "linux=1"]);
        assert_eq!(super::describe(&command), "apt-get download linux=1");
        assert_eq!(super::complaint("W: slow\nE: no space left\nE: sorry\n"), "no space left");
        assert_eq!(super::complaint("first\n\nlast\n"), "last");
        assert_eq!(super::complaint(""), "it said nothing");
    }

    #[test]
    fn sizes_are_readable() {
        assert_eq!(super::size(1023), "1023 B");
        assert_eq!(super::size(1024), "1.0 KiB");
        assert_eq!(super::size(107_179_464), "102.2 MiB");
    }

    #[test]
    fn a_number_is_found_by_its_whole_name() {
        let status = "Name:\tx\nVmRSSx:\t1 kB\nVmRSS:\t  5220 kB\nnonvoluntary_ctxt_switches:\t7\nvoluntary_ctxt_switches:\t12\n";
        assert_eq!(number(status, "VmRSS"), Some(5220));
        assert_eq!(number(status, "voluntary_ctxt_switches"), Some(12));
        assert_eq!((number(status, "Name"), number(status, "VmHWM")), (None, None));
    }
}
