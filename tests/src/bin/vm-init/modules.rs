//! Module insertion (the files are plain ELF; the host has decompressed them).

use crate::job::Module;
use anyhow::{Context as _, Result, bail};
use std::ffi::CString;
use std::fs::File;
use std::io::Error;
use std::os::fd::AsRawFd as _;

pub(crate) fn insert(module: &Module) -> Result<()> {
    let path = &module.file;
    let file = File::open(path).with_context(|| format!("cannot open {path}"))?;
    let parameters = CString::new(module.parameters.as_str()).context("a NUL in the parameters")?;
    // SAFETY: the descriptor is open, the string is NUL-terminated, both outlive the call.
    let done = unsafe { libc::syscall(libc::SYS_finit_module, file.as_raw_fd(), parameters.as_ptr(), 0) };
    let error = Error::last_os_error();
    // Built into this kernel, or inserted by a dependency before: as good as inserted.
    if done == 0 || error.raw_os_error() == Some(libc::EEXIST) {
        return Ok(());
    }
    bail!(error);
}
