//! Container, pod, Slurm job and unit of a process, as JSON fields, as labels, and as a short name.

use crate::attribute::Runtime;
use crate::state::ProcessDetails;
use crate::text::escape;
use serde::Serialize;

/// Digits of a container id that are customary.
const SHORT_ID: usize = 12;

/// Every field is always present; `null` is "not known".
#[derive(Clone, Copy, Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct BelongsFields<'a> {
    container_id: Option<&'a str>,
    /// `docker`, `podman`, `containerd` or `cri-o`.
    runtime: Option<&'static str>,
    pod_uid: Option<&'a str>,
    namespace: Option<&'a str>,
    pod: Option<&'a str>,
    /// Its name in the pod, or as Docker or Podman has it.
    container: Option<&'a str>,
    slurm_job: Option<u32>,
    slurm_step: Option<&'a str>,
    slurm_uid: Option<u32>,
    unit: Option<&'a str>,
}

impl<'a> From<&'a ProcessDetails> for BelongsFields<'a> {
    fn from(details: &'a ProcessDetails) -> Self {
        let ProcessDetails { belongs, pod: names, .. } = details;
        let container = belongs.container.as_ref();
        let slurm = belongs.slurm.as_ref();
        BelongsFields {
            container_id: container.map(|container| container.id.as_str()),
            runtime: container.and_then(|container| container.runtime).map(Runtime::name),
            pod_uid: belongs.pod_uid.as_deref(),
            namespace: names.as_ref().map(|names| names.namespace.as_str()),
            pod: names.as_ref().map(|names| names.pod.as_str()),
            container: details.container_name(),
            slurm_job: slurm.map(|slurm| slurm.job),
            slurm_step: slurm.and_then(|slurm| slurm.step.as_deref()),
            slurm_uid: slurm.and_then(|slurm| slurm.uid),
            unit: belongs.unit.as_deref(),
        }
    }
}

impl BelongsFields<'_> {
    /// Empty means "not known". The user of a Slurm job is that of the process.
    #[must_use]
    pub fn labels(&self) -> [String; 9] {
        let text = |value: Option<&str>| value.unwrap_or_default().to_owned();
        [
            text(self.container_id),
            text(self.runtime),
            text(self.pod_uid),
            text(self.namespace),
            text(self.pod),
            text(self.container),
            self.slurm_job.map_or_else(String::new, |job| job.to_string()),
            text(self.slurm_step),
            text(self.unit),
        ]
    }

    /// The owner, safe for a terminal: `ml/train-0/trainer`, `pod UID`, `slurm 7.batch`, `docker
    /// 0123456789ab`, or with the name of the container, a unit; both for a container in a job. `None`: not known.
    #[must_use]
    pub fn owner(&self) -> Option<String> {
        let pod = match (self.namespace, self.pod, self.pod_uid) {
            (Some(namespace), Some(pod), _) => {
                let container = self.container.map_or_else(String::new, |name| format!("/{name}"));
                Some(format!("{namespace}/{pod}{container}"))
            }
            (_, _, Some(uid)) => Some(format!("pod {uid}")),
            _ => None,
        };
        let container = || {
            let id = self.container_id?;
            let name = self.container.unwrap_or(id.get(..SHORT_ID).unwrap_or(id));
            Some(format!("{} {name}", self.runtime.unwrap_or("container")))
        };
        let slurm = self.slurm_job.map(|job| match self.slurm_step {
            Some(step) => format!("slurm {job}.{step}"),
            None => format!("slurm {job}"),
        });
        let owner = match (slurm, pod.or_else(container)) {
            (Some(slurm), Some(inner)) => Some(format!("{slurm} {inner}")),
            (slurm, inner) => slurm.or(inner).or_else(|| self.unit.map(str::to_owned)),
        };
        owner.as_deref().map(escape::terminal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attribute::{Belongs, PodNames, belongs};
    use serde_json::json;

    const ID: &str = "5d0f3ac7e1b9482f6c75d1e0a94b38f7726e5c1d0b9a8f7e6d5c4b3a29180f7e";
    const UID: &str = "6d1f4a3c-0b7e-4d8a-9c11-5e2f7a90b3c4";

    fn details(path: &str, container: Option<&str>) -> ProcessDetails {
        let names = |name: &str| PodNames {
            namespace: "ml".to_owned(),
            pod: "train-0".to_owned(),
            container: (!name.is_empty()).then(|| name.to_owned()),
        };
        let belongs = belongs([path.replace("ID", ID).replace("POD", UID).as_str()]);
        ProcessDetails { belongs, pod: container.map(names), ..ProcessDetails::default() }
    }

    #[test]
    fn whose_it_is_in_a_word() {
        for (path, container, owner) in [
            ("/kubepods/podPOD/ID", Some("trainer"), "ml/train-0/trainer"),
            ("/kubepods/podPOD/ID", Some(""), "ml/train-0"),
            ("/kubepods/podPOD/ID", None, "pod 6d1f4a3c-0b7e-4d8a-9c11-5e2f7a90b3c4"),
            ("/docker/ID", None, "docker 5d0f3ac7e1b9"),
            ("/slurm/uid_5/job_7/step_batch", None, "slurm 7.batch"),
            ("/slurm/uid_5/job_7", None, "slurm 7"),
            ("/slurm/uid_5/job_7/step_0/libpod-ID", None, "slurm 7.0 podman 5d0f3ac7e1b9"),
            ("/system.slice/train.service", None, "train.service"),
            ("/system.slice/\u{1b}.service", None, "\\u{1b}.service"),
        ] {
            let details = details(path, container);
            assert_eq!(BelongsFields::from(&details).owner().as_deref(), Some(owner), "{path}");
        }
        assert_eq!(BelongsFields::default().owner(), None);
        let named =
            ProcessDetails { container_name: Some("train".to_owned()), ..details("/docker/ID", None) };
        assert_eq!(BelongsFields::from(&named).owner().as_deref(), Some("docker train"));
        let alone = Belongs { container: belongs([ID]).container, ..Belongs::default() };
        let alone = ProcessDetails { belongs: alone, ..ProcessDetails::default() };
        assert_eq!(BelongsFields::from(&alone).owner().as_deref(), Some("container 5d0f3ac7e1b9"));
    }

    /// Label names of [`BelongsFields::labels`], in their order.
    const LABELS: [&str; 9] = [
        "container_id",
        "runtime",
        "pod_uid",
        "namespace",
        "pod",
        "container",
        "slurm_job",
        "slurm_step",
        "unit",
    ];

    #[test]
    fn json_and_labels_have_the_same_values() {
        let of = |details: &ProcessDetails| {
            let fields = BelongsFields::from(details);
            let json = serde_json::to_value(fields).expect("fields");
            let text = |name: &&str| match &json[name] {
                serde_json::Value::Null => String::new(),
                serde_json::Value::String(text) => text.clone(),
                value => value.to_string(),
            };
            assert_eq!(LABELS.iter().map(text).collect::<Vec<_>>(), fields.labels());
            json
        };
        assert_eq!(
            of(&details("/slurm/uid_5/job_7/step_0", None)),
            json!({
                "container_id": null, "runtime": null, "pod_uid": null, "namespace": null, "pod": null,
                "container": null, "slurm_job": 7, "slurm_step": "0", "slurm_uid": 5, "unit": null,
            })
        );
        let pod = of(&details("/kubepods/podPOD/crio-ID", Some("trainer")));
        assert_eq!((&pod["container_id"], &pod["runtime"]), (&json!(ID), &json!("cri-o")));
        assert_eq!((&pod["namespace"], &pod["pod"]), (&json!("ml"), &json!("train-0")));
        assert_eq!((&pod["container"], &pod["pod_uid"]), (&json!("trainer"), &json!(UID)));
        assert_eq!(of(&details("/a.service", None))["unit"], "a.service");
    }
}
