//! What /proc/kallsyms would show of a module, from its ELF file. Pure.
//!
//! The rules are those of the kernel's kernel/module/kallsyms.c: symbols of loaded sections that are not
//! freed after init, letter by section (`elf_type`), upper case if exported (kernel/kallsyms.c `s_show`).
//! Addresses are synthetic: sections laid out after a base, executable ones first.

use anyhow::{Context as _, Result};
use object::elf::{SHF_ALLOC, SHF_EXECINSTR, SHF_WRITE, SHT_NOBITS};
use object::{Object as _, ObjectSection as _, ObjectSymbol as _, SectionFlags, SectionIndex, SectionKind};
use std::collections::{BTreeSet, HashMap};
use std::fmt::Write as _;

/// A section in the synthetic layout.
struct Place {
    address: u64,
    letter: char,
}

/// Lines `ADDRESS LETTER NAME\t[MODULE]`, by address; duplicates of a name are kept.
pub(crate) fn kallsyms(elf: &object::File<'_>, module: &str, base: u64) -> Result<String> {
    let places = layout(elf, base);
    let exported: BTreeSet<&str> =
        elf.symbols().filter_map(|symbol| symbol.name().ok()?.strip_prefix("__ksymtab_")).collect();
    let mut lines = Vec::new();
    for symbol in elf.symbols() {
        let name = symbol.name().context("a symbol's name is no text")?;
        let place = symbol.section_index().and_then(|section| places.get(&section));
        let (Some(place), false) = (place, name.is_empty()) else { continue };
        let letter = match (symbol.is_weak(), exported.contains(name)) {
            (_, true) => place.letter.to_ascii_uppercase(),
            (true, _) => 'w',
            _ => place.letter,
        };
        lines.push((place.address + symbol.address(), letter, name));
    }
    // A stable sort: symbols of one address stay in the file's order.
    lines.sort_by_key(|(address, ..)| *address);
    let mut text = String::new();
    for (address, letter, name) in lines {
        writeln!(text, "{address:016x} {letter} {name}\t[{module}]")?;
    }
    Ok(text)
}

/// Loaded sections one after the other: code, then constants, then data.
fn layout(elf: &object::File<'_>, base: u64) -> HashMap<SectionIndex, Place> {
    let mut places = HashMap::new();
    let mut address = base;
    for wanted in ['t', 'r', 'd', 'b'] {
        for section in elf.sections() {
            if section.name().is_ok_and(left_out) || letter(&section) != Some(wanted) {
                continue;
            }
            address = address.next_multiple_of(section.align().max(1));
            places.insert(section.index(), Place { address, letter: wanted });
            address += section.size();
        }
    }
    places
}

/// Freed after init, or read by the loader and not kept (kernel/module/main.c
/// `rewrite_section_headers`).
fn left_out(section: &str) -> bool {
    section.starts_with(".init") || matches!(section, ".modinfo" | "__versions")
}

/// The section's letter as in `elf_type`; `None` where nothing of it is loaded.
fn letter(section: &object::Section<'_, '_>) -> Option<char> {
    let SectionFlags::Elf { sh_flags } = section.flags() else { return None };
    if sh_flags & u64::from(SHF_ALLOC) == 0 {
        return None;
    }
    let nobits = matches!(section.kind(), SectionKind::UninitializedData | SectionKind::Elf(SHT_NOBITS));
    Some(match (sh_flags & u64::from(SHF_EXECINSTR) != 0, nobits, sh_flags & u64::from(SHF_WRITE) != 0) {
        (true, ..) => 't',
        (_, true, _) => 'b',
        (.., true) => 'd',
        _ => 'r',
    })
}
