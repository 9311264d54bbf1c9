//! Operations of a scenario, and the driver's results.

use crate::kfd::uapi::QueueType;
use serde_json::Value;

/// The kinds by which operations are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Start,
    Create,
    Update,
    CuMask,
    Destroy,
    Evict,
    Restore,
    TtmEvict,
    Fault,
    Fork,
    Close,
    Open,
    Context,
    Exit,
    Kill,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Create => "create",
            Self::Update => "update",
            Self::CuMask => "cu_mask",
            Self::Destroy => "destroy",
            Self::Evict => "evict",
            Self::Restore => "restore",
            Self::TtmEvict => "ttm_evict",
            Self::Fault => "vm_fault",
            Self::Fork => "fork",
            Self::Close => "close",
            Self::Open => "open",
            Self::Context => "context",
            Self::Exit => "exit",
            Self::Kill => "kill",
        }
    }
}

/// A KFD process: that of an agent, or one of its secondary contexts (Linux 7.x).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Owner {
    /// Number of the agent, never used twice in a scenario, unlike its PID.
    pub agent: u32,
    /// `None` is the primary KFD process.
    pub context: Option<u64>,
}

impl Owner {
    pub fn primary(agent: u32) -> Self {
        Self { agent, context: None }
    }
}

/// A CREATE_QUEUE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewQueue {
    pub gpu_id: u32,
    pub queue_type: QueueType,
    pub priority: u32,
    pub percent: u32,
    /// Bytes.
    pub ring_size: u32,
    pub engine: u32,
    /// 101 per cent: EINVAL.
    pub spoilt: bool,
}

/// An UPDATE_QUEUE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    pub priority: u32,
    pub percent: u32,
    /// Bytes.
    pub ring_size: u32,
    /// Without a ring the queue is off.
    pub no_ring: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    Start { agent: u32 },
    Create { owner: Owner, new: NewQueue },
    Update { owner: Owner, queue_id: u32, change: Change },
    CuMask { owner: Owner, queue_id: u32, mask: Vec<u32> },
    Destroy { owner: Owner, queue_id: u32 },
    Evict { agent: u32 },
    Restore { agent: u32 },
    TtmEvict { agent: u32 },
    Fault { agent: u32 },
    Fork { agent: u32 },
    Close { owner: Owner },
    Open { agent: u32 },
    Context { agent: u32 },
    Exit { agent: u32 },
    Kill { agent: u32 },
}

impl Op {
    pub fn kind(&self) -> Kind {
        match self {
            Self::Start { .. } => Kind::Start,
            Self::Create { .. } => Kind::Create,
            Self::Update { .. } => Kind::Update,
            Self::CuMask { .. } => Kind::CuMask,
            Self::Destroy { .. } => Kind::Destroy,
            Self::Evict { .. } => Kind::Evict,
            Self::Restore { .. } => Kind::Restore,
            Self::TtmEvict { .. } => Kind::TtmEvict,
            Self::Fault { .. } => Kind::Fault,
            Self::Fork { .. } => Kind::Fork,
            Self::Close { .. } => Kind::Close,
            Self::Open { .. } => Kind::Open,
            Self::Context { .. } => Kind::Context,
            Self::Exit { .. } => Kind::Exit,
            Self::Kill { .. } => Kind::Kill,
        }
    }

    pub fn agent(&self) -> u32 {
        match *self {
            Self::Create { owner, .. }
            | Self::Update { owner, .. }
            | Self::CuMask { owner, .. }
            | Self::Destroy { owner, .. }
            | Self::Close { owner } => owner.agent,
            Self::Start { agent }
            | Self::Evict { agent }
            | Self::Restore { agent }
            | Self::TtmEvict { agent }
            | Self::Fault { agent }
            | Self::Fork { agent }
            | Self::Open { agent }
            | Self::Context { agent }
            | Self::Exit { agent }
            | Self::Kill { agent } => agent,
        }
    }
}

/// Result of an operation, as its performer received it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Done,
    Started {
        pid: u32,
    },
    Created(Made),
    /// The id of a secondary KFD process, from sysfs.
    Context {
        id: u64,
    },
    /// The errno's name.
    Refused(String),
}

/// Result of CREATE_QUEUE, and what the process knows of its own memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Made {
    pub queue_id: u32,
    pub ring: u64,
    pub write_pointer: u64,
    pub read_pointer: u64,
}

impl Answer {
    /// From an agent's line on CREATE_QUEUE, see `workload/report.rs`; `None` for any other line.
    pub fn made(line: &Value) -> Option<Made> {
        let hex = |key: &str| u64::from_str_radix(line[key].as_str()?.strip_prefix("0x")?, 16).ok();
        Some(Made {
            queue_id: line["queue_id"].as_u64()?.try_into().ok()?,
            ring: hex("ring")?,
            write_pointer: hex("wptr")?,
            read_pointer: hex("rptr")?,
        })
    }
}
