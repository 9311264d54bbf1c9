//! The test bed: one kernel made ready (image, modules, initramfs, the init's job) and booted. Takes a
//! series of the matrix, gives what its guest reported. One boot has three stages: before amdgpu, with
//! amdgpu, with kfdsim's two GPUs.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};

use crate::apt::Apt;
use crate::closing::Totals;
use crate::guest::{self, Binaries};
use crate::initramfs::Archive;
use crate::kernels::{self, Kernel};
use crate::lock::{self, Held};
use crate::qemu::{self, End, Machine, Run};
use crate::run::{note, size, step};
use crate::series::Series;
use crate::{build, kfdsim, modules, paths, userland};

/// GPUs kfdsim makes: two, so that nothing can mix them up unseen.
const GPUS: usize = 2;

/// What the guest is to do.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Test,
    Demo,
    Shell,
}

impl Mode {
    fn name(self) -> &'static str {
        match self {
            Self::Test => "test",
            Self::Demo => "demo",
            Self::Shell => "shell",
        }
    }
}

/// All that is the same for every kernel.
pub(crate) struct Bench {
    apt: Apt,
    userland: PathBuf,
    tracer: PathBuf,
    binaries: Binaries,
}

/// A kernel ready to boot.
struct Ready {
    kernel: Kernel,
    initramfs: PathBuf,
    console: PathBuf,
    nonce: String,
    _held: Held,
}

/// A boot that is over.
pub(crate) struct Boot {
    pub(crate) run: Run,
    /// What is wrong with the guest itself; it was shown with the kernel log's end.
    pub(crate) trouble: Option<String>,
}

impl Bench {
    pub(crate) fn new() -> Result<Self> {
        let tracer = build::build()?;
        let binaries = guest::build()?;
        let _cache = lock::hold(&paths::cache())?;
        let apt = Apt::open()?;
        let userland = userland::piece(&apt)?;
        Ok(Self { apt, userland, tracer, binaries })
    }

    /// One boot of the tests: the sums, and what is wrong beyond failed tests.
    pub(crate) fn test(
        &self,
        series: Series,
        filter: &[String],
        limit: Duration,
    ) -> Result<(Totals, Vec<String>)> {
        let Boot { run, trouble } = self.boot(series, Mode::Test, filter, limit)?;
        let mut problems = Vec::from_iter(trouble);
        let expected = stage_names(series).count();
        if run.closings != expected {
            problems.push(format!("{} of {expected} test executables came to their end", run.closings));
        }
        if let (End::Exit(code @ 1..), 0) = (&run.end, run.totals.failed) {
            problems.push(format!("{code} stages failed outside of their tests"));
        }
        Ok((run.totals, problems))
    }

    /// One boot to the guest's own end or the limit.
    pub(crate) fn boot(
        &self,
        series: Series,
        mode: Mode,
        arguments: &[String],
        limit: Duration,
    ) -> Result<Boot> {
        let ready = self.prepare(series, mode, arguments)?;
        step(format!("booting Linux {}", ready.kernel.release));
        let vmlinuz = ready.kernel.vmlinuz();
        let run = ready.machine(&vmlinuz).run(&ready.nonce, limit)?;
        let trouble = qemu::verdict(&run.end, &ready.console);
        Ok(Boot { run, trouble })
    }

    /// A guest on this terminal, until it powers off.
    pub(crate) fn shell(&self, series: Series) -> Result<()> {
        let ready = self.prepare(series, Mode::Shell, &[])?;
        step(format!("Linux {}: a shell in the guest; `exit` or Ctrl-A X ends it", ready.kernel.release));
        let vmlinuz = ready.kernel.vmlinuz();
        ready.machine(&vmlinuz).shell()
    }

    fn prepare(&self, series: Series, mode: Mode, arguments: &[String]) -> Result<Ready> {
        let cache = lock::hold(&paths::cache())?;
        let kernel = kernels::fetch(&self.apt, series)?;
        drop(cache);
        // Log and initramfs of one release belong to one run at a time. Nobody waits for this while
        // holding the cache.
        let dir = paths::vm(&kernel.release);
        let held = lock::hold(&dir)?;
        let mut archive = Archive::new();
        for folder in ["modules", "tests", "etc", "bin"] {
            archive.dir(folder);
        }
        let stages = self.fill(&mut archive, &kernel, mode, &dir.join("stripped"))?;
        let nonce = nonce();
        let job = json!({
            "mode": mode.name(),
            "release": kernel.release,
            "series": kernel.series.name(),
            "nonce": nonce,
            "stages": stages,
            "arguments": arguments,
        });
        // tests/src/bin/vm-init/job.rs reads it.
        archive.file("etc/vm-job.json", 0o644, serde_json::to_vec_pretty(&job)?);
        let userland = fs::read(&self.userland).context("cannot read the userland piece")?;
        let whole = [userland, archive.finish()?].concat();
        let initramfs = dir.join("initramfs.cpio");
        fs::write(&initramfs, &whole).with_context(|| format!("cannot write {}", initramfs.display()))?;
        note(format!("initramfs for {}: {}", kernel.release, size(whole.len() as u64)));
        Ok(Ready { kernel, initramfs, console: dir.join("console.log"), nonce, _held: held })
    }

    /// Puts programs, modules and tests in the archive and gives the stages for the job.
    fn fill(&self, archive: &mut Archive, kernel: &Kernel, mode: Mode, scratch: &Path) -> Result<Vec<Value>> {
        archive.file("init", 0o755, guest::stripped(self.binaries.program("vm-init")?, scratch)?);
        archive.file("bin/kfd-trace", 0o755, guest::stripped(&self.tracer, scratch)?);
        for (name, path) in self.binaries.programs.iter().filter(|(name, _)| name != "vm-init") {
            archive.file(&format!("bin/{name}"), 0o755, guest::stripped(path, scratch)?);
        }
        let mut stages = Vec::new();
        for name in stage_names(kernel.series) {
            let mut inserted = Vec::new();
            if name == "no_gpu" {
                for path in modules::amdgpu(kernel)? {
                    inserted.push(place_module(archive, &path, modules::read(&path)?));
                }
            } else if name == "sim" {
                let _cache = lock::hold(&paths::cache())?;
                let path = kfdsim::build(&self.apt, kernel)?;
                inserted.push(place_module(archive, &path, guest::stripped(&path, scratch)?));
            }
            if mode == Mode::Test {
                let Some(test) = self.binaries.test(name) else {
                    bail!("the tests package has no test {name}")
                };
                archive.file(&format!("tests/{name}"), 0o755, guest::stripped(test, scratch)?);
            }
            stages.push(json!({ "name": name, "modules": inserted, "test": format!("/tests/{name}") }));
        }
        if !kernel.series.has_kfdsim() {
            note(format!("no kfdsim for Linux {} yet: stage sim is left out", kernel.series.name()));
        }
        Ok(stages)
    }
}

impl Ready {
    fn machine<'a>(&'a self, vmlinuz: &'a Path) -> Machine<'a> {
        Machine { vmlinuz, initramfs: &self.initramfs, console: &self.console, gpus: GPUS }
    }
}

/// The stages of one boot, in order; each is the name of a test executable.
fn stage_names(series: Series) -> impl Iterator<Item = &'static str> {
    let all = ["no_amdgpu", "no_gpu", "sim"];
    all.into_iter().filter(move |name| *name != "sim" || series.has_kfdsim())
}

/// Puts a module in the archive and gives its path in the guest.
fn place_module(archive: &mut Archive, path: &Path, elf: Vec<u8>) -> String {
    let place = format!("modules/{}.ko", modules::module_name(&path.to_string_lossy()));
    archive.file(&place, 0o644, elf);
    format!("/{place}")
}

/// Text no test prints by chance: a stale or forged exit line does not count.
fn nonce() -> String {
    let since = std::time::UNIX_EPOCH.elapsed().unwrap_or_default();
    format!("{:x}-{:x}", since.as_nanos(), std::process::id())
}
