//! How much of a log is kept, whatever is in it. What does not fit is counted.

/// Bytes of a line; clr itself cuts its messages after 4,096.
pub const LONGEST_LINE: usize = 64 << 10;
pub const PROCESSES: usize = 1024;
pub const QUEUES: usize = 4096;
/// Addresses that lines of a queue's life name.
pub const ADDRESSES: usize = 8192;
/// Headers, grids and workgroups, of all queues together.
pub const SHAPES: usize = 16_384;
pub const KERNELS: usize = 8192;
/// Bytes of all names of kernels together.
pub const KERNEL_TEXT: usize = 8 << 20;
/// Kinds of commands, of all processes together.
pub const KINDS: usize = 2048;
/// Bytes of a kind of command, or of an error's name; the longest that clr has are half as long.
pub const LONGEST_NAME: usize = 64;
pub const HOST_QUEUES: usize = 4096;
/// Host queues told beside one hardware queue.
pub const HOST_QUEUES_A_QUEUE: usize = 8;
pub const ENGINES: usize = 64;
pub const GFX_VERSIONS: usize = 64;
pub const ERROR_NAMES: usize = 128;
/// Lines of errors that are shown, and their bytes.
pub const ERROR_LINES: usize = 16;
pub const ERROR_LINE: usize = 300;
/// Intervals of the rate. More time makes them longer.
pub const INTERVALS: usize = 120;
/// Queues of a recorded stream, for the join.
pub const RECORDED: usize = 65_536;

/// Microseconds of CLOCK_MONOTONIC that a log can have: twenty years. More is a number that was cut or glued.
pub const LATEST_US: u64 = 20 * 365 * 86_400 * 1_000_000;
