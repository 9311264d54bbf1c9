//! `cargo xtask fixtures`: the files of /proc and /sys that the kernel-model tests read, for every kernel of
//! the matrix, taken from its packages without booting. One root folder per series:
//! `target/fixtures/6.1/proc/kallsyms` and so on.

use crate::apt::Apt;
use crate::run::{note, size, step};
use crate::vm::kernels::{self, Kernel};
use crate::vm::series::Series;
use crate::vm::{modules, symbols, types, vmlinux};
use crate::{build, lock, paths};
use anyhow::{Context as _, Result, bail};
use object::{Object as _, ObjectSection as _};
use std::fs;
use std::path::{Path, PathBuf};

/// Where the synthetic layout starts: in the range x86-64 gives to modules.
const MODULE_BASE: u64 = 0xffff_ffff_c060_0000;

/// Increased when the files are made differently, so that old ones are not reused.
const FORMAT: u32 = 2;

/// Makes the missing files and returns the folder.
pub(crate) fn fixtures() -> Result<PathBuf> {
    let root = paths::fixtures();
    let _cache = lock::hold(&paths::cache())?;
    let apt = Apt::open()?;
    for series in Series::ALL {
        let kernel = kernels::fetch(&apt, series)?;
        let key = format!("{} {} {FORMAT}\n", kernel.release, kernel.version);
        let dir = root.join(series.name());
        if fs::read_to_string(dir.join(".made-for")).is_ok_and(|made| made == key) {
            continue;
        }
        step(format!("fixtures of Linux {}", kernel.release));
        let partial = root.join(format!("{}.partial", series.name()));
        for old in [&partial, &dir] {
            if old.exists() {
                fs::remove_dir_all(old).with_context(|| format!("cannot clear {}", old.display()))?;
            }
        }
        write_all(&kernel, &partial).with_context(|| format!("fixtures of {}", kernel.release))?;
        put(&partial, ".made-for", key.as_bytes())?;
        fs::rename(&partial, &dir).with_context(|| format!("cannot place {}", dir.display()))?;
    }
    let tracer = build::build()?;
    for series in Series::ALL {
        let kernel = kernels::fetch(&apt, series)?;
        let types = types::file(&apt, &kernel, &tracer)?;
        let to = root.join(series.name()).join("types.btf");
        fs::copy(&types, &to).with_context(|| format!("cannot write {}", to.display()))?;
    }
    note(format!("fixtures in {}", root.display()));
    Ok(root)
}

fn write_all(kernel: &Kernel, dir: &Path) -> Result<()> {
    let image = fs::read(kernel.vmlinuz()).with_context(|| format!("no {}", kernel.vmlinuz().display()))?;
    let vmlinux = vmlinux::extract(&image)?;
    let base = object::File::parse(&*vmlinux).context("vmlinux is no ELF file")?;
    put(dir, "proc/version", banner(&vmlinux, &kernel.release)?.as_bytes())?;
    put(dir, "proc/sys/kernel/osrelease", format!("{}\n", kernel.release).as_bytes())?;
    put(dir, "sys/kernel/btf/vmlinux", &section(&base, ".BTF").context("vmlinux has no .BTF")?)?;

    let files = modules::with_needs(kernel, "amdgpu")?;
    let path = files.last().context("no amdgpu among its own dependencies")?;
    let amdgpu = modules::read(path)?;
    let elf = object::File::parse(&*amdgpu).context("amdgpu.ko is no ELF file")?;
    put(dir, "proc/kallsyms", symbols::kallsyms(&elf, "amdgpu", MODULE_BASE)?.as_bytes())?;
    let modinfo = section(&elf, ".modinfo").context("amdgpu.ko has no .modinfo")?;
    // A file that a kernel does not have is not written, as on a real machine: Debian builds without
    // MODULE_SRCVERSION_ALL, and 5.10 has no BTF of modules.
    if let Some(srcversion) = field(&modinfo, "srcversion") {
        put(dir, "sys/module/amdgpu/srcversion", format!("{srcversion}\n").as_bytes())?;
    }
    if let Some(id) = section(&elf, ".note.gnu.build-id") {
        put(dir, "sys/module/amdgpu/notes/.note.gnu.build-id", &id)?;
    }
    if let Some(btf) = section(&elf, ".BTF") {
        put(dir, "sys/kernel/btf/amdgpu", &btf)?;
    }
    put(dir, "README", readme(kernel).as_bytes())
}

fn section(elf: &object::File<'_>, name: &str) -> Option<Vec<u8>> {
    let data = elf.section_by_name(name)?.uncompressed_data().ok()?;
    Some(data.into_owned())
}

/// A value of .modinfo, which is a sequence of `key=value` ended by zeros.
fn field(modinfo: &[u8], key: &str) -> Option<String> {
    let entries = modinfo.split(|byte| *byte == 0).filter_map(|entry| std::str::from_utf8(entry).ok());
    let mut values = entries.filter_map(|entry| entry.strip_prefix(key)?.strip_prefix('='));
    values.next().map(str::to_owned)
}

/// The `Linux version ...` line that /proc/version shows, from vmlinux's constants.
fn banner(vmlinux: &[u8], release: &str) -> Result<String> {
    let start = format!("Linux version {release} (");
    let Some(at) = vmlinux.windows(start.len()).position(|window| window == start.as_bytes()) else {
        bail!("vmlinux has no version line of {release}");
    };
    let line = vmlinux[at..].split(|byte| *byte == b'\n' || *byte == 0).next().unwrap_or_default();
    Ok(format!("{}\n", String::from_utf8_lossy(line)))
}

fn put(dir: &Path, name: &str, bytes: &[u8]) -> Result<()> {
    let path = dir.join(name);
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).with_context(|| format!("cannot make {}", parent.display()))?;
    }
    if bytes.len() > 1 << 20 {
        note(format!("{name}: {}", size(bytes.len() as u64)));
    }
    fs::write(&path, bytes).with_context(|| format!("cannot write {}", path.display()))
}

fn readme(kernel: &Kernel) -> String {
    format!(
        "Files of Linux {} (Debian {}), taken from its packages without booting.\n\n\
         proc/kallsyms               symbols of amdgpu.ko only, by address. The addresses are made up: sections\n\
         \x20                           laid out from {MODULE_BASE:#x}. Symbols of vmlinux are NOT here (Debian's\n\
         \x20                           vmlinuz is stripped), nor those of other modules: a name that the running\n\
         \x20                           kernel also has elsewhere looks unique here.\n\
         sys/kernel/btf/vmlinux      section .BTF of vmlinux\n\
         sys/kernel/btf/amdgpu       section .BTF of amdgpu.ko (split BTF); absent where the kernel has none\n\
         sys/module/amdgpu/srcversion  as modinfo shows it; absent where the module carries none\n\
         sys/module/amdgpu/notes/.note.gnu.build-id  the module's build ID as an ELF note\n",
        kernel.release, kernel.version,
    )
}

#[cfg(test)]
mod tests {
    use super::{banner, field};

    #[test]
    fn modinfo_fields_are_found_whole() {
        let modinfo = b"license=GPL\0mysrcversion=NO\0srcversion=ABC123\0";
        assert_eq!(field(modinfo, "srcversion").as_deref(), Some("ABC123"));
        assert_eq!(field(modinfo, "src"), None);
    }

    #[test]
    fn the_banner_is_the_one_of_this_release() {
        let bytes = b"junk\0Linux version %s (%s)\0Linux version 6.1.0 (x) #1\n\0tail";
        assert_eq!(banner(bytes, "6.1.0").expect("a banner"), "Linux version 6.1.0 (x) #1\n");
        assert!(banner(bytes, "6.2.0").is_err());
    }
}
