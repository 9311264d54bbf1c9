//! Checks that need no guest: links, dependencies, Prometheus, Kubernetes, Grafana, fuzzing.

pub(crate) mod browser;
pub(crate) mod dashboards;
pub(crate) mod deny;
pub(crate) mod fuzz;
pub(crate) mod links;
pub(crate) mod manifests;
pub(crate) mod questions;
pub(crate) mod rules;
