//! Properties of this kernel. In: a procfs and a sysfs root. Out: its symbols, its types, the offsets of the
//! fields that the programs read, and what this process may do here. Reads files, attaches nothing.

pub(crate) mod bpf;
pub mod bpf_info;
pub mod btf;
pub mod findings;
pub mod loading;
mod module_symbols;
pub mod offsets;
pub(crate) mod perf;
pub mod preflight;
pub mod return_events;
mod roots;
pub mod symbols;
pub mod thread;
pub mod types;

use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::Arc;

pub use btf::{Btf, BtfError, Member};
pub use findings::{Finding, FindingSeverity, findings};
use kfd_trace_common::offset::Field;
pub use loading::Loading;
pub use offsets::{Missing, Offsets};
pub use preflight::{Capabilities, Capability, DriverForm, Lockdown, Preflight};
pub use roots::Roots;
pub(crate) use roots::tracefs_folders;
pub use symbols::{Symbol, SymbolError, Symbols};
use types::{DriverTypes, TypesSource};

/// Everything that planning needs. Some 20 MiB on a usual kernel: drop it when the probes are attached.
pub struct Kernel {
    pub symbols: Symbols,
    pub vmlinux_btf: Option<Arc<Btf>>,
    /// The driver's types: the module's on top of vmlinux, vmlinux's own if amdgpu is built in, or those of another
    /// source.
    pub amdgpu_btf: Option<Arc<Btf>>,
    pub types: TypesSource,
    pub release: Option<String>,
    pub preflight: Preflight,
    /// Types that exist but could not be used, one line each.
    pub btf_problems: Vec<String>,
}

impl Kernel {
    /// The address of the driver's only function of this name; `None` where it has none or several, or the kernel hides it.
    #[must_use]
    pub fn function(&self, name: &str) -> Option<u64> {
        let module = (self.preflight.driver != DriverForm::BuiltIn).then_some(DRIVER);
        match self.symbols.find_in(module, name)[..] {
            [only] => Some(only.address).filter(|address| *address != 0 && only.is_code()),
            _ => None,
        }
    }

    /// Reads everything once. Works without BTF, and with BTF that cannot be read.
    ///
    /// # Errors
    /// No symbols are available.
    pub fn read(roots: &Roots) -> Result<Kernel, SymbolError> {
        let preflight = Preflight::read(roots);
        let mut btf_problems = Vec::new();
        let folder = roots.sysfs.join("kernel/btf");
        let vmlinux_btf = read_btf(&folder.join("vmlinux"), None, &mut btf_problems);
        let module_btf = match &vmlinux_btf {
            Some(base) => read_btf(&folder.join("amdgpu"), Some(Arc::clone(base)), &mut btf_problems),
            None => None,
        };
        let built_in = vmlinux_btf.clone().filter(|btf| btf.struct_exists("kfd_process"));
        let own = |btf: Arc<Btf>, source| DriverTypes { btf: Some(btf), source, problems: Vec::new() };
        let types = match (module_btf, built_in) {
            (Some(btf), _) => own(btf, TypesSource::Module),
            (None, Some(btf)) if !preflight.amdgpu_btf => own(btf, TypesSource::Image),
            (None, _) => types::elsewhere(roots, vmlinux_btf.as_ref()),
        };
        btf_problems.extend(types.problems);
        // A types file has the kernel's own structures that are read, too.
        let vmlinux_btf =
            vmlinux_btf.or_else(|| types.btf.clone().filter(|btf| btf.struct_exists("task_struct")));
        let symbols = symbols(roots, &preflight, vmlinux_btf.as_deref())?;
        let release = preflight.release.clone();
        let (amdgpu_btf, types) = (types.btf, types.source);
        Ok(Kernel { symbols, vmlinux_btf, amdgpu_btf, types, release, preflight, btf_problems })
    }

    /// What of the types is missing, or could not be used.
    #[must_use]
    pub fn types_findings(&self) -> Vec<Finding> {
        findings::types(self.vmlinux_btf.is_some(), &self.types, &self.btf_problems)
    }

    /// The offsets of `fields` in this kernel.
    #[must_use]
    pub fn offsets(&self, fields: &[Field]) -> Offsets {
        Offsets::resolve(fields, self.vmlinux_btf.as_deref(), self.amdgpu_btf.as_deref())
    }
}

/// The symbols of the driver's module alone where they can be read from the kernel's memory; else all.
fn symbols(roots: &Roots, preflight: &Preflight, vmlinux: Option<&Btf>) -> Result<Symbols, SymbolError> {
    // Memory is the running kernel's.
    let usable = matches!(preflight.driver, DriverForm::Module { .. })
        && roots.procfs == Path::new("/proc")
        && findings::hidden_addresses(preflight).is_none();
    let layout = vmlinux.filter(|_| usable).and_then(module_symbols::TableLayout::find);
    let loaded = Loading::read(&roots.sysfs).ok().flatten();
    let refused = |error: &io::Error| log::info!("the symbols of all modules are read: {error}");
    let read = layout.and_then(|layout| module_symbols::read(layout, DRIVER).inspect_err(refused).ok());
    // Of a module that was unloaded meanwhile, what was read is worth nothing.
    let read = read.filter(|_| loaded.is_some_and(|loaded| !loaded.is_over(&roots.sysfs)));
    match read.filter(|symbols| !symbols.is_empty()) {
        Some(symbols) => Ok(symbols),
        None => Symbols::read(&roots.procfs),
    }
}

/// Which boot this is; `None` where that cannot be read.
#[must_use]
pub fn boot_id(procfs: &Path) -> Option<String> {
    let text = fs::read_to_string(procfs.join("sys/kernel/random/boot_id")).ok()?;
    Some(text.trim().to_owned()).filter(|id| !id.is_empty())
}

/// The driver's module.
const DRIVER: &str = "amdgpu";

fn read_btf(path: &Path, base: Option<Arc<Btf>>, problems: &mut Vec<String>) -> Option<Arc<Btf>> {
    let read = match fs::read(path) {
        Ok(bytes) => Btf::parse(bytes, base).map(Arc::new).map_err(|error| error.to_string()),
        Err(error) if error.kind() == ErrorKind::NotFound => return None,
        Err(error) => Err(error.to_string()),
    };
    read.map_err(|why| problems.push(format!("cannot use {}: {why}", path.display()))).ok()
}

#[cfg(test)]
mod tests {
    use super::btf::BtfWriter;
    use super::*;

    fn machine(vmlinux: &[u8], amdgpu: Option<&[u8]>) -> (tempfile::TempDir, Roots) {
        let root = tempfile::tempdir().unwrap();
        let roots = Roots::under(root.path());
        fs::create_dir_all(&roots.procfs).unwrap();
        fs::create_dir_all(roots.sysfs.join("kernel/btf")).unwrap();
        fs::write(roots.procfs.join("kallsyms"), "ffffffff81000000 T kfd_ioctl\n").unwrap();
        fs::write(roots.sysfs.join("kernel/btf/vmlinux"), vmlinux).unwrap();
        if let Some(amdgpu) = amdgpu {
            fs::write(roots.sysfs.join("kernel/btf/amdgpu"), amdgpu).unwrap();
        }
        (root, roots)
    }

    fn driver_types(on: Option<&BtfWriter>) -> BtfWriter {
        let mut types = on.map_or_else(BtfWriter::new, BtfWriter::on);
        types.strukt("kfd_process", 8, &[]);
        types
    }

    #[test]
    fn a_built_in_driver_has_the_types_of_the_image() {
        let (_root, roots) = machine(&driver_types(None).bytes(), None);
        let kernel = Kernel::read(&roots).unwrap();
        assert_eq!(kernel.amdgpu_btf.unwrap().size_of("kfd_process"), Ok(8));
        assert_eq!(kernel.btf_problems, [""; 0]);
    }

    #[test]
    fn broken_btf_is_reported_and_leaves_the_rest() {
        let mut base = BtfWriter::new();
        base.int("int", 4);
        let module = driver_types(Some(&base)).bytes();
        let (_root, roots) = machine(&base.bytes(), Some(&module[..module.len() - 3]));
        let kernel = Kernel::read(&roots).unwrap();
        assert!(kernel.vmlinux_btf.is_some() && kernel.amdgpu_btf.is_none());
        assert_eq!(kernel.btf_problems.len(), 1);
        assert!(kernel.btf_problems[0].contains("btf/amdgpu"), "{:?}", kernel.btf_problems);
        let (_root, roots) = machine(&base.bytes(), Some(&module));
        assert!(Kernel::read(&roots).unwrap().amdgpu_btf.unwrap().struct_exists("kfd_process"));
    }

    #[test]
    fn without_btf_there_is_still_a_kernel() {
        let (root, roots) = machine(b"", None);
        fs::remove_dir_all(root.path().join("sys")).unwrap();
        let kernel = Kernel::read(&roots).unwrap();
        assert!(kernel.vmlinux_btf.is_none() && kernel.btf_problems.is_empty());
        assert!(kernel.symbols.is_unique("kfd_ioctl"));
    }
}
