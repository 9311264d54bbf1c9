//! The test bed: one guest prepared (kernel, modules, initramfs or snapshot and payload, the init's job) and
//! run. In: a column of the matrix and one of its boots. Out: the guest's report.

mod contents;
mod saved;

use crate::apt::Apt;
use crate::closing::Totals;
use crate::lock::{self, Held};
use crate::run::{note, size, step};
use crate::vm::boots::{self, Boot, Root, Stage};
use crate::vm::driver::Driver;
use crate::vm::follow::End;
use crate::vm::guest::{self, Binaries};
use crate::vm::initramfs::Archive;
use crate::vm::kernels::{self, Kernel};
use crate::vm::matrix::{Column, Matrix, Types};
use crate::vm::qemu::{self, Disk, From, Machine, Run};
use crate::vm::testbed::saved::{Resumed, Shelves};
use crate::vm::timing::{Mark, Timing};
use crate::vm::{debian, emulator, userland};
use crate::{build, paths};
use anyhow::{Context as _, Result, bail};
use serde_json::json;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The guest's task.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode<'a> {
    /// The tests of the stages with these names.
    Test(&'a [&'a str]),
    Demo,
    Shell,
    /// Count what tracing costs.
    Cost,
}

impl Mode<'_> {
    fn name(self) -> &'static str {
        match self {
            Self::Test(_) => "test",
            Self::Demo => "demo",
            Self::Shell => "shell",
            Self::Cost => "cost",
        }
    }
}

/// KFD_MIN_QUEUE_RING_SIZE of Debian's kernels, bytes.
const MIN_RING: u32 = 1024;

/// Everything that is the same for every kernel.
pub(crate) struct Bench {
    apt: Apt,
    matrix: Matrix,
    /// In the place of the kernel's own.
    driver: Option<Driver>,
    userland: PathBuf,
    emulator: PathBuf,
    tracer: PathBuf,
    binaries: Binaries,
    saved: Shelves,
}

/// One guest, and what it is for.
#[derive(Clone, Copy)]
struct Task<'a> {
    column: Column,
    boot: Boot,
    mode: Mode<'a>,
    /// For the test executables.
    arguments: &'a [String],
}

/// A guest ready to run.
struct Ready {
    kernel: Kernel,
    boot: Boot,
    /// The initramfs, or the payload of a resumed guest.
    files: Files,
    resumed: Option<Resumed>,
    console: PathBuf,
    pulse: PathBuf,
    disk: Option<PathBuf>,
    nonce: String,
    _held: Held,
}

/// A file that no later run reads, as large as all programs of a guest; removed when dropped.
struct Files(PathBuf);

impl Drop for Files {
    fn drop(&mut self) {
        // The next run of this guest writes over it.
        let _ = fs::remove_file(&self.0);
    }
}

/// A finished boot.
pub(crate) struct Booted {
    /// Of the kernel.
    pub(crate) release: String,
    pub(crate) run: Run,
    /// A problem of the guest itself; already shown with the kernel log's end.
    pub(crate) trouble: Option<String>,
}

/// Test results of one or several boots.
#[derive(Default)]
pub(crate) struct Tested {
    pub(crate) totals: Totals,
    /// Problems beyond failed tests.
    pub(crate) problems: Vec<String>,
    pub(crate) timing: Timing,
}

impl Tested {
    pub(crate) fn is_well(&self) -> bool {
        self.problems.is_empty() && self.totals.failed == 0
    }

    /// Adds the results of a boot.
    pub(crate) fn add(&mut self, place: &str, boot: Self) {
        self.totals.add(boot.totals);
        self.problems.extend(boot.problems.into_iter().map(|why| format!("{place}: {why}")));
        self.timing.add(boot.timing);
    }

    /// Shows the durations, and the problems.
    pub(crate) fn show(&self) {
        if !self.timing.is_empty() {
            print!("\n{}", self.timing.tables());
            let all = paths::target().join("vm/tests.txt");
            match fs::write(&all, self.timing.all()) {
                Ok(()) => note(format!("of all tests: {}", all.display())),
                Err(error) => note(format!("cannot write {}: {error}", all.display())),
            }
        }
        for problem in &self.problems {
            eprintln!("error: {problem}");
        }
    }
}

impl Bench {
    pub(crate) fn new() -> Result<Self> {
        Self::with(guest::build)
    }

    /// For guests that run no tests.
    pub(crate) fn without_tests() -> Result<Self> {
        Self::with(guest::build_programs)
    }

    fn with(binaries: fn() -> Result<Binaries>) -> Result<Self> {
        let tracer = build::build()?;
        let binaries = binaries()?;
        let emulator = emulator::unpacked()?;
        let _cache = lock::hold(&paths::cache())?;
        let apt = Apt::open()?;
        let matrix = Matrix::find(&apt)?;
        matrix.show();
        let userland = userland::piece(&apt)?;
        let saved = Shelves::default();
        Ok(Self { apt, matrix, driver: None, userland, emulator, tracer, binaries, saved })
    }

    /// The test bed in which this driver, if any, is loaded in the place of the kernel's own.
    pub(crate) fn with_driver(self, driver: Option<Driver>) -> Self {
        Self { driver, ..self }
    }

    /// The kernels at hand.
    pub(crate) fn matrix(&self) -> &Matrix {
        &self.matrix
    }

    /// One guest of the tests, reported to `out`. `None`: not run, because neither `only` nor the filter
    /// leaves it a test.
    pub(crate) fn test(
        &self,
        column: Column,
        boot: Boot,
        only: &[&str],
        filter: &[String],
        limit: Duration,
        out: &mut dyn Write,
    ) -> Result<Option<Tested>> {
        let mut wanted = Vec::new();
        for stage in boot.run(column) {
            if boots::is_wanted(column, stage.name, only) && self.has_test(stage, filter)? {
                wanted.push(stage.name);
            }
        }
        if wanted.is_empty() {
            return Ok(None);
        }
        let Booted { run, trouble, .. } = self.boot(column, boot, Mode::Test(&wanted), filter, limit, out)?;
        let mut problems = Vec::from_iter(trouble);
        if run.closings != wanted.len() {
            problems.push(format!("{} of {} test executables came to their end", run.closings, wanted.len()));
        }
        if let (End::Exit(code @ 1..), 0) = (&run.end, run.totals.failed) {
            problems.push(format!("{code} stages failed outside of their tests"));
        }
        Ok(Some(Tested { totals: run.totals, problems, timing: run.timing }))
    }

    /// Whether a stage's executable has a test that the arguments select: it is static, and lists them here.
    fn has_test(&self, stage: &Stage, arguments: &[String]) -> Result<bool> {
        let path = self.test_of(stage.name)?;
        let list = |arguments: &[String]| {
            let listed = Command::new(path).args(["--list", "--format=terse"]).args(arguments).output();
            listed.with_context(|| format!("cannot run {}", path.display()))
        };
        let all = String::from_utf8_lossy(&list(&[])?.stdout).into_owned();
        let is_there = |begin: &str| all.lines().any(|test| test.starts_with(begin));
        if let Some(missing) = stage.named().find(|begin| !is_there(begin)) {
            bail!("no test of {} begins with {missing}, which xtask/src/vm/boots/table.rs names", stage.name);
        }
        let listed = list(arguments)?;
        // Arguments it does not understand are left for the guest to report.
        Ok(!listed.status.success() || String::from_utf8_lossy(&listed.stdout).contains(": test"))
    }

    fn test_of(&self, stage: &str) -> Result<&Path> {
        self.binaries.test(stage).with_context(|| format!("the tests package has no test {stage}"))
    }

    /// Runs one guest to its own end or the limit.
    pub(crate) fn boot(
        &self,
        column: Column,
        boot: Boot,
        mode: Mode<'_>,
        arguments: &[String],
        limit: Duration,
        out: &mut dyn Write,
    ) -> Result<Booted> {
        let mut ready = self.prepare(Task { column, boot, mode, arguments })?;
        let how = if ready.resumed.is_some() { "resuming" } else { "booting" };
        step(format!("{how} Linux {}: {}", ready.kernel.release, boot.name));
        let (held, made) = ready.taken();
        let vmlinuz = ready.kernel.vmlinuz();
        let mut run = ready.machine(&vmlinuz, &self.emulator).run(&ready.nonce, limit, held, out)?;
        if let Some(took) = made {
            run.timing.add(Timing::of(format!("{}, snapshots for {}", column.title(), boot.name), took));
        }
        let trouble = qemu::verdict(&run.end, &ready.console);
        Ok(Booted { release: ready.kernel.release, run, trouble })
    }

    /// A guest on this terminal, until it powers off.
    pub(crate) fn shell(&self, column: Column, boot: Boot) -> Result<()> {
        let mut ready = self.prepare(Task { column, boot, mode: Mode::Shell, arguments: &[] })?;
        let (release, name) = (&ready.kernel.release, boot.name);
        step(format!("Linux {release}, {name}: a shell in the guest; `exit` or Ctrl-A X ends it"));
        let (held, _) = ready.taken();
        let vmlinuz = ready.kernel.vmlinuz();
        ready.machine(&vmlinuz, &self.emulator).shell(held)
    }

    fn prepare(&self, task: Task<'_>) -> Result<Ready> {
        let Task { column, boot, mode, arguments } = task;
        let cache = lock::hold(&paths::cache())?;
        let kernel = kernels::fetch(&self.apt, column.series)?;
        drop(cache);
        let types = types_suffix(column);
        // Log and initramfs of one guest of a release belong to one run at a time. No run waits for this
        // while holding the cache.
        let dir = paths::vm(&kernel.release).join(format!("{}{types}", boot.name));
        let held = lock::hold(&dir)?;
        let scratch = dir.join("stripped");
        let resumed = self.resumed(column, boot, &kernel)?;
        let mut archive = match boot.root {
            Root::Initramfs => Archive::new(),
            Root::Debian => Archive::below(debian::OVERLAY),
        };
        for folder in ["modules", "tests", "etc", "bin"] {
            archive.dir(folder);
        }
        let stages = self.fill(&mut archive, &kernel, (task, resumed.as_ref()), &scratch)?;
        let nonce = nonce();
        let job = json!({
            "mode": mode.name(),
            "release": kernel.release,
            "series": column.name(),
            "driver": column.driver.name(),
            "all": column.all,
            "types": column.types.name(),
            "min_ring": self.driver.as_ref().map_or(MIN_RING, |driver| driver.facts.min_ring),
            "restores": self.driver.as_ref().is_none_or(|driver| driver.facts.restores),
            "nonce": nonce,
            "stages": stages,
            "arguments": arguments,
        });
        // tests/src/bin/vm-init/job.rs reads it.
        archive.file("etc/vm-job.json", 0o644, serde_json::to_vec_pretty(&job)?);
        let (mut whole, disk) = match boot.root {
            Root::Initramfs => (self.programs(boot, mode)?, None),
            Root::Debian => {
                debian::units(&mut archive);
                let init = guest::stripped(self.binaries.program("vm-init")?, &scratch)?;
                let _cache = lock::hold(&paths::cache())?;
                (debian::initramfs(&kernel, init)?, Some(debian::image()?))
            }
        };
        whole.extend(archive.finish()?);
        let kind = if resumed.is_some() { "payload" } else { "initramfs" };
        let files = Files(dir.join(format!("{kind}.cpio")));
        fs::write(&files.0, &whole).with_context(|| format!("cannot write {}", files.0.display()))?;
        note(format!("{kind} for {}: {}", kernel.release, size(whole.len() as u64)));
        let [console, pulse] = ["console.log", "pulse"].map(|name| dir.join(name));
        Ok(Ready { kernel, boot, files, resumed, console, pulse, disk, nonce, _held: held })
    }

    /// The pieces with Debian's programs, where the guest has no other system.
    fn programs(&self, boot: Boot, mode: Mode<'_>) -> Result<Vec<u8>> {
        let mut pieces = fs::read(&self.userland).context("cannot read the userland piece")?;
        let more = match mode {
            Mode::Cost => userland::BPFTRACE,
            Mode::Test(_) | Mode::Shell if boot.saved == Some(boots::MAIN_SAVED) => userland::OF_TESTS,
            _ => return Ok(pieces),
        };
        let _cache = lock::hold(&paths::cache())?;
        let more = userland::more(&self.apt, &more)?;
        pieces.extend(fs::read(&more).with_context(|| format!("cannot read {}", more.display()))?);
        Ok(pieces)
    }
}

impl Ready {
    fn machine<'a>(&'a self, vmlinuz: &'a Path, emulator: &'a Path) -> Machine<'a> {
        let Self { files, resumed, console, pulse, disk, boot, .. } = self;
        let (from, disk) = match resumed {
            Some(resumed) => (From::Snapshot(&resumed.file), Some(Disk::Read(&files.0))),
            None => (From::Initramfs(&files.0), disk.as_deref().map(Disk::Copied)),
        };
        Machine { vmlinuz, from, console, pulse, disk, gpus: boot.gpus, time: boot.time, emulator }
    }

    /// The lock of the snapshot, to be held until it is loaded; and what making it took, if it was made.
    fn taken(&mut self) -> (Option<Held>, Option<Mark>) {
        let resumed = self.resumed.as_mut();
        resumed.map_or((None, None), |resumed| (resumed.held.take(), resumed.made.take()))
    }
}

/// What distinguishes the folders of a release, by where the tracer has its types from.
fn types_suffix(column: Column) -> &'static str {
    match column.types {
        Types::Kernel => "",
        Types::File => "-types-file",
        Types::Table => "-types-table",
    }
}

/// Text no test prints by chance: a stale or forged exit line does not count.
fn nonce() -> String {
    let since = std::time::UNIX_EPOCH.elapsed().unwrap_or_default();
    format!("{:x}-{:x}", since.as_nanos(), std::process::id())
}
