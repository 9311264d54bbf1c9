//! Limits on what is kept of a log, for any content. What exceeds them is counted.

/// Bytes of a line; clr itself cuts its messages after 4,096.
pub const LONGEST_LINE: usize = 64 << 10;
pub const PROCESSES: usize = 1024;
/// Labels of ranks and containers, and the bytes of each.
pub const SOURCES: u16 = 1024;
pub const LONGEST_LABEL: usize = 128;
/// Aborts of queues and faults that are kept, each.
pub const FAULTS: usize = 64;
/// Queues of analyses of a hang.
pub const ANALYZED: usize = 1024;
/// Commands without an end that are shown.
pub const UNFINISHED: usize = 8;
pub const QUEUES: usize = 4096;
/// Addresses in lines of a queue's life.
pub const ADDRESSES: usize = 8192;
/// Distinct headers, grids and workgroups, of all queues together.
pub const SHAPES: usize = 16_384;
pub const KERNELS: usize = 8192;
/// Bytes of all names of kernels together.
pub const KERNEL_TEXT: usize = 8 << 20;
/// Kinds of commands, of all processes together.
pub const KINDS: usize = 2048;
/// Bytes of a kind of command, or of an error's name; clr's longest are half as long.
pub const LONGEST_NAME: usize = 64;
pub const HOST_QUEUES: usize = 4096;
/// Host queues listed per hardware queue.
pub const HOST_QUEUES_A_QUEUE: usize = 8;
pub const ENGINES: usize = 64;
pub const GFX_VERSIONS: usize = 64;
pub const ERROR_NAMES: usize = 128;
/// Error lines that are shown, and the bytes of each.
pub const ERROR_LINES: usize = 16;
pub const ERROR_LINE: usize = 300;
/// Intervals of the rate. Longer logs have longer intervals.
pub const INTERVALS: usize = 120;
/// Queues of a recorded stream, for the join.
pub const RECORDED: usize = 65_536;
/// Commands whose end is waited for.
pub const COMMANDS_UNDER_WAY: usize = 65_536;
/// Packets and copies whose times are waited for.
pub const WORK_UNDER_WAY: usize = 65_536;
/// Threads whose last command is known.
pub const THREADS: usize = 8192;

/// Highest valid time of a log, microseconds of CLOCK_MONOTONIC: twenty years. Anything above is a truncated
/// or merged number.
pub const LATEST_US: u64 = 20 * 365 * 86_400 * 1_000_000;
