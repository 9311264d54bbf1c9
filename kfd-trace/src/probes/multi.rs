//! Programs on many functions by one link (kprobe.multi and kretprobe.multi, Linux 5.18 and later), by bpf(2)
//! directly: the library that loads the other programs does not support them.
//!
//! In: the object whose maps exist already, and addresses of functions. Out: a program with its link.
//! Attaching all functions of a link costs the kernel hardly more than a single kprobe: ftrace goes through
//! all of its records for each. A link prevents unloading the driver, which a kprobe does not, and it is
//! refused as a whole.

use super::error::chain;
use super::load::OBJECT;
use super::table::ProbeKind;
use crate::kernel::bpf::{LINK_CREATE, ProgLoad, bpf};
use aya::Ebpf;
use aya::maps::{Map, MapData};
use aya_obj::Object;
use aya_obj::generated::bpf_insn;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

/// Programs that are ready to be loaded.
pub(super) struct Programs(Object);

/// When a link runs its program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LinkKind {
    Entries,
    Returns,
    /// At both (Linux 6.10 and later): every entry that was seen has its return.
    Sessions,
}

impl LinkKind {
    /// Links of a row's probes.
    pub(super) fn of(kind: ProbeKind) -> Self {
        if kind == ProbeKind::Kretprobe { LinkKind::Returns } else { LinkKind::Entries }
    }

    fn attach_type(self) -> u32 {
        match self {
            LinkKind::Entries | LinkKind::Returns => TRACE_KPROBE_MULTI,
            LinkKind::Sessions => TRACE_KPROBE_SESSION,
        }
    }
}

/// A loaded program and the link that attaches it to its functions. Closing the link detaches all of them.
pub(super) struct Attached {
    pub(super) program: OwnedFd,
    _link: OwnedFd,
}

impl Programs {
    /// The programs of the object, with the maps that are in use.
    ///
    /// # Errors
    /// One line with the mismatch.
    pub(super) fn new(ebpf: &Ebpf) -> Result<Self, String> {
        let mut object = Object::parse(OBJECT).map_err(|error| chain(&error))?;
        let maps = std::mem::take(&mut object.maps);
        let used = maps.iter().map(|(name, map)| {
            let data = ebpf.map(name).and_then(data).ok_or_else(|| format!("no map {name}"))?;
            Ok((name.as_str(), data.fd().as_fd().as_raw_fd(), map))
        });
        let used: Vec<(&str, RawFd, &aya_obj::Map)> = used.collect::<Result<_, String>>()?;
        let text = object.functions.keys().map(|(section, _)| *section).collect();
        object.relocate_maps(used.into_iter(), &text).map_err(|error| chain(&error))?;
        object.relocate_calls(&text).map_err(|error| chain(&error))?;
        Ok(Programs(object))
    }

    /// Loads one program and attaches it to all of these functions, each listed so many times.
    ///
    /// # Errors
    /// If the kernel refuses either: it has no such links, or ftrace does not have one of the addresses.
    pub(super) fn attach(
        &self,
        program: &str,
        kind: ProbeKind,
        addresses: &[u64],
        times: usize,
    ) -> io::Result<Attached> {
        let kind = LinkKind::of(kind);
        let program = self.load(program, kind)?;
        let _link = link_listed(&program, kind, addresses, times)?;
        Ok(Attached { program, _link })
    }

    /// Loads one program for such links.
    ///
    /// # Errors
    /// If the kernel refuses it.
    pub(super) fn load(&self, name: &str, link: LinkKind) -> io::Result<OwnedFd> {
        let Object { programs, functions, .. } = &self.0;
        let function = programs.get(name).and_then(|program| functions.get(&program.function_key()));
        self.load_as(name, &function.ok_or(io::ErrorKind::NotFound)?.instructions, link)
    }

    /// The same for instructions that are not the object's.
    ///
    /// # Errors
    /// If the kernel refuses them.
    pub(super) fn load_as(
        &self,
        name: &str,
        instructions: &[bpf_insn],
        link: LinkKind,
    ) -> io::Result<OwnedFd> {
        let load = ProgLoad::new(PROG_TYPE_KPROBE, link.attach_type());
        load.load(name, instructions, &self.0.license)
    }
}

/// Bytes of the instruction with which functions begin on kernels with CET (`ENDBR_INSN_SIZE`, arch/x86): the place
/// that ftrace knows follows it.
const ENDBR: u64 = if cfg!(target_arch = "x86_64") { 4 } else { 0 };

/// Each address once, and `times - 1` times the place `behind` it. For an address that is not ftrace's place, the
/// kernel goes through all symbols of the module (kernel/trace/ftrace.c:ftrace_location).
fn listed(addresses: &[u64], times: usize, behind: u64) -> Vec<u64> {
    let again = addresses.iter().map(|address| address.wrapping_add(behind)).collect::<Vec<_>>();
    [addresses, &again.repeat(times.saturating_sub(1))].concat()
}

/// Attaches a program to all of these functions, each listed so many times: the kernel's room for calls under way grows with
/// the list.
///
/// # Errors
/// If the kernel refuses it.
pub(super) fn link_listed(
    program: &OwnedFd,
    kind: LinkKind,
    addresses: &[u64],
    times: usize,
) -> io::Result<OwnedFd> {
    let linked = |listed: &[u64]| link(program, kind, listed, &[]);
    match linked(&listed(addresses, times, ENDBR)) {
        Err(error) if times > 1 && error.raw_os_error() == Some(libc::EINVAL) => {
            linked(&listed(addresses, times, 0))
        }
        link => link,
    }
}

/// Attaches a program to all of these functions. `cookies`: the value that the program gets at each function;
/// none, or one per function.
///
/// # Errors
/// If the kernel refuses it.
pub(super) fn link(
    program: &OwnedFd,
    kind: LinkKind,
    addresses: &[u64],
    cookies: &[u64],
) -> io::Result<OwnedFd> {
    debug_assert!(cookies.is_empty() || cookies.len() == addresses.len(), "one a function");
    let attr = MultiLinkCreate {
        prog_fd: program.as_raw_fd().cast_unsigned(),
        attach_type: kind.attach_type(),
        multi_flags: if kind == LinkKind::Returns { MULTI_RETURN } else { 0 },
        cnt: u32::try_from(addresses.len()).map_err(io::Error::other)?,
        addrs: addresses.as_ptr().expose_provenance() as u64,
        cookies: if cookies.is_empty() { 0 } else { cookies.as_ptr().expose_provenance() as u64 },
        ..MultiLinkCreate::default()
    };
    // SAFETY: the kernel reads `attr` and the number of addresses and cookies given there, which live until
    // it returns.
    unsafe { bpf(LINK_CREATE, &attr) }
}

/// include/uapi/linux/bpf.h
const PROG_TYPE_KPROBE: u32 = 2;
const TRACE_KPROBE_MULTI: u32 = 42;
const TRACE_KPROBE_SESSION: u32 = 56;
const MULTI_RETURN: u32 = 1;

/// `union bpf_attr`, as far as BPF_LINK_CREATE reads it for a link on many functions.
#[repr(C)]
#[derive(Default)]
struct MultiLinkCreate {
    prog_fd: u32,
    target_fd: u32,
    attach_type: u32,
    flags: u32,
    multi_flags: u32,
    cnt: u32,
    syms: u64,
    addrs: u64,
    cookies: u64,
}

/// The kinds of maps that the object has.
fn data(map: &Map) -> Option<&MapData> {
    match map {
        Map::Array(data)
        | Map::HashMap(data)
        | Map::LruHashMap(data)
        | Map::PerCpuArray(data)
        | Map::PerCpuHashMap(data)
        | Map::PerfEventArray(data)
        | Map::RingBuf(data) => Some(data),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    #[test]
    fn functions_are_listed_again_by_their_place_in_ftrace() {
        assert_eq!(listed(&[16, 32], 1, 4), [16, 32]);
        assert_eq!(listed(&[16, 32], 3, 4), [16, 32, 20, 36, 20, 36]);
        assert_eq!(listed(&[16, 32], 2, 0), [16, 32, 16, 32]);
    }

    #[test]
    fn the_attribute_is_laid_out_as_the_kernel_reads_it() {
        assert_eq!((offset_of!(MultiLinkCreate, multi_flags), offset_of!(MultiLinkCreate, addrs)), (16, 32));
        assert_eq!(size_of::<MultiLinkCreate>(), 48);
    }
}
