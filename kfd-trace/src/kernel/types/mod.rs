//! Where the driver's types come from: the kernel itself, a file, the shipped table, or nowhere.
//!
//! In: the kernel's BTF, what names the loaded driver, and the places to look into. Out: types with their
//! source, and one line for each place that had some and could not be used. Types that are not the kernel's own
//! are checked against the running driver before anything that rests on them is shown (`probes/walk/check.rs`).

mod identity;
mod source;
pub(crate) mod table;

use super::Roots;
use super::btf::Btf;
pub use identity::DriverIdentity;
pub(crate) use identity::build_id;
use kfd_trace_common::offset::{FIELDS, Object};
pub use source::{DRIVERS, TypesPlaces, TypesReport, TypesSource};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The driver's types, as far as there are some.
#[derive(Default)]
pub struct DriverTypes {
    pub btf: Option<Arc<Btf>>,
    pub source: TypesSource,
    /// Places that had types which could not be used, one line each.
    pub problems: Vec<String>,
}

/// Looks for types outside of the kernel: the given file, the folder, the table. A given file that cannot be used
/// ends the search: the user chose it.
pub(super) fn elsewhere(roots: &Roots, vmlinux: Option<&Arc<Btf>>) -> DriverTypes {
    let loaded = DriverIdentity::loaded(roots);
    let mut search = Search { places: &roots.types, vmlinux, loaded: &loaded, problems: Vec::new() };
    let found = match &roots.types.file {
        Some(file) => search.file(file),
        None => search.folder().or_else(|| search.table()),
    };
    let (btf, source) = found.unzip();
    DriverTypes { btf, source: source.unwrap_or_default(), problems: search.problems }
}

type Found = (Arc<Btf>, TypesSource);

struct Search<'a> {
    places: &'a TypesPlaces,
    vmlinux: Option<&'a Arc<Btf>>,
    loaded: &'a DriverIdentity,
    problems: Vec<String>,
}

impl Search<'_> {
    /// Takes what was read, unless the running driver has refuted it before.
    fn take(&mut self, read: Result<Arc<Btf>, String>, source: TypesSource) -> Option<Found> {
        let refuted = self.places.refuted.iter().find(|(other, _)| *other == source);
        let usable = match refuted {
            Some((_, why)) => Err(format!("the driver contradicts it: {why}")),
            None => read.and_then(|btf| ordered(&btf).map(|()| btf)),
        };
        match usable {
            Ok(btf) => Some((btf, source)),
            Err(why) => {
                self.problems.push(format!("cannot use {source}: {why}"));
                None
            }
        }
    }

    fn file(&mut self, path: &Path) -> Option<Found> {
        let read = read_file(path, self.vmlinux).and_then(|btf| {
            // A file of another tool does not name its driver: then only the check of the first calls is left.
            let named = DriverIdentity::from_tags(btf.tags());
            named.and_then(|named| named.differs_from(self.loaded)).map_or(Ok(btf), Err)
        });
        self.take(read, TypesSource::File(path.to_owned()))
    }

    /// The file with the loaded driver's name, else any whose tags name the driver.
    fn folder(&mut self) -> Option<Found> {
        let folder = &self.places.folder;
        let own = self.loaded.file_name().map(|name| folder.join(name));
        if let Some(path) = own.filter(|path| path.exists()) {
            return self.file(&path);
        }
        let mut others = match fs::read_dir(folder) {
            Ok(entries) => files(entries),
            Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
            Err(error) => {
                self.problems.push(format!("cannot read {}: {error}", folder.display()));
                Vec::new()
            }
        };
        others.sort();
        let fits = |path: &&PathBuf| {
            let named =
                read_file(path, self.vmlinux).ok().and_then(|btf| DriverIdentity::from_tags(btf.tags()));
            named.is_some_and(|named| named.differs_from(self.loaded).is_none())
        };
        let path = others.iter().find(fits)?.clone();
        self.file(&path)
    }

    fn table(&mut self) -> Option<Found> {
        // A driver of the kernel's own tree has no version.
        let version = self.loaded.version.as_deref()?;
        let parse = |bytes| Btf::parse(bytes, None).map(Arc::new).map_err(|error| error.to_string());
        let read = table::types(version, self.vmlinux.map(AsRef::as_ref)).and_then(parse);
        match read {
            Err(why) => {
                self.problems.push(why);
                None
            }
            read => self.take(read, TypesSource::Table(version.to_owned())),
        }
    }
}

/// Whether the structures that are read can be what a compiler made.
pub(crate) fn ordered(btf: &Btf) -> Result<(), String> {
    let of_fields = FIELDS.iter().filter(|field| field.object == Object::Amdgpu);
    let named = of_fields.flat_map(|field| field.paths).map(|(structure, _)| *structure);
    let others = ["queue_properties", "process_queue_manager", "process_queue_node", "mqd_manager"];
    for structure in named.chain(others) {
        if let Ok(Some(member)) = btf.misplaced(structure) {
            return Err(format!("{member} is not where a compiler would put it"));
        }
    }
    Ok(())
}

/// At most this many files of a folder are read.
const MOST: usize = 1_000;

fn files(entries: fs::ReadDir) -> Vec<PathBuf> {
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    paths.filter(|path| path.extension().is_some_and(|end| end == "btf")).take(MOST).collect()
}

/// Largest file that is read: the whole module's BTF has some 5 MB.
const LARGEST: u64 = 64 << 20;

/// Self-contained BTF, or split BTF on top of the kernel's: the names of the latter lie beyond its own strings.
fn read_file(path: &Path, vmlinux: Option<&Arc<Btf>>) -> Result<Arc<Btf>, String> {
    let about = fs::metadata(path).map_err(|error| error.to_string())?;
    if !about.is_file() || about.len() > LARGEST {
        return Err("it is not a file of types".to_owned());
    }
    let bytes = fs::read(path).map_err(|error| error.to_string())?;
    let alone = Btf::parse(bytes.clone(), None);
    let btf = match (alone, vmlinux) {
        (Err(_), Some(base)) => Btf::parse(bytes, Some(Arc::clone(base))),
        (alone, _) => alone,
    };
    let btf = btf.map_err(|error| error.to_string())?;
    if btf.size_of("kfd_process").is_err() {
        return Err("it has no struct kfd_process".to_owned());
    }
    Ok(Arc::new(btf))
}

#[cfg(test)]
mod tests;
