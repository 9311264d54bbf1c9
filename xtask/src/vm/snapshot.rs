//! Saved machines: a kernel booted and modules inserted once, resumed by every later guest. In: a boot, a
//! kernel and what its guest is made of. Out: the states that it goes through, and a file per state in the
//! cache.
//!
//! A state is the number of modules inserted so far. What a guest runs is no part of it (the payload), nor
//! are the shapes of kfdsim's GPUs, whose change takes less than a resume.

use crate::run::{note, size};
use crate::vm::boots::{Boot, Module};
use crate::vm::matrix::Column;
use anyhow::{Context as _, Result};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// What a guest may be resumed from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) name: &'static str,
    /// Inserted to get there from the state before; the first one is the kernel alone.
    pub(crate) module: Option<Module>,
    /// A stage runs in it.
    pub(crate) saved: bool,
}

/// The states of a boot on a kernel, in order: the last one is that of its last stage. `used`: whether a
/// stage is run.
pub(crate) fn states(boot: Boot, column: Column, used: impl Fn(&str) -> bool) -> Vec<State> {
    let mut states = vec![State { name: "booted", module: None, saved: false }];
    for stage in boot.stages(column) {
        states.extend(stage.modules.iter().map(|module| State {
            name: module.name(),
            module: Some(*module),
            saved: false,
        }));
        if let Some(state) = states.last_mut() {
            state.saved |= used(stage.name);
        }
    }
    states
}

/// All that a saved machine is made of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ingredients<'a> {
    /// The emulator's program, and its files of firmware.
    pub(crate) emulator: &'a [Vec<u8>],
    /// The machine's identity: all its devices and CPUs, without paths; under KVM also the host's CPU.
    pub(crate) machine: &'a [String],
    pub(crate) kernel: &'a [u8],
    /// Sources of the guest's init: its bytes change with each edit of the tests' library.
    pub(crate) init: &'a [Vec<u8>],
    /// The modules and their order.
    pub(crate) modules: &'a [u8],
}

impl Ingredients<'_> {
    fn key(self) -> String {
        let mut hasher = DefaultHasher::new();
        let Self { emulator, machine, kernel, init, modules } = self;
        (emulator, machine, kernel, init, modules).hash(&mut hasher);
        format!("{:016x}", hasher.finish())
    }
}

/// The snapshots of a kernel's boot.
#[derive(Debug)]
pub(crate) struct Shelf {
    dir: PathBuf,
    key: String,
}

impl Shelf {
    /// `dir` has no others.
    pub(crate) fn new(dir: PathBuf, of: Ingredients<'_>) -> Self {
        Self { dir, key: of.key() }
    }

    /// A file is whole if it is there.
    pub(crate) fn file(&self, state: &str) -> PathBuf {
        self.dir.join(format!("{state}.{}", self.key))
    }

    /// The state from which the wanted one can be reached soonest.
    pub(crate) fn nearest(&self, states: &[State], wanted: usize) -> Option<usize> {
        states.iter().take(wanted + 1).rposition(|state| self.file(state.name).exists())
    }

    /// Keeps a state that `save` writes to the file that it is given, and removes what it replaces.
    pub(crate) fn keep(&self, state: &str, save: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
        let (file, partial) = (self.file(state), self.dir.join("partial"));
        for old in self.others(state)? {
            fs::remove_file(&old).with_context(|| format!("cannot remove {}", old.display()))?;
        }
        let saved = save(&partial).and_then(|()| {
            // The name must not be on the disk before the pages are.
            let placed = File::open(&partial).and_then(|whole| whole.sync_data());
            let placed = placed.and_then(|()| fs::rename(&partial, &file));
            placed.with_context(|| format!("cannot place {}", file.display()))
        });
        if saved.is_err() {
            // It may take the room that was missing.
            let _ = fs::remove_file(&partial);
        }
        saved?;
        let taken = fs::metadata(&file).map_or(0, |about| about.blocks() * 512);
        note(format!("snapshot {state}: {} on the disk", size(taken)));
        Ok(())
    }

    /// What this state's new snapshot replaces: its old one, and all that are made of something else.
    fn others(&self, state: &str) -> Result<Vec<PathBuf>> {
        let entries =
            fs::read_dir(&self.dir).with_context(|| format!("cannot read {}", self.dir.display()))?;
        let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
        let is_key =
            |made_of: &OsStr| made_of.len() == 16 && made_of.as_bytes().iter().all(u8::is_ascii_hexdigit);
        let is_replaced = |path: &PathBuf| {
            let (stem, made_of) = (path.file_stem(), path.extension().filter(|made_of| is_key(made_of)));
            made_of.is_some_and(|made_of| made_of != &*self.key || stem.is_some_and(|stem| stem == state))
        };
        Ok(paths.filter(is_replaced).collect())
    }
}

#[cfg(test)]
mod tests;
