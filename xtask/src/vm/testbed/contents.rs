//! What a guest holds beside Debian's programs: the tracer, tests, files of types, and modules unless its
//! snapshot has them. In: a boot and its stages. Out: entries of the archive, and the stages for the init's
//! job.

use super::saved::Resumed;
use super::{Bench, Mode, Task};
use crate::vm::boots::{Module, Root};
use crate::vm::driver::Inserted;
use crate::vm::initramfs::Archive;
use crate::vm::kernels::Kernel;
use crate::vm::matrix::{Column, Types};
use crate::vm::{guest, kfdsim, modules, types};
use crate::{dist, lock, paths};
use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};

/// Where kfd-trace looks for files of types.
const TYPES: &str = "var/lib/kfd-trace/drivers";

impl Bench {
    /// Adds programs, modules and tests to the archive and returns the stages for the job.
    pub(super) fn fill(
        &self,
        archive: &mut Archive,
        kernel: &Kernel,
        (Task { column, boot, mode, arguments }, resumed): (Task<'_>, Option<&Resumed>),
        scratch: &Path,
    ) -> Result<Vec<Value>> {
        for (name, path) in &self.binaries.programs {
            archive.file(&format!("bin/{name}"), 0o755, guest::stripped(path, scratch)?);
        }
        if boot.root == Root::Debian {
            archive.dir("packages");
            for (number, deb) in
                dist::two_debs(&self.tracer, &scratch.with_extension("packages"))?.iter().enumerate()
            {
                let bytes = fs::read(deb).with_context(|| format!("cannot read {}", deb.display()))?;
                archive.file(&format!("packages/{number}.deb"), 0o644, bytes);
            }
        }
        if boot.root == Root::Initramfs {
            archive.symlink("init", "bin/vm-init");
            archive.file("bin/kfd-trace", 0o755, guest::stripped(&self.tracer, scratch)?);
        }
        for path in self.types(kernel, column)? {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let bytes = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
            archive.folders(TYPES);
            archive.file(&format!("{TYPES}/{name}"), 0o644, bytes);
        }
        let mut stages = Vec::new();
        let mut needed: Vec<_> = boot.stages(column).collect();
        if let Mode::Test(wanted) = mode {
            // An earlier stage may need the modules (`Driver::of_job`).
            while needed.pop_if(|last| !wanted.contains(&last.name) && last.modules.is_empty()).is_some() {}
        }
        for (left, stage) in (0..needed.len()).rev().zip(needed) {
            let mut modules = Vec::new();
            for module in stage.modules {
                modules.extend(match resumed {
                    Some(resumed) => resumed.modules(module),
                    None => self.place_modules(archive, kernel, (module, column.types), scratch)?,
                });
            }
            let mut test = None;
            if matches!(mode, Mode::Test(wanted) if wanted.contains(&stage.name)) {
                let place = format!("tests/{}", stage.name);
                archive.file(&place, 0o755, guest::stripped(self.test_of(stage.name)?, scratch)?);
                test = Some(format!("/{place}"));
            }
            // A test requested by name is always run.
            let by_name = !arguments.is_empty();
            let skip = Vec::from_iter(stage.left_out(column).filter(|_| !by_name));
            let only = Vec::from_iter(stage.only(column).filter(|_| !by_name));
            // A stage without tests keeps the GPUs as they are, unless it is the last.
            let shape = stage.shape.filter(|_| test.is_some() || left == 0);
            stages.push(json!({
                "name": stage.name,
                "modules": modules,
                "shape": shape,
                "test": test,
                "skip": skip,
                "only": only,
            }));
        }
        Ok(stages)
    }

    /// The files of the driver's types.
    fn types(&self, kernel: &Kernel, column: Column) -> Result<Vec<PathBuf>> {
        match (&self.driver, column.types) {
            (Some(driver), _) => driver.types(),
            (None, Types::Kernel | Types::Table) => Ok(Vec::new()),
            (None, Types::File) => {
                let _cache = lock::hold(&paths::cache())?;
                Ok(vec![types::file(&self.apt, kernel, &self.tracer)?])
            }
        }
    }

    /// amdgpu and all that it needs, in the order of insertion.
    fn amdgpu(&self, kernel: &Kernel) -> Result<Vec<Inserted>> {
        if let Some(driver) = &self.driver {
            return driver.modules(kernel);
        }
        let files = modules::with_needs(kernel, "amdgpu")?.into_iter();
        Ok(files.map(|path| Inserted { path, parameters: String::new() }).collect())
    }

    /// Adds a module with what it needs to the archive, and returns them in the order of insertion.
    pub(super) fn place_modules(
        &self,
        archive: &mut Archive,
        kernel: &Kernel,
        (module, types): (&Module, Types),
        scratch: &Path,
    ) -> Result<Vec<Value>> {
        let mut inserted = Vec::new();
        match module {
            Module::Amdgpu(parameters) => {
                let files = self.amdgpu(kernel)?;
                for (left, Inserted { path, parameters: own }) in (0..files.len()).rev().zip(&files) {
                    // amdgpu itself comes last: the others are its dependencies.
                    let all = if left == 0 { format!("{parameters} {own}") } else { own.clone() };
                    let mut elf = modules::read(path)?;
                    if left == 0 && types == Types::File {
                        elf = modules::without_btf(&elf, scratch)?;
                    }
                    inserted.push(place_module(archive, path, elf, all.trim()));
                }
            }
            Module::Kfdsim(parameters) => {
                let _cache = lock::hold(&paths::cache())?;
                let path = match &self.driver {
                    Some(driver) => kfdsim::build_for(&self.apt, kernel, driver)?,
                    None => kfdsim::build(&self.apt, kernel)?,
                };
                let elf = guest::stripped(&path, scratch)?;
                inserted.push(place_module(archive, &path, elf, parameters));
            }
        }
        Ok(inserted)
    }
}

/// Adds a module to the archive and returns its entry in the job.
pub(super) fn place_module(archive: &mut Archive, path: &Path, elf: Vec<u8>, parameters: &str) -> Value {
    let place = format!("modules/{}.ko", modules::module_name(&path.to_string_lossy()));
    archive.file(&place, 0o644, elf);
    json!({ "file": format!("/{place}"), "parameters": parameters })
}
