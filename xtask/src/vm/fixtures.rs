//! `cargo xtask fixtures`: the files of /proc and /sys that the kernel-model tests read, for every kernel of
//! the matrix, taken from its packages without booting. One root folder per series:
//! `target/fixtures/6.1/proc/kallsyms` and so on.

use crate::apt::{Apt, Gone};
use crate::run::{note, size, step};
use crate::vm::kernels::{self, Kernel};
use crate::vm::matrix::{Column, Matrix};
use crate::vm::series::Series;
use crate::vm::{modules, symbols, tracepoints, types, vmlinux};
use crate::{build, lock, paths};
use anyhow::{Context as _, Result, bail};
use object::{Object as _, ObjectSection as _};
use std::fs;
use std::path::{Path, PathBuf};

/// Where the synthetic layout starts: in the range x86-64 gives to modules.
const MODULE_BASE: u64 = 0xffff_ffff_c060_0000;

/// Increased when the files are made differently, so that old ones are not reused.
const FORMAT: u32 = 3;

/// The only file of a series that the archive no longer has: tests skip it.
const LEFT_OUT: &str = "LEFT-OUT";

/// In the place of a types file that cannot be made.
const TYPES_LEFT_OUT: &str = "TYPES-LEFT-OUT";

/// Modules with tracepoints of the probe table.
const TRACED: [&str; 2] = ["amdgpu", "gpu-sched"];

/// Makes the missing files and returns the folder.
pub(crate) fn fixtures() -> Result<PathBuf> {
    let root = paths::fixtures();
    let _cache = lock::hold(&paths::cache())?;
    let apt = Apt::open()?;
    let matrix = Matrix::find(&apt)?;
    let left_out = |series: Series, why: &str| {
        note(why);
        let dir = root.join(series.name());
        clear(&dir)?;
        put(&dir, LEFT_OUT, format!("{why}\n").as_bytes())
    };
    let tracer = build::build()?;
    for series in matrix.left_out() {
        left_out(series, &matrix.why(series))?;
    }
    for column in matrix.columns() {
        let dir = root.join(column.name());
        match kernels::fetch(&apt, column.series) {
            Ok(kernel) => {
                of_kernel(&kernel, &dir)?;
                add_types(&apt, *column, &kernel, &tracer, &dir)?;
            }
            Err(error) if error.is::<Gone>() => {
                left_out(column.series, &format!("Linux {}: left out, {error}", column.name()))?;
            }
            Err(error) => return Err(error),
        }
    }
    note(format!("fixtures in {}", root.display()));
    Ok(root)
}

/// The types file of the kernel's driver, or the reason that there is none: without headers and source.
fn add_types(apt: &Apt, column: Column, kernel: &Kernel, tracer: &Path, dir: &Path) -> Result<()> {
    const TYPES: [&str; 2] = ["types.btf", TYPES_LEFT_OUT];
    for old in TYPES.map(|name| dir.join(name)) {
        let _ = fs::remove_file(old);
    }
    if !column.built {
        return put(dir, TYPES_LEFT_OUT, b"Debian no longer has its headers or source\n");
    }
    match types::file(apt, kernel, tracer) {
        Ok(types) => {
            let to = dir.join(TYPES[0]);
            fs::copy(&types, &to).with_context(|| format!("cannot write {}", to.display())).map(drop)
        }
        Err(error) if error.is::<Gone>() => put(dir, TYPES_LEFT_OUT, format!("{error:#}\n").as_bytes()),
        Err(error) => Err(error),
    }
}

/// The files of one kernel, unless they are there.
pub(crate) fn of_kernel(kernel: &Kernel, dir: &Path) -> Result<()> {
    let key = key(&kernel.release, &kernel.version);
    if is_made(dir, &key) {
        return Ok(());
    }
    step(format!("fixtures of Linux {}", kernel.release));
    // with_extension would take `.12` of `6.12` for one.
    let partial = PathBuf::from(format!("{}.partial", dir.display()));
    clear(&partial)?;
    clear(dir)?;
    write_all(kernel, &partial).with_context(|| format!("fixtures of {}", kernel.release))?;
    put(&partial, ".made-for", key.as_bytes())?;
    fs::rename(&partial, dir).with_context(|| format!("cannot place {}", dir.display()))
}

/// What identifies the files of a kernel.
pub(crate) fn key(release: &str, version: &str) -> String {
    format!("{release} {version} {FORMAT}\n")
}

pub(crate) fn is_made(dir: &Path, key: &str) -> bool {
    fs::read_to_string(dir.join(".made-for")).is_ok_and(|made| made == key)
}

fn clear(dir: &Path) -> Result<()> {
    match dir.exists() {
        true => fs::remove_dir_all(dir).with_context(|| format!("cannot clear {}", dir.display())),
        false => Ok(()),
    }
}

fn write_all(kernel: &Kernel, dir: &Path) -> Result<()> {
    let image = fs::read(kernel.vmlinuz()).with_context(|| format!("no {}", kernel.vmlinuz().display()))?;
    let vmlinux = vmlinux::extract(&image)?;
    let base = object::File::parse(&*vmlinux).context("vmlinux is no ELF file")?;
    put(dir, "proc/version", banner(&vmlinux, &kernel.release)?.as_bytes())?;
    put(dir, "proc/sys/kernel/osrelease", format!("{}\n", kernel.release).as_bytes())?;
    put(dir, "sys/kernel/btf/vmlinux", &section(&base, ".BTF").context("vmlinux has no .BTF")?)?;

    let amdgpu = modules::read(&modules::file(kernel, "amdgpu")?)?;
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
    let mut events = String::new();
    for name in TRACED {
        let bytes = modules::read(&modules::file(kernel, name)?)?;
        let elf = object::File::parse(&*bytes).with_context(|| format!("{name}.ko is no ELF file"))?;
        events += &tracepoints::available(&elf).with_context(|| format!("tracepoints of {name}"))?;
    }
    put(dir, "sys/kernel/tracing/available_events", events.as_bytes())?;
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
         sys/kernel/tracing/available_events  tracepoints of amdgpu.ko and gpu-sched.ko alone\n\
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
