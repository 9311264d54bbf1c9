//! The package: installed, upgraded, removed without leftovers.

use crate::{clean, installed};
use anyhow::{Context, Result, ensure};
use kfd_trace_tests::harness::service::{
    ADDRESS, SERVICE_PROBES, command, install, journal, logged, main_pid, packages, property, scrape_until,
    signal,
};
use kfd_trace_tests::harness::tracefs;
use kfd_trace_tests::harness::wait::ATTACH;
use kfd_trace_tests::harness::{Metrics, http, until};
use nix::sys::signal::Signal;
use std::collections::BTreeSet;
use std::fs;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const SETTINGS: &str = "/etc/default/kfd-trace";

/// The folders that a package may change, without what changes by itself.
const FOLDERS: [&str; 5] = ["/etc", "/usr", "/lib", "/opt", "/var"];
const OTHERS: [&str; 6] = [
    "/var/lib/dpkg",
    "/var/log",
    "/var/cache",
    "/var/lib/systemd/timers",
    "/var/lib/systemd/random-seed",
    "/var/tmp",
];

/// All files and folders there, links not followed.
fn files() -> Result<BTreeSet<PathBuf>> {
    let mut found = BTreeSet::new();
    let mut folders: Vec<PathBuf> = FOLDERS.iter().map(PathBuf::from).collect();
    while let Some(folder) = folders.pop() {
        let entries = match fs::read_dir(&folder) {
            // A service's private folder, removed since it was listed.
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            entries => entries.with_context(|| format!("list {}", folder.display()))?,
        };
        for entry in entries {
            let entry = entry?;
            let path = entry.path();
            if OTHERS.iter().any(|other| path.starts_with(other)) {
                continue;
            }
            if entry.file_type()?.is_dir() {
                folders.push(path.clone());
            }
            found.insert(path);
        }
    }
    Ok(found)
}

fn is(what: &str) -> Result<String> {
    let done = Command::new("systemctl").args([what, "kfd-trace.service"]).output()?;
    Ok(String::from_utf8_lossy(&done.stdout).trim_end().to_owned())
}

fn version() -> Result<String> {
    command("dpkg-query", &["--show", "--showformat=${Version}", "kfd-trace"])
}

/// The service runs, and reports that there is no driver.
pub(crate) fn waits() -> Result<u32> {
    let active = until("the service to be up", ATTACH, || Ok((is("is-active")? == "active").then_some(())));
    active.with_context(|| journal().unwrap_or_default())?;
    ensure!(is("is-enabled")? == "enabled", "it does not start with the machine");
    let loaded = |metrics: &Metrics| metrics.sum("kfd_trace_driver_loaded", &[]);
    ensure!(scrape_until("the service", loaded)? == 0.0, "no driver is loaded");
    main_pid()?.context("it runs")
}

#[test]
fn leaves_nothing_behind() -> Result<()> {
    clean()?;
    let before = files()?;
    let [first, later] = &*packages()? else { anyhow::bail!("two packages") };
    install(first)?;
    let pid = waits()?;
    let old = version()?;

    // An operator's changes survive an upgrade, and the new version runs.
    fs::OpenOptions::new().append(true).open(SETTINGS)?.write_all(b"# mine\n")?;
    install(later)?;
    ensure!(version()? != old, "the same version");
    ensure!(fs::read_to_string(SETTINGS)?.ends_with("# mine\n"), "the settings are lost");
    ensure!(waits()? != pid, "the old one still runs");

    command("dpkg", &["--remove", "kfd-trace"])?;
    ensure!(is("is-active")? == "inactive", "it runs");
    ensure!(!Path::new("/usr/bin/kfd-trace").exists() && Path::new(SETTINGS).exists(), "settings alone stay");
    command("dpkg", &["--purge", "kfd-trace"])?;
    let left: Vec<_> = files()?.difference(&before).cloned().collect();
    ensure!(left.is_empty(), "left: {left:?}");
    let probes = tracefs::defined(SERVICE_PROBES)?;
    ensure!(probes.is_empty(), "left in tracefs: {probes:?}");
    let units = command("systemctl", &["list-units", "--all", "--no-legend", "kfd-trace*"])?;
    ensure!(units.trim().is_empty(), "{units}");
    Ok(())
}

#[test]
fn is_brought_back_after_a_kill_without_a_driver() -> Result<()> {
    installed()?;
    let pid = waits()?;
    signal(Signal::SIGKILL)?;
    until("systemd to start it again", ATTACH, || Ok(main_pid()?.filter(|now| *now != pid)))?;
    waits()?;
    ensure!(property("NRestarts")? == "1", "restarts: {}", property("NRestarts")?);
    Ok(())
}

#[test]
fn is_exposed_little() -> Result<()> {
    installed()?;
    waits()?;
    for unit in ["kfd-trace.service", "kfd-trace-driver-types.service"] {
        let reported = command("systemd-analyze", &["security", "--no-pager", unit])?;
        let line =
            reported.lines().find(|line| line.contains("Overall exposure level")).context("no level")?;
        println!("{line}");
        let level = line.split_whitespace().find_map(|word| word.parse::<f64>().ok()).context("no number")?;
        ensure!(level < 3.3, "{reported}");
    }
    Ok(())
}

#[test]
fn types_of_a_driver_are_not_made_by_default_and_never_keep_the_daemon() -> Result<()> {
    const TYPES: &str = "kfd-trace-driver-types.service";
    installed()?;
    let enabled = Command::new("systemctl").args(["is-enabled", TYPES]).output()?;
    ensure!(String::from_utf8_lossy(&enabled.stdout).trim_end() == "disabled", "{enabled:?}");
    command("systemctl", &["enable", TYPES])?;
    command("systemctl", &["restart", "kfd-trace.service"])?;
    waits()?;
    let skipped = command("systemctl", &["show", "--property=ConditionResult", TYPES])?;
    ensure!(skipped.trim_end() == "ConditionResult=no", "no driver is loaded: {skipped}");
    command("systemctl", &["disable", TYPES])?;
    Ok(())
}

/// Folders of a test, which go with it however it ends, and what the service manager has read there.
struct Placed([PathBuf; 5]);

impl Drop for Placed {
    fn drop(&mut self) {
        for folder in &self.0 {
            match fs::remove_dir_all(folder) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    eprintln!("remove {}: {error}", folder.display());
                }
                _ => {}
            }
        }
        if let Err(error) = command("systemctl", &["daemon-reload"]) {
            eprintln!("{error:#}");
        }
    }
}

/// Headers where each distribution has them, a package of the driver in /usr/src, and a sysfs with that driver: what is left
/// of the unit is its sandbox.
#[test]
fn types_of_a_driver_are_made_within_the_services_sandbox() -> Result<()> {
    const TYPES: &str = "kfd-trace-driver-types.service";
    const SYSFS: &str = "/run/kfd-trace-test-sysfs";
    const SOURCE: &str = "/usr/src/amdgpu-6.12.12-1";
    const DROP_IN: &str = "/run/systemd/system/kfd-trace-driver-types.service.d/test.conf";
    installed()?;
    let release = fs::read_to_string("/proc/sys/kernel/osrelease")?;
    let release = release.trim_end();
    let modules = fs::canonicalize("/lib/modules").unwrap_or_else(|_| PathBuf::from("/usr/lib/modules"));
    let headers = modules.join(release).join("build");
    let _placed = Placed([
        SYSFS.into(),
        SOURCE.into(),
        headers.clone(),
        "/var/lib/kfd-trace".into(),
        "/run/systemd/system/kfd-trace-driver-types.service.d".into(),
    ]);
    let put = |path: PathBuf, text: &str| -> Result<()> {
        fs::create_dir_all(path.parent().context("a folder")?)?;
        fs::write(&path, text).with_context(|| format!("write {}", path.display()))
    };
    put(headers.join("Makefile"), include_str!("../../../kfd-trace/tests/dkms/made/kbuild.mk"))?;
    let utsrelease = format!("#define UTS_RELEASE \"{release}\"\n");
    put(headers.join("include/generated/utsrelease.h"), &utsrelease)?;
    let source = Path::new(SOURCE);
    put(source.join("dkms.conf"), "PACKAGE_NAME=amdgpu\nPACKAGE_VERSION=6.12.12-1\n")?;
    put(source.join("Makefile"), "ccflags-y := -I$(M)/include -DCONFIGURED=24\n")?;
    put(source.join("amd/amdgpu/Makefile"), "")?;
    put(source.join("include/kfd_priv.h"), include_str!("../../../kfd-trace/tests/dkms/made/kfd_priv.h"))?;
    for name in include_str!("../../../kfd-trace/tests/dkms/made/headers.txt").lines() {
        put(source.join("include").join(name), "")?;
    }
    put(Path::new(SYSFS).join("module/amdgpu/version"), "6.12.12\n")?;
    put(Path::new(SYSFS).join("module/amdgpu/srcversion"), "7C0E\n")?;
    let start = format!("/usr/bin/kfd-trace --path.sysfs={SYSFS} driver-types --if-missing");
    put(
        PathBuf::from(DROP_IN),
        &format!("[Unit]\nConditionPathExists=\n[Service]\nExecStart=\nExecStart={start}\n"),
    )?;
    command("systemctl", &["daemon-reload"])?;
    let started = Command::new("systemctl").args(["start", TYPES]).output()?;
    let printed = logged(&["--unit", TYPES])?;
    println!("{printed}");
    let made = Path::new("/var/lib/kfd-trace/drivers").join(format!("amdgpu-6.12.12-7C0E-{release}.btf"));
    let types = fs::read(&made);
    ensure!(started.status.success(), "{printed}");
    let types = types.with_context(|| printed.clone())?;
    ensure!(types.starts_with(&[0x9f, 0xeb]), "no BTF");
    ensure!(printed.contains(" fields, for version 6.12.12"), "{printed}");
    Ok(())
}

#[test]
fn gives_what_prometheus_checks() -> Result<()> {
    installed()?;
    waits()?;
    check_metrics()
}

/// `promtool check metrics` has no complaint about a scrape.
fn check_metrics() -> Result<()> {
    let scraped = http::get(ADDRESS, "/metrics")?.body;
    let mut promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    promtool.stdin.take().context("a pipe")?.write_all(scraped.as_bytes())?;
    let done = promtool.wait_with_output()?;
    let output = [done.stdout, done.stderr].concat();
    ensure!(
        done.status.success() && output.is_empty(),
        "{}: {}",
        done.status,
        String::from_utf8_lossy(&output)
    );
    Ok(())
}
