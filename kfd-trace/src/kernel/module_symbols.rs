//! The symbols of one module, from the kernel's own table of them (`struct mod_kallsyms`, include/linux/module.h).
//! The text of /proc/kallsyms and the kernel's iterator (`ksym`) list all symbols of the machine: unpacking and
//! formatting those takes the kernel a hundred times longer.
//!
//! A program of a few instructions (BPF_PROG_TYPE_SYSCALL, Linux 5.16 and later) finds the module and reads memory.
//! In: the kernel's types. Out: symbols in the order of /proc/kallsyms.

use super::bpf::{self, MAP_CREATE, MapCreate, Mapping, ProgLoad, asm, bpf};
use super::btf::Btf;
use super::symbols::Symbols;
use aya_obj::generated::bpf_insn;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::ptr;

/// Offsets in `struct module` and in `struct mod_kallsyms`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TableLayout {
    /// In `struct module`: the pointer to the other.
    kallsyms: u64,
    symbols: u64,
    count: u64,
    names: u64,
    kinds: u64,
}

impl TableLayout {
    /// `None` if the kernel's table is another one: before 5.2 it had no types.
    pub(crate) fn find(vmlinux: &Btf) -> Option<Self> {
        let member = |strukt, path| Some(u64::from(vmlinux.offset_of(strukt, path).ok()?.offset));
        Some(TableLayout {
            kallsyms: member("module", "kallsyms")?,
            symbols: member("mod_kallsyms", "symtab")?,
            count: member("mod_kallsyms", "num_symtab")?,
            names: member("mod_kallsyms", "strtab")?,
            kinds: member("mod_kallsyms", "typetab")?,
        })
    }
}

/// Reads the symbols of a module of the running kernel. It must not be unloaded meanwhile: what was its memory may
/// then be another's.
///
/// # Errors
/// When the kernel refuses it, or the module is not as expected: then read /proc/kallsyms.
pub(crate) fn read(layout: TableLayout, module: &str) -> io::Result<Symbols> {
    let mut reader = Reader::new(module)?;
    let at = reader.module()?;
    table(layout, at, module, |address, out| reader.read(address, out))
}

fn strange(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}

/// include/uapi/linux/elf.h:Elf64_Sym: name (4 bytes), info, other, section (2), value (8), size (8).
const SYMBOL: usize = 24;

/// More than any module has: the bound for what is no table.
const MOST_SYMBOLS: u64 = 1 << 20;
const MOST_NAMES: u64 = 64 << 20;

/// The table of the `struct module` at an address. `read`: fills its buffer from kernel memory.
fn table(
    layout: TableLayout,
    module_at: u64,
    module: &str,
    mut read: impl FnMut(u64, &mut [u8]) -> io::Result<()>,
) -> io::Result<Symbols> {
    let mut bytes = |address: u64, length: u64| {
        let mut bytes = vec![0; usize::try_from(length).map_err(io::Error::other)?];
        read(address, &mut bytes).map(|()| bytes)
    };
    let mut word = |address: u64| {
        let bytes = bytes(address, 8)?;
        bytes.first_chunk().map(|word| u64::from_ne_bytes(*word)).ok_or_else(|| strange("no word"))
    };
    let table_of = module_at.wrapping_add(layout.kallsyms);
    let kallsyms = word(table_of)?;
    let mut member = |offset| word(kallsyms.wrapping_add(offset));
    let (symbols_at, names_at, kinds_at) =
        (member(layout.symbols)?, member(layout.names)?, member(layout.kinds)?);
    // `unsigned int`, before a pointer.
    let count = member(layout.count)? & u64::from(u32::MAX);
    // The types follow the names (kernel/module/kallsyms.c:layout_symtab).
    let names = kinds_at.checked_sub(names_at).filter(|length| *length < MOST_NAMES);
    let names = names.ok_or_else(|| strange("the names of its symbols have no end"))?;
    if count > MOST_SYMBOLS {
        return Err(strange("too many symbols"));
    }
    let (symbols, names) = (bytes(symbols_at, count * SYMBOL as u64)?, bytes(names_at, names)?);
    let kinds = bytes(kinds_at, count)?;
    // At the end of its initialisation a module gets another table, and the first one is freed
    // (kernel/module/main.c:do_init_module).
    if bytes(table_of, 8)? != kallsyms.to_ne_bytes() {
        return Err(strange("the module got another table"));
    }
    let (symbols, _) = symbols.as_chunks::<SYMBOL>();
    let listed: Option<Vec<_>> =
        symbols.iter().zip(&kinds).map(|(symbol, kind)| parse(symbol, *kind, &names)).collect();
    let listed = listed.ok_or_else(|| strange("a symbol's name is not in its table"))?;
    // As /proc/kallsyms does not list what has no name, which the first one always is.
    Ok(Symbols::of_module(listed.into_iter().filter(|(_, _, name)| !name.is_empty()), module))
}

/// Address, type and name.
fn parse<'a>(symbol: &[u8; SYMBOL], kind: u8, names: &'a [u8]) -> Option<(u64, u8, &'a [u8])> {
    let name = usize::try_from(u32::from_ne_bytes(*symbol.first_chunk()?)).ok()?;
    let address = u64::from_ne_bytes(*symbol[8..].first_chunk()?);
    let name = names.get(name..)?;
    Some((address, kind, &name[..memchr::memchr(0, name)?]))
}

/// Bytes that one run of the program reads.
const ROOM: usize = 64 << 10;

/// The program, and the array that it writes memory to, which is mapped: a lookup by bpf(2) would keep the probes of
/// other tracers from running on its CPU.
struct Reader {
    program: OwnedFd,
    answer: Mapping,
}

impl Reader {
    fn new(module: &str) -> io::Result<Self> {
        let value_size = u32::try_from(ROOM).map_err(io::Error::other)?;
        let attr = MapCreate {
            map_type: MAP_TYPE_ARRAY,
            key_size: 4,
            value_size,
            max_entries: 1,
            map_flags: BPF_F_MMAPABLE,
        };
        // SAFETY: the kernel reads only `attr`.
        let array = unsafe { bpf(MAP_CREATE, &attr) }?;
        let instructions = program(&array, module).ok_or(io::ErrorKind::InvalidInput)?;
        // The helpers of the program require a GPL-compatible licence.
        let load = ProgLoad::new(PROG_TYPE_SYSCALL, 0).sleepable();
        let program = load.load("module_symbols", &instructions, c"Dual MIT/GPL")?;
        Ok(Reader { program, answer: Mapping::new(array.as_fd(), 0, ROOM)? })
    }

    /// The address of the `struct module`.
    fn module(&mut self) -> io::Result<u64> {
        let mut context = [0; 2];
        bpf::run(&self.program, &mut context)?;
        match context {
            [0, 0] => Err(io::ErrorKind::NotFound.into()),
            [0, error] => {
                let error = i32::try_from(error.cast_signed().wrapping_neg());
                Err(error.map_or_else(io::Error::other, io::Error::from_raw_os_error))
            }
            [address, _] => Ok(address),
        }
    }

    fn read(&mut self, address: u64, out: &mut [u8]) -> io::Result<()> {
        for (part, address) in out.chunks_mut(ROOM).zip((address..).step_by(ROOM)) {
            let mut context = [address, part.len() as u64];
            bpf::run(&self.program, &mut context)?;
            let [_, failed] = context;
            if failed != 0 {
                return Err(strange("memory of the kernel cannot be read"));
            }
            // SAFETY: a part has at most as many bytes as the mapping, which lives as long as this, and which the program
            // writes only while it is run above.
            unsafe { ptr::copy_nonoverlapping(self.answer.start().as_ptr(), part.as_mut_ptr(), part.len()) };
        }
        Ok(())
    }
}

/// Context: an address and a length of memory to read into the answer; then the second word is 0, or an error. Where
/// the address is 0, it becomes that of the `struct module`, or stays 0 and the second word is why, a negative errno.
/// `None` if the name is too long.
fn program(answer: &OwnedFd, module: &str) -> Option<Vec<bpf_insn>> {
    const NAME: i16 = -64;
    const FOUND: i16 = NAME - 8;
    let symbol = format!("{module}:__this_module\0");
    let words: Vec<[u8; 8]> = symbol
        .as_bytes()
        .chunks(8)
        .map(|part| {
            let mut word = [0; 8];
            word.iter_mut().zip(part).for_each(|(to, from)| *to = *from);
            word
        })
        .collect();
    if symbol.len() > usize::from(NAME.unsigned_abs()) {
        return None;
    }
    let mut code = vec![asm::mov(6, 1), asm::load(3, 6, 0), asm::skip_unless(3, 0, 0)];
    let is_read = code.len() - 1;
    for (word, at) in words.into_iter().zip((NAME..).step_by(8)) {
        code.extend(asm::set_wide(1, u64::from_ne_bytes(word)));
        code.push(asm::store(10, at, 1));
    }
    code.extend([asm::set(3, 0), asm::store(10, FOUND, 3), asm::mov(4, 10), asm::add(4, i32::from(FOUND))]);
    code.extend([
        asm::mov(1, 10),
        asm::add(1, i32::from(NAME)),
        asm::set(2, i32::try_from(symbol.len()).ok()?),
    ]);
    code.extend([asm::call(KALLSYMS_LOOKUP_NAME), asm::store(6, 8, 0)]);
    code.extend([asm::load(1, 10, FOUND), asm::store(6, 0, 1)]);
    code.extend([asm::set(0, 0), asm::exit()]);
    code[is_read].off = i16::try_from(code.len() - is_read - 1).ok()?;
    code.extend([asm::load(2, 6, 8), asm::set(0, -1), asm::skip_above(2, i32::try_from(ROOM).ok()?, 3)]);
    code.extend(asm::set_map_value(1, answer.as_raw_fd()));
    code.extend([asm::call(PROBE_READ_KERNEL), asm::store(6, 8, 0), asm::set(0, 0), asm::exit()]);
    Some(code)
}

/// include/uapi/linux/bpf.h
const MAP_TYPE_ARRAY: u32 = 2;
const BPF_F_MMAPABLE: u32 = 1 << 10;
const PROG_TYPE_SYSCALL: u32 = 31;
const PROBE_READ_KERNEL: i32 = 113;
const KALLSYMS_LOOKUP_NAME: i32 = 179;

#[cfg(test)]
mod tests {
    use super::*;

    const LAYOUT: TableLayout = TableLayout { kallsyms: 16, symbols: 0, count: 8, names: 16, kinds: 24 };
    const MODULE: u64 = 0x1000;

    /// A module at [`MODULE`] whose first symbol has no name, `kfd_ioctl` and `kfd_processes_table`.
    fn memory() -> Vec<u8> {
        let names = b"\0kfd_ioctl\0kfd_processes_table\0";
        let symbol = |name: u32, address: u64| {
            let mut symbol = [0; SYMBOL];
            symbol[..4].copy_from_slice(&name.to_ne_bytes());
            symbol[8..16].copy_from_slice(&address.to_ne_bytes());
            symbol
        };
        let symbols = [symbol(0, 0), symbol(1, 0x70), symbol(11, 0x90)].concat();
        let kallsyms = MODULE + 24;
        let [symbols_at, names_at] = [kallsyms + 32, kallsyms + 32 + symbols.len() as u64];
        let kinds_at = names_at + names.len() as u64;
        let words = [0, 0, kallsyms, symbols_at, 3, names_at, kinds_at].map(u64::to_ne_bytes).concat();
        [&words[..], &symbols, names, b" tb"].concat()
    }

    fn read_of(memory: &[u8]) -> io::Result<Symbols> {
        table(LAYOUT, MODULE, "amdgpu", |address, out| {
            let at = address.checked_sub(MODULE).and_then(|at| usize::try_from(at).ok());
            let bytes = at.and_then(|at| memory.get(at..)?.get(..out.len()));
            out.copy_from_slice(bytes.ok_or(io::ErrorKind::InvalidInput)?);
            Ok(())
        })
    }

    #[test]
    fn the_table_of_a_module_is_read() {
        let symbols = read_of(&memory()).unwrap();
        let found = symbols.find("kfd_ioctl");
        assert_eq!(
            found.iter().map(|symbol| (symbol.address, symbol.kind)).collect::<Vec<_>>(),
            [(0x70, 't')]
        );
        assert_eq!(found[0].module, Some("amdgpu"));
        assert_eq!(symbols.find("kfd_processes_table")[0].address, 0x90);
        assert_eq!(symbols.malformed_lines(), 0, "the one without a name is left out");
    }

    #[test]
    fn what_is_no_table_is_refused() {
        let refused = |at: usize, value: u64| {
            let mut memory = memory();
            memory[at..at + 8].copy_from_slice(&value.to_ne_bytes());
            read_of(&memory).err().unwrap().to_string()
        };
        assert!(refused(24 + 24, 0).contains("have no end"), "the types are not behind the names");
        assert!(refused(24 + 8, u64::from(u32::MAX)).contains("too many"));
        assert!(refused(24 + 32 + SYMBOL, 1000).contains("not in its table"));
        refused(16, 0);
        refused(24, 1 << 40);
    }

    #[test]
    fn no_memory_makes_it_panic() {
        let whole = memory();
        for length in 0..whole.len() {
            let _ = read_of(&whole[..length]);
        }
        for at in 0..whole.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut memory = whole.clone();
                memory[at] = value;
                let _ = read_of(&memory);
            }
        }
    }

    #[test]
    fn a_table_that_was_replaced_meanwhile_is_refused() {
        let (memory, mut reads) = (memory(), 0);
        let of = |reads: u64| {
            let mut memory = memory.clone();
            memory[16] ^= u8::from(reads > 8);
            memory
        };
        let read = table(LAYOUT, MODULE, "amdgpu", |address, out| {
            reads += 1;
            let at = usize::try_from(address - MODULE).map_err(io::Error::other)?;
            out.copy_from_slice(&of(reads)[at..at + out.len()]);
            Ok(())
        });
        assert_eq!(reads, 9, "the last one is that of the table again");
        assert!(read.is_err_and(|why| why.to_string().contains("another table")));
    }

    #[test]
    fn a_long_name_is_not_looked_up() {
        let file = OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        assert!(program(&file, "amdgpu").is_some());
        assert!(program(&file, &"x".repeat(64)).is_none());
    }
}
