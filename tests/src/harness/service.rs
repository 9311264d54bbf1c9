//! `kfd-trace` as a package and a service of the guest's Debian.

use super::exposition::Metrics;
use super::http;
use super::wait::{ATTACH, until};
use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

pub const UNIT: &str = "kfd-trace.service";

/// The group in tracefs of the return probes that the unit defines.
pub const SERVICE_PROBES: &str = "kfd_trace_service";

/// The daemon's default address.
pub const ADDRESS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 20200);

/// Where the host has placed (xtask/src/vm/testbed.rs) the package, and one of a later version.
const PACKAGES: &str = "/packages";

/// Runs a program, and returns its output.
///
/// # Errors
/// With its whole output when it fails.
pub fn command(program: &str, words: &[&str]) -> Result<String> {
    let done = Command::new(program).args(words).env("DEBIAN_FRONTEND", "noninteractive").output();
    let done = done.with_context(|| format!("run {program}"))?;
    let (output, errors) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    ensure!(done.status.success(), "{program} {words:?}: {}\n{output}{errors}", done.status);
    Ok(output.into_owned())
}

/// The packages in the order of their versions.
pub fn packages() -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(PACKAGES).with_context(|| format!("read {PACKAGES}"))?;
    let mut found = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    found.sort();
    ensure!(!found.is_empty(), "no package in {PACKAGES}");
    Ok(found)
}

pub fn install(package: &Path) -> Result<()> {
    command("dpkg", &["--install", &package.to_string_lossy()]).map(drop)
}

/// One property of the unit, as `systemctl show` prints it.
pub fn property(name: &str) -> Result<String> {
    Ok(command("systemctl", &["show", "--value", &format!("--property={name}"), UNIT])?.trim_end().to_owned())
}

/// The PID of its main process; `None` while it does not run.
pub fn main_pid() -> Result<Option<u32>> {
    let pid: u32 = property("MainPID")?.parse()?;
    Ok((pid != 0).then_some(pid))
}

/// Sends a signal to its main process.
pub fn signal(signal: Signal) -> Result<()> {
    let pid = main_pid()?.context("the service does not run")?;
    kill(Pid::from_raw(pid.try_into()?), signal).with_context(|| format!("{signal} to the service"))
}

/// Its log since the machine's start.
pub fn journal() -> Result<String> {
    logged(&["--unit", UNIT])
}

/// The messages of the journal since the machine's start that match, one per line. journald reads what was written to it
/// when it has time: it is asked to do that first.
pub fn logged(matches: &[&str]) -> Result<String> {
    command("journalctl", &["--sync"])?;
    command("journalctl", &[&["--boot", "--no-pager", "--output=cat"], matches].concat())
}

pub fn scrape() -> Result<Metrics> {
    let response = http::get(ADDRESS, "/metrics")?;
    ensure!(response.status == 200, "/metrics: status {}", response.status);
    Metrics::parse(&response.body).context("/metrics")
}

/// Scrapes until `look` returns a value; retries while the service cannot be scraped.
pub fn scrape_until<T>(what: &str, look: impl Fn(&Metrics) -> Option<T>) -> Result<T> {
    let found = until(what, ATTACH, || {
        let found = scrape().ok().as_ref().and_then(&look);
        if found.is_none() {
            // A guest whose clock counts instructions pays for each scrape.
            sleep(Duration::from_millis(200));
        }
        Ok(found)
    });
    found.with_context(|| {
        format!("{}\n{}", property("StatusText").unwrap_or_default(), journal().unwrap_or_default())
    })
}

/// The installed service, running and tracing the driver that is loaded.
pub fn tracing() -> Result<()> {
    if !Path::new("/usr/bin/kfd-trace").exists() {
        install(&packages()?[0])?;
    }
    let loaded =
        |metrics: &Metrics| metrics.sum("kfd_trace_driver_loaded", &[]).filter(|loaded| *loaded == 1.0);
    scrape_until("the service to see the driver", loaded)?;
    until("the service to trace", ATTACH, || {
        Ok(http::get(ADDRESS, "/-/ready").is_ok_and(|ready| ready.status == 200).then_some(()))
    })
}

/// A drop-in of the unit for the duration of a test: restarts the service at its start and at its end.
#[derive(Debug)]
pub struct Changed(PathBuf);

impl Changed {
    /// Adds settings to `[Service]`, one per line.
    pub fn with(name: &str, settings: &str) -> Result<Self> {
        let folder = Path::new("/run/systemd/system").join(format!("{UNIT}.d"));
        fs::create_dir_all(&folder)?;
        let changed = Self(folder.join(format!("{name}.conf")));
        fs::write(&changed.0, format!("[Service]\n{settings}\n"))?;
        restart()?;
        Ok(changed)
    }

    /// Replaces the configured arguments.
    pub fn arguments(name: &str, words: &[&str]) -> Result<Self> {
        Self::with(name, &format!("ExecStart=\nExecStart=/usr/bin/kfd-trace daemon {}", words.join(" ")))
    }

    /// Restores the original settings; failures are reported.
    pub fn undo(self) -> Result<()> {
        self.remove()
    }

    fn remove(&self) -> Result<()> {
        if !self.0.exists() {
            return Ok(());
        }
        fs::remove_file(&self.0)?;
        restart()
    }
}

impl Drop for Changed {
    fn drop(&mut self) {
        if let Err(error) = self.remove() {
            eprintln!("{error:#}");
        }
    }
}

fn restart() -> Result<()> {
    command("systemctl", &["daemon-reload"])?;
    if let Err(error) = command("systemctl", &["restart", UNIT]) {
        bail!("{error:#}\n{}", journal()?);
    }
    Ok(())
}
