//! A driver that was built elsewhere, to be booted in the place of Debian's amdgpu. In: its folder
//! (docs/development.md). Out: its modules in the order of insertion, and what kfdsim is built with.

use crate::paths;
use crate::vm::kernels::Kernel;
use crate::vm::matrix::Types;
use crate::vm::modules;
use crate::vm::series::Series;
use anyhow::{Context as _, Result, bail};
use object::{Object as _, ObjectSection as _};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

/// One line of the file `modules`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Inserted {
    pub(crate) path: PathBuf,
    /// As on insmod's command line.
    pub(crate) parameters: String,
}

/// What stages and tests depend on, as the driver's source shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    /// `struct kfd_node`, which came with GC 9.4.3.
    pub(crate) nodes: bool,
    /// CREATE_QUEUE looks up the buffers of a queue.
    pub(crate) buffers: bool,
    /// Several processes of KFD for one PID.
    contexts: bool,
    /// CRIU_OP.
    criu: bool,
    /// KFD_MIN_QUEUE_RING_SIZE, bytes; 0: it has none.
    pub(crate) min_ring: u32,
    /// CRIU_OP restores a process that has no buffers (kfd_chardev.c:criu_restore).
    pub(crate) restores: bool,
}

impl Facts {
    fn of_source(kfd_priv: &str, kfd_ioctl: &str, kfd_chardev: &str) -> Self {
        let has = |word: &str| kfd_priv.contains(word);
        let (nodes, contexts, criu) = (has("struct kfd_node {"), has(" context_id;"), has("criu"));
        let min_ring =
            kfd_ioctl.lines().find_map(|line| line.strip_prefix("#define KFD_MIN_QUEUE_RING_SIZE"));
        let min_ring = min_ring.and_then(|value| value.trim().parse().ok()).unwrap_or(0);
        let restores = !kfd_chardev.contains("|| !args->num_bos)");
        Self { nodes, buffers: has("kfd_queue_buffer_get("), contexts, criu, min_ring, restores }
    }

    /// The series whose driver it is like.
    pub(crate) fn like(self) -> Series {
        match self {
            Self { contexts: true, .. } => Series::V7_2,
            Self { nodes: true, .. } => Series::V6_12,
            Self { criu: true, .. } => Series::V6_1,
            Self { .. } => Series::V5_10,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Driver {
    dir: PathBuf,
    modules: Vec<Inserted>,
    /// The folder with `amdgpu` and `amdkfd`, below [`Self::source`].
    amd: &'static str,
    pub(crate) facts: Facts,
}

/// Where a tree has the driver: a tree of its own, or the kernel's.
const AMD: [&str; 2] = ["amd", "drivers/gpu/drm/amd"];

impl Driver {
    pub(crate) fn read(dir: &Path) -> Result<Self> {
        let dir = dir.canonicalize().with_context(|| format!("no folder {}", dir.display()))?;
        let read = |name: &str| {
            let path = dir.join(name);
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
        };
        let modules = listed(&dir, &read("modules")?)?;
        if let Some(missing) = modules.iter().find(|module| !module.path.exists()) {
            bail!("{} is in the file `modules` and not in the folder", missing.path.display());
        }
        if !dir.join(SYMVERS).exists() {
            bail!("{} has no {SYMVERS}", dir.display());
        }
        let header = |amd: &&&str| dir.join("source").join(amd).join("amdkfd/kfd_priv.h").exists();
        let amd = AMD.iter().find(header).with_context(|| {
            let places = AMD.map(|amd| format!("source/{amd}/amdkfd")).join(" or ");
            format!("{} has no driver's headers in {places}", dir.display())
        })?;
        let kfd_priv = read(&format!("source/{amd}/amdkfd/kfd_priv.h"))?;
        let kfd_ioctl = read("source/include/uapi/linux/kfd_ioctl.h")?;
        let kfd_chardev = read(&format!("source/{amd}/amdkfd/kfd_chardev.c"))?;
        let facts = Facts::of_source(&kfd_priv, &kfd_ioctl, &kfd_chardev);
        Ok(Self { dir, modules, amd, facts })
    }

    /// The configured tree.
    pub(crate) fn source(&self) -> PathBuf {
        self.dir.join("source")
    }

    /// The driver within it.
    pub(crate) fn amd(&self) -> &'static str {
        self.amd
    }

    /// Its exported symbols.
    pub(crate) fn symvers(&self) -> PathBuf {
        self.dir.join(SYMVERS)
    }

    /// The piece of a Makefile for kfdsim, if there is one.
    pub(crate) fn kbuild(&self) -> Option<PathBuf> {
        Some(self.dir.join(KBUILD)).filter(|path| path.exists())
    }

    /// Files of types, for a driver without BTF.
    pub(crate) fn types(&self) -> Result<Vec<PathBuf>> {
        let folder = self.dir.join("types");
        if !folder.exists() {
            return Ok(Vec::new());
        }
        let entries = fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))?;
        let mut files = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
        files.sort();
        Ok(files)
    }

    /// Where a tracer has its types from: a file in `types/`, the module, or the tracer's own table.
    pub(crate) fn source_of_types(&self) -> Result<Types> {
        if !self.types()?.is_empty() {
            return Ok(Types::File);
        }
        let amdgpu = self.modules.last().context("no module")?;
        let elf = modules::read(&amdgpu.path)?;
        if object::File::parse(&*elf).is_ok_and(|elf| elf.section_by_name(".BTF").is_some()) {
            return Ok(Types::Kernel);
        }
        let version = info(&elf, "version")?.pop().unwrap_or_default();
        if table_has(&version)? {
            return Ok(Types::Table);
        }
        bail!(
            "{} has no types: no BTF, no file in types/, and the table has no driver {version}",
            self.dir.display()
        )
    }

    /// Its modules with those of the kernel that they need, in the order of insertion.
    pub(crate) fn modules(&self, kernel: &Kernel) -> Result<Vec<Inserted>> {
        let mut all: Vec<Inserted> = Vec::new();
        for module in &self.modules {
            for name in needs(&modules::read(&module.path)?)? {
                // A module of its own comes before it in its file.
                if self.has(&name) {
                    continue;
                }
                for path in modules::with_needs(kernel, &name)? {
                    if all.iter().all(|other| other.path != path) {
                        all.push(Inserted { path, parameters: String::new() });
                    }
                }
            }
            all.push(module.clone());
        }
        Ok(all)
    }

    fn has(&self, name: &str) -> bool {
        self.modules.iter().any(|module| modules::module_name(&module.path.to_string_lossy()) == name)
    }
}

const SYMVERS: &str = "Module.symvers";

/// A piece of a Makefile, added to kfdsim's: what the driver's own adds for its headers.
pub(crate) const KBUILD: &str = "kbuild";

/// `file.ko [parameters]` for each module; `#` begins a comment.
fn listed(dir: &Path, text: &str) -> Result<Vec<Inserted>> {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let line = |line: &str| {
        let (file, parameters) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        Inserted { path: dir.join(file), parameters: parameters.trim().to_owned() }
    };
    let modules: Vec<Inserted> = lines.map(line).collect();
    let last = modules.last().map(|module| modules::module_name(&module.path.to_string_lossy()));
    if last.as_deref() != Some("amdgpu") {
        bail!("the file `modules` of {} does not end with amdgpu", dir.display());
    }
    Ok(modules)
}

/// The values that a module's ELF file has under this name.
fn info(elf: &[u8], name: &str) -> Result<Vec<String>> {
    let elf = object::File::parse(elf).context("a module is no ELF file")?;
    let info = elf.section_by_name(".modinfo").context("a module has no .modinfo")?;
    let info = info.uncompressed_data().context("a module's .modinfo cannot be read")?;
    let fields = info.split(|byte| *byte == 0).filter_map(|field| str::from_utf8(field).ok());
    let values = fields.filter_map(|field| field.strip_prefix(name)?.strip_prefix('='));
    Ok(values.map(str::to_owned).collect())
}

/// The modules that a module needs.
fn needs(elf: &[u8]) -> Result<Vec<String>> {
    let lists = info(elf, "depends")?;
    let needed = lists.iter().flat_map(|list| list.split(','));
    Ok(needed.filter(|name| !name.is_empty()).map(|name| name.replace('-', "_")).collect())
}

/// Whether the table in the tracer has this version of the driver.
fn table_has(version: &str) -> Result<bool> {
    let path = paths::root().join("kfd-trace/src/kernel/types/table.json");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let table: Value =
        serde_json::from_str(&text).with_context(|| format!("cannot parse {}", path.display()))?;
    Ok(table.as_array().into_iter().flatten().any(|entry| entry["driver"] == version))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_are_inserted_in_the_order_of_the_file() {
        let text = "# made by hand\n\nttm.ko\namdgpu.ko  sched_policy=2  dc=0\n";
        let found = listed(Path::new("/d"), text).expect("modules");
        let expected = [("/d/ttm.ko", ""), ("/d/amdgpu.ko", "sched_policy=2  dc=0")];
        let found: Vec<_> = found
            .iter()
            .map(|one| (one.path.to_str().unwrap_or_default(), one.parameters.as_str()))
            .collect();
        assert_eq!(found, expected);
        assert!(listed(Path::new("/d"), "amdgpu.ko\nttm.ko\n").is_err());
        assert!(listed(Path::new("/d"), "").is_err());
    }

    #[test]
    fn a_driver_is_like_the_series_with_the_same_facts() {
        let like = |text: &str| Facts::of_source(text, "", "").like();
        assert_eq!(like("struct kfd_dev {"), Series::V5_10);
        assert_eq!(like("kfd_criu_resume_svm("), Series::V6_1);
        assert_eq!(like("struct kfd_node {\nvoid kfd_criu_x"), Series::V6_12);
        assert_eq!(like("struct kfd_node {\nu16 context_id;"), Series::V7_2);
        assert_eq!(like("struct kfd_node *node;"), Series::V5_10, "a pointer is no definition");
    }

    #[test]
    fn the_least_ring_is_a_number_of_the_header() {
        let least = |text: &str| Facts::of_source("", text, "").min_ring;
        assert_eq!(least("#define X 1\n#define KFD_MIN_QUEUE_RING_SIZE\t\t1024\n"), 1024);
        assert_eq!(least("#define KFD_MAX_QUEUE_PERCENTAGE\t100\n"), 0);
    }

    #[test]
    fn whether_a_process_without_buffers_is_restored_follows_from_the_check() {
        let restores = |text: &str| Facts::of_source("", "", text).restores;
        assert!(!restores("\t    !args->num_devices || !args->num_bos)\n\t\treturn -EINVAL;"));
        assert!(restores("if ((args->num_bos > 0 && !args->bos) || !args->num_devices)"));
    }

    #[test]
    fn the_versions_of_the_table_are_known() {
        let has = |version: &str| table_has(version).expect("the table");
        assert_eq!(["6.12.12", "6.12.117", ""].map(has), [true, false, false]);
    }

    #[test]
    fn what_the_folder_has_to_hold_is_asked_for() {
        let dir = tempfile::tempdir().expect("a folder");
        let put = |name: &str, text: &str| {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            fs::write(path, text).expect("a file");
        };
        let problem = || Driver::read(dir.path()).map(|_| ()).unwrap_err().to_string();
        assert!(problem().contains("/modules"), "{}", problem());
        put("modules", "amdgpu.ko dc=0\n");
        assert!(problem().contains("amdgpu.ko is in the file"), "{}", problem());
        put("amdgpu.ko", "");
        assert!(problem().contains("no Module.symvers"), "{}", problem());
        put("Module.symvers", "");
        assert!(problem().contains("source/amd/amdkfd or source/drivers"), "{}", problem());
        put("source/amd/amdkfd/kfd_priv.h", "struct kfd_node {");
        assert!(problem().contains("kfd_ioctl.h"), "{}", problem());
        put("source/include/uapi/linux/kfd_ioctl.h", "");
        assert!(problem().contains("kfd_chardev.c"), "{}", problem());
        put("source/amd/amdkfd/kfd_chardev.c", "");
        let driver = Driver::read(dir.path()).expect("a driver");
        assert_eq!((driver.amd(), driver.facts.nodes, driver.kbuild().is_some()), ("amd", true, false));
        put("kbuild", "");
        assert!(driver.source_of_types().is_err(), "an empty module has none");
        put("types/b.btf", "");
        assert_eq!(driver.source_of_types().expect("a file"), Types::File);
        assert_eq!((driver.kbuild().is_some(), driver.types().expect("files").len()), (true, 1));
    }
}
