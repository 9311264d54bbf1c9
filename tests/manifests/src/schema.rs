//! The types of the documents in the manifests.

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Namespace, Service, ServiceAccount};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::serde::{Serialize, de::DeserializeOwned};
use kcr_monitoring_coreos_com::v1::podmonitors::PodMonitor;
use serde_json::Value;

/// The document as its schema represents it.
///
/// # Errors
/// If its kind is unknown here, or a field has a wrong type or is missing.
pub fn known(document: &Value) -> Result<Value, String> {
    let name = |key| document[key].as_str().unwrap_or("");
    match (name("apiVersion"), name("kind")) {
        ("v1", "Namespace") => of::<Namespace>(document),
        ("v1", "Service") => of::<Service>(document),
        ("v1", "ServiceAccount") => of::<ServiceAccount>(document),
        ("apps/v1", "DaemonSet") => of::<DaemonSet>(document),
        ("networking.k8s.io/v1", "NetworkPolicy") => of::<NetworkPolicy>(document),
        ("monitoring.coreos.com/v1", "PodMonitor") => of::<PodMonitor>(document),
        (version, kind) => Err(format!("no schema of {version:?} {kind:?}: add its type to schema.rs")),
    }
}

fn of<T: Serialize + DeserializeOwned>(document: &Value) -> Result<Value, String> {
    let typed: T = serde_json::from_value(document.clone()).map_err(|error| error.to_string())?;
    serde_json::to_value(&typed).map_err(|error| error.to_string())
}
