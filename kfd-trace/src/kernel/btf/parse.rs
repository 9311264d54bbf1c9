//! Parser of BTF: header, type records, strings. Every access is checked against the data's length.

use super::error::BtfError;
use std::sync::Arc;

const MAGIC: u16 = 0xeb9f;
const VERSION: u8 = 1;
const HEADER: usize = 24;
/// Name, info, size or type.
const RECORD: usize = 12;
/// Longest name that is read. The kernel's own check of names has the same limit (KSYM_NAME_LEN,
/// kernel/bpf/btf.c, btf_name_valid_identifier).
const LONGEST_NAME: usize = 512;

/// include/uapi/linux/btf.h, BTF_KIND_*; id 0 is void.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BtfKind {
    Void,
    Int,
    Pointer,
    Array,
    Struct,
    Union,
    Enum,
    Forward,
    Typedef,
    Volatile,
    Const,
    Restrict,
    Function,
    Prototype,
    Variable,
    Section,
    Float,
    DeclTag,
    TypeTag,
    Enum64,
}

impl BtfKind {
    fn of(number: u8) -> Option<BtfKind> {
        use BtfKind::{
            Array, Const, DeclTag, Enum, Enum64, Float, Forward, Function, Int, Pointer, Prototype, Restrict,
            Section, Struct, TypeTag, Typedef, Union, Variable, Volatile,
        };
        const KINDS: [BtfKind; 19] = [
            Int, Pointer, Array, Struct, Union, Enum, Forward, Typedef, Volatile, Const, Restrict, Function,
            Prototype, Variable, Section, Float, DeclTag, TypeTag, Enum64,
        ];
        usize::from(number).checked_sub(1).and_then(|index| KINDS.get(index)).copied()
    }

    /// Bytes that follow the record.
    fn tail(self, count: u32) -> usize {
        let count = count as usize;
        match self {
            BtfKind::Int | BtfKind::Variable | BtfKind::DeclTag => 4,
            BtfKind::Array => 12,
            BtfKind::Struct | BtfKind::Union | BtfKind::Section | BtfKind::Enum64 => 12 * count,
            BtfKind::Enum | BtfKind::Prototype => 8 * count,
            _ => 0,
        }
    }
}

/// One type record.
#[derive(Clone, Copy, Debug)]
pub(super) struct Type {
    pub(super) id: u32,
    pub(super) kind: BtfKind,
    /// Offset of its name in the strings; 0 is no name.
    pub(super) name: u32,
    /// Members, enumerators.
    pub(super) count: u32,
    pub(super) flag: bool,
    pub(super) size_or_type: u32,
    /// Position of its members in the data of the object it belongs to.
    pub(super) tail: usize,
}

/// FNV-1a.
pub(super) fn name_hash(name: &[u8]) -> u32 {
    name.iter().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

/// The types of one object: the kernel image, or a module with the image as its base.
pub struct Btf {
    pub(super) data: Vec<u8>,
    /// Position of the strings in `data`.
    pub(super) strings: std::ops::Range<usize>,
    /// Ids and string offsets below these belong to the base.
    pub(super) first_id: u32,
    pub(super) first_string: u32,
    /// Position of each own type in `data`, by id - first_id.
    pub(super) starts: Vec<u32>,
    /// Named structures, unions and enums: hash of the name << 32 | id, sorted.
    pub(super) by_name: Vec<u64>,
    pub(super) base: Option<Arc<Btf>>,
}

impl Btf {
    /// Reads BTF; for a module's, `base` is the kernel's.
    ///
    /// # Errors
    /// Not BTF, wrong byte order for this machine, truncated, or of a newer format.
    pub fn parse(data: Vec<u8>, base: Option<Arc<Btf>>) -> Result<Btf, BtfError> {
        parse(data, base)
    }
}

fn parse(data: Vec<u8>, base: Option<Arc<Btf>>) -> Result<Btf, BtfError> {
    let malformed = |what, at| BtfError::Malformed { what, at };
    let &[magic0, magic1, version, _flags, ..] = data.as_slice() else {
        return Err(malformed("the header is cut off", 0));
    };
    let magic = u16::from_le_bytes([magic0, magic1]);
    if magic != MAGIC {
        return Err(BtfError::NotBtf { magic });
    }
    if version != VERSION {
        return Err(malformed("a version other than 1", 2));
    }
    let header = word(&data, 4)? as usize;
    if header < HEADER {
        return Err(malformed("a header that is too short", 4));
    }
    let section = |at| -> Result<std::ops::Range<usize>, BtfError> {
        let start = (word(&data, at)? as usize).checked_add(header);
        let end =
            start.zip(usize::try_from(word(&data, at + 4)?).ok()).and_then(|(s, len)| s.checked_add(len));
        match start.zip(end) {
            Some((start, end)) if end <= data.len() => Ok(start..end),
            _ => Err(malformed("a section that ends beyond the data", at)),
        }
    };
    let (types, strings) = (section(8)?, section(16)?);
    if !strings.is_empty() && data[strings.end - 1] != 0 {
        return Err(malformed("strings that do not end in NUL", strings.end));
    }
    let (first_id, first_string) = match &base {
        None => (1, 0),
        Some(base) => (base.next_id()?, base.next_string()?),
    };
    let mut btf =
        Btf { data, strings, first_id, first_string, starts: Vec::new(), by_name: Vec::new(), base };
    btf.index(types)?;
    Ok(btf)
}

impl Btf {
    /// The single pass over all types.
    fn index(&mut self, types: std::ops::Range<usize>) -> Result<(), BtfError> {
        let mut at = types.start;
        while at < types.end {
            let start = u32::try_from(at).map_err(|_| malformed_type(at))?;
            let id = self.next_id()?;
            let found = self.record(id, at)?;
            at = found.tail + found.kind.tail(found.count);
            if at > types.end {
                return Err(malformed_type(start as usize));
            }
            self.starts.push(start);
            if found.name != 0
                && matches!(found.kind, BtfKind::Struct | BtfKind::Union | BtfKind::Enum | BtfKind::Enum64)
            {
                // No caller requests a longer name: the type exists, but cannot be found by its name.
                if let Some(name) = short(self.string_from(found.name)?) {
                    self.by_name.push(u64::from(name_hash(name)) << 32 | u64::from(id));
                }
            }
        }
        self.starts.shrink_to_fit();
        self.by_name.sort_unstable();
        Ok(())
    }

    fn record(&self, id: u32, at: usize) -> Result<Type, BtfError> {
        let info = word(&self.data, at + 4)?;
        // Bits 24 to 28; bit 31 is the flag.
        let kind = u8::try_from(info >> 24 & 0x1f).unwrap_or(0);
        Ok(Type {
            id,
            kind: BtfKind::of(kind).ok_or(BtfError::UnknownKind { id, kind })?,
            name: word(&self.data, at)?,
            count: info & 0xffff,
            flag: info >> 31 != 0,
            size_or_type: word(&self.data, at + 8)?,
            tail: at + RECORD,
        })
    }

    pub(super) fn type_of(&self, id: u32) -> Result<Type, BtfError> {
        if id == 0 {
            let void = BtfKind::Void;
            return Ok(Type { id, kind: void, name: 0, count: 0, flag: false, size_or_type: 0, tail: 0 });
        }
        match (id.checked_sub(self.first_id), &self.base) {
            (None, Some(base)) => base.type_of(id),
            (index, _) => match index.and_then(|index| self.starts.get(index as usize)) {
                Some(start) => self.record(id, *start as usize),
                None => Err(BtfError::NoType { id, end: self.next_id()? }),
            },
        }
    }

    /// A word of the data after a type's record, in the object that the type belongs to.
    pub(super) fn word_of(&self, found: &Type, at: usize) -> Result<u32, BtfError> {
        match &self.base {
            Some(base) if found.id < self.first_id => base.word_of(found, at),
            _ => word(&self.data, at),
        }
    }

    /// The text at an offset in the strings.
    pub(super) fn string(&self, offset: u32) -> Result<&str, BtfError> {
        let wrong = |what| BtfError::Malformed { what, at: self.place_of(offset) };
        let bytes = short(self.string_from(offset)?).ok_or_else(|| wrong("a name of more than 511 bytes"))?;
        str::from_utf8(bytes).map_err(|_| wrong("a name that is not UTF-8"))
    }

    /// Whether the text at an offset in the strings equals this name. The cost depends on the length of
    /// `name`, not of the text: damaged BTF may give all of its types a name of megabytes.
    pub(super) fn is_named(&self, offset: u32, name: &str) -> Result<bool, BtfError> {
        let rest = self.string_from(offset)?.strip_prefix(name.as_bytes());
        Ok(rest.is_some_and(|rest| rest.first().is_none_or(|byte| *byte == 0)))
    }

    /// The strings from an offset onward.
    fn string_from(&self, offset: u32) -> Result<&[u8], BtfError> {
        let Some(own) = offset.checked_sub(self.first_string) else {
            return self.base.as_ref().map_or(Ok(&[]), |base| base.string_from(offset));
        };
        let from = self.data[self.strings.clone()].get(own as usize..).filter(|from| !from.is_empty());
        from.ok_or_else(|| BtfError::Malformed {
            what: "a name beyond the strings",
            at: self.place_of(offset),
        })
    }

    /// Position of a string in the data of the object that it belongs to.
    fn place_of(&self, offset: u32) -> usize {
        match (offset.checked_sub(self.first_string), &self.base) {
            (None, Some(base)) => base.place_of(offset),
            (own, _) => self.strings.start + own.unwrap_or(0) as usize,
        }
    }

    fn next_id(&self) -> Result<u32, BtfError> {
        let own = u32::try_from(self.starts.len()).ok();
        own.and_then(|own| self.first_id.checked_add(own))
            .ok_or_else(|| self.too_many("more types than 32 bits can number"))
    }

    fn next_string(&self) -> Result<u32, BtfError> {
        let own = u32::try_from(self.strings.len()).ok();
        own.and_then(|own| self.first_string.checked_add(own))
            .ok_or_else(|| self.too_many("more strings than 32 bits can address"))
    }

    fn too_many(&self, what: &'static str) -> BtfError {
        BtfError::Malformed { what, at: self.data.len() }
    }
}

/// The text up to the NUL; `None` if that is not within [`LONGEST_NAME`].
fn short(text: &[u8]) -> Option<&[u8]> {
    let end = text.iter().take(LONGEST_NAME).position(|byte| *byte == 0)?;
    text.get(..end)
}

fn malformed_type(at: usize) -> BtfError {
    BtfError::Malformed { what: "a type that ends beyond the types", at }
}

fn word(data: &[u8], at: usize) -> Result<u32, BtfError> {
    let bytes = at.checked_add(4).and_then(|end| data.get(at..end)).and_then(|bytes| bytes.try_into().ok());
    bytes.map(u32::from_le_bytes).ok_or(BtfError::Malformed { what: "the data is cut off", at })
}
