//! The shipped table: layouts of drivers without BTF, by version. In: a driver's version and the kernel's own
//! BTF. Out: types, or why the table does not hold here.
//!
//! Which fields of the kernel's own structures stand before those of the driver decides where the driver's
//! are. So an entry holds only where these have the sizes that it was made with (`rests_on`). Fields that
//! nothing can check on a running machine are not in the table (`struct kfd_vm_fault_info`): unknown beats
//! wrong. How to add an entry: docs/driver-types.md.

use super::super::btf::{Btf, BtfWriter};
use serde::Deserialize;
use std::collections::{BTreeMap, HashMap};
use std::sync::LazyLock;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    /// MODULE_VERSION.
    driver: String,
    /// Sizes of the kernel's structures, bytes.
    rests_on: BTreeMap<String, u32>,
    structures: BTreeMap<String, Structure>,
    enums: BTreeMap<String, BTreeMap<String, u32>>,
    /// Number of parameters by function.
    parameters: BTreeMap<String, usize>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Structure {
    /// Bytes; 0 if it is not known.
    size: u32,
    /// Path (`cu_mask.count`), offset and kind, in the order of their declaration.
    members: Vec<(String, u32, Kind)>,
}

/// Bytes, or the name of a structure of the table.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Kind {
    Bytes(u32),
    Structure(String),
}

static TABLE: LazyLock<Result<Vec<Entry>, String>> =
    LazyLock::new(|| serde_json::from_str(include_str!("table.json")).map_err(|error| error.to_string()));

/// The types of a driver version on this kernel.
///
/// # Errors
/// One line: why the table has none here.
pub(super) fn types(version: &str, vmlinux: Option<&Btf>) -> Result<Vec<u8>, String> {
    let entries = TABLE.as_ref().map_err(Clone::clone)?;
    let own = entries.iter().filter(|entry| entry.driver == version);
    let differing = own.map(|entry| (entry, differences(entry, vmlinux)));
    // Of several entries the most alike is the one that was meant.
    match differing.min_by_key(|(_, differences)| differences.len()) {
        None => Err(format!("the shipped table has no driver {version}")),
        Some((entry, differences)) if differences.is_empty() => Ok(written(entry)),
        Some((_, differences)) => Err(format!(
            "the shipped table has driver {version}, but not on such a kernel: {}",
            differences.join("; ")
        )),
    }
}

/// What of the kernel's own structures is not as the entry rests on.
fn differences(entry: &Entry, vmlinux: Option<&Btf>) -> Vec<String> {
    let Some(vmlinux) = vmlinux else { return vec!["the kernel has no BTF to compare it with".to_owned()] };
    let differs = |(name, expected): (&String, &u32)| match vmlinux.size_of(name) {
        Ok(size) if size == *expected => None,
        Ok(size) => Some(format!("struct {name} has {size} bytes here, and the table rests on {expected}")),
        Err(error) => Some(error.to_string()),
    };
    entry.rests_on.iter().filter_map(differs).collect()
}

fn written(entry: &Entry) -> Vec<u8> {
    let mut types = BtfWriter::new();
    let word = types.int("unsigned int", 4);
    let mut written = HashMap::new();
    for name in entry.structures.keys() {
        structure(&mut types, word, entry, name, &mut written);
    }
    for (name, values) in &entry.enums {
        let values: Vec<(&str, u32)> = values.iter().map(|(name, value)| (name.as_str(), *value)).collect();
        types.enumeration(name, false, &values);
    }
    for (name, count) in &entry.parameters {
        let prototype = types.prototype(word, &vec![word; *count]);
        types.function(name, prototype);
    }
    types.bytes()
}

/// A member below its outer one: path, type, and offset in the structure.
type Part<'a> = (&'a str, u32, u32);

/// Writes a structure after those that its members name.
fn structure(
    types: &mut BtfWriter,
    word: u32,
    entry: &Entry,
    name: &str,
    written: &mut HashMap<String, u32>,
) -> Option<u32> {
    if let Some(id) = written.get(name) {
        return Some(*id);
    }
    let Structure { size, members } = entry.structures.get(name)?;
    // Members of one inner structure (`cu_mask.count`, `cu_mask.ptr`) are together in a part of its own.
    let mut parts: Vec<(&str, Vec<Part<'_>>)> = Vec::new();
    for (path, offset, kind) in members {
        let id = match kind {
            Kind::Bytes(bytes) => bytes_of(types, word, *bytes),
            Kind::Structure(other) => structure(types, word, entry, other, written)?,
        };
        let (outer, rest) = path.split_once('.').unwrap_or((path, ""));
        match parts.last_mut().filter(|(other, _)| *other == outer) {
            Some((_, part)) => part.push((rest, id, *offset)),
            None => parts.push((outer, vec![(rest, id, *offset)])),
        }
    }
    let own = parts.into_iter().map(|(outer, part)| match *part {
        [("", id, offset)] => (outer, id, offset * 8),
        _ => {
            let begin = part.iter().map(|(.., offset)| *offset).min().unwrap_or(0);
            (outer, nested(types, &part, begin), begin * 8)
        }
    });
    let own: Vec<_> = own.collect();
    let id = types.strukt(name, *size, &own);
    written.insert(name.to_owned(), id);
    Some(id)
}

/// An anonymous structure that begins at `begin` of the outer one. Deeper paths are nested again.
fn nested(types: &mut BtfWriter, parts: &[Part<'_>], begin: u32) -> u32 {
    let mut members = Vec::new();
    for (path, id, offset) in parts {
        let bits = (offset - begin) * 8;
        match path.split_once('.') {
            None => members.push((*path, *id, bits)),
            Some((outer, rest)) => {
                let id = nested(types, &[(rest, *id, *offset)], *offset);
                members.push((outer, id, bits));
            }
        }
    }
    types.strukt("", 0, &members)
}

fn bytes_of(types: &mut BtfWriter, word: u32, bytes: u32) -> u32 {
    match bytes {
        1 | 2 | 8 => types.int("", bytes),
        4 => word,
        _ => types.strukt("", bytes, &[]),
    }
}

/// A driver's types as the table has them, and once for each member with that member 8 bytes further or nearer.
#[cfg(test)]
pub(crate) fn off_by_8(version: &str) -> (Vec<u8>, Vec<(String, Vec<u8>)>) {
    let entry = || {
        let all: Vec<Entry> = serde_json::from_str(include_str!("table.json")).unwrap();
        all.into_iter().find(|entry| entry.driver == version).unwrap()
    };
    let mut moved = Vec::new();
    for (structure, Structure { members, .. }) in &entry().structures {
        for (index, (member, offset, _)) in members.iter().enumerate() {
            for place in [Some(offset + 8), offset.checked_sub(8)].into_iter().flatten() {
                let mut changed = entry();
                changed.structures.get_mut(structure).unwrap().members[index].1 = place;
                moved.push((format!("{structure}.{member} at {place}"), written(&changed)));
            }
        }
    }
    (written(&entry()), moved)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::Offsets;
    use kfd_trace_common::offset::FIELDS;

    /// A kernel whose structures have the sizes that an entry rests on.
    fn vmlinux(change: impl Fn(&str, u32) -> u32) -> Btf {
        let mut types = BtfWriter::new();
        for (name, size) in &entry("6.12.12").rests_on {
            types.strukt(name, change(name, *size), &[]);
        }
        Btf::parse(types.bytes(), None).unwrap()
    }

    fn entry(version: &str) -> &'static Entry {
        TABLE.as_ref().unwrap().iter().find(|entry| entry.driver == version).unwrap()
    }

    fn driver(version: &str) -> Btf {
        Btf::parse(types(version, Some(&vmlinux(|_, size| size))).unwrap(), None).unwrap()
    }

    #[test]
    fn the_layouts_of_the_measured_drivers_are_found() {
        let offsets = |version: &str| {
            let btf = driver(version);
            let found = Offsets::resolve(FIELDS, None, Some(&btf));
            let all: BTreeMap<_, _> = found.iter().filter_map(|(name, at)| Some((name, at.ok()?))).collect();
            all
        };
        let places =
            ["QUEUE_PROCESS", "DEVICE_ID", "QUEUE_ID", "KFD_PROCESS_EXCEPTION_STATUS", "MINFO_CU_MASK_PTR"];
        for (version, expected) in [
            ("6.0.5", [224, 80, 48, 752, 8]),
            ("6.7.0", [224, 36, 48, 1136, 8]),
            ("6.12.12", [264, 36, 48, 1128, 8]),
        ] {
            assert_eq!(places.map(|place| offsets(version)[place]), expected, "{version}");
            assert!(!offsets(version).contains_key("FAULT_PAGE_ADDR"), "nothing can check it");
        }
        let btf = driver("6.12.12");
        assert_eq!(btf.offset_of("kfd_process", "pqm.queues").unwrap().offset, 688);
        assert_eq!(btf.offset_of("device_queue_manager", "lock_hidden.owner").unwrap().offset, 328);
        assert_eq!(btf.size_of("queue_properties"), Ok(200));
        assert_eq!(btf.parameters("kfd_process_evict_queues"), Some(3));
        assert_eq!(btf.enum_values("kfd_queue_format").unwrap()[0], ("KFD_QUEUE_FORMAT_AQL".to_owned(), 1));
    }

    #[test]
    fn a_kernel_with_another_structure_is_refused_by_name() {
        let larger = vmlinux(|name, size| if name == "idr" { size + 8 } else { size });
        let why = types("6.7.0", Some(&larger)).unwrap_err();
        assert!(why.contains("struct idr has 32 bytes here, and the table rests on 24"), "{why}");
        let preempt_rt = vmlinux(|name, size| if name == "idr" { 56 } else { size });
        let btf = Btf::parse(types("6.12.12", Some(&preempt_rt)).unwrap(), None).unwrap();
        assert_eq!(btf.offset_of("kfd_process", "exception_status").unwrap().offset, 1160);
        // Two entries: the one with fewer differences is named.
        let larger = vmlinux(|name, size| if name == "work_struct" { size + 8 } else { size });
        let why = types("6.12.12", Some(&larger)).unwrap_err();
        assert!(why.ends_with(": struct work_struct has 40 bytes here, and the table rests on 32"), "{why}");
        assert!(types("6.7.0", None).unwrap_err().contains("no BTF to compare"));
        assert!(types("6.7.1", Some(&larger)).unwrap_err().contains("has no driver 6.7.1"));
    }
}
