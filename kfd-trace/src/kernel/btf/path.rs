//! Member paths: `properties.queue_id`, `pdds[0]`, `numbers[0].nr`.

use super::parse::{BtfKind, Type};
use super::{Btf, BtfError};

/// Same as the kernel's own limit on chains of typedefs and qualifiers (MAX_RESOLVE_DEPTH).
const MAX_CHAIN: usize = 32;
/// Maximum nesting of anonymous structures; real ones stay below 5.
const MAX_NESTING: usize = 16;
/// Members examined for one path, in all structures of the name. `task_struct` has some 300; only synthetic
/// BTF needs more.
pub(super) const MAX_LOOKS: u32 = 200_000;
/// x86-64 and arm64.
const POINTER: u32 = 8;

/// Position of a member in its structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// Bytes from the start of the requested structure.
    pub offset: u32,
    /// Bytes; 0 for a flexible array.
    pub size: u32,
}

/// One step of a path.
pub(super) struct Segment<'a> {
    name: &'a str,
    indices: Vec<u32>,
}

pub(super) fn parse(path: &str) -> Result<Vec<Segment<'_>>, BtfError> {
    path.split('.')
        .map(segment)
        .collect::<Option<_>>()
        .ok_or_else(|| BtfError::BadPath { path: path.to_owned() })
}

fn segment(text: &str) -> Option<Segment<'_>> {
    let end = text.find('[').unwrap_or(text.len());
    let (name, mut rest) = text.split_at(end);
    let mut indices = Vec::new();
    while !rest.is_empty() {
        let (index, after) = rest.strip_prefix('[')?.split_once(']')?;
        indices.push(index.parse().ok()?);
        rest = after;
    }
    let plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    (plain && !name.is_empty()).then_some(Segment { name, indices })
}

/// A member as declared in its structure.
struct FoundMember {
    /// Bits from the start of the searched structure.
    bits: u32,
    bitfield: bool,
    id: u32,
}

impl Btf {
    /// `looks` is the remainder of [`MAX_LOOKS`].
    pub(super) fn member(
        &self,
        root: &Type,
        path: &[Segment<'_>],
        looks: &mut u32,
    ) -> Result<Member, BtfError> {
        let mut current = *root;
        let mut offset = 0u32;
        let mut before = "";
        for segment in path {
            if !matches!(current.kind, BtfKind::Struct | BtfKind::Union) {
                return Err(BtfError::NotAStruct { segment: before.to_owned() });
            }
            let found = self.search(&current, segment.name, 0, looks)?;
            let member = || segment.name.to_owned();
            let Some(found) = found else {
                return Err(BtfError::NoMember { strukt: self.shown(&current), member: member() });
            };
            if found.bitfield {
                return Err(BtfError::Bitfield { strukt: self.shown(&current), member: member() });
            }
            let too_far = || BtfError::TooFar { what: member() };
            offset = offset.checked_add(found.bits / 8).ok_or_else(too_far)?;
            current = self.resolve(found.id)?;
            for index in &segment.indices {
                let (element, skip) = self.element(&current, segment.name, *index)?;
                offset = offset.checked_add(skip).ok_or_else(too_far)?;
                current = self.resolve(element)?;
            }
            before = segment.name;
        }
        Ok(Member { offset, size: self.size(&current, 0)? })
    }

    /// A structure's name for a message; its id if it has no valid name.
    fn shown(&self, found: &Type) -> String {
        let name = self.string(found.name).ok();
        let name = name.filter(|name| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic()));
        name.map_or_else(|| format!("type {}", found.id), str::to_owned)
    }

    /// Searches this type and its anonymous structures and unions for a member.
    fn search(
        &self,
        within: &Type,
        name: &str,
        depth: usize,
        looks: &mut u32,
    ) -> Result<Option<FoundMember>, BtfError> {
        if depth > MAX_NESTING {
            return Err(BtfError::TooDeep { id: within.id });
        }
        for index in 0..within.count as usize {
            *looks = looks
                .checked_sub(1)
                .ok_or_else(|| BtfError::TooWide { strukt: self.shown(within), member: name.to_owned() })?;
            let at = within.tail + index * 12;
            let named = self.word_of(within, at)?;
            let wanted = self.is_named(named, name)?;
            if !wanted && !self.is_named(named, "")? {
                continue;
            }
            let id = self.word_of(within, at + 4)?;
            let place = self.word_of(within, at + 8)?;
            // With the flag, the upper 8 bits are the size of a bitfield.
            let (bits, width) = if within.flag { (place & 0x00ff_ffff, place >> 24) } else { (place, 0) };
            let declared = self.resolve(id)?;
            if wanted {
                let bitfield = width != 0 || bits % 8 != 0 || self.partial_int(&declared)?;
                return Ok(Some(FoundMember { bits, bitfield, id }));
            }
            if matches!(declared.kind, BtfKind::Struct | BtfKind::Union)
                && let Some(found) = self.search(&declared, name, depth + 1, looks)?
            {
                let too_far = || BtfError::TooFar { what: name.to_owned() };
                let bits = bits.checked_add(found.bits).ok_or_else(too_far)?;
                return Ok(Some(FoundMember { bits, ..found }));
            }
        }
        Ok(None)
    }

    /// Without the flag, a bitfield is an integer type with fewer bits than its bytes hold.
    fn partial_int(&self, declared: &Type) -> Result<bool, BtfError> {
        if declared.kind != BtfKind::Int {
            return Ok(false);
        }
        let encoding = self.word_of(declared, declared.tail)?;
        let (skipped, bits) = (encoding >> 16 & 0xff, encoding & 0xff);
        Ok(skipped != 0 || u64::from(bits) != u64::from(declared.size_or_type) * 8)
    }

    /// The element type of an array, and the bytes before element `index`. A flexible array has no length to
    /// check against.
    fn element(&self, array: &Type, segment: &str, index: u32) -> Result<(u32, u32), BtfError> {
        if array.kind != BtfKind::Array {
            return Err(BtfError::NotAnArray { segment: segment.to_owned() });
        }
        let element = self.word_of(array, array.tail)?;
        let length = self.word_of(array, array.tail + 8)?;
        if length != 0 && index >= length {
            return Err(BtfError::OutOfRange { segment: segment.to_owned(), index, length });
        }
        let size = self.size(&self.resolve(element)?, 0)?;
        let too_far = || BtfError::TooFar { what: format!("{segment}[{index}]") };
        Ok((element, size.checked_mul(index).ok_or_else(too_far)?))
    }

    /// The type behind typedefs, qualifiers and tags.
    pub(super) fn resolve(&self, id: u32) -> Result<Type, BtfError> {
        let mut found = self.type_of(id)?;
        for _ in 0..MAX_CHAIN {
            match found.kind {
                BtfKind::Typedef
                | BtfKind::Const
                | BtfKind::Volatile
                | BtfKind::Restrict
                | BtfKind::TypeTag => {
                    found = self.type_of(found.size_or_type)?;
                }
                _ => return Ok(found),
            }
        }
        Err(BtfError::TooDeep { id })
    }

    pub(super) fn size(&self, found: &Type, depth: usize) -> Result<u32, BtfError> {
        match found.kind {
            BtfKind::Int
            | BtfKind::Struct
            | BtfKind::Union
            | BtfKind::Enum
            | BtfKind::Enum64
            | BtfKind::Float => Ok(found.size_or_type),
            BtfKind::Pointer => Ok(POINTER),
            BtfKind::Array if depth < MAX_CHAIN => {
                let element = self.resolve(self.word_of(found, found.tail)?)?;
                let length = self.word_of(found, found.tail + 8)?;
                let too_far = || BtfError::TooFar { what: format!("the end of type {}", found.id) };
                self.size(&element, depth + 1)?.checked_mul(length).ok_or_else(too_far)
            }
            BtfKind::Array => Err(BtfError::TooDeep { id: found.id }),
            _ => Err(BtfError::NoSize { id: found.id }),
        }
    }
}
