//! `criu-tracer`: saves another process as CRIU does, which traces it and has a duplicate of its descriptor,
//! and stays in the call until standard input ends.

use super::report;
use crate::kfd::{Client, criu};
use anyhow::{Context, Result};
use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous};
use nix::sys::ptrace;
use nix::unistd::Pid;
use serde_json::json;
use std::ffi::c_long;
use std::fs::{self, DirEntry};
use std::io::{self, copy, sink, stdin};
use std::num::NonZeroUsize;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::thread;

/// Prints ready once everything but CHECKPOINT is done, which ends with standard input.
pub(crate) fn run(pid: u32) -> Result<()> {
    // kfd_ioctl admits the thread that traces the leader.
    let leader = Pid::from_raw(pid.cast_signed());
    ptrace::seize(leader, ptrace::Options::empty()).with_context(|| format!("trace process {pid}"))?;
    let mut client = Client::of(descriptor(pid).with_context(|| format!("the device of process {pid}"))?);
    let info = criu::process_info(&mut client).context("PROCESS_INFO")?;
    let private = Withheld::new(usize::try_from(info.priv_data_size)?).context("memory to wait for")?;
    let address = private.address;
    report::ready()?;
    let saved = thread::scope(|scope| {
        scope.spawn(move || {
            let reported = copy(&mut stdin(), &mut sink());
            drop(private);
            reported
        });
        criu::checkpoint_at(&mut client, &info, address)
    });
    report::call("criu", &client, json!({}))?;
    saved.context("CHECKPOINT")?;
    criu::unpause(&mut client).context("UNPAUSE")?;
    report::counts(&client.tally)
}

/// A duplicate of a process' first descriptor of the device (pidfd_getfd(2)).
fn descriptor(pid: u32) -> Result<OwnedFd> {
    let is_kfd = |entry: &DirEntry| fs::read_link(entry.path()).is_ok_and(|to| to == Path::new("/dev/kfd"));
    let mut open = fs::read_dir(format!("/proc/{pid}/fd"))?.filter_map(Result::ok).filter(is_kfd);
    let name = open.next().context("it has none")?.file_name();
    let number: i32 = name.to_str().context("no number")?.parse()?;
    // SAFETY: two numbers; a new descriptor comes back.
    let process = owned(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) }).context("pidfd_open")?;
    // SAFETY: three numbers; a new descriptor comes back.
    let taken = unsafe { libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), number, 0) };
    owned(taken).context("pidfd_getfd")
}

/// The result of a system call: a new descriptor, or -1.
fn owned(fd: c_long) -> Result<OwnedFd> {
    let fd = i32::try_from(fd).ok().filter(|fd| *fd >= 0).ok_or_else(io::Error::last_os_error)?;
    // SAFETY: it is new, so it has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Memory that makes the kernel, too, wait when it writes there, until this is dropped (userfaultfd(2)). It
/// stays mapped.
struct Withheld {
    address: u64,
    _faults: OwnedFd,
}

const PAGE: usize = 4096;

impl Withheld {
    fn new(bytes: usize) -> Result<Self> {
        let length = NonZeroUsize::new(bytes.next_multiple_of(PAGE)).context("no bytes")?;
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a new anonymous mapping at an address of the kernel's choice touches nothing of ours.
        let start = unsafe { mmap_anonymous(None, length, access, MapFlags::MAP_PRIVATE) }?;
        let address = start.as_ptr().expose_provenance() as u64;
        // SAFETY: a number; a new descriptor comes back.
        let faults = owned(unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC) })?;
        let mut api = uffd::Api { api: uffd::API, ..uffd::Api::default() };
        // SAFETY: the structure that this command requires.
        unsafe { uffd::api(faults.as_raw_fd(), &raw mut api) }.context("UFFDIO_API")?;
        let len = length.get() as u64;
        let mut range = uffd::Register { start: address, len, mode: uffd::MISSING, ioctls: 0 };
        // SAFETY: as above; the memory has not been used yet.
        unsafe { uffd::register(faults.as_raw_fd(), &raw mut range) }.context("UFFDIO_REGISTER")?;
        Ok(Self { address, _faults: faults })
    }
}

/// include/uapi/linux/userfaultfd.h
mod uffd {
    pub(super) const API: u64 = 0xaa;
    /// `UFFDIO_REGISTER_MODE_MISSING`: pages that are not present yet.
    pub(super) const MISSING: u64 = 1;

    #[derive(Default)]
    #[repr(C)]
    pub(super) struct Api {
        pub(super) api: u64,
        pub(super) features: u64,
        pub(super) ioctls: u64,
    }

    #[repr(C)]
    pub(super) struct Register {
        pub(super) start: u64,
        pub(super) len: u64,
        pub(super) mode: u64,
        pub(super) ioctls: u64,
    }

    nix::ioctl_readwrite!(api, 0xaa, 0x3f, Api);
    nix::ioctl_readwrite!(register, 0xaa, 0x00, Register);
}
