//! The counts of what was written.

use serde::Serialize;
use std::collections::BTreeMap;

/// For one hardware queue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct OfQueue {
    pub pid: u32,
    pub id: u64,
    pub hwq: u64,
    pub swq: u64,
    pub host_queue: u64,
    pub created: u64,
    pub acquired: u64,
    pub selected: u64,
    pub released: u64,
    pub deleted: u64,
    pub aborted: u64,
    pub dispatches: u64,
    pub barriers_and: u64,
    pub barrier_values: u64,
    /// Header, grid, workgroup.
    pub shapes: BTreeMap<(u16, [u64; 3], [u64; 3]), u64>,
    /// Packets whose line has pointers, the largest backlog of them, and their sum.
    pub with_pointers: u64,
    pub most: u64,
    pub sum: u64,
    pub first_write: Option<u64>,
    pub last_write: u64,
}

/// For a log. Every line is in exactly one of `read`, `other`, `without_prefix`, `crash`, `blank`, `damaged`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Ledger {
    pub bytes: u64,
    pub lines: u64,
    pub read: u64,
    pub other: u64,
    pub without_prefix: u64,
    /// Lines without a prefix that report a fault or a queue's state.
    pub crash: u64,
    pub blank: u64,
    pub damaged: u64,
    pub by_level: [u64; 10],
    pub first_us: Option<u64>,
    pub last_us: Option<u64>,
    /// Lines that name each process.
    pub processes: BTreeMap<u32, u64>,
    pub agents: u64,
    pub gfx_lines: u64,
    #[serde(skip)]
    pub queues: Vec<OfQueue>,
    /// By process and kind.
    #[serde(skip)]
    pub commands: BTreeMap<(u32, String), u64>,
    pub completed: u64,
    pub gpu_us: i64,
    /// Commands and dispatches by second.
    pub by_second: BTreeMap<u64, [u64; 2]>,
    pub kernels: BTreeMap<String, u64>,
    /// By engine: number and bytes.
    pub copies: BTreeMap<u64, [u64; 2]>,
    pub queue_full: u64,
    pub returned: BTreeMap<String, u64>,
    pub returned_success: u64,
    pub aborts: u64,
    pub fault_reports: u64,
    /// Queues in an analysis of a hang.
    pub analyzed: u64,
    /// Copies of rectangles, whose lines have no size or engine.
    pub without_size: u64,
    /// GPU times of signals: number, and nanoseconds in sum.
    pub signals: [u64; 2],
    /// Lines that have the text `HWq=`, as grep counts them.
    pub with_hwq: u64,
    /// Barriers of values whose lines name the wrong queue.
    pub without_queue: u64,
}
