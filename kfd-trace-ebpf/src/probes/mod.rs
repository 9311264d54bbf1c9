//! The BPF programs: one file per topic, one program per row of the probe table
//! (kfd-trace/src/probes/table.rs).

mod call;
mod device;
mod eviction;
mod ioctl;
mod mes;
mod mqd;
mod process;
mod queue;
mod registers;
mod runlist;
mod suspension;
mod tracepoint;
mod trouble;
mod update;
mod user_queue;
