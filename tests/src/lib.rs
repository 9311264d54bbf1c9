//! Building blocks of the tests and the demo, apart from the tracer: a KFD client, workloads that behave like
//! ROCm programs, the harness that runs tracer and workloads side by side in the VM, and the measurement of
//! the cost of tracing.

pub mod cost;
pub mod harness;
pub mod kfd;
pub mod pulse;
pub mod scenario;
pub mod tour;
pub mod workload;
