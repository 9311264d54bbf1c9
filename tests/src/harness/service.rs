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

/// Where the daemon serves if nothing else is asked for.
pub const ADDRESS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 20200);

/// What the host has put there (xtask/src/bench.rs): the package, and one of a later version.
const PACKAGES: &str = "/packages";

/// Runs a program, and gives what it printed.
///
/// # Errors
/// With all that it printed when it fails.
pub fn command(program: &str, words: &[&str]) -> Result<String> {
    let done = Command::new(program).args(words).env("DEBIAN_FRONTEND", "noninteractive").output();
    let done = done.with_context(|| format!("run {program}"))?;
    let (said, errors) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    ensure!(done.status.success(), "{program} {words:?}: {}\n{said}{errors}", done.status);
    Ok(said.into_owned())
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

/// One property of the unit, as `systemctl show` has it.
pub fn property(name: &str) -> Result<String> {
    Ok(command("systemctl", &["show", "--value", &format!("--property={name}"), UNIT])?.trim_end().to_owned())
}

/// The PID of its main process; none while it does not run.
pub fn main_pid() -> Result<Option<u32>> {
    let pid: u32 = property("MainPID")?.parse()?;
    Ok((pid != 0).then_some(pid))
}

/// To its main process.
pub fn signal(signal: Signal) -> Result<()> {
    let pid = main_pid()?.context("the service does not run")?;
    kill(Pid::from_raw(pid.try_into()?), signal).with_context(|| format!("{signal} to the service"))
}

/// What it said since the machine's start.
pub fn journal() -> Result<String> {
    command("journalctl", &["--unit", UNIT, "--no-pager", "--output=cat", "--boot"])
}

pub fn scrape() -> Result<Metrics> {
    let response = http::get(ADDRESS, "/metrics")?;
    ensure!(response.status == 200, "/metrics: status {}", response.status);
    Metrics::parse(&response.body).context("/metrics")
}

/// Scrapes until `look` gives a value; a service that cannot be scraped is waited for.
pub fn scrape_until<T>(what: &str, look: impl Fn(&Metrics) -> Option<T>) -> Result<T> {
    let found = until(what, ATTACH, || {
        let found = scrape().ok().as_ref().and_then(&look);
        if found.is_none() {
            // A guest whose clock goes by instructions pays for each look.
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

/// A drop-in of the unit, for the time of a test: it begins with a restart and ends with one.
#[derive(Debug)]
pub struct Changed(PathBuf);

impl Changed {
    /// With other settings in `[Service]`, a line each.
    pub fn with(name: &str, settings: &str) -> Result<Self> {
        let folder = Path::new("/run/systemd/system").join(format!("{UNIT}.d"));
        fs::create_dir_all(&folder)?;
        let changed = Self(folder.join(format!("{name}.conf")));
        fs::write(&changed.0, format!("[Service]\n{settings}\n"))?;
        restart()?;
        Ok(changed)
    }

    /// With other arguments than the configured ones.
    pub fn arguments(name: &str, words: &[&str]) -> Result<Self> {
        Self::with(name, &format!("ExecStart=\nExecStart=/usr/bin/kfd-trace daemon {}", words.join(" ")))
    }

    /// As it was; what fails is told.
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
