//! Types of a driver without BTF, made on a host where it was built. In: the driver's source and the kernel's
//! headers. Out: a types file for every node with that driver and kernel (`kernel/types`).
//!
//! The driver's own configuration step and compiler decide the layouts: one C file that names each structure is
//! compiled with the driver's flags, and its debug information is written as BTF.

mod build;
mod copy;
mod dwarf;
mod find;
mod module;
mod wanted;

use crate::kernel::btf::Btf;
use crate::kernel::types::DriverIdentity;
use crate::kernel::{Offsets, Roots};
use build::Build;
use find::DriverSource;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use kfd_trace_common::offset::FIELDS;
use std::env;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// What the user gave; `None`: it is looked for.
#[derive(Clone, Debug)]
pub struct TypesOptions {
    /// Of a DKMS package, or of a kernel.
    pub source: Option<PathBuf>,
    /// Of the kernel.
    pub headers: Option<PathBuf>,
    /// The driver's module, where it is not the loaded one.
    pub module: Option<PathBuf>,
    pub output: Option<PathBuf>,
    pub timeout: Duration,
}

/// A file that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Made {
    pub path: PathBuf,
    pub driver: DriverIdentity,
    pub bytes: usize,
    /// Fields that the programs read: found, and all.
    pub fields: (usize, usize),
}

/// Makes a types file.
///
/// # Errors
/// What is missing and what to install, or what failed.
pub fn make(roots: &Roots, root: &Path, options: &TypesOptions) -> Result<Made, String> {
    let driver = match &options.module {
        Some(module) => module::identity(module)?,
        None => DriverIdentity::loaded(roots),
    };
    let (headers, release) = find::headers(root, options.headers.as_deref(), driver.release.as_deref())?;
    if driver.release.as_deref() != Some(&release) {
        let of_driver = driver.release.as_deref().unwrap_or("an unknown kernel");
        return Err(format!(
            "the headers are of Linux {release}, and the driver is of {of_driver}: give others with --headers DIR, or the \
             driver's module there with --module amdgpu.ko"
        ));
    }
    let name = driver
        .file_name()
        .ok_or("no amdgpu driver is loaded: load it, or name one with --module amdgpu.ko")?;
    let source = match &options.source {
        Some(folder) => DriverSource::given(folder)?,
        None => DriverSource::search(root, &driver)?,
    };
    let path: Vec<PathBuf> = env::split_paths(build::PATH).collect();
    find::programs(&path)?;
    // Before minutes are spent.
    let output = output(options.output.as_deref(), &roots.types.folder, &name)?;

    let work = tempfile::Builder::new().prefix("kfd-trace-types-").tempdir();
    let work =
        work.map_err(|error| format!("cannot make a folder in {}: {error}", env::temp_dir().display()))?;
    let deadline = Instant::now() + options.timeout;
    let progress = Progress::new();
    let build = Build { source: &source, headers: &headers, release: &release, work: work.path(), deadline };
    let object = build.object(|step| progress.step(step), |bytes| progress.copied(bytes));
    let object = object.inspect_err(|_| progress.0.finish_and_clear())?;
    progress.step("reading the layouts");
    let made = types(&object, &driver);
    progress.0.finish_and_clear();
    let (bytes, fields) = made?;
    fs::write(&output, &bytes).map_err(|error| format!("cannot write {}: {error}", output.display()))?;
    Ok(Made { path: output, driver, bytes: bytes.len(), fields })
}

/// The types file of an object, and how many of the programs' fields it has.
fn types(object: &[u8], driver: &DriverIdentity) -> Result<(Vec<u8>, (usize, usize)), String> {
    let mut types = dwarf::types(object)?;
    for tag in driver.tags() {
        types.tag(1, &tag);
    }
    let bytes = types.bytes();
    let btf = Btf::parse(bytes.clone(), None)
        .map_err(|error| format!("what was written cannot be read: {error}"))?;
    for required in ["kfd_process", "queue", "queue_properties", "task_struct"] {
        btf.size_of(required).map_err(|error| format!("the object is not of this driver: {error}"))?;
    }
    let offsets = Offsets::resolve(FIELDS, Some(&btf), Some(&btf));
    let found = offsets.iter().filter(|(_, found)| found.is_ok()).count();
    Ok((bytes, (found, FIELDS.len())))
}

/// Where the file goes: as given, else into the folder that the daemon looks into, else into the current one.
fn output(given: Option<&Path>, folder: &Path, name: &str) -> Result<PathBuf, String> {
    if let Some(path) = given {
        return Ok(if path.is_dir() { path.join(name) } else { path.to_owned() });
    }
    let made = fs::create_dir_all(folder);
    let path = folder.join(name);
    match made.and_then(|()| fs::OpenOptions::new().append(true).create(true).open(&path)) {
        Ok(_) => Ok(path),
        Err(error) if matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem) => {
            Ok(PathBuf::from(name))
        }
        Err(error) => Err(format!("cannot write {}: {error}", path.display())),
    }
}

/// A line on standard error, if that is a terminal.
struct Progress(ProgressBar);

impl Progress {
    fn new() -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(5));
        let style = ProgressStyle::with_template("{spinner} {msg} ({bytes} copied, {elapsed})");
        let bar = style.map(|style| bar.clone().with_style(style)).unwrap_or(bar);
        bar.enable_steady_tick(Duration::from_millis(200));
        Progress(bar)
    }

    fn step(&self, name: &str) {
        log::info!("{name}");
        self.0.set_message(name.to_owned());
    }

    fn copied(&self, bytes: u64) {
        self.0.inc(bytes);
    }
}
