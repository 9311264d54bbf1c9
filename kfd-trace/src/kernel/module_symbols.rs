//! The symbols of one module, from the kernel's symbol iterator (`ksym`, Linux 6.0 and later). Formatting the
//! text of /proc/kallsyms takes the kernel longer than everything else in reading it; here a program of a few
//! instructions skips the symbols of other modules.
//!
//! In: the kernel's types. Out: symbols in the order of /proc/kallsyms.

use super::bpf::{ITER_CREATE, LINK_CREATE, ProgLoad, asm, bpf};
use super::btf::Btf;
use super::symbols::Symbols;
use aya_obj::generated::bpf_insn;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsRawFd as _, OwnedFd};

/// Bytes that the program writes per symbol: address, type and name.
const RECORD: usize = 256;
const KIND: usize = 8;
const NAME: usize = 16;

/// Field offsets in `struct kallsym_iter` (kernel/kallsyms.c), and the type of the iterator's programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IterLayout {
    program: u32,
    value: i16,
    kind: i16,
    name: i16,
    module: i16,
    /// Whether this process may see addresses.
    show: i16,
}

impl IterLayout {
    /// `None` if the kernel has no such iterator.
    pub(crate) fn find(vmlinux: &Btf) -> Option<Self> {
        let member = |path| i16::try_from(vmlinux.offset_of("kallsym_iter", path).ok()?.offset).ok();
        Some(IterLayout {
            program: vmlinux.function("bpf_iter_ksym")?,
            value: member("value")?,
            kind: member("type")?,
            name: member("name")?,
            module: member("module_name")?,
            show: member("show_value")?,
        })
    }
}

/// Reads the symbols of a module.
///
/// # Errors
/// When the kernel refuses it: then read /proc/kallsyms.
pub(crate) fn read(layout: IterLayout, module: &str) -> io::Result<Symbols> {
    let instructions = program(layout, module).ok_or(io::ErrorKind::InvalidInput)?;
    let load = ProgLoad::new(PROG_TYPE_TRACING, TRACE_ITER, Some(layout.program));
    // The helpers of the program require a GPL-compatible licence.
    let program = load.load("module_symbols", &instructions, c"Dual MIT/GPL")?;
    let attr = IterLinkCreate {
        prog_fd: program.as_raw_fd().cast_unsigned(),
        target_fd: 0,
        attach_type: TRACE_ITER,
        flags: 0,
    };
    // SAFETY: the kernel reads only `attr`.
    let link = unsafe { bpf(LINK_CREATE, &attr) }?;
    let attr = IterCreate { link_fd: link.as_raw_fd().cast_unsigned(), flags: 0 };
    // SAFETY: as above.
    let iterator: OwnedFd = unsafe { bpf(ITER_CREATE, &attr) }?;
    let mut records = Vec::new();
    File::from(iterator).read_to_end(&mut records)?;
    Ok(Symbols::of_module(records.as_chunks().0.iter().filter_map(parse), module))
}

/// Address, type and name.
fn parse(record: &[u8; RECORD]) -> Option<(u64, u8, &[u8])> {
    let address = u64::from_ne_bytes(*record.first_chunk()?);
    let name = &record[NAME..];
    Some((address, record[KIND], &name[..memchr::memchr(0, name)?]))
}

/// Writes a record for each symbol of the module. `None` for a module whose name is longer than the compared
/// word.
fn program(layout: IterLayout, module: &str) -> Option<Vec<bpf_insn>> {
    let (mut wanted, mut mask) = ([0; 8], [0; 8]);
    wanted.get_mut(..module.len())?.copy_from_slice(module.as_bytes());
    // Including the terminating 0.
    mask.get_mut(..=module.len())?.fill(0xff);
    let [wanted, mask] = [wanted, mask].map(u64::from_ne_bytes);
    let record = -i32::try_from(RECORD).ok()?;
    let at = |offset: usize| i16::try_from(i32::try_from(offset).ok()? + record).ok();
    let stack = |to, offset: usize| Some([asm::mov(to, 10), asm::add(to, i32::from(at(offset)?))]);
    let mut code = Vec::new();
    // struct bpf_iter__ksym { struct bpf_iter_meta *meta; struct kallsym_iter *ksym; }; the last run has no
    // symbol.
    code.extend([asm::load(6, 1, 8), asm::load(7, 1, 0), asm::skip_if_zero(6, 0)]);
    let no_symbol = code.len() - 1;
    // Most symbols belong to no module, and reading a byte is cheaper than reading a word of bytes.
    code.extend([
        asm::load_byte(1, 6, layout.module),
        asm::skip_unless(1, i32::from(*module.as_bytes().first()?), 0),
    ]);
    let other_beginning = code.len() - 1;
    // struct bpf_iter_meta { struct seq_file *seq; ... }
    code.push(asm::load(7, 7, 0));
    code.extend(stack(1, NAME)?);
    code.extend([
        asm::set(2, 8),
        asm::mov(3, 6),
        asm::add(3, i32::from(layout.module)),
        asm::call(PROBE_READ_KERNEL),
    ]);
    code.push(asm::load(1, 10, at(NAME)?));
    code.extend(asm::set_wide(2, mask));
    code.push(asm::and(1, 2));
    code.extend(asm::set_wide(2, wanted));
    code.push(asm::skip_unless_same(1, 2, 0));
    let other = code.len() - 1;
    code.extend(stack(1, NAME)?);
    let room = i32::try_from(RECORD - NAME).ok()?;
    code.extend([
        asm::set(2, room),
        asm::mov(3, 6),
        asm::add(3, i32::from(layout.name)),
        asm::call(PROBE_READ_KERNEL_STR),
    ]);
    code.extend([asm::load_byte(1, 6, layout.kind), asm::store(10, at(KIND)?, 1)]);
    code.extend([asm::load_half(1, 6, layout.show), asm::skip_if_zero(1, 1), asm::load(1, 6, layout.value)]);
    code.push(asm::store(10, at(0)?, 1));
    code.push(asm::mov(1, 7));
    code.extend(stack(2, 0)?);
    code.extend([asm::set(3, -record), asm::call(SEQ_WRITE)]);
    let end = code.len();
    code.extend([asm::set(0, 0), asm::exit()]);
    for from in [no_symbol, other_beginning, other] {
        code[from].off = i16::try_from(end - from - 1).ok()?;
    }
    Some(code)
}

/// include/uapi/linux/bpf.h
const PROG_TYPE_TRACING: u32 = 26;
const TRACE_ITER: u32 = 28;
const PROBE_READ_KERNEL: i32 = 113;
const PROBE_READ_KERNEL_STR: i32 = 115;
const SEQ_WRITE: i32 = 127;

/// `union bpf_attr`, as far as used here for BPF_LINK_CREATE.
#[repr(C)]
struct IterLinkCreate {
    prog_fd: u32,
    target_fd: u32,
    attach_type: u32,
    flags: u32,
}

/// As above, for BPF_ITER_CREATE.
#[repr(C)]
struct IterCreate {
    link_fd: u32,
    flags: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_a_symbol() {
        let mut record = [0xff; RECORD];
        record[..8].copy_from_slice(&7u64.to_ne_bytes());
        record[KIND] = b't';
        record[NAME..NAME + 4].copy_from_slice(b"abc\0");
        assert_eq!(parse(&record), Some((7, b't', &b"abc"[..])));
        assert_eq!(parse(&[0xff; RECORD]), None, "without an end");
    }

    #[test]
    fn only_short_names_are_compared() {
        let layout = IterLayout { program: 1, value: 0, kind: 8, name: 9, module: 600, show: 700 };
        assert!(program(layout, "amdgpu").is_some());
        assert!(program(layout, "amdgpu_x").is_none());
    }
}
