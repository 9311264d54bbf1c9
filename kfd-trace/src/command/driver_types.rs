//! `kfd-trace driver-types`: types of a driver without BTF, made where it was built.

use crate::driver_types::{self, Made, TypesOptions};
use crate::kernel::Roots;
use crate::kernel::types::DriverIdentity;
use crate::runtime::exit::Stop;
use crate::runtime::stderr::say;
use rustix::process::{chdir, chroot};
use std::io::{self, Write as _};
use std::path::Path;

/// Makes a types file and prints where it is, or what the driver has. `if_missing`: nothing is made where the kernel or a
/// file has the loaded driver's types. `root`: the folder with the host's files; /proc and /sys are read before it is
/// entered.
///
/// # Errors
/// What is missing and what to install, or what failed.
pub fn run(roots: &Roots, root: Option<&Path>, if_missing: bool, options: &TypesOptions) -> Result<(), Stop> {
    let mut out = io::stdout().lock();
    if if_missing && let Some(source) = driver_types::existing(&seen(roots, root)).map_err(Stop::failed)? {
        return writeln!(out, "the driver has types: {source}").map_err(Stop::failed);
    }
    let loaded = DriverIdentity::loaded(roots);
    if let Some(root) = root {
        let entered = chroot(root).and_then(|()| chdir("/"));
        entered.map_err(|error| Stop::failed(format!("cannot work below {}: {error}", root.display())))?;
    }
    let made = driver_types::make(roots, Path::new("/"), loaded, options).map_err(|error| {
        let mut lines = error.lines();
        let first = lines.next().unwrap_or_default().to_owned();
        // What a build printed.
        lines.for_each(say);
        Stop::failed(first)
    });
    let Made { path, driver, bytes, fields: (found, all) } = made?;
    let written = writeln!(
        out,
        "{}: {bytes} bytes, {found} of {all} fields, for {driver}\n\
         kfd-trace takes it from {} on every node with this driver and kernel, or by --driver-btf.",
        path.display(),
        roots.types.folder.display(),
    );
    written.map_err(Stop::failed)
}

/// The folders as they are named before `root` is entered.
fn seen(roots: &Roots, root: Option<&Path>) -> Roots {
    let mut seen = roots.clone();
    if let (Some(root), Ok(folder)) = (root, roots.types.folder.strip_prefix("/")) {
        seen.types.folder = root.join(folder);
    }
    seen
}
