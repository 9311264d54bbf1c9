//! Module insertion (the files are plain ELF; the host has decompressed them).
//! A module that is inserted already is as good as inserted.

use crate::job::Module;
use anyhow::{Context as _, Result, bail};
use std::ffi::CString;
use std::fs::File;
use std::io::Error;
use std::os::fd::AsRawFd as _;
use std::path::Path;

/// In this order.
pub(crate) fn insert_all(modules: &[Module]) -> Result<()> {
    modules
        .iter()
        .try_for_each(|module| insert(module).with_context(|| format!("cannot insert {}", module.file)))
}

fn insert(module: &Module) -> Result<()> {
    let path = &module.file;
    // In a resumed guest most are: the kernel would read the whole file to find that out.
    if Path::new(path)
        .file_stem()
        .is_some_and(|name| Path::new("/sys/module").join(name).join(STATE).exists())
    {
        return Ok(());
    }
    let file = File::open(path).with_context(|| format!("cannot open {path}"))?;
    let parameters = CString::new(module.parameters.as_str()).context("a NUL in the parameters")?;
    // SAFETY: the descriptor is open, the string is NUL-terminated, both outlive the call.
    let done = unsafe { libc::syscall(libc::SYS_finit_module, file.as_raw_fd(), parameters.as_ptr(), 0) };
    let error = Error::last_os_error();
    // Built into this kernel, or inserted where sysfs is not mounted.
    if done == 0 || error.raw_os_error() == Some(libc::EEXIST) {
        return Ok(());
    }
    bail!(error);
}

/// Exists for a loaded module, not for one that is built in (kernel/module/sysfs.c).
const STATE: &str = "initstate";
