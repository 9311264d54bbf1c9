//! One link for the programs of several rows (Linux 5.18 and later): a program on all of their functions,
//! which calls the program of the row that a function belongs to. A link costs the kernel a walk over all
//! functions that ftrace knows when it is attached and when it is closed, whatever it is attached to: for a
//! trial run, that is most of the startup time.
//!
//! In: rows with addresses of functions. Out: their programs and the handles that keep them attached.

use super::multi::{self, LinkKind, Programs};
use super::table::ProbeKind;
use crate::kernel::bpf::{self, MAP_CREATE, MapCreate, asm, bpf};
use aya_obj::generated::bpf_insn;
use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// A row by its program, and the addresses to attach to.
pub(super) struct ToAttach {
    pub(super) program: &'static str,
    pub(super) kind: ProbeKind,
    pub(super) addresses: Vec<u64>,
}

/// Rows on one link. Closing it detaches all of them.
pub(super) struct Together {
    rows: Vec<(ToAttach, OwnedFd)>,
    jump: OwnedFd,
    is_session: bool,
    _table: OwnedFd,
    _link: OwnedFd,
}

impl Together {
    /// Loads the program of each row, and attaches all. A row whose program is refused is left out, and so is
    /// a row with a function of another row.
    ///
    /// # Errors
    /// If the kernel refuses the link, or everything that it consists of.
    pub(super) fn attach(programs: &Programs, kind: ProbeKind, rows: Vec<ToAttach>) -> io::Result<Self> {
        let mut taken = BTreeSet::new();
        let apart = |row: &ToAttach| row.addresses.iter().all(|address| taken.insert(*address));
        let rows = rows.into_iter().filter(|row| row.kind == kind).filter(apart);
        let kind = LinkKind::of(kind);
        let rows: Vec<_> =
            rows.filter_map(|row| programs.load(row.program, kind).ok().map(|fd| (row, fd))).collect();
        let table = table(&rows)?;
        let jump = programs.load_as("together", &jump(&table, to_the_row()), kind)?;
        let (addresses, cookies) = places(rows.iter().map(|(row, _)| row));
        let _link = multi::link(&jump, kind, &addresses, &cookies)?;
        Ok(Together { rows, jump, is_session: false, _table: table, _link })
    }

    /// One link for the entry and the return of a function, which is listed so many times. `is_return`: the number of
    /// `bpf_session_is_return` in the kernel's types.
    ///
    /// # Errors
    /// If the kernel refuses the link, or one of the programs.
    pub(super) fn session(
        programs: &Programs,
        is_return: u32,
        [entry, exit]: [ToAttach; 2],
        times: usize,
    ) -> io::Result<Self> {
        let load = |row: ToAttach| {
            let program = programs.load(row.program, LinkKind::Sessions)?;
            io::Result::Ok((row, program))
        };
        let rows = vec![load(entry)?, load(exit)?];
        let table = table(&rows)?;
        let is_return = i32::try_from(is_return).map_err(io::Error::other)?;
        let jump =
            programs.load_as("session", &jump(&table, to_the_return(is_return)), LinkKind::Sessions)?;
        let _link = multi::link_listed(&jump, LinkKind::Sessions, &rows[0].0.addresses, times)?;
        Ok(Together { rows, jump, is_session: true, _table: table, _link })
    }

    /// It holds the entry and the return of one function.
    pub(super) fn is_session(&self) -> bool {
        self.is_session
    }

    /// This link has the row attached to these functions.
    pub(super) fn has(&self, program: &str, addresses: &[u64]) -> bool {
        self.rows.iter().any(|(row, _)| row.program == program && row.addresses == addresses)
    }

    /// The programs that run when a row's functions are called; none if this link does not have the row.
    pub(super) fn programs<'a>(&'a self, program: &'a str) -> impl Iterator<Item = &'a OwnedFd> {
        let own = self.rows.iter().filter(move |(row, _)| row.program == program);
        own.flat_map(|(_, fd)| [fd, &self.jump])
    }
}

/// Each function, with the number of its row plus one: 0 is what the kernel returns for a function that it
/// does not find again.
fn places<'a>(rows: impl Iterator<Item = &'a ToAttach>) -> (Vec<u64>, Vec<u64>) {
    let of_row = |(number, row): (u64, &'a ToAttach)| row.addresses.iter().map(move |at| (*at, number));
    (1..).zip(rows).flat_map(of_row).unzip()
}

/// The programs by row number.
fn table(rows: &[(ToAttach, OwnedFd)]) -> io::Result<OwnedFd> {
    let count = u32::try_from(rows.len()).map_err(io::Error::other)?;
    let attr = MapCreate {
        map_type: MAP_TYPE_PROG_ARRAY,
        key_size: 4,
        value_size: 4,
        max_entries: count,
        map_flags: 0,
    };
    // SAFETY: the kernel reads only `attr`.
    let table = unsafe { bpf(MAP_CREATE, &attr) }?;
    for (number, (_, program)) in (0..).zip(rows) {
        bpf::set(&table, number, program.as_raw_fd())?;
    }
    Ok(table)
}

/// Jumps to a program of the table: `asked` is the call that tells which, `made` makes its result in register 3 the number.
fn jump(table: &OwnedFd, [asked, made]: [bpf_insn; 2]) -> [bpf_insn; 10] {
    let [map, rest] = asm::set_map(2, table.as_raw_fd());
    [
        asm::mov(6, 1),
        asked,
        asm::mov(3, 0),
        made,
        asm::mov(1, 6),
        map,
        rest,
        asm::call(TAIL_CALL),
        asm::set(0, 0),
        asm::exit(),
    ]
}

/// Selects the row whose function was called: its cookie is one more. A function without a row becomes an index beyond the table.
fn to_the_row() -> [bpf_insn; 2] {
    [asm::call(GET_ATTACH_COOKIE), asm::add(3, -1)]
}

/// Selects the first program at the entry of a function, the second one at its return: a `bool`, which is one byte of the
/// register. Up to 6.19 the kernel's function takes no parameter, later the context (kernel/trace/bpf_trace.c).
fn to_the_return(is_return: i32) -> [bpf_insn; 2] {
    [asm::call_kernel(is_return), asm::and(3, 1)]
}

/// include/uapi/linux/bpf.h
const MAP_TYPE_PROG_ARRAY: u32 = 3;
const TAIL_CALL: i32 = 12;
const GET_ATTACH_COOKIE: i32 = 174;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_lead_to_their_rows() {
        let row = |addresses: &[u64]| ToAttach {
            program: "ioctl",
            kind: ProbeKind::Kprobe,
            addresses: addresses.to_vec(),
        };
        let rows = [row(&[8, 3]), row(&[5])];
        assert_eq!(places(rows.iter()), (vec![8, 3, 5], vec![1, 1, 2]));
    }
}
