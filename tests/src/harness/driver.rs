//! The driver and the GPUs configured for the VM; unloads the real driver and loads it again (not below
//! kfdsim, which cannot be unloaded).

use super::sysfs;
use super::wait::{SOON, until};
use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::kmod::{DeleteModuleFlags, ModuleInitFlags, delete_module, finit_module};
use serde_json::Value;
use std::ffi::{CStr, CString};
use std::fs::{self, File};
use std::path::Path;

/// The modules that the VM's init inserts (xtask/src/vm/testbed.rs).
const JOB: &str = "/etc/vm-job.json";

fn job() -> Result<Value> {
    let job = fs::read_to_string(JOB).with_context(|| format!("read {JOB}"))?;
    serde_json::from_str(&job).context(JOB)
}

/// The shape of kfdsim's GPUs in a stage that names it (xtask/src/vm/boots/table.rs).
pub fn shape_of(stage: &str) -> Result<String> {
    let job = job()?;
    let named = job["stages"].as_array().into_iter().flatten().find(|one| one["name"] == stage);
    let shape = named.and_then(|one| one["shape"].as_str());
    Ok(shape.with_context(|| format!("no shape of {stage} in {JOB}"))?.to_owned())
}

/// Waits until KFD has released the processes that have ended.
pub fn processes_gone() -> Result<()> {
    until("the KFD processes of earlier tests to go", SOON, || {
        Ok(sysfs::processes(Path::new("/sys"))?.is_empty().then_some(()))
    })
}

/// amdgpu as the stage loads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Driver {
    /// The modules it needs, in the order of insertion.
    needs: Vec<String>,
    file: String,
    parameters: CString,
}

/// The driver is not loaded; dropping this loads it again, so that a failing test leaves it to the next one.
#[derive(Debug)]
pub struct Removed(Option<Driver>);

impl Driver {
    pub fn of_job() -> Result<Self> {
        Self::in_job(&job()?).with_context(|| format!("no amdgpu in {JOB}"))
    }

    fn in_job(job: &Value) -> Option<Self> {
        let stages = job["stages"].as_array()?.iter();
        let mut needs = Vec::new();
        for module in stages.filter_map(|stage| stage["modules"].as_array()).flatten() {
            let file = module["file"].as_str()?.to_owned();
            if Path::new(&file).file_stem().is_some_and(|name| name == "amdgpu") {
                let parameters = CString::new(module["parameters"].as_str()?).ok()?;
                return Some(Driver { needs, file, parameters });
            }
            needs.push(file);
        }
        None
    }

    /// `rmmod amdgpu`, as soon as it has no users; fails if one stays for long.
    pub fn remove(self) -> Result<Removed> {
        self.take_out()?;
        Ok(Removed(Some(self)))
    }

    /// [`Self::remove`] permanently.
    pub fn take_out(&self) -> Result<()> {
        processes_gone()?;
        until("amdgpu without users", SOON, || {
            match delete_module(c"amdgpu", DeleteModuleFlags::O_NONBLOCK) {
                Ok(()) => Ok(Some(())),
                Err(Errno::EAGAIN) => Ok(None),
                Err(error) => Err(error).context("remove amdgpu"),
            }
        })
    }

    /// Inserts it unless it is loaded, with the modules it needs.
    pub fn load(&self) -> Result<()> {
        for file in &self.needs {
            match insert(file, c"") {
                Err(error) if error.downcast_ref() == Some(&Errno::EEXIST) => {}
                inserted => inserted?,
            }
        }
        self.insert()
    }

    fn insert(&self) -> Result<()> {
        insert(&self.file, &self.parameters)
    }
}

fn insert(path: &str, parameters: &CStr) -> Result<()> {
    let file = File::open(path).with_context(|| format!("open {path}"))?;
    finit_module(&file, parameters, ModuleInitFlags::empty()).with_context(|| format!("insert {path}"))
}

impl Removed {
    /// `insmod` with the parameters that it had.
    pub fn insert(mut self) -> Result<()> {
        self.0.take().map_or(Ok(()), |driver| driver.insert())
    }
}

impl Drop for Removed {
    fn drop(&mut self) {
        if let Some(Err(error)) = self.0.take().map(|driver| driver.insert()) {
            eprintln!("{error:#}");
        }
    }
}

/// The module's reference count.
pub fn references() -> Result<u64> {
    const COUNT: &str = "/sys/module/amdgpu/refcnt";
    let text = fs::read_to_string(COUNT).with_context(|| format!("read {COUNT}"))?;
    text.trim().parse().with_context(|| format!("{COUNT}: {text}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_driver_of_a_job_is_found_with_its_parameters() {
        let module = |file: &str, parameters: &str| json!({ "file": file, "parameters": parameters });
        let modules = json!([module("/modules/ttm.ko", ""), module("/modules/amdgpu.ko", "a=1 b=2")]);
        let job = json!({ "stages": [{ "modules": [] }, { "modules": modules }] });
        let needs = vec!["/modules/ttm.ko".to_owned()];
        let driver =
            Driver { needs, file: "/modules/amdgpu.ko".to_owned(), parameters: c"a=1 b=2".to_owned() };
        assert_eq!(Driver::in_job(&job), Some(driver));
        assert_eq!(Driver::in_job(&json!({ "stages": [] })), None);
    }
}
