//! Variables that the dashboards share. Each dashboard has the data source, too.

use super::panel::Variable;

pub(super) const JOB: Variable = Variable {
    name: "job",
    label: "Job",
    of: "kfd_trace_build_info",
    values: "job",
    first: "kfd-trace",
    all: None,
};

/// Includes nodes that do not respond.
pub(super) const INSTANCE: Variable = Variable {
    name: "instance",
    label: "Node",
    of: "up{job=\"$job\"}",
    values: "instance",
    first: "",
    all: None,
};

/// With another name, so that "all" is not passed on to dashboards for one node.
pub(super) const INSTANCES: Variable =
    Variable { name: "instances", label: "Nodes", all: Some(".+"), ..INSTANCE };

pub(super) const GPU: Variable =
    Variable { name: "gpu", label: "GPU", of: "kfd_gpu_info{@}", values: "gpu", first: "", all: Some(".+") };

pub(super) const PID: Variable =
    Variable { name: "pid", label: "PID", of: "kfd_process_info{@}", values: "pid", first: "", all: None };

/// Of a store of several parts of a fleet, by the label that each gives to what it sends; a fleet of one part has none.
pub(super) const CLUSTERS: Variable = Variable {
    name: "clusters",
    label: "Clusters",
    of: "fleet:kfd_trace_up:max",
    values: "cluster",
    first: "",
    all: Some(".*"),
};
