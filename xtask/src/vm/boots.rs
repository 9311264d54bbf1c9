//! The boots of the test bed and their stages. In: a column of the matrix. Out: the stages it runs. Pure.
//!
//! A boot groups stages that begin with the same machine and kernel. Each stage of an initramfs is run by a
//! guest of its own, which is resumed from what the boot has saved (`snapshot.rs`); those of a Debian follow
//! each other in one.

pub(crate) mod table;

pub(crate) use table::{COST, MAIN_SAVED, SOAK, TOOL, WITH_GPUS};

use crate::vm::matrix::{Column, Types};
use crate::vm::qemu::Time;
use table::{BOOTS, LEFT_TO_EVERYTHING, LONGEST, OF_NEWEST, Prefixes};

/// A module with the parameters of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Module {
    /// With all its dependencies.
    Amdgpu(&'static str),
    Kfdsim(&'static str),
}

impl Module {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Amdgpu(_) => "amdgpu",
            Self::Kfdsim(_) => "kfdsim",
        }
    }
}

/// A test executable of the tests package, and what is inserted before it runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stage {
    pub(crate) name: &'static str,
    pub(crate) modules: &'static [Module],
    /// The shape of kfdsim's GPUs from here on, if it changes (tests/kfdsim/README.md).
    pub(crate) shape: Option<&'static str>,
    on: On,
    /// Prefixes of the names of its tests of the tracer itself, which are the same on every kernel: run on
    /// one only, unless tests are requested by name.
    pub(crate) once: &'static [&'static str],
}

impl Stage {
    /// Prefixes of the names of its tests that are left out on this kernel.
    pub(crate) fn left_out(&self, column: Column) -> impl Iterator<Item = &'static str> {
        let once = if column.all { &[] } else { self.once };
        once.iter().copied().chain(self.left_to_everything().filter(move |_| !column.whole))
    }

    /// Prefixes of the names of its only tests on this kernel; none: all that are not left out.
    pub(crate) fn only(&self, column: Column) -> impl Iterator<Item = &'static str> {
        self.of_newest().filter(move |_| column.newest)
    }

    /// All prefixes that are named here for it.
    pub(crate) fn named(&self) -> impl Iterator<Item = &'static str> {
        self.once.iter().copied().chain(self.left_to_everything()).chain(self.of_newest())
    }

    fn left_to_everything(&self) -> impl Iterator<Item = &'static str> {
        self.own(&LEFT_TO_EVERYTHING)
    }

    fn of_newest(&self) -> impl Iterator<Item = &'static str> {
        self.own(&OF_NEWEST)
    }

    fn own(&self, all: &'static [Prefixes]) -> impl Iterator<Item = &'static str> {
        let own = all.iter().filter(|(stage, _)| *stage == self.name);
        own.flat_map(|(_, begins)| begins.iter().copied())
    }
}

/// The kernels on which a stage is run.
#[derive(Clone, Copy, Debug)]
enum On {
    Every,
    /// For which kfdsim can be built, with types of the driver.
    Simulated,
    /// Of these, with a driver that supports GC 9.4.3 and has KFD nodes.
    Nodes,
    /// Of these, with a driver for which kfdsim has MES.
    Mes,
    /// One of the simulated.
    One,
    /// That, and a driver whose types are in the tracer's own table.
    OneOrTable,
}

impl On {
    fn contains(self, column: Column) -> bool {
        match self {
            Self::Every => true,
            Self::Simulated => column.built && column.typed(),
            Self::Nodes => column.built && column.typed() && column.nodes,
            Self::Mes => column.built && column.typed() && column.mes,
            Self::One => column.all,
            Self::OneOrTable => column.all || column.types == Types::Table,
        }
    }
}

/// The system in which the stages run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Root {
    /// The init of the tests and a handful of programs.
    Initramfs,
    /// Debian with systemd, where kfd-trace is installed as a package.
    Debian,
}

/// Stages on one machine. The stages before the one that a guest runs name its modules.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Boot {
    /// That of its only stage, where a guest runs one.
    pub(crate) name: &'static str,
    /// The name of its snapshots; otherwise each guest boots.
    pub(crate) saved: Option<&'static str>,
    pub(crate) root: Root,
    /// PCI devices that kfdsim makes GPUs of.
    pub(crate) gpus: usize,
    pub(crate) time: Time,
    stages: &'static [Stage],
}

/// The guests of these kernels, each with the stages up to its last one. Those that take longest come first:
/// at the end only the last one still runs. Of one stage the kernel with all tests comes first, then the
/// newest.
pub(crate) fn of(wanted: &[Column]) -> Vec<(Column, Boot)> {
    let of_boot = |boot: Boot| {
        let columns = wanted.iter().rev().copied();
        columns.flat_map(move |column| boot.guests(column).into_iter().map(move |guest| (column, guest)))
    };
    let mut guests: Vec<_> = BOOTS.into_iter().flat_map(of_boot).collect();
    let place = |boot: &Boot| {
        let last = boot.stages.last().map(|stage| stage.name);
        LONGEST.iter().position(|name| Some(*name) == last)
    };
    guests.sort_by_key(|(column, boot)| (place(boot), !column.all));
    guests
}

/// The guest that runs this stage; without a name one with the GPUs of the default.
pub(crate) fn with_stage(name: Option<&str>) -> Option<Boot> {
    let name = name.unwrap_or("life");
    BOOTS.into_iter().find_map(|boot| {
        let last = boot.stages.iter().position(|stage| stage.name == name)?;
        Some(boot.up_to(last))
    })
}

/// Prefixes of the names of a stage's tests that are run on one kernel only.
pub(crate) fn once(name: &str) -> impl Iterator<Item = &'static str> {
    let stages = BOOTS.iter().flat_map(|boot| boot.stages).filter(move |stage| stage.name == name);
    stages.flat_map(|stage| stage.once).copied()
}

/// The names of all stages.
pub(crate) fn stage_names() -> impl Iterator<Item = &'static str> {
    BOOTS.iter().flat_map(|boot| boot.stages).map(|stage| stage.name)
}

/// Whether a kernel runs this stage's tests: those that are named, or the usual ones where none is.
pub(crate) fn is_wanted(column: Column, stage: &str, named: &[&str]) -> bool {
    if !named.is_empty() {
        return named.contains(&stage);
    }
    // Without GPUs there is nothing that a file of types could show.
    let by_file = column.types == Types::Kernel || WITH_GPUS.contains(&stage);
    by_file && column.only.is_none_or(|only| only.contains(&stage))
}

impl Boot {
    /// The stages that this kernel can run, in order: those that are not requested bring modules for others.
    pub(crate) fn stages(self, column: Column) -> impl Iterator<Item = &'static Stage> {
        self.stages.iter().filter(move |stage| stage.on.contains(column))
    }

    /// Those of them that its guest may run.
    pub(crate) fn run(self, column: Column) -> impl Iterator<Item = &'static Stage> {
        let before = if self.saved.is_some() { self.stages.len().saturating_sub(1) } else { 0 };
        self.stages[before..].iter().filter(move |stage| stage.on.contains(column))
    }

    /// One guest per stage that this kernel can run, or one for all where they follow each other.
    fn guests(self, column: Column) -> Vec<Self> {
        let can_run = |stage: &Stage| stage.on.contains(column);
        if self.saved.is_none() {
            return if self.stages.iter().any(can_run) { vec![self] } else { Vec::new() };
        }
        let lasts = (0..self.stages.len()).filter(|last| can_run(&self.stages[*last]));
        lasts.map(|last| self.up_to(last)).collect()
    }

    fn up_to(self, last: usize) -> Self {
        let name = if self.saved.is_some() { self.stages[last].name } else { self.name };
        Self { name, stages: &self.stages[..=last], ..self }
    }

    /// This boot with all its stages, which share its snapshots.
    pub(crate) fn whole(self, column: Column) -> Self {
        let is_same = |boot: &Self| boot.saved == self.saved && boot.stages(column).next().is_some();
        BOOTS.into_iter().find(is_same).unwrap_or(self)
    }
}

#[cfg(test)]
mod tests;
