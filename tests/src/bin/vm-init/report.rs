//! The second serial port: all output for the host.

use anyhow::{Context as _, Result, ensure};
use std::fs::{File, OpenOptions};
use std::io::{Error, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;

const PORT: &str = "/dev/ttyS1";

fn port() -> Result<File> {
    open(0)
}

/// The port, from which reading does not wait.
pub(crate) fn port_without_waiting() -> Result<File> {
    open(libc::O_NONBLOCK)
}

fn open(flags: i32) -> Result<File> {
    let port = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(flags)
        .open(PORT)
        .with_context(|| format!("cannot open {PORT}"))?;
    raw(&port).with_context(|| format!("cannot set {PORT} raw"))?;
    Ok(port)
}

/// No echo, no newline translation: bytes go through as they are.
fn raw(port: &File) -> Result<()> {
    // SAFETY: all-zero is a valid termios to be filled in.
    let mut settings: libc::termios = unsafe { std::mem::zeroed() };
    // SAFETY: the descriptor is open, `settings` is live.
    let read = unsafe { libc::tcgetattr(port.as_raw_fd(), &raw mut settings) };
    ensure!(read == 0, Error::last_os_error());
    // SAFETY: `settings` is live.
    unsafe { libc::cfmakeraw(&raw mut settings) };
    // SAFETY: the descriptor is open, `settings` is live.
    let set = unsafe { libc::tcsetattr(port.as_raw_fd(), libc::TCSANOW, &raw const settings) };
    ensure!(set == 0, Error::last_os_error());
    Ok(())
}

/// Makes the port stdout and stderr of this process, and so of those it starts.
pub(crate) fn to_port() -> Result<()> {
    let port = port()?;
    for target in [libc::STDOUT_FILENO, libc::STDERR_FILENO] {
        // SAFETY: both descriptors are open or may be closed by dup2.
        let done = unsafe { libc::dup2(port.as_raw_fd(), target) };
        ensure!(done >= 0, Error::last_os_error());
    }
    Ok(())
}

/// Writes one line for the host. Where the port fails, only the kernel's console is left.
pub(crate) fn line(text: &str) {
    if port().is_ok_and(|mut port| writeln!(port, "{text}").is_ok()) {
        return;
    }
    eprintln!("{text}");
}

/// Writes the last line, without which the host takes the guest for hung. Waits until it is sent.
pub(crate) fn exit(nonce: &str, failures: u32) {
    line(&format!("kfd-vm-exit {nonce} {}", failures.min(100)));
    if let Ok(port) = port() {
        // SAFETY: the descriptor is open.
        unsafe { libc::tcdrain(port.as_raw_fd()) };
    }
}
