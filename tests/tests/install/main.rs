//! Runs in a Debian with systemd where no driver is loaded yet: the package from its installation to its
//! removal, and the service that waits for a driver.

mod driver;
mod package;
mod return_probes;

use anyhow::Result;
use kfd_trace_tests::harness::driver::Driver;
use kfd_trace_tests::harness::service::{command, install, packages};
use std::path::Path;

/// Removes what an earlier test left: no package, no driver.
fn clean() -> Result<()> {
    if Path::new("/etc/default/kfd-trace").exists() {
        command("dpkg", &["--purge", "kfd-trace"])?;
    }
    if Path::new("/sys/module/amdgpu").exists() {
        Driver::of_job()?.take_out()?;
    }
    Ok(())
}

/// The first package, freshly installed.
fn installed() -> Result<()> {
    clean()?;
    install(&packages()?[0])
}
