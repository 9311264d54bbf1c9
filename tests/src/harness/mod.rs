//! Harness of the integration tests inside the VM: the tracer and workloads as child processes whose JSON
//! lines can be waited for, the tracer's metrics, and the kernel's own lists to compare both with.
//!
//! Every wait has a limit and a name for its condition; nothing sleeps for a fixed time. Children are killed
//! when dropped, so that a failing test leaves no probe and no queue to the next one.

pub mod bpf_calls;
pub mod bpf_maps;
pub mod btf_file;
pub mod calls;
pub mod capable;
pub mod child;
pub mod counts;
pub mod dashboards;
pub mod driver;
pub mod events;
pub mod evictions;
pub mod exposition;
pub mod footprint;
pub mod functions;
pub mod http;
pub mod hw;
pub mod json_lines;
pub mod json_process;
pub mod kernel;
mod mapped;
pub mod mes;
pub mod mqd_calls;
pub mod mqd_count;
pub mod node;
pub mod other_sysfs;
pub mod otlp;
pub mod pftrace;
pub mod prometheus;
pub mod restores;
pub mod ring;
pub mod service;
pub mod setting;
pub mod shared;
pub mod shipped_table;
pub mod sleep;
pub mod stage;
pub mod status;
pub mod steered;
pub mod svg;
pub mod sysfs;
pub mod terminal;
pub mod tracefs;
pub mod tracer;
pub mod wait;
pub mod workload;

pub use calls::{Call, Calls};
pub use driver::Driver;
pub use exposition::Metrics;
pub use functions::driver_has;
pub use json_lines::JsonLines;
pub use json_process::JsonProcess;
pub use node::{Node, nodes};
pub use shared::{SharedDaemon, SharedStream};
pub use stage::{Stage, VmKernel};
pub use steered::Steered;
pub use terminal::TerminalProcess;
pub use tracer::{Daemon, Stream};
pub use wait::until;
pub use workload::Workload;
