//! Debug information of a compiled object to BTF. In: the bytes of an ELF object with DWARF 2 to 5, and what is
//! wanted of it. Out: BTF of the wanted structures and enums, of all that they contain, and of functions.
//!
//! What a pointer leads to is left out: the reader of BTF does not follow pointers either.

use super::wanted;
use crate::kernel::btf::BtfWriter;
use gimli::{
    AttributeValue, DebuggingInformationEntry, DwTag, Dwarf, EndianSlice, LittleEndian, Unit, UnitOffset,
};
use object::{Object as _, ObjectSection as _, ObjectSymbol as _, RelocationFlags, RelocationTarget};
use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};

type Reader<'a> = EndianSlice<'a, LittleEndian>;

/// Maximum nesting of types; real ones stay below 30.
const DEEPEST: u32 = 200;

/// Reads an object.
///
/// # Errors
/// One line: it is no such object, or its debug information cannot be read.
pub(super) fn types(object: &[u8]) -> Result<BtfWriter, String> {
    let object = object::File::parse(object).map_err(|error| format!("not an object file: {error}"))?;
    let mut sections = HashMap::new();
    for id in SECTIONS {
        sections.insert(id.name(), section(&object, id.name())?);
    }
    let load = |id: gimli::SectionId| -> Result<Reader<'_>, gimli::Error> {
        let bytes = sections.get(id.name()).map_or(&[][..], |bytes| bytes.as_ref());
        Ok(EndianSlice::new(bytes, LittleEndian))
    };
    let dwarf = Dwarf::load(load).map_err(text)?;
    let mut writer = Writer { types: BtfWriter::new(), written: HashMap::new(), named: BTreeSet::new() };
    let mut units = dwarf.units();
    while let Some(header) = units.next().map_err(text)? {
        let unit = dwarf.unit(header).map_err(text)?;
        writer.written.clear();
        writer.unit(&dwarf, &unit)?;
    }
    if writer.named.is_empty() {
        return Err("the object has no debug information".to_owned());
    }
    Ok(writer.types)
}

/// The sections that types are in, and the one that each unit's header refers to.
const SECTIONS: [gimli::SectionId; 8] = [
    gimli::SectionId::DebugInfo,
    gimli::SectionId::DebugAbbrev,
    gimli::SectionId::DebugStr,
    gimli::SectionId::DebugLineStr,
    gimli::SectionId::DebugStrOffsets,
    gimli::SectionId::DebugTypes,
    gimli::SectionId::DebugAddr,
    gimli::SectionId::DebugLine,
];

fn text(error: gimli::Error) -> String {
    format!("debug information: {error}")
}

/// A section with its relocations applied: an object that is not linked refers to its strings by them.
fn section(object: &object::File<'_>, name: &str) -> Result<Vec<u8>, String> {
    let Some(section) = object.section_by_name(name) else { return Ok(Vec::new()) };
    let mut bytes = section.uncompressed_data().map_err(|error| format!("{name}: {error}"))?;
    for (offset, relocation) in section.relocations() {
        let base = match relocation.target() {
            RelocationTarget::Symbol(index) => object.symbol_by_index(index).map(|symbol| symbol.address()),
            _ => Ok(0),
        };
        let base = base.map_err(|error| format!("{name}: {error}"))?;
        let value = base.wrapping_add_signed(relocation.addend());
        let size = match relocation.flags() {
            RelocationFlags::Elf { .. } => usize::from(relocation.size() / 8),
            _ => 0,
        };
        let at = usize::try_from(offset).unwrap_or(usize::MAX);
        let place = at.checked_add(size).and_then(|end| bytes_mut(&mut bytes).get_mut(at..end));
        if let (Some(place), Some(value)) = (place, value.to_le_bytes().get(..size)) {
            place.copy_from_slice(value);
        }
    }
    Ok(bytes.into_owned())
}

fn bytes_mut<'a>(bytes: &'a mut Cow<'_, [u8]>) -> &'a mut [u8] {
    bytes.to_mut()
}

/// A type with its qualifiers removed, in the unit.
type Place = UnitOffset<usize>;
type Die<'d> = DebuggingInformationEntry<Reader<'d>, usize>;

struct Writer {
    types: BtfWriter,
    /// Ids of what was written of this unit.
    written: HashMap<Place, u32>,
    /// Names of wanted types that were written.
    named: BTreeSet<String>,
}

/// What the code of one unit is read from.
#[derive(Clone, Copy)]
struct Source<'d> {
    dwarf: &'d Dwarf<Reader<'d>>,
    unit: &'d Unit<Reader<'d>>,
}

impl<'d> Source<'d> {
    fn entry(self, place: Place) -> Result<Die<'d>, String> {
        self.unit.entry(place).map_err(text)
    }

    fn name(self, die: &Die<'d>) -> Result<String, String> {
        let Some(value) = die.attr_value(gimli::DW_AT_name) else { return Ok(String::new()) };
        let name = self.dwarf.attr_string(self.unit, value).map_err(text)?;
        Ok(name.to_string_lossy().into_owned())
    }

    fn children(self, place: Place) -> Result<Vec<Die<'d>>, String> {
        let mut tree = self.unit.entries_tree(Some(place)).map_err(text)?;
        let mut children = tree.root().map_err(text)?.children();
        let mut found = Vec::new();
        while let Some(child) = children.next().map_err(text)? {
            found.push(child.entry().clone());
        }
        Ok(found)
    }
}

fn number(die: &Die<'_>, name: gimli::DwAt) -> Option<u64> {
    match die.attr_value(name)? {
        AttributeValue::Exprloc(expression) => constant(expression),
        other => other.udata_value(),
    }
}

/// DWARF 2 gives the place of a member as `DW_OP_plus_uconst N`.
fn constant(expression: gimli::Expression<Reader<'_>>) -> Option<u64> {
    let encoding = gimli::Encoding { format: gimli::Format::Dwarf32, version: 2, address_size: 8 };
    match expression.operations(encoding).next() {
        Ok(Some(gimli::Operation::PlusConstant { value })) => Some(value),
        _ => None,
    }
}

/// The place of the type of a member, variable, or qualifier; `None` for void.
fn of_type(die: &Die<'_>) -> Option<Place> {
    match die.attr_value(gimli::DW_AT_type)? {
        AttributeValue::UnitRef(place) => Some(place),
        _ => None,
    }
}

impl Writer {
    /// Writes what is wanted of a unit.
    fn unit<'d>(&mut self, dwarf: &'d Dwarf<Reader<'d>>, unit: &'d Unit<Reader<'d>>) -> Result<(), String> {
        let source = Source { dwarf, unit };
        let mut entries = unit.entries();
        let Some(root) = entries.next_dfs().map_err(text)?.map(Die::offset) else { return Ok(()) };
        for die in source.children(root)? {
            match die.tag() {
                gimli::DW_TAG_structure_type | gimli::DW_TAG_enumeration_type => {
                    let name = source.name(&die)?;
                    let declared = die.has_attr(gimli::DW_AT_declaration);
                    if !declared && wanted::has(&name) && self.named.insert(name) {
                        self.write(source, die.offset(), 0)?;
                    }
                }
                gimli::DW_TAG_variable => self.function(source, &die)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// A variable that stands for a function: a pointer to it.
    fn function<'d>(&mut self, source: Source<'d>, die: &Die<'d>) -> Result<(), String> {
        let name = source.name(die)?;
        let Some(name) = name.strip_prefix(wanted::FUNCTION) else { return Ok(()) };
        let Some(pointer) = of_type(die) else { return Ok(()) };
        let Some(function) = of_type(&source.entry(pointer)?) else { return Ok(()) };
        let is_parameter = |child: &Die<'_>| child.tag() == gimli::DW_TAG_formal_parameter;
        let parameters = source.children(function)?.iter().filter(|child| is_parameter(child)).count();
        let word = self.types.int("unsigned int", 4);
        let prototype = self.types.prototype(word, &vec![word; parameters]);
        self.types.function(name, prototype);
        Ok(())
    }

    /// Writes a type after those it consists of, and returns its id; 0 is void.
    fn write(&mut self, source: Source<'_>, place: Place, depth: u32) -> Result<u32, String> {
        if let Some(id) = self.written.get(&place) {
            return Ok(*id);
        }
        if depth > DEEPEST {
            return Err("debug information: types nest too deeply".to_owned());
        }
        let die = source.entry(place)?;
        let size = number(&die, gimli::DW_AT_byte_size).and_then(|size| u32::try_from(size).ok());
        let id = match die.tag() {
            gimli::DW_TAG_structure_type | gimli::DW_TAG_union_type => {
                self.composite(source, &die, size.unwrap_or(0), depth)?
            }
            gimli::DW_TAG_enumeration_type => self.enumeration(source, &die, size.unwrap_or(4))?,
            gimli::DW_TAG_array_type => self.array(source, &die, depth)?,
            gimli::DW_TAG_base_type => self.types.int(&source.name(&die)?, size.unwrap_or(0)),
            gimli::DW_TAG_pointer_type => self.types.pointer(0),
            tag if transparent(tag) => match of_type(&die) {
                Some(inner) => self.write(source, inner, depth + 1)?,
                None => 0,
            },
            _ => 0,
        };
        self.written.insert(place, id);
        Ok(id)
    }

    fn composite<'d>(
        &mut self,
        source: Source<'d>,
        die: &Die<'d>,
        size: u32,
        depth: u32,
    ) -> Result<u32, String> {
        let mut members = Vec::new();
        for member in source.children(die.offset())? {
            if member.tag() != gimli::DW_TAG_member {
                continue;
            }
            let Some(of) = of_type(&member) else { continue };
            let id = self.write(source, of, depth + 1)?;
            let bytes = number(&member, gimli::DW_AT_data_member_location).unwrap_or(0);
            let bits = number(&member, gimli::DW_AT_bit_size);
            let first = number(&member, gimli::DW_AT_data_bit_offset).unwrap_or(bytes * 8);
            // The upper 8 bits are the width of a bitfield; 0 for others.
            let width = u32::try_from(bits.unwrap_or(0)).unwrap_or(0) << 24;
            let offset = u32::try_from(first).ok().filter(|offset| *offset < 1 << 24);
            let offset = offset.ok_or("debug information: a member lies beyond 2 MiB")?;
            members.push((source.name(&member)?, id, offset | width));
        }
        let members: Vec<(&str, u32, u32)> =
            members.iter().map(|(name, id, place)| (name.as_str(), *id, *place)).collect();
        let (name, union) = (source.name(die)?, die.tag() == gimli::DW_TAG_union_type);
        Ok(self.types.composite(&name, union, size, &members))
    }

    fn enumeration<'d>(&mut self, source: Source<'d>, die: &Die<'d>, size: u32) -> Result<u32, String> {
        let mut values = Vec::new();
        for value in source.children(die.offset())? {
            let raw = value.attr_value(gimli::DW_AT_const_value);
            let number =
                raw.and_then(|raw| raw.sdata_value().or_else(|| raw.udata_value().map(u64::cast_signed)));
            // The format has 32 bits; the enums that are read fit.
            let bytes = number.unwrap_or(0).to_le_bytes();
            values.push((source.name(&value)?, u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])));
        }
        let values: Vec<(&str, u32)> = values.iter().map(|(name, value)| (name.as_str(), *value)).collect();
        Ok(self.types.enumeration_of(&source.name(die)?, size, &values))
    }

    /// Each dimension is an array of the next.
    fn array<'d>(&mut self, source: Source<'d>, die: &Die<'d>, depth: u32) -> Result<u32, String> {
        let Some(of) = of_type(die) else { return Ok(0) };
        let mut id = self.write(source, of, depth + 1)?;
        let mut lengths = Vec::new();
        for range in source.children(die.offset())? {
            if range.tag() == gimli::DW_TAG_subrange_type {
                let bound = number(&range, gimli::DW_AT_upper_bound);
                let length = number(&range, gimli::DW_AT_count).or(bound.map(|bound| bound.wrapping_add(1)));
                lengths.push(u32::try_from(length.unwrap_or(0)).unwrap_or(0));
            }
        }
        for length in lengths.into_iter().rev() {
            id = self.types.array(id, length);
        }
        Ok(id)
    }
}

/// Types that have the layout of another one.
fn transparent(tag: DwTag) -> bool {
    [
        gimli::DW_TAG_typedef,
        gimli::DW_TAG_const_type,
        gimli::DW_TAG_volatile_type,
        gimli::DW_TAG_restrict_type,
        gimli::DW_TAG_atomic_type,
    ]
    .contains(&tag)
}
