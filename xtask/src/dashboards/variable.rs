//! Variables that the dashboards share. The data source is one of each, too.

use super::panel::Variable;

pub(super) const JOB: Variable = Variable {
    name: "job",
    label: "Job",
    of: "kfd_trace_build_info",
    values: "job",
    first: "kfd-trace",
    all: false,
};

/// Nodes that do not answer are among them.
pub(super) const INSTANCE: Variable = Variable {
    name: "instance",
    label: "Node",
    of: "up{job=\"$job\"}",
    values: "instance",
    first: "",
    all: false,
};

/// Of another name, so that "all" does not go along to where there is one.
pub(super) const INSTANCES: Variable = Variable { name: "instances", label: "Nodes", all: true, ..INSTANCE };

pub(super) const GPU: Variable =
    Variable { name: "gpu", label: "GPU", of: "kfd_gpu_info{@}", values: "gpu", first: "", all: true };

pub(super) const PID: Variable =
    Variable { name: "pid", label: "PID", of: "kfd_process_info{@}", values: "pid", first: "", all: false };
