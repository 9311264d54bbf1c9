//! Direct bpf(2) calls, for what the library that loads the other programs does not support or does at a
//! cost.

use aya_obj::generated::bpf_insn;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::{self, NonNull};

/// include/uapi/linux/bpf.h: commands, in the order of their numbers.
pub(crate) const MAP_CREATE: libc::c_long = 0;
const MAP_UPDATE_ELEM: libc::c_long = 2;
pub(crate) const PROG_LOAD: libc::c_long = 5;
const PROG_TEST_RUN: libc::c_long = 10;
pub(crate) const LINK_CREATE: libc::c_long = 28;

/// `union bpf_attr`, as far as used here for BPF_PROG_LOAD.
#[repr(C)]
#[derive(Default)]
pub(crate) struct ProgLoad {
    prog_type: u32,
    insn_cnt: u32,
    insns: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log_buf: u64,
    kern_version: u32,
    prog_flags: u32,
    prog_name: [u8; 16],
    prog_ifindex: u32,
    expected_attach_type: u32,
}

impl ProgLoad {
    /// A program of this type, for links of this type.
    pub(crate) fn new(prog_type: u32, expected_attach_type: u32) -> Self {
        ProgLoad { prog_type, expected_attach_type, ..Self::default() }
    }

    /// The program may wait.
    pub(crate) fn sleepable(self) -> Self {
        const BPF_F_SLEEPABLE: u32 = 1 << 4;
        ProgLoad { prog_flags: BPF_F_SLEEPABLE, ..self }
    }

    /// Loads a program.
    ///
    /// # Errors
    /// When the kernel rejects it.
    pub(crate) fn load(
        mut self,
        name: &str,
        instructions: &[bpf_insn],
        license: &std::ffi::CStr,
    ) -> io::Result<OwnedFd> {
        self.insn_cnt = u32::try_from(instructions.len()).map_err(io::Error::other)?;
        self.insns = instructions.as_ptr().expose_provenance() as u64;
        self.license = license.as_ptr().expose_provenance() as u64;
        // The last byte stays 0.
        self.prog_name[..15].iter_mut().zip(name.bytes()).for_each(|(to, from)| *to = from);
        // SAFETY: the kernel reads `self`, and the instructions and the licence that it points to, which live
        // until the call returns.
        unsafe { bpf(PROG_LOAD, &self) }
    }
}

/// As above, for BPF_MAP_CREATE.
#[repr(C)]
pub(crate) struct MapCreate {
    pub(crate) map_type: u32,
    pub(crate) key_size: u32,
    pub(crate) value_size: u32,
    pub(crate) max_entries: u32,
    pub(crate) map_flags: u32,
}

/// As above, for BPF_MAP_UPDATE_ELEM.
#[repr(C)]
struct MapUpdate {
    map_fd: u32,
    pad: u32,
    key: u64,
    value: u64,
    flags: u64,
}

/// As above, for BPF_PROG_TEST_RUN.
#[repr(C)]
#[derive(Default)]
struct TestRun {
    prog_fd: u32,
    retval: u32,
    data_size_in: u32,
    data_size_out: u32,
    data_in: u64,
    data_out: u64,
    repeat: u32,
    duration: u32,
    ctx_size_in: u32,
    ctx_size_out: u32,
    ctx_in: u64,
    ctx_out: u64,
    flags: u32,
    cpu: u32,
    batch_size: u32,
    pad: u32,
}

/// Sets an element of an array with four-byte values.
///
/// # Errors
/// When the kernel rejects it.
pub(crate) fn set(array: &OwnedFd, number: u32, value: i32) -> io::Result<()> {
    let attr = MapUpdate {
        map_fd: array.as_raw_fd().cast_unsigned(),
        pad: 0,
        key: (&raw const number).expose_provenance() as u64,
        value: (&raw const value).expose_provenance() as u64,
        flags: 0,
    };
    // SAFETY: the kernel reads `attr`, and a key and a value of four bytes, which live until the call
    // returns.
    let result =
        unsafe { libc::syscall(libc::SYS_bpf, MAP_UPDATE_ELEM, &raw const attr, size_of::<MapUpdate>()) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Runs a program of type BPF_PROG_TYPE_SYSCALL once, with a context that it reads and writes.
///
/// # Errors
/// When the kernel rejects it.
pub(crate) fn run<const N: usize>(program: &OwnedFd, context: &mut [u64; N]) -> io::Result<()> {
    let mut attr = TestRun {
        prog_fd: program.as_raw_fd().cast_unsigned(),
        ctx_size_in: u32::try_from(size_of_val(context)).map_err(io::Error::other)?,
        ctx_in: context.as_mut_ptr().expose_provenance() as u64,
        ..TestRun::default()
    };
    // SAFETY: the kernel reads and writes `attr`, and a context of this size, which live until the call returns.
    let result = unsafe { libc::syscall(libc::SYS_bpf, PROG_TEST_RUN, &raw mut attr, size_of::<TestRun>()) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// A part of an array created with BPF_F_MMAPABLE, in this process's memory.
pub(crate) struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: it owns its mapping, which any thread may use and unmap.
unsafe impl Send for Mapping {}
// SAFETY: it gives access to a pointer alone.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps so many bytes from this offset on, a multiple of the page size. It holds a reference to the array.
    ///
    /// # Errors
    /// When the kernel refuses it.
    pub(crate) fn new(array: BorrowedFd<'_>, offset: usize, bytes: usize) -> io::Result<Self> {
        let offset = libc::off_t::try_from(offset).map_err(io::Error::other)?;
        let (access, fd) = (libc::PROT_READ | libc::PROT_WRITE, array.as_raw_fd());
        // SAFETY: a new mapping, at an address that the kernel chooses.
        let start = unsafe { libc::mmap(ptr::null_mut(), bytes, access, libc::MAP_SHARED, fd, offset) };
        let start = if start == libc::MAP_FAILED { None } else { NonNull::new(start.cast()) };
        start.map(|start| Mapping { start, bytes }).ok_or_else(io::Error::last_os_error)
    }

    /// Its first byte, at the begin of a page; valid as long as this lives.
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping that `new` made; no reference into it outlives this.
        let _ = unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

/// Runs a command that returns a new descriptor.
///
/// # Safety
/// What `attr` points to must be as long as it states, and live.
pub(crate) unsafe fn bpf<T>(command: libc::c_long, attr: &T) -> io::Result<OwnedFd> {
    // SAFETY: the kernel reads `size_of::<T>()` bytes of `attr`; the caller guarantees what these point to.
    let fd = unsafe { libc::syscall(libc::SYS_bpf, command, &raw const *attr, size_of::<T>()) };
    let fd = RawFd::try_from(fd).map_err(io::Error::other)?;
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a descriptor that the kernel has just created for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Instructions (Documentation/bpf/standardization/instruction-set.rst), as far as used by hand-written
/// programs here.
pub(crate) mod asm {
    use super::bpf_insn;

    const LOAD_WIDE: u8 = 0x18;
    /// In the source register of a wide load: the value is a map descriptor.
    const MAP_FD: u8 = 1;
    /// The same, of which the value is the first one of the map.
    const MAP_VALUE: u8 = 2;

    /// `to = from`
    pub(crate) fn mov(to: u8, from: u8) -> bpf_insn {
        insn(0xbf, to, from, 0, 0)
    }

    /// `to = value`
    pub(crate) fn set(to: u8, value: i32) -> bpf_insn {
        insn(0xb7, to, 0, 0, value)
    }

    /// `to += value`
    pub(crate) fn add(to: u8, value: i32) -> bpf_insn {
        insn(0x07, to, 0, 0, value)
    }

    /// `to = *(u64 *)(from + offset)`
    pub(crate) fn load(to: u8, from: u8, offset: i16) -> bpf_insn {
        insn(0x79, to, from, offset, 0)
    }

    /// `*(u64 *)(to + offset) = from`
    pub(crate) fn store(to: u8, offset: i16, from: u8) -> bpf_insn {
        insn(0x7b, to, from, offset, 0)
    }

    /// Skips `count` instructions if the register has another value.
    pub(crate) fn skip_unless(register: u8, value: i32, count: i16) -> bpf_insn {
        insn(0x55, register, 0, count, value)
    }

    /// Skips `count` instructions if the register has a larger value.
    pub(crate) fn skip_above(register: u8, value: i32, count: i16) -> bpf_insn {
        insn(0x25, register, 0, count, value)
    }

    /// `to &= value`
    pub(crate) fn and(to: u8, value: i32) -> bpf_insn {
        insn(0x57, to, 0, 0, value)
    }

    /// Calls a function of the kernel that programs may call, by its number in the kernel's types.
    pub(crate) fn call_kernel(function: i32) -> bpf_insn {
        const KERNEL_FUNCTION: u8 = 2;
        insn(0x85, 0, KERNEL_FUNCTION, 0, function)
    }

    /// Calls a BPF helper by its number.
    pub(crate) fn call(helper: i32) -> bpf_insn {
        insn(0x85, 0, 0, 0, helper)
    }

    pub(crate) fn exit() -> bpf_insn {
        insn(0x95, 0, 0, 0, 0)
    }

    /// `to = value`: two instructions.
    pub(crate) fn set_wide(to: u8, value: u64) -> [bpf_insn; 2] {
        let half =
            |shift: u32| u32::try_from(value >> shift & u64::from(u32::MAX)).unwrap_or(0).cast_signed();
        [insn(LOAD_WIDE, to, 0, 0, half(0)), insn(0, 0, 0, 0, half(32))]
    }

    /// `to` = the map of a descriptor: two instructions.
    pub(crate) fn set_map(to: u8, map: i32) -> [bpf_insn; 2] {
        [insn(LOAD_WIDE, to, MAP_FD, 0, map), insn(0, 0, 0, 0, 0)]
    }

    /// `to` = the address of the only value of an array, of a descriptor: two instructions.
    pub(crate) fn set_map_value(to: u8, map: i32) -> [bpf_insn; 2] {
        [insn(LOAD_WIDE, to, MAP_VALUE, 0, map), insn(0, 0, 0, 0, 0)]
    }

    fn insn(code: u8, to: u8, from: u8, off: i16, imm: i32) -> bpf_insn {
        bpf_insn { code, _bitfield_align_1: [], _bitfield_1: bpf_insn::new_bitfield_1(to, from), off, imm }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    #[test]
    fn the_attributes_are_laid_out_as_the_kernel_reads_them() {
        assert_eq!((offset_of!(ProgLoad, log_buf), offset_of!(ProgLoad, prog_name)), (32, 48));
        assert_eq!((offset_of!(ProgLoad, expected_attach_type), size_of::<ProgLoad>()), (68, 72));
        assert_eq!((size_of::<MapUpdate>(), size_of::<TestRun>()), (32, 80));
    }

    #[test]
    fn an_instruction_is_laid_out_as_the_kernel_reads_it() {
        let [load, next] = asm::set_map(2, 7);
        // SAFETY: eight bytes without padding.
        let bytes: [u8; 8] = unsafe { std::mem::transmute(load) };
        assert_eq!(bytes, [0x18, 0x12, 0, 0, 7, 0, 0, 0]);
        assert_eq!((next.code, next.imm), (0, 0));
        let wide = asm::set_wide(1, 0x1234_5678_9abc_def0).map(|half| half.imm.cast_unsigned());
        assert_eq!(wide, [0x9abc_def0, 0x1234_5678]);
    }
}
