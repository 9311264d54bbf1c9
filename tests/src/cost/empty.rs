//! Probes whose programs do nothing, or next to nothing: the kernel's cost for a probe, independent of its program, and
//! of what every program that counts a latency asks the kernel for. The object is built here, of a few instructions, so
//! that none of it can get into the product.

use super::sites::Site;
use anyhow::{Context, Result};
use aya::EbpfLoader;
use aya::programs::KProbe;
use object::write::{Object, Symbol, SymbolSection};
use object::{Architecture, BinaryFormat, Endianness, SectionKind, SymbolFlags, SymbolKind, SymbolScope};

const ENTRY: &str = "entry";
const RETURN: &str = "return";

/// What each of the programs does.
#[derive(Clone, Copy, Debug)]
pub(super) enum Does {
    Nothing,
    /// Asks for the running thread and the time.
    Clock,
}

impl Does {
    /// Instructions of include/uapi/linux/bpf.h: BPF_JMP | BPF_CALL of a helper (`BPF_FUNC_get_current_pid_tgid`,
    /// `BPF_FUNC_ktime_get_ns`), then BPF_ALU64 | BPF_MOV | BPF_K of 0 to r0, BPF_JMP | BPF_EXIT.
    fn program(self) -> Vec<u8> {
        let call = |helper: u8| [0x85, 0, 0, 0, helper, 0, 0, 0];
        let calls: &[[u8; 8]] = match self {
            Does::Nothing => &[],
            Does::Clock => &[call(14), call(5)],
        };
        [calls, &[[0xb7, 0, 0, 0, 0, 0, 0, 0], [0x95, 0, 0, 0, 0, 0, 0, 0]]].concat().concat()
    }
}

/// An ELF object with one program for kprobes and one for kretprobes.
fn object(does: Does) -> Result<Vec<u8>> {
    let code = does.program();
    let mut object = Object::new(BinaryFormat::Elf, Architecture::Bpf, Endianness::Little);
    for (section, name) in [("kprobe", ENTRY), ("kretprobe", RETURN)] {
        let section = object.add_section(Vec::new(), section.into(), SectionKind::Text);
        object.append_section_data(section, &code, 8);
        object.add_symbol(Symbol {
            name: name.into(),
            value: 0,
            size: code.len() as u64,
            kind: SymbolKind::Text,
            scope: SymbolScope::Dynamic,
            weak: false,
            section: SymbolSection::Section(section),
            flags: SymbolFlags::None,
        });
    }
    object.write().context("write the object of empty programs")
}

/// Probes that stay attached until this is dropped.
#[derive(Debug)]
pub(super) struct Empty {
    _ebpf: aya::Ebpf,
}

impl Empty {
    /// At each of these addresses.
    pub(super) fn at(sites: &[Site], does: Does) -> Result<Self> {
        // an empty name makes the kernel take the offset as the address (perf_kprobe_init)
        Self::on(sites.iter().map(|site| (site.is_return, "", site.address)), does)
    }

    /// On the entry or the return of functions of unique names.
    pub(super) fn named(functions: &[&str], entry: bool, on_return: bool) -> Result<Self> {
        let places = functions.iter().flat_map(|function| [(false, *function, 0), (true, *function, 0)]);
        let wanted = places.filter(|(is_return, ..)| if *is_return { on_return } else { entry });
        Self::on(wanted, Does::Nothing)
    }

    fn on<'a>(places: impl Iterator<Item = (bool, &'a str, u64)>, does: Does) -> Result<Self> {
        let mut ebpf = EbpfLoader::new().btf(None).load(&object(does)?).context("load the empty programs")?;
        for name in [ENTRY, RETURN] {
            program(&mut ebpf, name)?.load().with_context(|| format!("load the empty program {name}"))?;
        }
        for (is_return, function, offset) in places {
            let probe = program(&mut ebpf, if is_return { RETURN } else { ENTRY })?;
            let attached = probe.attach(function, offset);
            attached.with_context(|| format!("an empty probe on `{function}` {offset:#x}"))?;
        }
        Ok(Self { _ebpf: ebpf })
    }
}

fn program<'a>(ebpf: &'a mut aya::Ebpf, name: &str) -> Result<&'a mut KProbe> {
    let program = ebpf.program_mut(name).with_context(|| format!("no program {name}"))?;
    program.try_into().with_context(|| format!("{name} is no kprobe"))
}
