//! The program's own code and constants in memory.
//!
//! In: its headers, as the C library has them. Out: advice to the kernel about the segments that are never written to.

use rustix::mm::{Advice, madvise};
use std::ffi::{c_int, c_void};
use std::slice;

/// Addresses of one segment: start and length.
type Segment = (usize, usize);

/// Takes what was used so far out of this process's memory: what runs again is mapped again from the page cache, what only
/// the start needed is not. A fault maps 16 pages (`fault_around_bytes`, mm/memory.c), so that a start has most of the
/// program resident.
///
/// An error leaves it as it was.
pub(crate) fn let_go() {
    for (start, length) in constant_segments() {
        // SAFETY: the segment is mapped for as long as the process lives. Nothing can be written to it, so that the file
        // has what is mapped again.
        let _ = unsafe { madvise(start as *mut c_void, length, Advice::LinuxDontNeed) };
    }
}

/// The loaded segments of the program that are never written to, in whole pages. Relocations change others alone: none has
/// any in its code.
fn constant_segments() -> Vec<Segment> {
    let mut segments = Vec::new();
    // SAFETY: `first` gets this vector, and nothing else uses it meanwhile.
    unsafe { libc::dl_iterate_phdr(Some(first), (&raw mut segments).cast()) };
    segments
}

/// For the first object, which is the program (dl_iterate_phdr(3)).
///
/// # Safety
/// `info` is what dl_iterate_phdr passes, and `segments` is a `Vec<Segment>` that nothing else uses.
unsafe extern "C" fn first(info: *mut libc::dl_phdr_info, _size: usize, segments: *mut c_void) -> c_int {
    // SAFETY: the C library passes one that is valid during the call.
    let info = unsafe { &*info };
    // SAFETY: as of this function.
    let segments = unsafe { &mut *segments.cast::<Vec<Segment>>() };
    // SAFETY: the C library has the program's headers there.
    let headers = unsafe { slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
    let page = rustix::param::page_size();
    segments.extend(headers.iter().filter(|header| is_constant(header)).filter_map(|header| {
        let start = usize::try_from(info.dlpi_addr + header.p_vaddr).ok()?;
        let first = start - start % page;
        let end = (start + usize::try_from(header.p_memsz).ok()?).next_multiple_of(page);
        Some((first, end - first))
    }));
    1
}

fn is_constant(header: &libc::Elf64_Phdr) -> bool {
    header.p_type == libc::PT_LOAD && header.p_flags & libc::PF_W == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use procfs::process::{MMPermissions, MMapPath, Process};
    use std::process::Command;

    /// Bytes of the program's constant mappings, and how many of them are resident.
    fn resident() -> (u64, u64) {
        let own = Process::myself().expect("/proc");
        let program = own.exe().expect("/proc/self/exe");
        let maps = own.smaps().expect("/proc/self/smaps");
        let constant = maps.iter().filter(|map| {
            map.pathname == MMapPath::Path(program.clone()) && !map.perms.contains(MMPermissions::WRITE)
        });
        constant.fold((0, 0), |(all, resident), map| {
            (all + map.address.1 - map.address.0, resident + map.extension.map["Rss"])
        })
    }

    /// Set in the process of the test's own.
    const ALONE: &str = "KFD_TRACE_TEST_ALONE";

    /// In a process of its own, since threads of other tests map what they use at once.
    #[test]
    fn what_is_let_go_is_mapped_again_when_it_is_used() {
        let mut alone = Command::new(std::env::current_exe().expect("this program"));
        alone.args(["--exact", "runtime::code::tests::alone", "--ignored", "--test-threads=1"]);
        let run = alone.env(ALONE, "").output().expect("this program runs");
        assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stdout));
    }

    #[test]
    #[ignore = "a part of what_is_let_go_is_mapped_again_when_it_is_used"]
    fn alone() {
        if std::env::var_os(ALONE).is_none() {
            return;
        }
        // A test of one name has used a small part of the program: as after a start, most of it is to be resident.
        for (start, length) in constant_segments() {
            // SAFETY: the segment is mapped and is only read.
            unsafe { madvise(start as *mut c_void, length, Advice::LinuxPopulateRead) }.expect("madvise");
        }
        let (all, before) = resident();
        let_go();
        let (_, after) = resident();
        assert!(after < before / 2, "{before}, then {after}");
        // Those of writable segments that relocations have made constant are mapped, too.
        let segments = constant_segments();
        let ours: usize = segments.iter().map(|(_, length)| length).sum();
        assert!(ours as u64 <= all && ours as u64 > all / 2, "{segments:?} of {all}");
    }
}
