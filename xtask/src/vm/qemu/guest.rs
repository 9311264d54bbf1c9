//! QEMU as a process of ours: its channels, and its end. In: descriptors that it inherits. Out: words to the
//! guest, commands to QEMU.

use crate::vm::follow::lines;
use crate::vm::qmp::Qmp;
use anyhow::{Context as _, Result};
use std::io::{BufReader, Write as _};
use std::os::fd::RawFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

/// Killed when dropped.
pub(super) struct Qemu(pub(super) Child);

impl Drop for Qemu {
    fn drop(&mut self) {
        // Fails only where it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) struct Guest {
    pub(super) child: Qemu,
    /// The second serial port.
    pub(super) port: UnixStream,
    pub(super) control: Qmp<BufReader<UnixStream>, UnixStream>,
}

impl Guest {
    pub(crate) fn save(&mut self, file: &Path) -> Result<()> {
        self.control.save(file).with_context(|| format!("cannot save the guest to {}", file.display()))
    }

    pub(super) fn lines(&self) -> Result<Receiver<String>> {
        Ok(lines(self.port.try_clone().context("cannot share the guest's port")?))
    }

    pub(super) fn send(&mut self, word: &str) -> Result<()> {
        writeln!(self.port, "{word}").context("the guest takes no word")
    }

    /// Gives the guest time to power off by itself.
    pub(super) fn settle(&mut self, limit: Duration) {
        let start = Instant::now();
        while start.elapsed() < limit && matches!(self.child.0.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// Leaves these descriptors open in the program, under the same numbers.
pub(super) fn inherit(command: &mut Command, descriptors: [RawFd; 2]) {
    let keep = move || {
        for descriptor in descriptors {
            // SAFETY: changes a flag of a descriptor of the calling process; plain integers.
            if unsafe { libc::fcntl(descriptor, libc::F_SETFD, 0) } != 0 {
                return Err(std::io::Error::last_os_error());
            }
        }
        Ok(())
    };
    // SAFETY: fcntl is async-signal-safe, and nothing of the parent's memory is touched.
    unsafe { command.pre_exec(keep) };
}

/// Ctrl-C reaches QEMU through the process group; this covers every other way in which we end.
pub(super) fn die_with_parent(command: &mut Command) {
    let end_with_us = || {
        // SAFETY: changes only the calling process; plain integers.
        match unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        }
    };
    // SAFETY: prctl is async-signal-safe, and nothing of the parent's memory is touched.
    unsafe { command.pre_exec(end_with_us) };
}
