//! The snapshots of a kernel's boot: found, or made by a guest of their own. In: a column of the matrix and a
//! boot. Out: the file that a guest is resumed from, and the modules that are in it.

use super::contents::place_module;
use super::{Bench, types_suffix};
use crate::lock::{self, Held};
use crate::run::step;
use crate::vm::boots::{self, Boot, Module};
use crate::vm::initramfs::Archive;
use crate::vm::kernels::Kernel;
use crate::vm::matrix::Column;
use crate::vm::qemu::{Disk, From, Machine};
use crate::vm::snapshot::{Ingredients, Shelf, State, states};
use crate::vm::timing::Mark;
use crate::vm::{LIMIT, emulator, guest, modules};
use crate::{folder, paths};
use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What the payload's disk needs; older kernels have all of it as modules.
const DISK_MODULES: [&str; 2] = ["virtio_pci", "virtio_blk"];

/// Those that this process has looked for, by their folder.
#[derive(Default)]
pub(super) struct Shelves(Mutex<BTreeMap<PathBuf, Arc<Made>>>);

impl Shelves {
    fn known(&self) -> MutexGuard<'_, BTreeMap<PathBuf, Arc<Made>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The snapshots of one boot.
struct Made {
    kernel: [String; 2],
    shelf: Shelf,
    maker: Maker,
    states: Vec<State>,
    modules: Vec<(Module, Vec<Value>)>,
}

/// Files of the guest that makes them.
struct Maker {
    initramfs: PathBuf,
    console: PathBuf,
    pulse: PathBuf,
}

impl Maker {
    fn of(dir: &Path) -> Self {
        let [initramfs, console, pulse] =
            ["initramfs.cpio", "console.log", "pulse"].map(|name| dir.join(name));
        Self { initramfs, console, pulse }
    }

    fn machine<'a>(
        &'a self,
        boot: Boot,
        (vmlinuz, emulator): (&'a Path, &'a Path),
        from: Option<&'a Path>,
    ) -> Machine<'a> {
        let Self { initramfs, console, pulse } = self;
        let from = from.map_or(From::Initramfs(initramfs), From::Snapshot);
        // It has no payload: any file of whole blocks keeps the place of the disk.
        let disk = Some(Disk::Read(initramfs));
        Machine { vmlinuz, from, console, pulse, disk, gpus: boot.gpus, time: boot.time, emulator }
    }
}

/// What a guest is resumed from.
pub(super) struct Resumed {
    pub(super) file: PathBuf,
    pub(super) held: Option<Held>,
    /// What making it took; `None`: it was there.
    pub(super) made: Option<Mark>,
    of: Arc<Made>,
}

impl Resumed {
    /// A module with what it needs, as in the init's job.
    pub(super) fn modules(&self, module: &Module) -> Vec<Value> {
        let found = self.of.modules.iter().find(|(placed, _)| placed == module);
        found.map_or_else(Vec::new, |(_, values)| values.clone())
    }
}

impl Bench {
    /// The snapshot for a boot's last stage, made if it is missing; `None`: its guests boot.
    pub(super) fn resumed(&self, column: Column, boot: Boot, kernel: &Kernel) -> Result<Option<Resumed>> {
        let Some(name) = boot.saved else { return Ok(None) };
        let driver = if self.driver.is_some() { "-driver" } else { "" };
        let name = format!("{}-{name}{}{driver}", column.name(), types_suffix(column));
        let dir = paths::cache().join("snapshots").join(name);
        let held = lock::hold(&dir)?;
        let wanted = states(boot, column, |_| false).len() - 1;
        let has_it = |of: &Made| of.shelf.nearest(&of.states, wanted) == Some(wanted);
        // The archive may get another one while guests run.
        let is_same = |of: &&Arc<Made>| of.kernel == identity(kernel) && has_it(of);
        let known = self.saved.known().get(&dir).filter(is_same).cloned();
        let of = match known {
            Some(of) => of,
            // Also where another run has meanwhile replaced it, and the initramfs with it.
            None => {
                let of = Arc::new(self.find(&dir, column, boot.whole(column), kernel)?);
                self.saved.known().insert(dir, Arc::clone(&of));
                of
            }
        };
        let made = if has_it(&of) { None } else { Some(self.make(&of, boot, kernel, wanted)?) };
        let file = of.shelf.file(of.states[wanted].name);
        Ok(Some(Resumed { file, held: Some(held), made, of }))
    }

    /// Writes the initramfs of the guest that makes the snapshots, and looks for these.
    fn find(&self, dir: &Path, column: Column, boot: Boot, kernel: &Kernel) -> Result<Made> {
        let scratch = dir.join("stripped");
        let states = states(boot, column, |stage| boots::is_wanted(column, stage, &[]));
        let mut archive = Archive::new();
        for folder in ["modules", "etc"] {
            archive.dir(folder);
        }
        let mut placed = Vec::new();
        for module in states.iter().filter_map(|state| state.module) {
            let values = self.place_modules(&mut archive, kernel, (&module, column.types), &scratch)?;
            placed.push((module, values));
        }
        let of = |state: &State| {
            let found = placed.iter().find(|(module, _)| Some(*module) == state.module);
            json!({ "name": state.name, "modules": found.map_or(&[][..], |(_, values)| values) })
        };
        let disk = disk_modules(&mut archive, kernel)?;
        let job = json!({ "disk": disk, "states": states.iter().map(of).collect::<Vec<_>>() });
        // tests/src/bin/vm-init/snapshot.rs reads it.
        archive.file("etc/vm-states.json", 0o644, serde_json::to_vec_pretty(&job)?);
        let modules = archive.finish()?;
        let mut init = Archive::new();
        init.file("init", 0o755, guest::stripped(self.binaries.program("vm-init")?, &scratch)?);
        let maker = Maker::of(dir);
        let file = &maker.initramfs;
        fs::write(file, [&modules[..], &init.finish()?].concat())
            .with_context(|| format!("cannot write {}", file.display()))?;
        let vmlinuz = kernel.vmlinuz();
        let shelf = Shelf::new(
            dir.to_owned(),
            Ingredients {
                emulator: &contents(&emulator::files(&self.emulator)?)?,
                machine: &maker.machine(boot, (&vmlinuz, &self.emulator), None).identity(),
                kernel: &read(&vmlinuz)?,
                init: &sources_of_init()?,
                modules: &modules,
            },
        );
        Ok(Made { kernel: identity(kernel), shelf, maker, states, modules: placed })
    }

    /// Makes this state and those on the way to it, from the nearest one that there is.
    fn make(&self, of: &Made, boot: Boot, kernel: &Kernel, wanted: usize) -> Result<Mark> {
        let from = of.shelf.nearest(&of.states, wanted);
        let names: Vec<_> = of.states.iter().map(|state| state.name).collect();
        let names = &names[from.unwrap_or_default()..=wanted];
        step(format!("saving Linux {}: {}", kernel.release, names.join(", ")));
        let (vmlinuz, file) = (kernel.vmlinuz(), from.map(|from| of.shelf.file(of.states[from].name)));
        let machine = of.maker.machine(boot, (&vmlinuz, &self.emulator), file.as_deref());
        machine.make(names, LIMIT, |name, guest| {
            let is_kept = |(at, state): (usize, &State)| state.name == name && (at == wanted || state.saved);
            if of.states.iter().enumerate().any(is_kept) {
                of.shelf.keep(name, |file| guest.save(file))?;
            }
            Ok(())
        })
    }
}

/// Its release and version.
fn identity(kernel: &Kernel) -> [String; 2] {
    [&kernel.release, &kernel.version].map(String::clone)
}

/// What the init does until the payload's takes its place.
fn sources_of_init() -> Result<Vec<Vec<u8>>> {
    let tests = paths::root().join("tests/src");
    let mut files = folder::files_below(&tests.join("bin/vm-init"))?;
    files.push(tests.join("pulse.rs"));
    contents(&files)
}

fn contents(files: &[PathBuf]) -> Result<Vec<Vec<u8>>> {
    files.iter().map(|file| read(file)).collect()
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}

fn disk_modules(archive: &mut Archive, kernel: &Kernel) -> Result<Vec<Value>> {
    let mut values = Vec::new();
    for name in DISK_MODULES {
        if modules::find(kernel, name)?.is_none() {
            // It is built in: the guest could not read its payload otherwise.
            continue;
        }
        for path in modules::with_needs(kernel, name)? {
            let value = place_module(archive, &path, modules::read(&path)?, "");
            if !values.contains(&value) {
                values.push(value);
            }
        }
    }
    Ok(values)
}
