//! Status of each probe on this kernel. Pure data: filled by the planner and the loader, shown by every
//! output.

use kfd_trace_common::counter::ProbeId;
use serde::{Deserialize, Serialize};

/// Probes for evictions and restores.
pub const EVICTIONS: [ProbeId; 3] = [ProbeId::EvictGpu, ProbeId::RestoreGpu, ProbeId::EvictGpuReturn];

/// Probes for the creation and the destruction of queues.
pub const QUEUES: [ProbeId; 2] = [ProbeId::QueueAdd, ProbeId::QueueDel];

/// Probes for preemptions and runlists. Of each list one is enough.
pub const PREEMPTIONS: [&[ProbeId]; 4] = [
    &[ProbeId::RunlistUnmap, ProbeId::RunlistChange],
    &[ProbeId::PreemptBegin],
    &[ProbeId::PreemptEnd],
    &[ProbeId::RunlistSent],
];

/// Probes for hangs of the scheduler: one of these lists is enough.
const HANGS: [&[ProbeId]; 3] =
    [&[ProbeId::HwsHang], &[ProbeId::HwException], &[ProbeId::HangScope, ProbeId::ResetRequest]];

/// One row of the probe table after planning and loading.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeStatus {
    pub id: ProbeId,
    /// `kprobe`, `kretprobe` or `tracepoint`.
    pub kind: &'static str,
    /// The kernel functions it is attached to, or would be attached to.
    pub symbols: Vec<String>,
    /// Attach points: each copy of these functions counts.
    pub places: usize,
    /// The tracer is useless without it.
    pub required: bool,
    /// A kernel that does not have its functions loses no coverage for that.
    pub may_lack: bool,
    /// What cannot be seen without it, in a few words.
    pub feeds: &'static str,
    pub verdict: Verdict,
}

/// What a tracer sees, in short.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sight {
    /// Something is traced.
    pub traces: bool,
    /// Queues are followed from their creation on: else those that are known need not be all.
    pub queues: bool,
    /// Evictions and restores are seen: else a count of 0 means nothing.
    pub evictions: bool,
    /// Queues are followed by their ioctls alone.
    pub by_ioctl: bool,
    /// What cannot be seen, a line per topic.
    pub unseen: Vec<String>,
}

impl Sight {
    /// What it does not see, one line per topic; empty where it sees all that was requested.
    #[must_use]
    pub fn gaps(&self) -> Vec<String> {
        let general = [
            (!self.traces, "nothing is traced"),
            (self.traces && !self.queues, "not all queues are known"),
            (self.by_ioctl, "queues are followed by their ioctls alone"),
        ];
        let general = general.into_iter().filter(|(holds, _)| *holds).map(|(_, line)| line.to_owned());
        general.chain(self.unseen.iter().cloned()).collect()
    }
}

/// Whether all of these are attached, at least to some of their functions.
#[must_use]
pub fn all_see(probes: &[ProbeStatus], ids: &[ProbeId]) -> bool {
    ids.iter().all(|id| probes.iter().any(|probe| probe.id == *id && probe.verdict.sees()))
}

/// Whether hangs of the scheduler are seen.
#[must_use]
pub fn sees_hangs(probes: &[ProbeStatus]) -> bool {
    HANGS.iter().any(|ids| all_see(probes, ids))
}

/// The probe that is missing where none of a list is attached, of lists of which one is enough each.
#[must_use]
pub fn missing<'a>(probes: &'a [ProbeStatus], needed: &[&[ProbeId]]) -> Option<&'a ProbeStatus> {
    let unseen = needed.iter().find(|any| !any.iter().any(|id| all_see(probes, &[*id])))?;
    probes.iter().find(|probe| unseen.contains(&probe.id))
}

/// The verdict on one probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Attached to all of its functions.
    Attached,
    /// Attached to some of its functions; the others with the reason.
    Partly { failed: Vec<(String, String)> },
    /// Not needed for what was requested (arguments of ioctls in the daemon, say).
    NotAsked,
    /// Excluded by the user (`--without-probe`).
    LeftOut,
    /// The probe on this function reports the same.
    ReportedBy(&'static str),
    /// This kernel has none of its functions.
    NotInKernel,
    /// No GPU here uses its functions; it is attached when one appears.
    NoGpu,
    /// The offsets of these fields are unknown in this kernel.
    MissingFields(Vec<String>),
    /// The kernel refused the program or the attachment, for this reason.
    Refused(String),
}

impl Verdict {
    /// It is attached to at least some of its functions, or none of them can be called: its counts are known.
    #[must_use]
    pub fn sees(&self) -> bool {
        matches!(self, Verdict::Attached | Verdict::Partly { .. } | Verdict::NoGpu)
    }

    /// [`Verdict::sees`] of a verdict with this label.
    #[must_use]
    pub fn word_sees(word: &str) -> bool {
        [Verdict::Attached, Verdict::Partly { failed: Vec::new() }, Verdict::NoGpu]
            .iter()
            .any(|verdict| verdict.word() == word)
    }

    /// One-word label for metrics and tables.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Verdict::Attached => "attached",
            Verdict::Partly { .. } => "partly",
            Verdict::NotAsked => "not_asked",
            Verdict::LeftOut => "left_out",
            Verdict::ReportedBy(_) => "reported_by_another",
            Verdict::NotInKernel => "not_in_kernel",
            Verdict::NoGpu => "no_gpu",
            Verdict::MissingFields(_) => "missing_fields",
            Verdict::Refused(_) => "refused",
        }
    }

    /// The reason, if the label does not contain it all.
    #[must_use]
    pub fn reason(&self) -> Option<String> {
        match self {
            Verdict::Attached
            | Verdict::NotAsked
            | Verdict::LeftOut
            | Verdict::NotInKernel
            | Verdict::NoGpu => None,
            Verdict::Partly { failed } => {
                let failed: Vec<_> = failed.iter().map(|(symbol, why)| format!("{symbol}: {why}")).collect();
                Some(failed.join("; "))
            }
            Verdict::ReportedBy(other) => Some((*other).to_owned()),
            Verdict::MissingFields(fields) => Some(fields.join(", ")),
            Verdict::Refused(why) => Some(why.clone()),
        }
    }
}
