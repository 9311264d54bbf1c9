//! Calls of probed functions for which the kernel did not run the probe's program. Plain data: read where
//! programs are loaded, shown by every output.

/// Why the program did not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MissCause {
    /// The CPU was inside another BPF program, or inside a bpf(2) call on a map, possibly of another thread
    /// that was preempted there (`trace_call_bpf`, kernel/trace/bpf_trace.c).
    ProgramSkipped,
    /// The CPU was inside another kprobe, or all instances of the kretprobe were in use
    /// (`trace_kprobe_missed`, kernel/trace/trace_kprobe.c).
    ProbeMissed,
}

impl MissCause {
    /// All causes.
    pub const ALL: [MissCause; 2] = [MissCause::ProgramSkipped, MissCause::ProbeMissed];

    /// The name in metrics, JSON and the summary.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            MissCause::ProgramSkipped => "program_skipped",
            MissCause::ProbeMissed => "probe_missed",
        }
    }
}

/// Calls that one probe missed since it was attached, sum over all its attach points.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Missed {
    /// `None` if the kernel does not count it.
    pub program_skipped: Option<u64>,
    /// `None` if the kernel does not count it, or not for this kind of probe.
    pub probe_missed: Option<u64>,
}

impl Missed {
    /// Adds another count, such as that of an earlier attachment.
    pub fn add(&mut self, other: Missed) {
        let sum = |own: Option<u64>, other: Option<u64>| match (own, other) {
            (Some(own), Some(other)) => Some(own + other),
            (own, other) => own.or(other),
        };
        self.program_skipped = sum(self.program_skipped, other.program_skipped);
        self.probe_missed = sum(self.probe_missed, other.probe_missed);
    }

    /// Calls missed for this cause.
    #[must_use]
    pub fn of(self, cause: MissCause) -> Option<u64> {
        match cause {
            MissCause::ProgramSkipped => self.program_skipped,
            MissCause::ProbeMissed => self.probe_missed,
        }
    }

    /// Calls missed for any counted cause; `None` if none is counted.
    #[must_use]
    pub fn counted(self) -> Option<u64> {
        MissCause::ALL.iter().filter_map(|cause| self.of(*cause)).reduce(|one, other| one + other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_counted_is_not_0() {
        let missed = |program_skipped, probe_missed| Missed { program_skipped, probe_missed };
        assert_eq!(missed(None, None).counted(), None);
        assert_eq!(missed(Some(3), None).counted(), Some(3));
        assert_eq!(missed(Some(3), Some(4)).counted(), Some(7));
        let mut sum = missed(None, Some(1));
        sum.add(missed(None, None));
        assert_eq!(sum, missed(None, Some(1)));
        sum.add(missed(Some(3), Some(4)));
        assert_eq!(sum, missed(Some(3), Some(5)));
    }
}
