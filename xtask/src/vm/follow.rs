//! A running guest, followed by its lines and signs of life. In: the lines of its second serial port, its
//! heartbeats, its log's size, QEMU's CPU time. Out: the lines with the clocks at each, and how it ended.

use crate::vm::pulse::Pulse;
use crate::vm::timing::Mark;
use crate::vm::watch::{Done, Watch};
use anyhow::{Context as _, Result};
use nix::time::{ClockId, clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Child;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// How the guest ended.
pub(crate) enum End {
    /// With its own exit line.
    Exit(i32),
    /// Without: why.
    Lost(String),
}

/// The lines of a port, until the guest ends.
pub(crate) fn lines(port: UnixStream) -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(port).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line).trim_end_matches('\r').to_owned();
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    receiver
}

/// Signs that a guest is alive.
pub(crate) struct Signs<'a> {
    begin: Instant,
    /// Of QEMU.
    clock: ClockId,
    console: &'a Path,
    heartbeats: Option<File>,
    heartbeats_in: &'a Path,
    pulse: Pulse,
    /// Bytes that it has reported.
    reported: u64,
}

impl<'a> Signs<'a> {
    pub(crate) fn of(qemu: &Child, console: &'a Path, heartbeats_in: &'a Path) -> Result<Self> {
        let pid = i32::try_from(qemu.id()).context("PID out of range")?;
        let clock = clock_getcpuclockid(Pid::from_raw(pid)).context("QEMU's CPU time cannot be read")?;
        let (begin, pulse) = (Instant::now(), Pulse::default());
        Ok(Self { begin, clock, console, heartbeats: None, heartbeats_in, pulse, reported: 0 })
    }

    /// Reads what has arrived.
    fn look(&mut self) {
        if self.heartbeats.is_none() {
            self.heartbeats = File::open(self.heartbeats_in).ok();
        }
        let mut bytes = Vec::new();
        if let Some(file) = &mut self.heartbeats {
            // What cannot be read now is read the next time.
            let _ = file.read_to_end(&mut bytes);
        }
        self.pulse.take(&bytes);
    }

    fn done(&self) -> Done {
        let logged = fs::metadata(self.console).map_or(0, |meta| meta.len());
        Done {
            bytes: self.reported + logged,
            uptime: self.pulse.uptime,
            cpu: self.cpu(),
            host: self.begin.elapsed(),
        }
    }

    /// A QEMU that has ended needs no watching.
    fn cpu(&self) -> Duration {
        clock_gettime(self.clock).map_or(Duration::ZERO, Duration::from)
    }

    pub(crate) fn mark(&self) -> Mark {
        Mark { guest: self.pulse.uptime, cpu: self.cpu(), starts: self.pulse.starts }
    }
}

/// Hands each line on with the clocks, until `on_line` ends the run, QEMU ends, or the guest hangs. `limit`:
/// of the host's time.
pub(crate) fn follow(
    lines: &Receiver<String>,
    limit: Duration,
    signs: &mut Signs<'_>,
    mut on_line: impl FnMut(&str, Mark) -> Option<End>,
) -> End {
    let mut watch = Watch::default();
    loop {
        let received = lines.recv_timeout(Duration::from_millis(500));
        signs.look();
        match received {
            Ok(line) => {
                signs.reported += line.len() as u64 + 1;
                if let Some(end) = on_line(&line, signs.mark()) {
                    return end;
                }
            }
            Err(RecvTimeoutError::Disconnected) => return End::Lost("the guest died".to_owned()),
            Err(RecvTimeoutError::Timeout) => {}
        }
        if let Some(why) = watch.hangs(signs.done(), limit) {
            return End::Lost(why);
        }
    }
}
