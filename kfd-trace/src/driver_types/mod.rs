//! Types of a driver without BTF, made on a host where it was built. In: the driver's source and the kernel's
//! headers. Out: a types file for every node with that driver and kernel (`kernel/types`).
//!
//! The driver's own configuration step and compiler decide the layouts: one C file that names each structure is
//! compiled with the driver's flags, and its debug information is written as BTF. All of that is done by another
//! process (`builder`), which is another user where this one is root.

mod build;
mod build_log;
mod builder;
mod dwarf;
mod find;
mod launch;
mod module;
mod output;
mod request;
mod script;
mod source_stream;
mod wanted;

use crate::kernel::btf::Btf;
use crate::kernel::types::{DriverIdentity, TypesSource};
use crate::kernel::{Kernel, Offsets, Roots};
use find::DriverSource;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use kfd_trace_common::offset::FIELDS;
use launch::Failure;
use output::Output;
use request::Job;
use std::env;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use builder::run as run_builder;

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

/// The types that the kernel or a file has of the loaded driver.
///
/// # Errors
/// If the kernel cannot be read.
pub fn existing(roots: &Roots) -> Result<Option<TypesSource>, String> {
    let types = Kernel::read(roots).map_err(|error| error.to_string())?.types;
    Ok(Some(types).filter(|types| types.is_kernel() || matches!(types, TypesSource::File(_))))
}

/// Makes a types file. `loaded`: the loaded driver.
///
/// # Errors
/// What is missing and what to install, or what failed.
pub fn make(
    roots: &Roots,
    root: &Path,
    loaded: DriverIdentity,
    options: &TypesOptions,
) -> Result<Made, String> {
    let driver = match &options.module {
        Some(module) => module::identity(module)?,
        None => loaded,
    };
    let name = driver.file_name().ok_or_else(|| unnamed(options.module.as_deref()))?;
    let (headers, release) = find::headers(root, options.headers.as_deref(), driver.release.as_deref())?;
    if driver.release.as_deref() != Some(&release) {
        let of_driver = driver.release.as_deref().unwrap_or("an unknown kernel");
        return Err(format!(
            "the headers are of Linux {release}, and the driver is of {of_driver}: give others with --headers DIR, or the \
             driver's module there with --module amdgpu.ko"
        ));
    }
    let source = match &options.source {
        Some(folder) => DriverSource::given(folder)?,
        None => DriverSource::search(root, &driver)?,
    };
    let path: Vec<PathBuf> = env::split_paths(build::PATH).collect();
    find::programs(&path)?;
    // Before minutes are spent.
    let output = Output::open(options.output.as_deref(), &roots.types.folder, &name)?;
    let progress = Progress::new();
    let job = Job {
        layout: source.layout.clone(),
        headers,
        release,
        timeout: options.timeout,
        tags: driver.tags(),
    };
    let made =
        launch::types(&source.folder, job, &|step| progress.step(step), &|bytes| progress.copied(bytes));
    progress.0.finish_and_clear();
    let (bytes, note) = made.map_err(|failure| explained(failure, &output))?;
    if let Some(note) = note {
        log::warn!("{note}");
    }
    let fields = fields(&bytes)?;
    let path = output.write(&bytes)?;
    Ok(Made { path, driver, bytes: bytes.len(), fields })
}

/// Why a driver has no name.
fn unnamed(module: Option<&Path>) -> String {
    match module {
        Some(module) => format!("{}: it names neither its version nor its kernel", module.display()),
        None => "no amdgpu driver is loaded: load it (modprobe amdgpu), or name its file with --module FILE; one that is \
                 part of the kernel's image has types where the kernel has"
            .to_owned(),
    }
}

/// A line that says what failed, and lines of what the build printed. The whole of that is put where the types file
/// would be.
fn explained(failure: Failure, output: &Output) -> String {
    let Failure { why, log } = failure;
    if log.is_empty() {
        return why;
    }
    let whole = match output.write_log(&log.bytes()) {
        Ok(path) => format!("all that it printed is in {}", path.display()),
        Err(error) => error,
    };
    let lines = log.excerpt();
    format!("{why}; {whole}\n{}", lines.join("\n"))
}

/// How many of the programs' fields a types file has, and of how many.
fn fields(bytes: &[u8]) -> Result<(usize, usize), String> {
    let btf =
        Btf::parse(bytes.to_vec(), None).map_err(|error| format!("what was made cannot be read: {error}"))?;
    for required in ["kfd_process", "queue", "queue_properties", "task_struct"] {
        btf.size_of(required).map_err(|error| format!("the object is not of this driver: {error}"))?;
    }
    let offsets = Offsets::resolve(FIELDS, Some(&btf), Some(&btf));
    Ok((offsets.iter().filter(|(_, found)| found.is_ok()).count(), FIELDS.len()))
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
