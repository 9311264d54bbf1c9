//! Decides whether a guest hangs. In: its progress so far. Out: the reason to give up on it. Pure.
//!
//! The host's clock alone does not decide: a busy host starves a healthy guest. What counts is the guest's
//! own time, and the CPU time that QEMU was given.

use std::time::Duration;

/// Guest time without a byte on either of its ports.
const QUIET: Duration = Duration::from_secs(900);

/// CPU time of QEMU without any liveness signal: neither a byte nor a heartbeat.
const STUCK: Duration = Duration::from_secs(300);

/// Host time without any liveness signal; far out, for a guest that sleeps for ever.
const FAR: Duration = Duration::from_secs(1800);

/// A guest's progress so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Done {
    /// Bytes on both of its ports.
    pub(crate) bytes: u64,
    /// By its own clock.
    pub(crate) uptime: Duration,
    /// That QEMU has used.
    pub(crate) cpu: Duration,
    /// Since QEMU was started.
    pub(crate) host: Duration,
}

#[derive(Default)]
pub(crate) struct Watch {
    /// When it last wrote something.
    wrote: Done,
    /// When it last wrote something, or its clock was seen to advance.
    lived: Done,
}

impl Watch {
    /// To be called periodically. `limit`: of the whole run, in the host's time.
    pub(crate) fn hangs(&mut self, now: Done, limit: Duration) -> Option<String> {
        // The clock of a resumed guest does not begin at zero.
        if now.bytes != self.wrote.bytes || self.wrote.uptime.is_zero() {
            self.wrote = now;
        }
        if now.bytes != self.lived.bytes || now.uptime != self.lived.uptime {
            self.lived = now;
        }
        let quiet = now.uptime.saturating_sub(self.wrote.uptime);
        let (cpu, host) = (now.cpu.saturating_sub(self.lived.cpu), now.host.saturating_sub(self.lived.host));
        let uptime = now.uptime.as_secs();
        let why = if quiet > QUIET {
            format!("silent for {} s of its own time, up {uptime} s", quiet.as_secs())
        } else if cpu > STUCK {
            format!("no sign of life while QEMU took {} s of CPU time, up {uptime} s", cpu.as_secs())
        } else if host > FAR {
            let (host, cpu) = (host.as_secs(), cpu.as_secs());
            format!(
                "no sign of life for {host} s of the host's time, of which QEMU was given {cpu} s, up {uptime} s"
            )
        } else if now.host > limit {
            let (limit, cpu) = (limit.as_secs(), now.cpu.as_secs());
            format!(
                "not done after {limit} s of the host's time, of which QEMU was given {cpu} s, up {uptime} s"
            )
        } else {
            return None;
        };
        Some(format!("the guest hangs: {why}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(3600);

    fn done(bytes: u64, uptime: u64, cpu: u64, host: u64) -> Done {
        let [uptime, cpu, host] = [uptime, cpu, host].map(Duration::from_secs);
        Done { bytes, uptime, cpu, host }
    }

    /// The message for the last of these steps.
    fn said(steps: &[Done]) -> Option<String> {
        let mut watch = Watch::default();
        steps.iter().map(|step| watch.hangs(*step, LIMIT)).last().flatten()
    }

    #[test]
    fn a_starved_guest_does_not_hang() {
        assert_eq!(said(&[done(9, 10, 10, 10), done(9, 10, 100, 1700)]), None);
        assert_eq!(said(&[done(9, 10, 10, 10), done(9, 11, 320, 1700), done(9, 12, 600, 3400)]), None);
    }

    #[test]
    fn a_resumed_guest_has_not_been_silent_before() {
        assert_eq!(said(&[done(0, 0, 1, 1), done(0, 2000, 2, 2), done(0, 2800, 3, 3)]), None);
        assert!(said(&[done(0, 0, 1, 1), done(0, 2000, 2, 2), done(0, 2901, 3, 3)]).is_some());
    }

    #[test]
    fn each_way_to_hang_is_named() {
        let names = |steps: &[Done], wanted: &str| {
            let said = said(steps).expect("it hangs");
            assert!(said.contains(wanted), "{said}");
        };
        names(&[done(9, 10, 10, 10), done(9, 911, 20, 20)], "901 s of its own time, up 911 s");
        names(&[done(9, 10, 10, 10), done(9, 10, 311, 400)], "301 s of CPU time");
        names(&[done(9, 10, 10, 10), done(9, 10, 11, 1811)], "1801 s of the host's time");
        names(&[done(9, 10, 10, 10), done(10, 3000, 3000, 3601)], "not done after 3600 s");
    }
}
