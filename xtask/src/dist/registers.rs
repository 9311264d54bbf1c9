//! Checks which arguments the BPF programs read: their places in `struct pt_regs` are the machine's, and are
//! chosen at build time. Read from the shipped binary. Pure.

use anyhow::{Context as _, Result, bail};
use object::LittleEndian;
use object::elf::{EM_BPF, FileHeader64, SHT_SYMTAB, STT_FUNC};
use object::read::SectionIndex;
use object::read::elf::{FileHeader as _, SectionHeader as _, Sym as _};
use std::collections::{BTreeMap, BTreeSet};

/// Offsets in `struct pt_regs`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Registers {
    /// From the first argument on, as far as a function's arguments are in registers.
    pub(super) arguments: &'static [i16],
    pub(super) result: i16,
    /// The stack pointer.
    pub(super) stack: i16,
    /// The instruction pointer: which function.
    pub(super) instruction: i16,
}

/// arch/x86/include/asm/ptrace.h; rdi, rsi, rdx, rcx, r8, r9, rax, rsp and rip.
pub(super) const X86_64: Registers =
    Registers { arguments: &[112, 104, 96, 88, 72, 64], result: 80, stack: 152, instruction: 128 };
/// arch/arm64/include/uapi/asm/ptrace.h; x0 to x7, sp and pc.
pub(super) const AARCH64: Registers =
    Registers { arguments: &[0, 8, 16, 24, 32, 40, 48, 56], result: 0, stack: 248, instruction: 256 };

/// What a program reads of the function that it is attached to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
    Argument(usize),
    Result,
    Stack,
    Instruction,
}

/// By program.
///
/// # Errors
/// When a program reads a register that is neither, on this machine.
pub(super) fn used(binary: &[u8], registers: Registers) -> Result<BTreeMap<String, BTreeSet<Place>>> {
    let object = bpf_object(binary).context("the binary holds no BPF object")?;
    let header = FileHeader64::<LittleEndian>::parse(object)?;
    let endian = header.endian()?;
    let sections = header.sections(endian, object)?;
    let symbols = sections.symbols(endian, object, SHT_SYMTAB)?;
    let mut used = BTreeMap::new();
    for symbol in symbols.iter().filter(|symbol| symbol.st_type() == STT_FUNC) {
        let section = sections.section(SectionIndex(symbol.st_shndx(endian).into()))?;
        let returns = match sections.section_name(endian, section)? {
            b"kprobe" => false,
            b"kretprobe" => true,
            _ => continue,
        };
        let name = String::from_utf8_lossy(symbol.name(endian, symbols.strings())?).into_owned();
        let (start, size) =
            (usize::try_from(symbol.st_value(endian))?, usize::try_from(symbol.st_size(endian))?);
        let code = section
            .data(endian, object)?
            .get(start..start + size)
            .context("a program ends outside its section")?;
        let place = |offset: i16| -> Result<Place> {
            let argument = registers.arguments.iter().position(|have| *have == offset);
            match argument {
                _ if returns && offset == registers.result => Ok(Place::Result),
                _ if !returns && offset == registers.stack => Ok(Place::Stack),
                _ if !returns && offset == registers.instruction => Ok(Place::Instruction),
                Some(number) if !returns => Ok(Place::Argument(number)),
                _ => bail!(
                    "{name} reads byte {offset} of the registers, which is no argument and no result here"
                ),
            }
        };
        let places = context_loads(code).into_iter().map(place).collect::<Result<_>>()?;
        used.insert(name, places);
    }
    if used.is_empty() {
        bail!("the BPF object has no program on functions");
    }
    Ok(used)
}

/// The ELF file that begins in the middle of another one, and what follows it.
fn bpf_object(binary: &[u8]) -> Option<&[u8]> {
    let machine = EM_BPF.to_le_bytes();
    let begins = |at: &usize| {
        let bytes = &binary[*at..];
        bytes.starts_with(b"\x7fELF") && bytes.get(18..20) == Some(&machine)
    };
    (0..binary.len()).find(begins).map(|at| &binary[at..])
}

/// Offsets that a program loads from its context, which comes in r1 and is copied from register to register
/// (Documentation/bpf/standardization/instruction-set.rst). In the order of the code, as the compiler puts
/// it.
fn context_loads(code: &[u8]) -> BTreeSet<i16> {
    const CALL: u8 = 0x85;
    const LOAD_64: u8 = 0x18;
    const MOVE_64: u8 = 0xbf;
    const LOAD: u8 = 1;
    const ALU_32: u8 = 4;
    const ALU_64: u8 = 7;
    let mut holds = [false; 16];
    holds[1] = true;
    let mut found = BTreeSet::new();
    let mut instructions = code.chunks_exact(8);
    while let Some(&[operation, registers, low, high, ..]) = instructions.next() {
        let (to, from) = (usize::from(registers & 0xf), usize::from(registers >> 4));
        match (operation, operation & 7) {
            (CALL, _) => holds[..=5].fill(false),
            (MOVE_64, _) => holds[to] = holds[from],
            (LOAD_64, _) => {
                holds[to] = false;
                instructions.next();
            }
            (_, LOAD) => {
                if holds[from] {
                    found.insert(i16::from_le_bytes([low, high]));
                }
                holds[to] = false;
            }
            (_, ALU_32 | ALU_64) => holds[to] = false,
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXIT: [u8; 8] = [0x95, 0, 0, 0, 0, 0, 0, 0];

    fn load(to: u8, from: u8, offset: i16) -> [u8; 8] {
        let [low, high] = offset.to_le_bytes();
        [0x79, from << 4 | to, low, high, 0, 0, 0, 0]
    }

    fn copy(to: u8, from: u8) -> [u8; 8] {
        [0xbf, from << 4 | to, 0, 0, 0, 0, 0, 0]
    }

    #[test]
    fn the_context_is_followed_through_registers() {
        let call = [0x85, 0, 0, 0, 8, 0, 0, 0];
        let code =
            [copy(6, 1), call, load(2, 1, 7), load(1, 6, 112), load(3, 1, 9), load(2, 6, 72), EXIT].concat();
        assert_eq!(context_loads(&code), BTreeSet::from([72, 112]), "a call takes r1, a load takes r1");
    }

    #[test]
    fn a_constant_ends_a_context_and_its_second_half_is_no_instruction() {
        let constant = |to: u8| [[0x18, to, 0, 0, 0, 0, 0, 0], load(2, 1, 5), load(2, 1, 8)].concat();
        assert!(context_loads(&constant(1)).is_empty());
        assert_eq!(context_loads(&constant(3)), BTreeSet::from([8]));
        let added = [0x07, 1, 0, 0, 8, 0, 0, 0];
        assert!(context_loads(&[added, load(2, 1, 8)].concat()).is_empty(), "another address");
    }

    #[test]
    fn the_object_is_found_in_the_binary() {
        let mut outer = b"\x7fELF\x02\x01\x01".to_vec();
        outer.resize(18, 0);
        outer.extend([62, 0]);
        assert!(bpf_object(&outer).is_none(), "x86-64");
        let mut inner = outer.clone();
        inner[18] = 247;
        let both = [outer.clone(), inner.clone()].concat();
        assert_eq!(bpf_object(&both), Some(&inner[..]));
    }

    /// By hand from the kernel's headers: fifteen registers before rdi's end on x86-64, x0 at the start on
    /// arm64.
    #[test]
    fn machines_have_their_places() {
        let nth = |registers: Registers, n: usize| registers.arguments[n];
        assert_eq!([0, 1, 2, 3, 4, 5].map(|n| nth(X86_64, n) / 8), [14, 13, 12, 11, 9, 8]);
        assert_eq!([0, 1, 2, 3, 4, 5, 6, 7].map(|n| nth(AARCH64, n) / 8), [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!((X86_64.result / 8, AARCH64.result), (10, 0));
        // 31 registers on arm64; cs and flags between the two on x86-64.
        assert_eq!((X86_64.stack / 8, X86_64.instruction / 8), (19, 16));
        assert_eq!((AARCH64.stack / 8, AARCH64.instruction / 8), (31, 32));
    }
}
