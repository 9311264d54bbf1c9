//! What /proc, the kubelet's logs, the files of container engines and of Slurm's prolog add to a process that was seen by BPF, in the driver's table or in
//! sysfs.

use crate::attribute::process::{self, ProcessInfo};
use crate::attribute::{engines, pods, slurm_jobs};
use crate::kernel::Roots;
use crate::state::{Process, ProcessDetails};

/// Reads the details of a process, if it is still the same process.
#[must_use]
pub fn details(roots: &Roots, row: &Process) -> Option<ProcessDetails> {
    let info = process::read(&roots.procfs, row.tgid?, row.start_boottime_ns).ok()?;
    Some(details_of(roots, &info))
}

/// The details, with what /proc reports.
#[must_use]
pub fn details_of(roots: &Roots, info: &ProcessInfo) -> ProcessDetails {
    let ProcessInfo { who, cgroup, belongs } = info;
    let words = || process::cmdline(&roots.procfs, who.tgid, Some(who.start_boottime_ns)).ok();
    let cmdline = if roots.arguments { words() } else { None };
    let id = belongs.container.as_ref().map(|container| container.id.as_str());
    let pod = belongs.pod_uid.as_ref().and_then(|uid| pods::read(&roots.logs, uid, id));
    let alone = belongs.container.as_ref().filter(|_| belongs.pod_uid.is_none());
    ProcessDetails {
        cmdline: cmdline.filter(|words| !words.is_empty()).map(|words| words.join(" ")),
        cgroup: cgroup.clone(),
        belongs: belongs.clone(),
        pod,
        container_name: alone.and_then(|container| engines::name(&roots.engines, container)),
        job: belongs.slurm.as_ref().and_then(|step| slurm_jobs::read(&roots.slurm, step.job)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attribute::{Belongs, Identity, PodNames};
    use std::fs;

    const UID: &str = "6d1f4a3c-0b7e-4d8a-9c11-5e2f7a90b3c4";

    fn info() -> ProcessInfo {
        let tgid = std::process::id();
        let own = process::identify("/proc".as_ref(), tgid, None).expect("this process");
        let belongs = Belongs { pod_uid: Some(UID.to_owned()), ..Belongs::default() };
        ProcessInfo { who: Identity { ..own }, cgroup: Some("/a".to_owned()), belongs }
    }

    #[test]
    fn arguments_are_read_only_where_that_is_asked_for() {
        let (roots, info) = (Roots::default(), info());
        assert_eq!(details_of(&roots, &info).cmdline, None);
        let requested =
            details_of(&Roots { arguments: true, ..roots }, &info).cmdline.expect("the arguments");
        assert!(requested.starts_with(&std::env::args().next().expect("a program")), "{requested}");
    }

    #[test]
    fn a_pod_has_the_names_that_the_logs_show() {
        let logs = tempfile::tempdir().expect("a folder");
        fs::create_dir_all(logs.path().join(format!("pods/ml_train-0_{UID}"))).expect("a folder in it");
        let roots = Roots { logs: logs.path().to_owned(), ..Roots::default() };
        let names = PodNames { namespace: "ml".to_owned(), pod: "train-0".to_owned(), container: None };
        assert_eq!(details_of(&roots, &info()).pod, Some(names));
    }
}
