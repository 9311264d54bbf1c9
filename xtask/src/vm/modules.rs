//! Kernel modules: which ones amdgpu needs and in which order, taken from the unpacked tree.

use crate::vm::kernels::Kernel;
use crate::{folder, run};
use anyhow::{Context as _, Result, bail};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The files of a module and all its dependencies, in the order in which they can be inserted.
pub(crate) fn with_needs(kernel: &Kernel, name: &str) -> Result<Vec<PathBuf>> {
    let dir = kernel.modules();
    if !dir.join("modules.dep").exists() {
        depmod(kernel)?;
    }
    let text = fs::read_to_string(dir.join("modules.dep"))
        .with_context(|| format!("no modules.dep of {}", kernel.release))?;
    let order = insertion_order(&text, name)?;
    Ok(order.into_iter().map(|module| dir.join(module)).collect())
}

/// The file of one module, for example `gpu-sched`. `None`: the kernel has no such module, or it is built in.
pub(crate) fn find(kernel: &Kernel, name: &str) -> Result<Option<PathBuf>> {
    let name = name.replace('-', "_");
    let files = folder::files_below(&kernel.modules().join("kernel"))?;
    Ok(files.into_iter().find(|path| module_name(&path.to_string_lossy()) == name))
}

/// The file of a module that the kernel must have.
pub(crate) fn file(kernel: &Kernel, name: &str) -> Result<PathBuf> {
    find(kernel, name)?.with_context(|| format!("Linux {} has no module {name}", kernel.release))
}

/// Packages carry no modules.dep (the maintainer script makes it), so it is made in the tree.
fn depmod(kernel: &Kernel) -> Result<()> {
    let usr = kernel.tree.join("usr");
    // depmod -b searches below BASE/lib/modules.
    let base = if kernel.modules().starts_with(&usr) { usr } else { kernel.tree.clone() };
    run::output(Command::new(sbin("depmod")).arg("-b").arg(base).arg(&kernel.release)).map(drop)
}

/// Debian keeps some tools outside a user's PATH.
pub(crate) fn sbin(tool: &str) -> PathBuf {
    let path = Path::new("/usr/sbin").join(tool);
    if path.exists() { path } else { PathBuf::from(tool) }
}

/// The dependencies of `name` in `modules.dep`'s text, each before its users, `name` last.
fn insertion_order(modules_dep: &str, name: &str) -> Result<Vec<String>> {
    let mut needs: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for line in modules_dep.lines() {
        if let Some((module, list)) = line.split_once(':') {
            needs.insert(module, list.split_whitespace().collect());
        }
    }
    let Some(wanted) = needs.keys().copied().find(|module| module_name(module) == name) else {
        bail!("modules.dep has no {name}");
    };
    let mut order = Vec::new();
    visit(wanted, &needs, &mut order);
    Ok(order)
}

/// Depth first; modules.dep has no cycles (depmod refuses them).
fn visit<'a>(module: &'a str, needs: &BTreeMap<&'a str, Vec<&'a str>>, order: &mut Vec<String>) {
    if order.iter().any(|done| done == module) {
        return;
    }
    for need in needs.get(module).into_iter().flatten() {
        visit(need, needs, order);
    }
    order.push(module.to_owned());
}

/// `amdgpu` of `kernel/drivers/gpu/drm/amd/amdgpu/amdgpu.ko.xz`; the kernel's own names use `_`.
pub(crate) fn module_name(path: &str) -> String {
    let file = path.rsplit('/').next().unwrap_or(path);
    file.split('.').next().unwrap_or(file).replace('-', "_")
}

/// The module's ELF bytes. Decompressed here: not every kernel of the matrix can do it at insertion.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>> {
    let tool = match path.extension().and_then(|ext| ext.to_str()) {
        Some("xz") => "xz",
        Some("zst") => "zstd",
        Some("gz") => "gzip",
        _ => return fs::read(path).with_context(|| format!("cannot read {}", path.display())),
    };
    let done = Command::new(tool)
        .arg("-dc")
        .arg(path)
        .output()
        .with_context(|| format!("cannot run {tool}: run `cargo xtask setup` first"))?;
    if !done.status.success() {
        bail!("{tool} cannot decompress {}", path.display());
    }
    Ok(done.stdout)
}

/// A module as a driver's build without BTF makes it.
pub(crate) fn without_btf(elf: &[u8], scratch: &Path) -> Result<Vec<u8>> {
    fs::write(scratch, elf).with_context(|| format!("cannot write {}", scratch.display()))?;
    run::output(Command::new("objcopy").arg("--remove-section=.BTF").arg(scratch))?;
    let bytes = fs::read(scratch).with_context(|| format!("cannot read {}", scratch.display()))?;
    fs::remove_file(scratch).with_context(|| format!("cannot delete {}", scratch.display()))?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::{Kernel, find, fs, insertion_order, module_name};

    const DEP: &str = "\
kernel/gpu/amdgpu.ko.xz: kernel/gpu/gpu-sched.ko.xz kernel/gpu/ttm.ko.xz kernel/gpu/drm.ko.xz
kernel/gpu/gpu-sched.ko.xz: kernel/gpu/drm.ko.xz
kernel/gpu/ttm.ko.xz: kernel/gpu/drm.ko.xz
kernel/gpu/drm.ko.xz:
kernel/gpu/radeon.ko.xz: kernel/gpu/drm.ko.xz
";

    #[test]
    fn needs_come_before_users_and_nothing_else_comes() {
        let order = insertion_order(DEP, "amdgpu").expect("amdgpu is there");
        let names: Vec<String> = order.iter().map(|path| module_name(path)).collect();
        assert_eq!(names, ["drm", "gpu_sched", "ttm", "amdgpu"]);
    }

    #[test]
    fn only_a_tree_that_was_read_shows_that_a_module_is_absent() {
        let tree = tempfile::tempdir().expect("a folder");
        let kernel =
            Kernel { release: "6.1".to_owned(), version: String::new(), tree: tree.path().to_owned() };
        assert!(find(&kernel, "virtio_blk").is_err(), "there is no tree");
        let block = kernel.modules().join("kernel/drivers/block");
        fs::create_dir_all(&block).expect("folders");
        fs::write(block.join("virtio-blk.ko.xz"), "").expect("a module");
        let found = |name: &str| find(&kernel, name).expect("a tree");
        assert_eq!((found("virtio_blk"), found("virtio_pci")), (Some(block.join("virtio-blk.ko.xz")), None));
    }

    #[test]
    fn an_absent_module_is_an_error() {
        assert!(insertion_order(DEP, "nouveau").is_err());
    }
}
