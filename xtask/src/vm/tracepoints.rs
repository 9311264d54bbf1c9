//! The lines that a module adds to tracefs' available_events, from its ELF file. In: the file. Out: lines of
//! SYSTEM:NAME. Pure.
//!
//! A module lists its events in the section `_ftrace_events`, as pointers to `struct trace_event_call`
//! (`event_NAME`), whose `class` points to the class, whose first member points to the system's name
//! (include/linux/trace_events.h). All of these pointers are relocations.

use anyhow::{Context as _, Result};
use object::{
    File, Object as _, ObjectSection as _, ObjectSymbol as _, RelocationTarget, SectionIndex, SymbolIndex,
};
use std::fmt::Write as _;

/// Offset of `class` in `struct trace_event_call`, behind a `struct list_head`.
const CLASS: u64 = 16;

/// A place in a section.
type Place = (SectionIndex, u64);

/// Lines in the order of the file; empty for a module without events.
pub(crate) fn available(elf: &File<'_>) -> Result<String> {
    let mut lines = String::new();
    for symbol in elf.symbols() {
        // Pointer to an event: `__event_NAME`.
        let listed = symbol.section_index().is_some_and(|index| {
            elf.section_by_index(index).is_ok_and(|section| section.name() == Ok("_ftrace_events"))
        });
        let name = symbol.name().context("a symbol's name is no text")?.strip_prefix("__event_");
        let (true, Some(name)) = (listed, name) else { continue };
        let system = system(elf, symbol.index()).with_context(|| format!("the system of event {name}"))?;
        writeln!(lines, "{system}:{name}")?;
    }
    Ok(lines)
}

fn system(elf: &File<'_>, listed: SymbolIndex) -> Option<String> {
    let (section, at) = target(elf, place(elf, listed)?)?;
    let class = target(elf, (section, at + CLASS))?;
    let (section, at) = target(elf, class)?;
    let data = elf.section_by_index(section).ok()?.uncompressed_data().ok()?;
    let text = data.get(usize::try_from(at).ok()?..)?.split(|byte| *byte == 0).next()?;
    String::from_utf8(text.to_vec()).ok()
}

fn place(elf: &File<'_>, symbol: SymbolIndex) -> Option<Place> {
    let symbol = elf.symbol_by_index(symbol).ok()?;
    Some((symbol.section_index()?, symbol.address()))
}

/// Where the pointer at this place leads.
fn target(elf: &File<'_>, (section, at): Place) -> Option<Place> {
    let section = elf.section_by_index(section).ok()?;
    let (_, relocation) = section.relocations().find(|(offset, _)| *offset == at)?;
    let (section, start) = match relocation.target() {
        RelocationTarget::Symbol(symbol) => place(elf, symbol)?,
        RelocationTarget::Section(section) => (section, 0),
        _ => return None,
    };
    Some((section, start.checked_add_signed(relocation.addend())?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use object::write::{Object, Relocation, Symbol, SymbolId, SymbolSection};
    use object::{
        Architecture, BinaryFormat, Endianness, RelocationFlags, SectionKind, SymbolFlags, SymbolKind,
        SymbolScope,
    };

    /// A module with one event, `amdgpu:amdgpu_cs`.
    fn module() -> Vec<u8> {
        let mut made = Object::new(BinaryFormat::Elf, Architecture::X86_64, Endianness::Little);
        let mut section = |name: &str, bytes: &[u8]| {
            let id = made.add_section(Vec::new(), name.into(), SectionKind::Data);
            made.append_section_data(id, bytes, 8);
            id
        };
        let names = section(".rodata.str", b"other\0amdgpu\0");
        let (class, event) = (section(".data.class", &[0; 80]), section(".data", &[0; 120]));
        let listed = section("_ftrace_events", &[0; 16]);
        let mut symbol = |name: &str, section, value| {
            made.add_symbol(Symbol {
                name: name.into(),
                value,
                size: 8,
                kind: SymbolKind::Data,
                scope: SymbolScope::Compilation,
                weak: false,
                section: SymbolSection::Section(section),
                flags: SymbolFlags::None,
            })
        };
        let text = symbol("str", names, 0);
        let class_symbol = symbol("event_class_amdgpu_cs", class, 8);
        let event_symbol = symbol("event_amdgpu_cs", event, 8);
        symbol("__event_amdgpu_cs", listed, 8);
        let mut relocation = |section, offset, symbol: SymbolId, addend| {
            let flags = RelocationFlags::Elf { r_type: object::elf::R_X86_64_64 };
            made.add_relocation(section, Relocation { offset, symbol, addend, flags }).expect("a relocation");
        };
        relocation(class, 8, text, 6);
        relocation(event, 8 + 16, class_symbol, 0);
        relocation(listed, 8, event_symbol, 0);
        made.write().expect("an ELF file")
    }

    #[test]
    fn an_event_is_listed_with_its_system() {
        let bytes = module();
        let elf = File::parse(&*bytes).expect("an ELF file");
        assert_eq!(available(&elf).expect("lines"), "amdgpu:amdgpu_cs\n");
    }
}
