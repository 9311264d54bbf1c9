//! The BPF programs: a file a topic, a program a row of the probe table (kfd-trace/src/probes/table.rs).

mod device;
mod eviction;
mod ioctl;
mod mqd;
mod process;
mod queue;
mod tracepoint;
mod trouble;
mod update;
mod user_queue;
