//! What a row of the probe table says. The rows stand in [`super::rows`].

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

/// What a probe sits on.
#[derive(Clone, Copy, Debug)]
pub enum Site {
    /// One function of the driver: the first of these names that the kernel has.
    Function(&'static [&'static str]),
    /// Every copy of each of the functions of these lists that the driver has.
    Each(&'static [&'static [&'static str]]),
    /// The same for functions of a family that grows: one that begins like these and is not among them is told.
    Family { prefixes: &'static [&'static str], members: &'static [&'static str] },
    /// Every ioctl handler that the driver has, but those that sleep.
    Handlers,
    /// The first of these tracepoints of a system that the kernel has.
    Tracepoint { system: &'static str, names: &'static [&'static str] },
}

/// When a probe is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    Always,
    /// Where a record of each ioctl, with its arguments, is asked for, or is the only way to see queues.
    IoctlRecords,
    /// Only where the kernel's own tracepoints are asked for.
    Tracepoints,
    /// Where the driver does not have this function, whose row tells the same.
    Without(&'static str),
}

/// One row.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    pub id: ProbeId,
    /// Name of the BPF program (kfd-trace-ebpf/src/probes/).
    pub program: &'static str,
    pub kind: ProbeKind,
    pub site: Site,
    pub when: When,
    /// Globals of `kfd_trace_common::offset` without which the program can tell nothing.
    pub needs: &'static [&'static str],
    /// Without any of the required probes the tracer sees nothing at all.
    pub required: bool,
    /// Its functions are part of what only some drivers can do: without them nothing stays unseen.
    pub may_lack: bool,
    /// Its functions are those of generations of GPUs: it is attached to those that a GPU here uses.
    pub of_gpus: bool,
    /// What is seen by it.
    pub feeds: &'static str,
}

impl Row {
    const fn new(
        kind: ProbeKind,
        id: ProbeId,
        program: &'static str,
        site: Site,
        feeds: &'static str,
    ) -> Self {
        Row {
            id,
            program,
            kind,
            site,
            when: When::Always,
            needs: &[],
            required: false,
            may_lack: false,
            of_gpus: false,
            feeds,
        }
    }

    pub(super) const fn entry(id: ProbeId, program: &'static str, site: Site, feeds: &'static str) -> Self {
        Self::new(ProbeKind::Kprobe, id, program, site, feeds)
    }

    pub(super) const fn exit(id: ProbeId, program: &'static str, site: Site, feeds: &'static str) -> Self {
        Self::new(ProbeKind::Kretprobe, id, program, site, feeds)
    }

    pub(super) const fn tracepoint(
        id: ProbeId,
        program: &'static str,
        system: &'static str,
        names: &'static [&'static str],
        feeds: &'static str,
    ) -> Self {
        Self::new(ProbeKind::Tracepoint, id, program, Site::Tracepoint { system, names }, feeds)
            .when(When::Tracepoints)
            .may_lack()
    }

    pub(super) const fn when(mut self, when: When) -> Self {
        self.when = when;
        self
    }

    pub(super) const fn needs(mut self, needs: &'static [&'static str]) -> Self {
        self.needs = needs;
        self
    }

    pub(super) const fn may_lack(mut self) -> Self {
        self.may_lack = true;
        self
    }

    pub(super) const fn of_gpus(mut self) -> Self {
        self.of_gpus = true;
        self
    }

    pub(super) const fn required(mut self) -> Self {
        self.required = true;
        self
    }
}
