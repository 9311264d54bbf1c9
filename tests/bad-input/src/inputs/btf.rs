//! BTF with the names that are looked up, in types of every kind.

use super::{damaged, word};
use kfd_trace_common::offset::FIELDS;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use std::collections::{BTreeMap, BTreeSet};

/// The structures that the programs look up, each with the members that a path names.
fn structures() -> BTreeMap<&'static str, BTreeSet<&'static str>> {
    let mut all: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    for (strukt, path) in FIELDS.iter().flat_map(|field| field.paths) {
        let members = path.split('.').map(|member| member.split('[').next().unwrap_or(member));
        all.entry(*strukt).or_default().extend(members);
    }
    all.entry("queue_properties").or_default().extend(["type", "queue_id", "queue_size", "priority"]);
    all
}

const ENUMS: [&str; 2] = ["kfd_queue_type", "kfd_queue_format"];

/// A type; a name is given by its index in a list of them, taken modulo its length.
#[derive(Clone, Debug)]
struct Type {
    kind: u32,
    name: usize,
    flag: bool,
    last: u32,
    members: Vec<(usize, u32, u32)>,
}

fn kind_type() -> impl Strategy<Value = Type> {
    // Structures and enums are what is looked up.
    let kind =
        prop_oneof![6 => Just(4u32), 2 => Just(5u32), 2 => Just(6u32), 1 => Just(19u32), 4 => 0..22u32];
    let id = prop_oneof![12 => 0..40u32, 1 => word()];
    let place = prop_oneof![6 => (0..64u32).prop_map(|byte| byte * 8), 1 => word()];
    let members = vec((0..1000usize, id, place), 0..6);
    let last = prop_oneof![8 => 0..40u32, 1 => word()];
    (kind, 0..1000usize, prop::bool::weighted(0.2), last, members)
        .prop_map(|(kind, name, flag, last, members)| Type { kind, name, flag, last, members })
}

/// The strings, and the position of each name in them.
#[derive(Default)]
struct Strings {
    bytes: Vec<u8>,
    places: BTreeMap<&'static str, u32>,
}

impl Strings {
    fn place(&mut self, name: &'static str) -> u32 {
        let bytes = &mut self.bytes;
        *self.places.entry(name).or_insert_with(|| {
            bytes.extend(name.bytes().chain([0]));
            u32::try_from(bytes.len() - name.len() - 1).unwrap_or(0)
        })
    }
}

fn written(types: &[Type]) -> Vec<u8> {
    let structures = structures();
    let mut strings = Strings::default();
    strings.place("");
    let mut records: Vec<u32> = Vec::new();
    for one in types {
        let nth = one.name % structures.len();
        let Some((strukt, members)) = structures.iter().nth(nth) else { continue };
        let is_enum = matches!(one.kind, 6 | 19);
        let name = if is_enum { ENUMS[one.name % ENUMS.len()] } else { strukt };
        // Every fifth member has no name.
        let mut place = |member: usize| {
            let member = members.iter().nth(member % members.len()).filter(|_| !member.is_multiple_of(5));
            strings.place(member.copied().unwrap_or(""))
        };
        let tail: Vec<u32> = match one.kind {
            1 => vec![one.last.wrapping_mul(8)],
            3 => one.members.first().map_or(vec![1, 1, 0], |(_, id, at)| vec![*id, *id, *at]),
            4 | 5 | 15 => one.members.iter().flat_map(|(name, id, at)| [place(*name), *id, *at]).collect(),
            6 | 13 => one.members.iter().flat_map(|(name, id, _)| [place(*name), *id]).collect(),
            14 | 17 => vec![0],
            19 => one.members.iter().flat_map(|(name, low, high)| [place(*name), *low, *high]).collect(),
            _ => Vec::new(),
        };
        let count = u32::try_from(one.members.len()).unwrap_or(0);
        let info = one.kind << 24 | count | u32::from(one.flag) << 31;
        records.extend([strings.place(name), info, one.last]);
        records.extend(tail);
    }
    let strings = strings.bytes;
    let types: Vec<u8> = records.into_iter().flat_map(u32::to_le_bytes).collect();
    let length = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap_or(0);
    let mut bytes = vec![0x9f, 0xeb, 1, 0];
    let header = [24, 0, length(&types), length(&types), length(&strings)];
    bytes.extend(header.into_iter().flat_map(u32::to_le_bytes));
    bytes.extend(types);
    bytes.extend(strings);
    bytes
}

/// BTF of up to 40 types.
pub fn btf() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        12 => damaged(vec(kind_type(), 0..40).prop_map(|types| written(&types))),
        1 => select(vec![b"\x9f\xeb\x01\x00".to_vec(), b"\xeb\x9f\x01\x00".to_vec(), Vec::new()]),
        1 => vec(any::<u8>(), 0..80),
    ]
}
