//! What the tests and the demo are made of, apart from the tracer: a KFD client, workloads that behave like
//! ROCm programs, and the harness that runs tracer and workloads side by side in the VM.

pub mod harness;
pub mod kfd;
pub mod scenario;
pub mod workload;
