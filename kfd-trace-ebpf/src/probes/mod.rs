//! The attached programs, a file for each topic. Each counts its hit first, so that misses can be told from
//! silence, and its name is the `program` of its row in the probe table (kfd-trace/src/probes/table.rs).

mod ioctl;
mod process;
mod queue;
