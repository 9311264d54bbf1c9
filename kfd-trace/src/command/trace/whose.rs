//! Whose lines the stream shows, by what is known of a process. In: what was requested; a row. Pure.
//!
//! The kernel knows neither containers nor pods: what other processes do is traced, too, and left out of the lines alone.

use crate::model::event::Event;
use crate::state::{Process, ProcessDetails};
use std::collections::BTreeSet;

/// A container id is abbreviated to no less than this.
const ID_DIGITS: usize = 4;

/// What a process has to be; all that was requested must apply.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Whose {
    pub comm: Option<String>,
    /// The begin of a container's id, or its name in the pod, or as its engine has it.
    pub container: Option<String>,
    /// A pod's name, `NAMESPACE/NAME` or UID.
    pub pod: Option<String>,
    /// The PID in the process's own PID namespace.
    pub ns_pid: Option<u32>,
    /// PIDs on the host, of a recording; empty for all. The stream traces no others.
    pub pids: BTreeSet<u32>,
}

impl Whose {
    /// Whether every process is shown.
    pub(in crate::command) fn is_all(&self) -> bool {
        *self == Whose::default()
    }

    /// What was requested, as it is on the command line.
    pub(super) fn requested(&self) -> String {
        let Whose { comm, container, pod, ns_pid, pids: _ } = self;
        let ns_pid = ns_pid.map(|pid| pid.to_string());
        let all = [("comm", comm), ("container", container), ("pod", pod), ("ns-pid", &ns_pid)];
        let given = all.iter().filter_map(|(name, value)| Some(format!("--{name} {}", value.as_deref()?)));
        given.collect::<Vec<_>>().join(" ")
    }

    pub(in crate::command) fn has(&self, process: &Process) -> bool {
        let Whose { comm, container, pod, ns_pid, pids } = self;
        comm.as_ref().is_none_or(|comm| process.comm.as_deref() == Some(comm))
            && container.as_ref().is_none_or(|name| of_container(&process.details, name))
            && pod.as_ref().is_none_or(|name| of_pod(&process.details, name))
            && ns_pid.is_none_or(|pid| process.ns_tgid == Some(pid))
            && (pids.is_empty() || process.tgid.is_some_and(|tgid| pids.contains(&tgid)))
    }

    /// Whether a call is shown that left no process behind: of its caller only the name and the PID are known.
    pub(super) fn has_caller(&self, event: &Event) -> bool {
        let Whose { comm, container: None, pod: None, ns_pid: None, pids } = self else { return false };
        comm.as_deref().is_none_or(|comm| event.body.comm() == Some(comm))
            && (pids.is_empty() || event.tgid.is_some_and(|tgid| pids.contains(&tgid)))
    }
}

fn of_container(details: &ProcessDetails, wanted: &str) -> bool {
    let id = details.belongs.container.as_ref().map(|container| container.id.as_str());
    details.container_name() == Some(wanted)
        || wanted.len() >= ID_DIGITS && id.is_some_and(|id| id.starts_with(wanted))
}

fn of_pod(details: &ProcessDetails, wanted: &str) -> bool {
    let named = details.pod.as_ref().is_some_and(|names| match wanted.split_once('/') {
        Some((namespace, pod)) => (namespace, pod) == (&names.namespace, &names.pod),
        None => names.pod == wanted,
    });
    named || details.belongs.pod_uid.as_deref() == Some(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attribute::{PodNames, belongs};
    use crate::model::event::Body;
    use crate::output::samples::traced;
    use crate::state::samples::event;

    const ID: &str = "5d0f3ac7e1b9482f6c75d1e0a94b38f7726e5c1d0b9a8f7e6d5c4b3a29180f7e";
    const UID: &str = "6d1f4a3c-0b7e-4d8a-9c11-5e2f7a90b3c4";

    /// `train` in a container of a pod, PID 17 there.
    fn process() -> Process {
        let mut process = traced().live().next().expect("one").clone();
        process.ns_tgid = Some(17);
        let names =
            PodNames { namespace: "ml".into(), pod: "train-0".into(), container: Some("trainer".into()) };
        let belongs = belongs([format!("/kubepods/pod{UID}/{ID}").as_str()]);
        process.details = ProcessDetails { belongs, pod: Some(names), ..ProcessDetails::default() };
        process
    }

    fn container(name: &str) -> Whose {
        Whose { container: Some(name.into()), ..Whose::default() }
    }

    fn pod(name: &str) -> Whose {
        Whose { pod: Some(name.into()), ..Whose::default() }
    }

    #[test]
    fn a_process_is_found_by_its_container_and_its_pod() {
        let process = process();
        for whose in [
            container("5d0f"),
            container(ID),
            container("trainer"),
            pod("train-0"),
            pod("ml/train-0"),
            pod(UID),
        ] {
            assert!(whose.has(&process), "{whose:?}");
        }
        for whose in [
            container("5d0"),
            container("0f3a"),
            container("train"),
            pod("train"),
            pod("other/train-0"),
            pod("ml"),
        ] {
            assert!(!whose.has(&process), "{whose:?}");
        }
        let mut outside = process;
        outside.details = ProcessDetails::default();
        assert!(!container("5d0f").has(&outside) && !pod("train-0").has(&outside));
        assert!(Whose::default().has(&outside));
    }

    #[test]
    fn all_that_is_requested_must_apply() {
        let of = |comm: &str, ns_pid| Whose { comm: Some(comm.into()), ns_pid, ..container("trainer") };
        let process = process();
        assert!(of("train", None).has(&process) && of("train", Some(17)).has(&process));
        assert!(!of("serve", Some(17)).has(&process) && !of("train", Some(18)).has(&process));
        assert_eq!(of("train", Some(17)).requested(), "--comm train --container trainer --ns-pid 17");
    }

    #[test]
    fn of_a_caller_the_name_and_the_pid_are_known() {
        let opened = |comm: &str| event(1, 0, 700, Body::Open { errno: 13, comm: comm.to_owned() });
        let comm = Whose { comm: Some("train".into()), ..Whose::default() };
        assert!(comm.has_caller(&opened("train")) && !comm.has_caller(&opened("serve")));
        let of = |pid| Whose { pids: [pid].into(), ..Whose::default() };
        assert!(of(700).has_caller(&opened("train")) && !of(701).has_caller(&opened("train")));
        assert!(Whose::default().has_caller(&opened("")) && !pod("train-0").has_caller(&opened("train")));
    }
}
