//! The guest as a machine: file systems, device links, network, name, power.

use anyhow::{Context as _, Result, ensure};
use std::ffi::{CString, c_ulong};
use std::fs;
use std::io::Error;
use std::os::unix::fs::symlink;
use std::ptr::null;

/// Type, place, options.
const MOUNTS: [(&str, &str, &str); 11] = [
    ("proc", "/proc", ""),
    ("sysfs", "/sys", ""),
    ("devtmpfs", "/dev", ""),
    ("devpts", "/dev/pts", "ptmxmode=0666"),
    ("tmpfs", "/dev/shm", ""),
    ("debugfs", "/sys/kernel/debug", ""),
    ("tracefs", "/sys/kernel/tracing", ""),
    ("bpf", "/sys/fs/bpf", ""),
    ("cgroup2", "/sys/fs/cgroup", ""),
    ("tmpfs", "/tmp", ""),
    ("tmpfs", "/run", ""),
];

const LINKS: [(&str, &str); 4] = [
    ("/proc/self/fd", "/dev/fd"),
    ("/proc/self/fd/0", "/dev/stdin"),
    ("/proc/self/fd/1", "/dev/stdout"),
    ("/proc/self/fd/2", "/dev/stderr"),
];

pub(crate) fn prepare() -> Result<()> {
    for (kind, place, options) in MOUNTS {
        mount(kind, place, options).with_context(|| format!("cannot mount {kind} at {place}"))?;
    }
    for (to, link) in LINKS {
        symlink(to, link).with_context(|| format!("cannot make {link}"))?;
    }
    loopback_up().context("cannot bring lo up")?;
    // SAFETY: PID 1 has one thread yet: nothing reads the environment meanwhile.
    unsafe { std::env::set_var("PATH", "/bin") };
    // SAFETY: as above.
    unsafe { std::env::set_var("HOME", "/root") };
    Ok(())
}

pub(crate) fn mount(kind: &str, place: &str, options: &str) -> Result<()> {
    // In sysfs the mount points exist already, and nothing can be created.
    fs::create_dir_all(place)?;
    let (kind, place, options) = (CString::new(kind)?, CString::new(place)?, CString::new(options)?);
    let flags: c_ulong = 0;
    // SAFETY: all strings are NUL-terminated and live until the call is over.
    let done =
        unsafe { libc::mount(kind.as_ptr(), place.as_ptr(), kind.as_ptr(), flags, options.as_ptr().cast()) };
    ensure!(done == 0, Error::last_os_error());
    Ok(())
}

/// The libc crate declares it with a type that fits the ioctl function of only one C library.
const SIOCSIFFLAGS: libc::Ioctl = 0x8914;

/// Exporters listen on 127.0.0.1.
fn loopback_up() -> Result<()> {
    // SAFETY: plain system call.
    let socket = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    ensure!(socket >= 0, Error::last_os_error());
    // SAFETY: all-zero is a valid ifreq: an empty name and no flags.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (slot, byte) in request.ifr_name.iter_mut().zip(b"lo") {
        *slot = byte.cast_signed();
    }
    let flags = libc::IFF_UP | libc::IFF_RUNNING;
    request.ifr_ifru.ifru_flags = i16::try_from(flags).context("interface flags")?;
    // SAFETY: SIOCSIFFLAGS reads an ifreq; `request` lives until the call is over.
    let done = unsafe { libc::ioctl(socket, SIOCSIFFLAGS, &raw const request) };
    let error = Error::last_os_error();
    // SAFETY: the descriptor is ours and not used again.
    unsafe { libc::close(socket) };
    ensure!(done == 0, error);
    Ok(())
}

/// The host name identifies the kernel: the shell's prompt and hostname labels show it.
pub(crate) fn name(release: &str) {
    let name = format!("vm-{}", release.split(['-', '+']).next().unwrap_or(release));
    // SAFETY: pointer and length are of the same live string. A failure leaves "(none)".
    unsafe { libc::sethostname(name.as_ptr().cast(), name.len()) };
}

pub(crate) fn power_off() -> ! {
    // SAFETY: no arguments.
    unsafe { libc::sync() };
    // SAFETY: ends the machine.
    unsafe { libc::reboot(libc::RB_POWER_OFF) };
    // Without ACPI power-off the kernel halts; the host has seen the exit line and ends QEMU.
    loop {
        // SAFETY: sleeps.
        unsafe { libc::poll(null::<libc::pollfd>().cast_mut(), 0, -1) };
    }
}
