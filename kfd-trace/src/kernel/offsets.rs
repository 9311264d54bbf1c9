//! Offsets of the fields that the programs read. In: the list of kfd-trace-common and the kernel's BTF. Out:
//! an offset, or the reason why there is none.

use super::btf::{Btf, BtfError};
use kfd_trace_common::offset::{Field, Object};
use std::collections::BTreeMap;

/// Why a field has no offset here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Missing {
    #[error("no BTF of {0}")]
    NoBtf(&'static str),
    /// One reason for each possible location of the field.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    NotFound(Vec<BtfError>),
}

/// The offsets of one kernel, by the name of the global that receives them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Offsets {
    found: BTreeMap<&'static str, Result<u32, Missing>>,
}

impl Offsets {
    /// Looks up every field. Takes the first of a field's paths that this kernel has. One that exists but is
    /// ambiguous or a bitfield ends the search, because the next path would mean something else.
    #[must_use]
    pub fn resolve(fields: &[Field], vmlinux: Option<&Btf>, amdgpu: Option<&Btf>) -> Offsets {
        let found = fields.iter().map(|field| {
            let (btf, object) = match field.object {
                Object::Vmlinux => (vmlinux, "the kernel"),
                Object::Amdgpu => (amdgpu, "amdgpu"),
            };
            (field.global, btf.ok_or(Missing::NoBtf(object)).and_then(|btf| resolve_one(field, btf)))
        });
        Offsets { found: found.collect() }
    }

    /// The offset in bytes, or why there is none; None for a global that is not in the list.
    #[cfg(test)]
    fn get(&self, global: &str) -> Option<Result<u32, &Missing>> {
        self.found.get(global).map(|found| found.as_ref().copied())
    }

    /// All offsets, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, Result<u32, &Missing>)> {
        self.found.iter().map(|(global, found)| (*global, found.as_ref().copied()))
    }
}

fn resolve_one(field: &Field, btf: &Btf) -> Result<u32, Missing> {
    let mut reasons = Vec::new();
    for (strukt, path) in field.paths {
        match btf.offset_of(strukt, path) {
            Ok(member) => return Ok(member.offset),
            Err(reason) => {
                let absent = matches!(reason, BtfError::NoStruct { .. } | BtfError::NoMember { .. });
                reasons.push(reason);
                if !absent {
                    break;
                }
            }
        }
    }
    Err(Missing::NotFound(reasons))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::btf::BtfWriter;

    const fn field(
        global: &'static str,
        object: Object,
        paths: &'static [(&'static str, &'static str)],
    ) -> Field {
        Field { global, object, paths }
    }

    const FIELDS: &[Field] = &[
        field("TGID", Object::Vmlinux, &[("task_struct", "tgid")]),
        field("DEVICE_ID", Object::Amdgpu, &[("kfd_node", "id"), ("kfd_dev", "id")]),
        field("GONE", Object::Amdgpu, &[("kfd_node", "gone"), ("kfd_dev", "gone")]),
        field("TWINS", Object::Amdgpu, &[("twin", "moved"), ("kfd_dev", "id")]),
    ];

    fn samples() -> (std::sync::Arc<Btf>, Btf) {
        let mut base = BtfWriter::new();
        let int = base.int("int", 4);
        base.strukt("task_struct", 16, &[("tgid", int, 96)]);
        let mut module = BtfWriter::on(&base);
        module.strukt("kfd_dev", 100, &[("id", int, 96 * 8)]);
        module.strukt("twin", 8, &[("moved", int, 0)]);
        module.strukt("twin", 8, &[("moved", int, 32)]);
        let base = base.btf();
        let module = Btf::parse(module.bytes(), Some(base.clone())).unwrap();
        (base, module)
    }

    #[test]
    fn the_first_path_that_is_there_is_taken() {
        let (base, module) = samples();
        let offsets = Offsets::resolve(FIELDS, Some(&base), Some(&module));
        assert_eq!(offsets.get("TGID"), Some(Ok(12)));
        assert_eq!(offsets.get("DEVICE_ID"), Some(Ok(96)));
        assert!(offsets.get("GONE").is_some_and(|found| found.is_err()));
        assert_eq!(offsets.iter().count(), FIELDS.len());
        assert_eq!(offsets.get("NOT_IN_THE_LIST"), None);
    }

    #[test]
    fn a_missing_field_has_its_reasons() {
        let (base, module) = samples();
        let offsets = Offsets::resolve(FIELDS, Some(&base), Some(&module));
        let reason = |global| offsets.get(global).unwrap().unwrap_err().to_string();
        assert_eq!(reason("GONE"), "no struct kfd_node; struct kfd_dev has no member gone");
        assert_eq!(reason("TWINS"), "2 types are named twin, and they do not agree");
    }

    #[test]
    fn without_btf_every_field_of_that_object_is_missing() {
        let (base, _) = samples();
        let offsets = Offsets::resolve(FIELDS, Some(&base), None);
        assert_eq!(offsets.get("TGID"), Some(Ok(12)));
        assert_eq!(offsets.get("DEVICE_ID"), Some(Err(&Missing::NoBtf("amdgpu"))));
    }
}
