//! A guest's liveness signals: the bytes that its init and its tests write to the port of QEMU's debug
//! console (tests/src/pulse.rs), byte by byte. In: the bytes. Out: the guest's own time and how many tracers
//! its tests have started.

use std::time::Duration;

/// The result of the bytes read so far. Pure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pulse {
    /// Since its kernel booted, by its own clock; zero until its init runs.
    pub(crate) uptime: Duration,
    /// Tracers started by its tests.
    pub(crate) starts: u64,
    /// Of a heartbeat whose end is not read yet.
    milliseconds: u64,
}

impl Pulse {
    /// Parses the next bytes: heartbeats (`MILLISECONDS\n`), and an `s` for each start, which may come within
    /// one.
    pub(crate) fn take(&mut self, bytes: &[u8]) {
        for byte in bytes {
            match byte {
                b's' => self.starts += 1,
                b'\n' => {
                    self.uptime = self.uptime.max(Duration::from_millis(self.milliseconds));
                    self.milliseconds = 0;
                }
                digit @ b'0'..=b'9' => {
                    let next = self.milliseconds.saturating_mul(10);
                    self.milliseconds = next.saturating_add(u64::from(digit - b'0'));
                }
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Pulse;
    use std::time::Duration;

    #[test]
    fn heartbeats_and_starts_come_in_any_pieces() {
        let mut pulse = Pulse::default();
        for piece in [&b"10"[..], b"s00\n20s", b"", b"50", b"s"] {
            pulse.take(piece);
        }
        assert_eq!((pulse.uptime, pulse.starts), (Duration::from_secs(1), 3));
        pulse.take(b"\n");
        assert_eq!(pulse.uptime, Duration::from_millis(2050));
        pulse.take(b"7\n");
        assert_eq!(pulse.uptime, Duration::from_millis(2050), "its clock does not go back");
    }
}
