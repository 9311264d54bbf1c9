//! `kfd-trace return-probes`: what the service manager runs as root before and after the daemon, which may not define
//! events of tracefs itself.

use crate::cli::ReturnProbesAct;
use crate::kernel::return_events::{self, EventGroup, Removed, ReturnEventError};
use crate::kernel::{DriverForm, Roots};
use crate::probes::events;
use crate::runtime::exit::Stop;
use crate::runtime::privilege;
use crate::text::count::counted;
use rustix::process::geteuid;
use std::io::{self, Write as _};

/// Defines or removes them and prints what there is then.
///
/// # Errors
/// It is not root's; tracefs is not there; the kernel refused.
pub fn run(roots: &Roots, act: ReturnProbesAct) -> Result<(), Stop> {
    if !geteuid().is_root() {
        return Err(Stop::failed("only root may change tracefs: run kfd-trace return-probes as root"));
    }
    // The files are root's, which is enough.
    privilege::give_up_all()
        .map_err(|error| Stop::failed(format!("capabilities cannot be given up: {error}")))?;
    let line = match act {
        ReturnProbesAct::Define => define(roots, &Vec::from_iter(events::functions())),
        ReturnProbesAct::Remove => remove(roots),
    };
    writeln!(io::stdout().lock(), "{}", line?).map_err(Stop::failed)
}

fn define(roots: &Roots, functions: &[&str]) -> Result<String, Stop> {
    let tracefs = return_events::tracefs(&roots.sysfs).map_err(Stop::failed)?;
    let driver = DriverForm::read(&roots.sysfs);
    let group = EventGroup::Service;
    let refused =
        return_events::define(&tracefs, group, &driver, functions, &|_| None).map_err(Stop::failed)?;
    if !refused.is_empty() {
        return Err(Stop::failed(refused));
    }
    let defined = return_events::ids(&tracefs, group, functions);
    if defined.is_empty() {
        return Err(Stop::failed(format!(
            "no return probe is in {}: the driver ({driver}) has none of {}",
            group.name(),
            functions.join(" ")
        )));
    }
    let names: Vec<&str> = defined.keys().map(String::as_str).collect();
    Ok(format!("return probes in {} (driver: {driver}): {}", group.name(), names.join(" ")))
}

fn remove(roots: &Roots) -> Result<String, Stop> {
    let tracefs = match return_events::tracefs(&roots.sysfs) {
        Ok(tracefs) => tracefs,
        // What does not exist is not left behind.
        Err(error @ ReturnEventError::NoTracefs(_)) => return Ok(error.to_string()),
        Err(error) => return Err(Stop::failed(error)),
    };
    let group = EventGroup::Service.name();
    let Removed { busy, refused } =
        return_events::remove(&tracefs, EventGroup::Service).map_err(Stop::failed)?;
    match busy {
        _ if !refused.is_empty() => Err(Stop::failed(refused)),
        0 => Ok(format!("no return probe left in {group}")),
        busy => {
            let probes = counted(busy, "return probe", "return probes");
            Ok(format!("{probes} left in {group}, which a tracer has open"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// A machine with a loaded driver, and what of tracefs is used.
    fn machine() -> (tempfile::TempDir, Roots) {
        let root = tempfile::tempdir().unwrap();
        let roots = Roots::under(root.path());
        fs::create_dir_all(roots.sysfs.join("module/amdgpu")).unwrap();
        fs::write(roots.sysfs.join("module/amdgpu/initstate"), "live\n").unwrap();
        fs::create_dir_all(roots.sysfs.join("kernel/tracing/events")).unwrap();
        fs::write(roots.sysfs.join("kernel/tracing/kprobe_events"), "").unwrap();
        (root, roots)
    }

    #[test]
    fn what_is_defined_is_reported_and_that_nothing_is_an_error() {
        let (_root, roots) = machine();
        let none = define(&roots, &["kfd_ioctl"]).unwrap_err().line;
        let expected = "no return probe is in kfd_trace_service: the driver (module) has none of kfd_ioctl";
        assert_eq!(none, expected);
        let event = roots.sysfs.join("kernel/tracing/events/kfd_trace_service/kfd_ioctl");
        fs::create_dir_all(&event).unwrap();
        fs::write(event.join("id"), "1842\n").unwrap();
        let some = define(&roots, &["kfd_ioctl", "create_process"]).unwrap();
        assert_eq!(some, "return probes in kfd_trace_service (driver: module): kfd_ioctl");
    }

    #[test]
    fn without_tracefs_nothing_is_defined_and_nothing_is_left() {
        let root = tempfile::tempdir().unwrap();
        let roots = Roots::under(root.path());
        assert!(define(&roots, &["kfd_ioctl"]).unwrap_err().line.starts_with("no tracefs "));
        assert!(remove(&roots).unwrap().starts_with("no tracefs "));
        let (_root, roots) = machine();
        assert_eq!(remove(&roots).unwrap(), "no return probe left in kfd_trace_service");
    }
}
