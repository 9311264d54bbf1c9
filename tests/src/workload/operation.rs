//! The language of `script`: one operation, parsed from its arguments.

use super::activity::Activity;
use super::{criu, memory};
use crate::kfd::uapi::{self, CreateQueueOld, QueueType};
use anyhow::{Context, Result, bail, ensure};
use std::str::FromStr;
use std::time::Duration;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Version,
    Clock {
        gpu: Place,
    },
    Apertures,
    Create(Create),
    Destroy {
        queue: Which,
    },
    Update {
        queue: Which,
        percent: u32,
        /// Default: 7, as ROCr's.
        priority: u32,
        /// In bytes; default: the ring's own size.
        ring_size: Option<u32>,
        /// No ring address: the queue is off.
        no_ring: bool,
    },
    CuMask {
        queue: Which,
        mask: Vec<u32>,
    },
    MemoryPolicy {
        gpu: Place,
    },
    Memory(memory::Step),
    Criu(criu::Step),
    RuntimeEnable,
    /// On a queue's pointers: no ioctl.
    Activity(Activity),
    Unknown {
        nr: u8,
        size: usize,
    },
    ForkIoctl,
    /// A child that does nothing and ends with this process.
    Fork,
    /// GET_VERSION by this many threads, one after the other; they stay until the next operation.
    Threads(u32),
    /// CREATE_QUEUE of SDMA queues on the first GPU by this many threads at once; they stay until the next operation.
    CreateCrowd(u32),
    /// So many threads sleep in WAIT_EVENTS, until `wake`.
    Sleepers(u32),
    Wake,
    /// An update by a thread of its own, to a percentage; it goes on until `end-update`.
    BeginUpdate {
        queue: Which,
        percent: u32,
    },
    /// Changes the arguments of that update in its caller's memory.
    Rewrite,
    EndUpdate,
    Sleep(Duration),
    Open,
    Close,
    /// Opens the device once more and turns it into a secondary KFD process, which is then the one in use.
    Context,
    /// Selects the KFD process of the following operations: 0 is the first that was opened.
    Use(usize),
    Wait,
    Exec,
}

/// A queue of the KFD process in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    /// `id=N`: the one with this id.
    Id(u32),
    /// `N`: the one with this number, counted from 0 for the id of the process's first queue. The driver gives
    /// the lowest free id (kfd_process_queue_manager.c, find_available_queue_slot), and not every driver
    /// begins at 0.
    Nth(u32),
}

impl Which {
    /// `first`: the id of the process's first queue.
    pub(crate) const fn id(self, first: u32) -> u32 {
        match self {
            Self::Id(id) => id,
            Self::Nth(number) => first.saturating_add(number),
        }
    }
}

impl FromStr for Which {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let which = match text.strip_prefix("id=") {
            Some(id) => id.parse().map(Self::Id),
            None => text.parse().map(Self::Nth),
        };
        which.with_context(|| format!("`{text}` is no queue: N or id=N"))
    }
}

/// A CREATE_QUEUE. `None` means ROCr's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Create {
    pub(crate) queue_type: QueueType,
    pub(crate) spoil: Spoil,
    pub(crate) old: bool,
    pub(crate) gpu: Place,
    pub(crate) percent: Option<u32>,
    pub(crate) priority: Option<u32>,
    /// In bytes.
    pub(crate) ring_size: Option<u32>,
    pub(crate) engine: u32,
    /// The pointers are in a page that cannot be read from outside.
    pub(crate) unreadable: bool,
}

/// The GPU of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The N-th of the topology, from 0.
    Gpu(usize),
    /// A nonexistent one: the driver refuses the call.
    Nowhere,
}

/// The deliberate fault of a CREATE_QUEUE, for its errno.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Spoil {
    #[default]
    Nothing,
    /// 101 per cent: EINVAL.
    Percentage,
    /// An unknown type: ENOTSUPP, for which user space has no name.
    QueueType,
}

impl Spoil {
    pub(crate) fn apply(self, args: &mut CreateQueueOld) {
        match self {
            Self::Nothing => {}
            Self::Percentage => args.queue_percentage = 101,
            Self::QueueType => args.queue_type = 99,
        }
    }
}

/// The size of the one unknown ioctl that real programs issue (0x82, by older ROCm).
const UNKNOWN_SIZE: usize = 0x28;

impl Operation {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Version => "version",
            Self::Clock { .. } => "clock",
            Self::Apertures => "apertures",
            Self::Create(_) => "create",
            Self::Destroy { .. } => "destroy",
            Self::Update { .. } => "update",
            Self::CuMask { .. } => "cu-mask",
            Self::MemoryPolicy { .. } => "memory-policy",
            Self::Memory(step) => step.name(),
            Self::Criu(_) => "criu",
            Self::RuntimeEnable => "runtime-enable",
            Self::Activity(activity) => activity.name(),
            Self::Unknown { .. } => "unknown",
            Self::ForkIoctl => "fork-ioctl",
            Self::Fork => "fork",
            Self::Threads(_) => "threads",
            Self::CreateCrowd(_) => "create-crowd",
            Self::Sleepers(_) => "sleepers",
            Self::Wake => "wake",
            Self::BeginUpdate { .. } => "begin-update",
            Self::Rewrite => "rewrite",
            Self::EndUpdate => "end-update",
            Self::Sleep(_) => "sleep",
            Self::Open => "open",
            Self::Close => "close",
            Self::Context => "context",
            Self::Use(_) => "use",
            Self::Wait => "wait",
            Self::Exec => "exec",
        }
    }
}

impl FromStr for Operation {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut words = text.split_whitespace();
        let name = words.next().context("no word")?;
        let rest: Vec<&str> = words.collect();
        match (name, rest.as_slice()) {
            ("version", []) => Ok(Self::Version),
            ("clock", rest) => Ok(Self::Clock { gpu: only_gpu(rest)? }),
            ("apertures", []) => Ok(Self::Apertures),
            ("create", [queue_type, options @ ..]) => create(queue_type, options),
            ("destroy", [queue]) => Ok(Self::Destroy { queue: queue.parse()? }),
            ("update", [queue, percent, options @ ..]) => update(queue.parse()?, percent.parse()?, options),
            ("cu-mask", [queue]) => Ok(Self::CuMask { queue: queue.parse()?, mask: vec![0x0f0f_0f0f; 2] }),
            ("cu-mask", [queue, words @ ..]) => Ok(Self::CuMask {
                queue: queue.parse()?,
                mask: words.iter().map(|w| word(w)).collect::<Result<_>>()?,
            }),
            ("alloc" | "import" | "free" | "map" | "unmap", rest) => {
                memory::Step::parse(name, rest).map(Self::Memory)
            }
            ("memory-policy", rest) => Ok(Self::MemoryPolicy { gpu: only_gpu(rest)? }),
            ("criu", rest) => criu::Step::parse(rest).map(Self::Criu),
            ("runtime-enable", []) => Ok(Self::RuntimeEnable),
            ("unknown", [nr]) => unknown(nr, UNKNOWN_SIZE),
            ("unknown", [nr, size]) => unknown(nr, number(size)?),
            ("fork-ioctl", []) => Ok(Self::ForkIoctl),
            ("fork", []) => Ok(Self::Fork),
            ("threads", [number]) => Ok(Self::Threads(number.parse()?)),
            ("create-crowd", [number]) => Ok(Self::CreateCrowd(number.parse()?)),
            ("sleepers", [number]) => Ok(Self::Sleepers(number.parse()?)),
            ("wake", []) => Ok(Self::Wake),
            ("begin-update", [queue, percent]) => {
                Ok(Self::BeginUpdate { queue: queue.parse()?, percent: percent.parse()? })
            }
            ("rewrite", []) => Ok(Self::Rewrite),
            ("end-update", []) => Ok(Self::EndUpdate),
            ("sleep", [ms]) => Ok(Self::Sleep(Duration::from_millis(ms.parse()?))),
            ("open", []) => Ok(Self::Open),
            ("close", []) => Ok(Self::Close),
            ("context", []) => Ok(Self::Context),
            ("use", [index]) => Ok(Self::Use(index.parse()?)),
            ("wait", []) => Ok(Self::Wait),
            ("exec", []) => Ok(Self::Exec),
            (name, rest) => match Activity::parse(name, rest)? {
                Some(activity) => Ok(Self::Activity(activity)),
                None => bail!("not known, or wrong words after it"),
            },
        }
    }
}

fn create(queue_type: &str, options: &[&str]) -> Result<Operation> {
    let queue_type = match queue_type {
        "aql" => QueueType::ComputeAql,
        "sdma" => QueueType::Sdma,
        "compute" => QueueType::Compute,
        "xgmi" => QueueType::SdmaXgmi,
        "sdma-engine" => QueueType::SdmaByEngId,
        other => bail!("no queue type `{other}`: aql, sdma, compute, xgmi or sdma-engine"),
    };
    let mut create = Create::of(queue_type);
    for option in options {
        match (*option, option.split_once('=')) {
            ("bad", _) => create.spoil = Spoil::Percentage,
            ("bad-type", _) => create.spoil = Spoil::QueueType,
            ("old", _) => create.old = true,
            ("unreadable", _) => create.unreadable = true,
            (_, Some(("percent", value))) => create.percent = Some(value.parse()?),
            (_, Some(("priority", value))) => create.priority = Some(value.parse()?),
            (_, Some(("ring", value))) => create.ring_size = Some(value.parse()?),
            (_, Some(("engine", value))) => create.engine = value.parse()?,
            (other, _) => create.gpu = gpu_word(other)?,
        }
    }
    Ok(Operation::Create(create))
}

impl Create {
    fn of(queue_type: QueueType) -> Self {
        let (percent, priority, ring_size) = (None, None, None);
        let (spoil, gpu) = (Spoil::Nothing, Place::Gpu(0));
        let (old, unreadable, engine) = (false, false, 0);
        Self { queue_type, spoil, old, gpu, percent, priority, ring_size, engine, unreadable }
    }

    /// Replaces ROCr's values by the requested ones.
    pub(crate) fn apply(&self, args: &mut CreateQueueOld) {
        args.queue_percentage = self.percent.unwrap_or(args.queue_percentage);
        args.queue_priority = self.priority.unwrap_or(args.queue_priority);
        args.ring_size = self.ring_size.unwrap_or(args.ring_size);
        self.spoil.apply(args);
    }
}

fn update(queue: Which, percent: u32, options: &[&str]) -> Result<Operation> {
    let (mut priority, mut ring_size, mut no_ring) = (7, None, false);
    for option in options {
        match (*option, option.split_once('=')) {
            ("no-ring", _) => no_ring = true,
            (_, Some(("priority", value))) => priority = value.parse()?,
            (_, Some(("ring", value))) => ring_size = Some(value.parse()?),
            (other, _) => bail!("`{other}` is not priority=N, ring=BYTES or no-ring"),
        }
    }
    Ok(Operation::Update { queue, percent, priority, ring_size, no_ring })
}

/// A word of a mask, in hexadecimal.
fn word(text: &str) -> Result<u32> {
    let hex = text.strip_prefix("0x").with_context(|| format!("`{text}` is no 0x..."))?;
    u32::from_str_radix(hex, 16).with_context(|| format!("`{text}` has no 32 bits"))
}

fn unknown(nr: &str, size: usize) -> Result<Operation> {
    let nr = u8::try_from(number(nr)?).context("an ioctl number has eight bits")?;
    ensure!(!uapi::NEEDS_GPU_MEMORY.contains(&nr), "ioctl {nr:#x} needs real GPU memory");
    ensure!(size <= 256, "at most 256 bytes of arguments");
    Ok(Operation::Unknown { nr, size })
}

pub(super) fn only_gpu(words: &[&str]) -> Result<Place> {
    match words {
        [] => Ok(Place::Gpu(0)),
        [word] => gpu_word(word),
        _ => bail!("at most gpu=N or gpu=none"),
    }
}

/// `gpu=N` or `gpu=none`
pub(super) fn gpu_word(word: &str) -> Result<Place> {
    match word.strip_prefix("gpu=").with_context(|| format!("`{word}` is not gpu=N"))? {
        "none" => Ok(Place::Nowhere),
        number => number.parse().map(Place::Gpu).context("gpu=N"),
    }
}

fn number(text: &str) -> Result<usize> {
    let parsed = text.strip_prefix("0x").map_or_else(|| text.parse(), |hex| usize::from_str_radix(hex, 16));
    parsed.with_context(|| format!("`{text}` is no number"))
}

#[cfg(test)]
mod tests;
