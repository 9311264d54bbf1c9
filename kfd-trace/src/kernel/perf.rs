//! Programs on events of tracefs, by perf_event_open(2): the library that loads the programs attaches kprobes only to
//! events that it makes itself.
//!
//! In: the number of an event. Out: a descriptor that keeps it armed, and one that runs a program at it.

use super::bpf::{LINK_CREATE, bpf};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// Arms an event, on all CPUs: a program that is set on it runs wherever it occurs (kernel/trace/trace_kprobe.c,
/// `kretprobe_perf_func`).
///
/// # Errors
/// If there is no such event, or the kernel does not let this process have it.
pub(crate) fn arm(event: u64) -> io::Result<OwnedFd> {
    let attr = PerfEvent { kind: TRACEPOINT, size: SIZE, config: event, rest: [0; 6] };
    let (all_processes, first_cpu, no_group): (libc::pid_t, libc::c_int, libc::c_int) = (-1, 0, -1);
    // SAFETY: the kernel reads `size` bytes of `attr`, which lives until the call returns.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &raw const attr,
            all_processes,
            first_cpu,
            no_group,
            FD_CLOEXEC,
        )
    };
    let fd = RawFd::try_from(fd).map_err(io::Error::other)?;
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a descriptor that the kernel has just created for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Runs a loaded program at an armed event: until the link is closed, or before Linux 5.15, which has no such links, the
/// event.
///
/// # Errors
/// If the kernel refuses the program.
pub(crate) fn run_at(event: BorrowedFd<'_>, program: BorrowedFd<'_>) -> io::Result<Option<OwnedFd>> {
    let attr = PerfLinkCreate {
        prog_fd: program.as_raw_fd().cast_unsigned(),
        target_fd: event.as_raw_fd().cast_unsigned(),
        attach_type: PERF_EVENT_LINK,
        ..PerfLinkCreate::default()
    };
    // SAFETY: the kernel reads only `attr`.
    match unsafe { bpf(LINK_CREATE, &attr) } {
        Ok(link) => Ok(Some(link)),
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            // SAFETY: both descriptors are open, and the request takes the second one as its value.
            let set = unsafe { libc::ioctl(event.as_raw_fd(), SET_BPF, program.as_raw_fd()) };
            if set == 0 { Ok(None) } else { Err(io::Error::last_os_error()) }
        }
        Err(error) => Err(error),
    }
}

/// include/uapi/linux/perf_event.h
const TRACEPOINT: u32 = 2;
const FD_CLOEXEC: libc::c_ulong = 8;
const SET_BPF: libc::Ioctl = 0x4004_2408;

/// `BPF_PERF_EVENT`, include/uapi/linux/bpf.h
const PERF_EVENT_LINK: u32 = 41;

/// Bytes of [`PerfEvent`].
const SIZE: u32 = 64;

/// `struct perf_event_attr` in its first version (PERF_ATTR_SIZE_VER0): all zeros but for what names the event.
#[repr(C)]
struct PerfEvent {
    kind: u32,
    size: u32,
    config: u64,
    rest: [u64; 6],
}

/// `union bpf_attr`, as far as BPF_LINK_CREATE reads it for an event.
#[repr(C)]
#[derive(Default)]
struct PerfLinkCreate {
    prog_fd: u32,
    target_fd: u32,
    attach_type: u32,
    flags: u32,
    cookie: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    #[test]
    fn the_attributes_are_laid_out_as_the_kernel_reads_them() {
        assert_eq!((offset_of!(PerfEvent, size), offset_of!(PerfEvent, config)), (4, 8));
        assert_eq!((size_of::<PerfEvent>(), size_of::<PerfLinkCreate>()), (SIZE as usize, 24));
    }

    #[test]
    fn an_event_that_does_not_exist_is_an_error() {
        assert!(arm(u64::MAX).is_err());
    }
}
