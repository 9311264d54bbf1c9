//! Liveness signals for the host (xtask/src/vm/pulse.rs): bytes to the port of QEMU's debug console, which
//! needs no driver and makes no interrupt. Outside a guest nothing is written.

use rustix::time::{ClockId, clock_gettime};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt as _;

/// isa-debugcon's usual one. In /dev/port an offset is the number of a port.
const PORT: u64 = 0xe9;

/// A heartbeat: the time since the kernel booted, by its own clock.
pub fn beat() {
    let now = clock_gettime(ClockId::Boottime);
    let milliseconds = now.tv_sec * 1000 + now.tv_nsec / 1_000_000;
    write(format!("{milliseconds}\n").as_bytes());
}

/// Reports that a tracer is started.
pub fn start() {
    // Only the VM's init sets it: on any other machine the port's meaning is unknown.
    if std::env::var_os("KFD_VM_KERNEL").is_some() {
        write(b"s");
    }
}

/// One byte per call: a longer write continues at the next port. If it fails, the host does without.
fn write(bytes: &[u8]) {
    let Ok(port) = OpenOptions::new().write(true).open("/dev/port") else { return };
    let put = |port: &File, byte: u8| port.write_at(&[byte], PORT);
    let _ = bytes.iter().try_for_each(|byte| put(&port, *byte).map(drop));
}
