//! What the kernel knows of a loaded program or of a link: BPF_OBJ_GET_INFO_BY_FD.

use super::btf::Btf;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Byte offsets in the result of BPF_OBJ_GET_INFO_BY_FD (include/uapi/linux/bpf.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InfoLayout {
    /// `bpf_prog_info.recursion_misses`
    pub(crate) program: usize,
    /// `bpf_link_info.perf_event.kprobe.missed`
    pub(crate) link: usize,
    /// `bpf_link_info.kprobe_multi.missed`; `None` if links on many functions do not count it.
    pub(crate) multi: Option<usize>,
}

impl InfoLayout {
    /// `None` if misses of kprobes are not counted. `recursion_misses` is older than the counting of kprobes
    /// in it; the other field was added together with that (6.7).
    #[must_use]
    pub fn find(vmlinux: &Btf) -> Option<Self> {
        let place = |strukt, path| usize::try_from(vmlinux.offset_of(strukt, path).ok()?.offset).ok();
        let program = place("bpf_prog_info", "recursion_misses")?;
        let link = place("bpf_link_info", "perf_event.kprobe.missed")?;
        Some(InfoLayout { program, link, multi: place("bpf_link_info", "kprobe_multi.missed") })
    }
}

/// `bpf_link_info.type` and `.prog_id`, `bpf_prog_info.id`, `BPF_LINK_TYPE_KPROBE_MULTI`
/// (include/uapi/linux/bpf.h)
pub(crate) const LINK_TYPE: usize = 0;
pub(crate) const LINK_PROGRAM: usize = 8;
pub(crate) const PROGRAM_ID: usize = 4;
pub(crate) const KPROBE_MULTI: u32 = 8;

/// Result of BPF_OBJ_GET_INFO_BY_FD for a program or link: larger than any kernel's structure.
pub(crate) struct Info([u8; 512]);

/// `union bpf_attr`, as far as BPF_OBJ_GET_INFO_BY_FD reads it.
#[repr(C)]
struct Attr {
    bpf_fd: u32,
    info_len: u32,
    info: u64,
}

impl Info {
    /// Of a program or link that is open.
    pub(crate) fn of(fd: BorrowedFd<'_>) -> io::Result<Self> {
        const OBJ_GET_INFO_BY_FD: libc::c_long = 15;
        // Zeros: the kernel reads counts and addresses of further buffers from here, and there are none.
        let mut info = Info([0; 512]);
        let attr = Attr {
            bpf_fd: fd.as_raw_fd().cast_unsigned(),
            info_len: 512,
            info: info.0.as_mut_ptr().expose_provenance() as u64,
        };
        // SAFETY: the kernel reads `attr` and writes at most `info_len` bytes to `info`, both of which live
        // until it returns.
        let result =
            unsafe { libc::syscall(libc::SYS_bpf, OBJ_GET_INFO_BY_FD, &raw const attr, size_of::<Attr>()) };
        if result == 0 { Ok(info) } else { Err(io::Error::last_os_error()) }
    }

    /// 8 bytes at this offset. What the kernel does not have is 0: [`InfoLayout`] is of the same kernel.
    pub(crate) fn word(&self, at: usize) -> u64 {
        self.0.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_ne_bytes)
    }

    /// 4 bytes at this offset.
    pub(crate) fn half(&self, at: usize) -> u32 {
        self.0.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_ne_bytes)
    }
}
