//! `kfd-trace driver-types`: types of a driver without BTF, made where it was built.

use crate::driver_types::{self, Answer, Made, TypesOptions};
use crate::kernel::Roots;
use crate::runtime::exit::Stop;
use crate::runtime::stderr::say;
use rustix::process::{chdir, chroot};
use std::io::{self, Write as _};
use std::path::Path;

/// Makes a types file and prints where it is, or what the driver has.
///
/// # Errors
/// What is missing and what to install, or what failed.
pub fn run(roots: &Roots, root: Option<&Path>, options: &TypesOptions) -> Result<(), Stop> {
    if let Some(root) = root {
        let entered = chroot(root).and_then(|()| chdir("/"));
        entered.map_err(|error| Stop::failed(format!("cannot work below {}: {error}", root.display())))?;
    }
    let made = driver_types::make(roots, Path::new("/"), options).map_err(|error| {
        let mut lines = error.lines();
        let first = lines.next().unwrap_or_default().to_owned();
        // The end of what a build printed.
        lines.for_each(say);
        Stop::failed(first)
    });
    let mut out = io::stdout().lock();
    let made = match made? {
        Answer::Made(made) => made,
        Answer::Exists(source) => {
            return writeln!(out, "the driver has types: {source}").map_err(Stop::failed);
        }
    };
    let Made { path, driver, bytes, fields: (found, all) } = made;
    let written = writeln!(
        out,
        "{}: {bytes} bytes, {found} of {all} fields, for {driver}\n\
         kfd-trace takes it from {} on every node with this driver and kernel, or by --driver-btf.",
        path.display(),
        roots.types.folder.display(),
    );
    written.map_err(Stop::failed)
}
