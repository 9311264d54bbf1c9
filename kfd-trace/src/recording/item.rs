//! One line of a recording.

use super::VERSION;
use crate::attribute::Topology;
use crate::model::ioctl::Named;
use crate::model::verdict::Sight;
use crate::state::{Image, Input, Process, StateLimits};
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
    /// The state before all that follows, where that began earlier; its rows come next.
    State(Box<Image>),
    /// One of its rows.
    Row(Box<Process>),
    /// A call of the state.
    Input(Input),
    /// What exists is reported now.
    Existing,
    /// The driver was loaded, or unloaded.
    Loads { loaded: bool, at_ns: u64, loads: u64 },
    /// The end, with the summary as text and as a line of JSON.
    End { at_ns: u64, text: String, json: String },
    /// The end of a daemon's file.
    Close { at_ns: u64, why: Closed },
}

/// Why a daemon's file ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Closed {
    /// The next file goes on.
    Rotated,
    /// The daemon ended.
    Stopped,
    /// What came next was lost.
    Gap,
}

/// Which file of a daemon's it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// When the daemon began, nanoseconds of the Unix epoch.
    pub run_unix_ns: i64,
    /// Counts the files of this run, from 1.
    pub number: u64,
    /// Changes that were lost before it, after the end of the file before it.
    pub lost: u64,
}

impl Part {
    /// Nothing is missing between that one and this one.
    #[must_use]
    pub fn follows(&self, before: &Part) -> bool {
        (self.run_unix_ns, Some(self.number), self.lost)
            == (before.run_unix_ns, before.number.checked_add(1), 0)
    }
}

/// What a recording is of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Begin {
    /// [`VERSION`]
    pub kfd_trace_recording: u32,
    /// Name and version of the program that wrote it.
    pub program: String,
    pub machine: Machine,
    /// CLOCK_MONOTONIC, nanoseconds.
    pub at_ns: u64,
    /// The begin as nanoseconds of the Unix epoch.
    pub unix_ns: i64,
    /// Single processes were traced.
    pub selected: bool,
    pub limits: StateLimits,
    /// Interval between samples of queues, nanoseconds; 0 if they were not sampled.
    pub sample_ns: u64,
    /// `None` but for a daemon's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<Part>,
    /// /proc/sys/kernel/random/boot_id: CLOCK_MONOTONIC, PIDs and ids are comparable within it. `None` where it could not
    /// be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot_id: Option<String>,
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
    /// The begin of a recording by this program.
    #[must_use]
    pub fn new(machine: Machine, limits: StateLimits) -> Self {
        let program = format!("kfd-trace {}", env!("CARGO_PKG_VERSION"));
        let (at_ns, unix_ns, selected, sample_ns, part) = (0, 0, false, 0, None);
        let (kfd_trace_recording, boot_id) = (VERSION, None);
        Begin {
            kfd_trace_recording,
            program,
            machine,
            at_ns,
            unix_ns,
            selected,
            limits,
            sample_ns,
            part,
            boot_id,
        }
    }

    /// A daemon's, with its initial state.
    #[must_use]
    pub fn of_part(self, part: Part) -> Self {
        Begin { part: Some(part), ..self }
    }
}
