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
use crate::kernel::types::{DriverIdentity, TypesSource};
use crate::kernel::{Kernel, Offsets, Roots};
use build::Build;
use find::DriverSource;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use kfd_trace_common::offset::FIELDS;
use rustix::fs::{StatVfsMountFlags, statvfs};
use std::env;
use std::fs::{self, Permissions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tempfile::{NamedTempFile, TempDir};

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
    /// Nothing is made where the kernel or a file has the loaded driver's types.
    pub if_missing: bool,
}

/// What [`make`] did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Made(Made),
    /// Nothing: these exist.
    Exists(TypesSource),
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
pub fn make(roots: &Roots, root: &Path, options: &TypesOptions) -> Result<Answer, String> {
    if options.if_missing {
        let kernel = Kernel::read(roots).map_err(|error| error.to_string())?;
        if kernel.types.is_kernel() || matches!(kernel.types, TypesSource::File(_)) {
            return Ok(Answer::Exists(kernel.types));
        }
    }
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
    let output = Output::open(options.output.as_deref(), &roots.types.folder, &name)?;
    let work = work()?;
    let deadline = Instant::now() + options.timeout;
    let progress = Progress::new();
    let build = Build { source: &source, headers: &headers, release: &release, work: work.path(), deadline };
    let object = build.object(|step| progress.step(step), |bytes| progress.copied(bytes));
    let object = object.inspect_err(|_| progress.0.finish_and_clear())?;
    progress.step("reading the layouts");
    let made = types(&object, &driver);
    progress.0.finish_and_clear();
    let (bytes, fields) = made?;
    let path = output.write(&bytes)?;
    Ok(Answer::Made(Made { path, driver, bytes: bytes.len(), fields }))
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

/// A private folder whose programs can be run: the driver's scripts are.
fn work() -> Result<TempDir, String> {
    let is_noexec =
        |folder: &Path| statvfs(folder).is_ok_and(|about| about.f_flag.contains(StatVfsMountFlags::NOEXEC));
    let folders = [env::temp_dir(), PathBuf::from("/var/tmp")];
    let Some(folder) = folders.iter().find(|folder| !is_noexec(folder)) else {
        return Err(format!(
            "no program may be run in {} and /var/tmp (mounted noexec): name another folder in TMPDIR",
            folders[0].display()
        ));
    };
    let made = tempfile::Builder::new().prefix("kfd-trace-types-").tempdir_in(folder);
    made.map_err(|error| format!("cannot make a folder in {}: {error}", folder.display()))
}

/// A types file that is not there yet: a reader never meets a part of it.
struct Output {
    file: NamedTempFile,
    path: PathBuf,
}

impl Output {
    /// As given, else in the folder that the daemon looks into, else in the current one.
    fn open(given: Option<&Path>, folder: &Path, name: &str) -> Result<Self, String> {
        let path = match given {
            Some(path) if path.is_dir() => path.join(name),
            Some(path) => path.to_owned(),
            None => {
                let path = folder.join(name);
                match make_readable(folder).and_then(|()| Self::at(&path)) {
                    Err(error)
                        if matches!(
                            error.kind(),
                            ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem
                        ) =>
                    {
                        PathBuf::from(name)
                    }
                    opened => return opened.map_err(|error| cannot_write(&path, &error)),
                }
            }
        };
        Self::at(&path).map_err(|error| cannot_write(&path, &error))
    }

    fn at(path: &Path) -> io::Result<Self> {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        // Not of this user alone: the daemon reads it as another one.
        let file = tempfile::Builder::new()
            .prefix(".kfd-trace-types-")
            .permissions(Permissions::from_mode(0o644))
            .tempfile_in(folder.unwrap_or(Path::new(".")))?;
        file.as_file().set_permissions(Permissions::from_mode(0o644))?;
        Ok(Output { file, path: path.to_owned() })
    }

    fn write(mut self, bytes: &[u8]) -> Result<PathBuf, String> {
        let path = self.path;
        self.file.write_all(bytes).map_err(|error| cannot_write(&path, &error))?;
        self.file.persist(&path).map_err(|error| cannot_write(&path, &error.error))?;
        Ok(path)
    }
}

fn cannot_write(path: &Path, error: &io::Error) -> String {
    format!("cannot write {}: {error}", path.display())
}

/// Makes a folder and those above it that do not exist, so that each user can read them.
fn make_readable(folder: &Path) -> io::Result<()> {
    let missing: Vec<&Path> = folder.ancestors().take_while(|folder| !folder.exists()).collect();
    fs::create_dir_all(folder)?;
    missing.iter().try_for_each(|folder| fs::set_permissions(folder, Permissions::from_mode(0o755)))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_there_whole_or_not_at_all_and_others_can_read_it() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("lib/drivers");
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let open = || Output::open(None, &folder, "amdgpu.btf").unwrap();
        drop(open());
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0, "a build that failed leaves nothing");
        let path = open().write(b"types").unwrap();
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
        assert_eq!((mode(&path), mode(&folder)), (0o644, 0o755));
        assert_eq!(open().write(b"new").unwrap(), path);
        assert_eq!(fs::read(&path).unwrap(), b"new");
        let given = root.path().join("mine.btf");
        assert_eq!(Output::open(Some(&given), &folder, "x").unwrap().path, given);
        assert_eq!(Output::open(Some(root.path()), &folder, "x").unwrap().path, root.path().join("x"));
        let nowhere = root.path().join("none/x");
        let Err(why) = Output::open(Some(&nowhere), &folder, "x") else {
            panic!("opened {}", nowhere.display())
        };
        assert!(why.starts_with(&format!("cannot write {}: ", nowhere.display())), "{why}");
    }
}
