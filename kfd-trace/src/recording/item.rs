//! One line of a recording.

use super::VERSION;
use crate::attribute::Topology;
use crate::model::ioctl::Named;
use crate::model::verdict::Sight;
use crate::state::{Input, StateLimits};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One line. Names are the format: they are never changed, and fields that are added are optional.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Item {
    /// The first line of a file.
    Begin(Begin),
    /// The driver that is traced from here on: its ioctls that have a name, and the sizes of their arguments.
    Driver { named: Named, sizes: BTreeMap<u8, u32> },
    /// The GPUs, whenever they are not as before.
    Gpus(Topology),
    /// CLOCK_REALTIME and CLOCK_BOOTTIME minus CLOCK_MONOTONIC, nanoseconds, whenever they are not as before.
    Clock { wall_ns: i64, boot_ns: i64 },
    /// What is seen, whenever it is not as before.
    Sight { at_ns: u64, sight: Sight },
    /// What was lost since the begin, by name, none of them 0, `null` where it could not be read; whenever it is not as
    /// before.
    Lost { at_ns: u64, lost: Option<BTreeMap<String, u64>> },
    /// A call of the state.
    Input(Input),
    /// What exists is reported now.
    Existing,
    /// The driver was loaded, or unloaded.
    Loads { loaded: bool, at_ns: u64, loads: u64 },
    /// The end, with the summary as text and as a line of JSON.
    End { at_ns: u64, text: String, json: String },
}

/// What a recording is of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Begin {
    /// [`VERSION`]
    pub kfd_trace_recording: u32,
    /// Of the program that wrote it.
    pub program: String,
    pub machine: Machine,
    /// CLOCK_MONOTONIC, nanoseconds.
    pub at_ns: u64,
    /// The same of the Unix epoch.
    pub unix_ns: i64,
    /// Single processes were traced.
    pub selected: bool,
    pub limits: StateLimits,
    /// Interval between samples of queues, nanoseconds; 0 if they were not sampled.
    pub sample_ns: u64,
}

/// Where it was made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    pub host: String,
    /// Release of the kernel.
    pub kernel: String,
    /// Architecture: `x86_64`.
    pub machine: String,
}

impl Begin {
    /// Of this program, at its begin.
    #[must_use]
    pub fn new(machine: Machine, limits: StateLimits) -> Self {
        let program = format!("kfd-trace {}", env!("CARGO_PKG_VERSION"));
        let (kfd_trace_recording, at_ns, unix_ns, selected, sample_ns) = (VERSION, 0, 0, false, 0);
        Begin { kfd_trace_recording, program, machine, at_ns, unix_ns, selected, limits, sample_ns }
    }
}
