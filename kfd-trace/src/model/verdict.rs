//! What became of each probe on this kernel. Pure data: the planner and the loader fill it, every output shows it.

use kfd_trace_common::counter::ProbeId;

/// One row of the probe table after planning and loading.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeStatus {
    pub id: ProbeId,
    /// `kprobe`, `kretprobe` or `tracepoint`.
    pub kind: &'static str,
    /// The kernel functions it sits on, or would sit on.
    pub symbols: Vec<String>,
    /// Places that it sits on: copies of these functions, each counted.
    pub places: usize,
    /// The tracer has no purpose without it.
    pub required: bool,
    /// A kernel without its functions leaves nothing unseen by that.
    pub may_lack: bool,
    /// What cannot be seen without it, in a few words.
    pub feeds: &'static str,
    pub verdict: Verdict,
}

/// The verdict on one probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// On all of its functions.
    Attached,
    /// On some of its functions; the others with the reason.
    Partly { failed: Vec<(String, String)> },
    /// Not needed for what was asked for (arguments of ioctls in the daemon, say).
    NotAsked,
    /// The user did not want it (`--without-probe`).
    LeftOut,
    /// The probe on this function tells the same.
    ToldBy(&'static str),
    /// None of its functions is in this kernel.
    NotInKernel,
    /// No GPU here uses its functions; it is attached when one comes.
    NoGpu,
    /// The kernel does not tell where these fields are.
    MissingFields(Vec<String>),
    /// The kernel refused the program or the attachment, with its reason.
    Refused(String),
}

impl Verdict {
    /// It is on at least some of its functions, or none of them can be called: what it counts is known.
    #[must_use]
    pub fn sees(&self) -> bool {
        matches!(self, Verdict::Attached | Verdict::Partly { .. } | Verdict::NoGpu)
    }

    /// One word for metrics and tables.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Verdict::Attached => "attached",
            Verdict::Partly { .. } => "partly",
            Verdict::NotAsked => "not_asked",
            Verdict::LeftOut => "left_out",
            Verdict::ToldBy(_) => "told_by_another",
            Verdict::NotInKernel => "not_in_kernel",
            Verdict::NoGpu => "no_gpu",
            Verdict::MissingFields(_) => "missing_fields",
            Verdict::Refused(_) => "refused",
        }
    }

    /// The reason, where the word does not say it all.
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
            Verdict::ToldBy(other) => Some((*other).to_owned()),
            Verdict::MissingFields(fields) => Some(fields.join(", ")),
            Verdict::Refused(why) => Some(why.clone()),
        }
    }
}
