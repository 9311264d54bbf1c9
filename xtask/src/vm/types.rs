//! The types file of a kernel's own driver, made by `kfd-trace driver-types` from Debian's source: where the
//! module has BTF, to compare with it; where it has none (5.10), or it was stripped, in its place.
//!
//! In: an unpacked kernel, and the tracer. Out: `types.btf`.

use crate::apt::Apt;
use crate::paths;
use crate::run::{self, note, size, step};
use crate::stamp::Stamp;
use crate::vm::kbuild::{self, Folders};
use crate::vm::kernels::Kernel;
use crate::vm::{kfdsim, modules};
use anyhow::{Context as _, Result};
use std::fs;
use std::path::{Path, PathBuf};

/// Makes it, unless it was made for this kernel by this very tracer.
pub(crate) fn file(apt: &Apt, kernel: &Kernel, tracer: &Path) -> Result<PathBuf> {
    let headers = kfdsim::headers(apt, kernel)?;
    let driver = kfdsim::driver_headers(apt, kernel)?;
    let dir = paths::vm(&kernel.release).join("types");
    let (types, program) = (dir.join("types.btf"), dir.join("kfd-trace"));
    let stamp = Stamp::at(dir.join("made-for"), kernel.version.clone());
    let read = |path: &Path| fs::read(path).with_context(|| format!("cannot read {}", path.display()));
    let bytes = read(tracer)?;
    if stamp.holds() && types.exists() && fs::read(&program).is_ok_and(|before| before == bytes) {
        return Ok(types);
    }
    step(format!("types of the driver of {}", kernel.release));
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
    fs::copy(tracer, &program).with_context(|| format!("cannot copy {}", tracer.display()))?;
    let files = modules::with_needs(kernel, "amdgpu")?;
    let amdgpu = modules::read(files.last().context("no amdgpu among its own dependencies")?)?;
    fs::write(dir.join("amdgpu.ko"), amdgpu).context("cannot write amdgpu.ko")?;
    let folders = Folders { headers: &headers, driver: &driver, amd: kbuild::AMD, module: &dir };
    run::logged(&mut kbuild::driver_types(kernel, &folders)?, &dir.join("log"))?;
    note(format!("types.btf: {}", size(fs::metadata(&types).context("no types.btf was made")?.len())));
    stamp.set()?;
    Ok(types)
}
