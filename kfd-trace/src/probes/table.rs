//! The fields of a row of the probe table. The rows are in [`super::rows`].

use crate::kernel::return_events::CALLS;
use kfd_trace_common::counter::ProbeId;

/// How a program is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeKind {
    Kprobe,
    Kretprobe,
    Tracepoint,
}

impl ProbeKind {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            ProbeKind::Kprobe => "kprobe",
            ProbeKind::Kretprobe => "kretprobe",
            ProbeKind::Tracepoint => "tracepoint",
        }
    }
}

/// What a probe is attached to.
#[derive(Clone, Copy, Debug)]
pub enum Site {
    /// One function of the driver: the first of these names that the kernel has.
    Function(&'static [&'static str]),
    /// Every copy of each of the functions of these lists that the driver has.
    Each(&'static [&'static [&'static str]]),
    /// As `Each`, for a family of functions that grows: a function with one of these prefixes that is not a
    /// member is reported.
    Family { prefixes: &'static [&'static str], members: &'static [&'static str] },
    /// Every ioctl handler of the driver.
    Handlers,
    /// The return of `kfd_ioctl` where it has an event ([`super::events`]), else that of every ioctl handler but those
    /// that sleep: a sleeper would hold one of the few instances of a kretprobe that has none.
    CallReturns,
    /// The first of these tracepoints of a system that the kernel has.
    Tracepoint { system: &'static str, names: &'static [&'static str] },
}

impl Site {
    /// What is called for each ioctl, whichever handler it gets to.
    pub const WHOLE_CALL: &'static [&'static str] = &[CALLS];

    pub(super) fn is_whole_call(function: &str) -> bool {
        Site::WHOLE_CALL.contains(&function)
    }
}

/// When a probe is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    Always,
    /// If a record per ioctl, with its arguments, is requested, or is the only way to see queues.
    IoctlRecords,
    /// Only if the kernel's own tracepoints are requested.
    Tracepoints,
    /// Only if preemptions and runlists are requested.
    Runlists,
    /// If the row of every handler is not attached, which reports the same.
    NoIoctlRecords,
    /// If the driver does not have this function, whose row reports the same.
    Without(&'static str),
    /// If one of these rows is wanted and is not attached: the compiler inlined its function, say. It reports what they
    /// would.
    InPlaceOf(&'static [ProbeId]),
}

/// One row.
#[derive(Clone, Copy, Debug)]
pub struct ProbeRow {
    pub id: ProbeId,
    pub kind: ProbeKind,
    pub site: Site,
    pub when: When,
    /// Globals of `kfd_trace_common::offset` without which the program can report nothing.
    pub needs: &'static [&'static str],
    /// Without any of the required probes the tracer sees nothing at all.
    pub required: bool,
    /// Its functions belong to features that only some drivers have: without them nothing is missed.
    pub optional: bool,
    /// Its functions are per GPU generation: it is attached to those that a GPU of this machine uses.
    pub of_gpus: bool,
    /// Many callers sleep in its functions at once: their returns are events of tracefs where these can be had
    /// ([`super::events`]).
    pub crowded: bool,
    /// What it makes visible.
    pub feeds: &'static str,
}

impl ProbeRow {
    /// Name of its BPF function in kfd-trace-ebpf/src/probes: that of the probe.
    #[must_use]
    pub const fn program(&self) -> &'static str {
        self.id.name()
    }

    const fn new(kind: ProbeKind, id: ProbeId, site: Site, feeds: &'static str) -> Self {
        ProbeRow {
            id,
            kind,
            site,
            when: When::Always,
            needs: &[],
            required: false,
            optional: false,
            of_gpus: false,
            crowded: false,
            feeds,
        }
    }

    pub(super) const fn entry(id: ProbeId, site: Site, feeds: &'static str) -> Self {
        Self::new(ProbeKind::Kprobe, id, site, feeds)
    }

    pub(super) const fn exit(id: ProbeId, site: Site, feeds: &'static str) -> Self {
        Self::new(ProbeKind::Kretprobe, id, site, feeds)
    }

    pub(super) const fn tracepoint(
        id: ProbeId,
        system: &'static str,
        names: &'static [&'static str],
        feeds: &'static str,
    ) -> Self {
        Self::new(ProbeKind::Tracepoint, id, Site::Tracepoint { system, names }, feeds)
            .when(When::Tracepoints)
            .optional()
    }

    pub(super) const fn when(mut self, when: When) -> Self {
        self.when = when;
        self
    }

    pub(super) const fn needs(mut self, needs: &'static [&'static str]) -> Self {
        self.needs = needs;
        self
    }

    pub(super) const fn optional(mut self) -> Self {
        self.optional = true;
        self
    }

    pub(super) const fn of_gpus(mut self) -> Self {
        self.of_gpus = true;
        self
    }

    /// Only of a return.
    pub(super) const fn crowded(mut self) -> Self {
        assert!(matches!(self.kind, ProbeKind::Kretprobe), "an entry has no instances");
        self.crowded = true;
        self
    }

    pub(super) const fn required(mut self) -> Self {
        self.required = true;
        self
    }
}
