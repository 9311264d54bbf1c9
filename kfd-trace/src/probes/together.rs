//! One link for the programs of several rows (Linux 5.18 and later): a program on all of their functions, which calls that of the
//! row that a function belongs to. A link costs the kernel a walk over all functions that ftrace knows, at its beginning and at its
//! end, whatever it is on: for who only tries, that is most of a start.
//!
//! Takes in rows with addresses of functions; gives out their programs and what holds them.

use super::multi::{self, Programs, bpf};
use super::table::ProbeKind;
use aya_obj::generated::bpf_insn;
use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// A row by its program, and where it goes.
pub(super) struct Wanted {
    pub(super) program: &'static str,
    pub(super) kind: ProbeKind,
    pub(super) addresses: Vec<u64>,
}

/// Rows on one link. Closing it detaches all of them.
pub(super) struct Together {
    rows: Vec<(Wanted, OwnedFd)>,
    jump: OwnedFd,
    _table: OwnedFd,
    _link: OwnedFd,
}

impl Together {
    /// Loads the program of each row, and attaches all. A row whose program is refused is left out, and so is one with a function
    /// of another.
    ///
    /// # Errors
    /// When the kernel refuses the link, or all that it is made of.
    pub(super) fn attach(programs: &Programs, kind: ProbeKind, rows: Vec<Wanted>) -> io::Result<Self> {
        let mut taken = BTreeSet::new();
        let apart = |row: &Wanted| row.addresses.iter().all(|address| taken.insert(*address));
        let rows = rows.into_iter().filter(|row| row.kind == kind).filter(apart);
        let rows: Vec<_> =
            rows.filter_map(|row| programs.load(row.program).ok().map(|fd| (row, fd))).collect();
        let table = table(&rows)?;
        let jump = programs.load_as("together", &jump(&table))?;
        let (addresses, cookies) = places(rows.iter().map(|(row, _)| row));
        let _link = multi::link(&jump, kind, &addresses, &cookies)?;
        Ok(Together { rows, jump, _table: table, _link })
    }

    /// A row that this link holds on these functions.
    pub(super) fn has(&self, program: &str, addresses: &[u64]) -> bool {
        self.rows.iter().any(|(row, _)| row.program == program && row.addresses == addresses)
    }

    /// The programs that run where a row's functions are called; none, if this link does not hold it.
    pub(super) fn programs<'a>(&'a self, program: &'a str) -> impl Iterator<Item = &'a OwnedFd> {
        let own = self.rows.iter().filter(move |(row, _)| row.program == program);
        own.flat_map(|(_, fd)| [fd, &self.jump])
    }
}

/// Each function, and one more than the number of the row it belongs to: 0 is what the kernel gives for a function that it does not
/// find again.
fn places<'a>(rows: impl Iterator<Item = &'a Wanted>) -> (Vec<u64>, Vec<u64>) {
    let of_row = |(number, row): (u64, &'a Wanted)| row.addresses.iter().map(move |at| (*at, number));
    (1..).zip(rows).flat_map(of_row).unzip()
}

/// The programs by the number of their row.
fn table(rows: &[(Wanted, OwnedFd)]) -> io::Result<OwnedFd> {
    let count = u32::try_from(rows.len()).map_err(io::Error::other)?;
    let attr = MapCreate { map_type: MAP_TYPE_PROG_ARRAY, key_size: 4, value_size: 4, max_entries: count };
    // SAFETY: the kernel reads `attr` alone.
    let table = unsafe { bpf(MAP_CREATE, &attr) }?;
    for (number, (_, program)) in (0u32..).zip(rows) {
        let fd = program.as_raw_fd();
        let attr = MapUpdate {
            map_fd: table.as_raw_fd().cast_unsigned(),
            pad: 0,
            key: (&raw const number).expose_provenance() as u64,
            value: (&raw const fd).expose_provenance() as u64,
            flags: 0,
        };
        // SAFETY: the kernel reads `attr`, and a key and a value of four bytes, which live until it is back.
        let result =
            unsafe { libc::syscall(libc::SYS_bpf, MAP_UPDATE_ELEM, &raw const attr, size_of::<MapUpdate>()) };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(table)
}

/// Goes on with the program of the row whose function was called.
fn jump(table: &OwnedFd) -> [bpf_insn; 10] {
    [
        insn(MOV, 6, 1, 0),
        insn(CALL, 0, 0, GET_ATTACH_COOKIE),
        insn(MOV, 3, 0, 0),
        // Of what has no row this makes a number beyond all.
        insn(ADD_CONSTANT, 3, 0, -1),
        insn(MOV, 1, 6, 0),
        insn(LOAD_WIDE, 2, MAP_FD, table.as_raw_fd()),
        insn(0, 0, 0, 0),
        insn(CALL, 0, 0, TAIL_CALL),
        insn(MOV_CONSTANT, 0, 0, 0),
        insn(EXIT, 0, 0, 0),
    ]
}

fn insn(code: u8, to: u8, from: u8, imm: i32) -> bpf_insn {
    bpf_insn { code, _bitfield_align_1: [], _bitfield_1: bpf_insn::new_bitfield_1(to, from), off: 0, imm }
}

/// include/uapi/linux/bpf.h, include/uapi/linux/bpf_common.h
const MAP_CREATE: libc::c_long = 0;
const MAP_UPDATE_ELEM: libc::c_long = 2;
const MAP_TYPE_PROG_ARRAY: u32 = 3;
const MOV: u8 = 0xbf;
const MOV_CONSTANT: u8 = 0xb7;
const ADD_CONSTANT: u8 = 0x07;
const LOAD_WIDE: u8 = 0x18;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;
const MAP_FD: u8 = 1;
const TAIL_CALL: i32 = 12;
const GET_ATTACH_COOKIE: i32 = 174;

/// `union bpf_attr`, as far as BPF_MAP_CREATE reads it here.
#[repr(C)]
struct MapCreate {
    map_type: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
}

/// The same for BPF_MAP_UPDATE_ELEM.
#[repr(C)]
struct MapUpdate {
    map_fd: u32,
    pad: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_lead_to_their_rows() {
        let row = |addresses: &[u64]| Wanted {
            program: "ioctl",
            kind: ProbeKind::Kprobe,
            addresses: addresses.to_vec(),
        };
        let rows = [row(&[8, 3]), row(&[5])];
        assert_eq!(places(rows.iter()), (vec![8, 3, 5], vec![1, 1, 2]));
    }

    #[test]
    fn an_instruction_is_laid_out_as_the_kernel_reads_it() {
        // SAFETY: eight bytes without padding.
        let bytes: [u8; 8] = unsafe { std::mem::transmute(insn(LOAD_WIDE, 2, MAP_FD, 7)) };
        assert_eq!(bytes, [0x18, 0x12, 0, 0, 7, 0, 0, 0]);
        assert_eq!(size_of::<MapUpdate>(), 32);
    }
}
