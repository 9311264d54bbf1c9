//! Comparison of the views: what each saw, and what it can miss. Pure.

use super::report::{View, ViewName};
use super::seen::Observed;

impl ViewName {
    /// In output order.
    pub const ALL: [ViewName; 7] = [
        ViewName::DeviceNumber,
        ViewName::Lsof,
        ViewName::Mappings,
        ViewName::Sysfs,
        ViewName::Drm,
        ViewName::Kernel,
        ViewName::Sampled,
    ];

    /// Name in text output.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            ViewName::DeviceNumber => "descriptors by device number",
            ViewName::Lsof => "lsof, fuser: by inode",
            ViewName::Mappings => "mappings",
            ViewName::Sysfs => "sysfs, rocm-smi",
            ViewName::Drm => "DRM fdinfo",
            ViewName::Kernel => "the driver's table",
            ViewName::Sampled => "sampled counters",
        }
    }

    fn can_miss(self) -> &'static str {
        match self {
            ViewName::DeviceNumber => {
                "processes that closed it; other users' without privileges; shows inherited descriptors, too"
            }
            ViewName::Lsof => {
                "containers with a node of their own, closed descriptors, dead leaders; shows inherited descriptors, too"
            }
            ViewName::Mappings => "processes that map nothing; a mapped library does not show use",
            ViewName::Sysfs => "nothing; also shows leftovers of dead processes",
            ViewName::Drm => "processes that closed its render nodes; shows nothing about KFD",
            ViewName::Kernel => "processes in teardown; needs privileges and the driver's types",
            ViewName::Sampled => {
                "processes without an AQL or SDMA queue, or with one whose pointers are not as ROCr lays them out"
            }
        }
    }
}

/// Whether a view sees a process; `None`: not known.
pub(super) fn sees(seen: &Observed, view: ViewName, pid: u32) -> Option<bool> {
    let process = seen.process(pid);
    let hidden = || if seen.hides { None } else { Some(false) };
    match view {
        ViewName::DeviceNumber => match process {
            Some(process) if process.closed && process.kfd.is_empty() => None,
            Some(process) => seen.device.map(|_| !process.kfd.is_empty()),
            None => hidden(),
        },
        ViewName::Lsof => seen.found_by_lsof(pid),
        ViewName::Mappings => match process {
            Some(process) => {
                process.mappings.as_ref().map(|mappings| *mappings != super::seen::Mappings::default())
            }
            None => hidden(),
        },
        ViewName::Sysfs => seen.in_sysfs(pid),
        ViewName::Drm => match process {
            Some(process) if process.closed && process.drm.is_empty() => None,
            Some(process) => Some(!process.drm.is_empty()),
            None => hidden(),
        },
        ViewName::Kernel => seen.in_kernel(pid),
        ViewName::Sampled => {
            let all = seen.sampled.as_ref().ok()?;
            Some(all.get(&pid).is_some_and(|sampled| sampled.queues_measured > 0))
        }
    }
}

/// All views, for all processes or for one.
pub(super) fn all(seen: &Observed, only: Option<u32>) -> Vec<View> {
    let of = |view| {
        let why = why_not(seen, view);
        let pids = || {
            let listed = seen.sysfs.iter().flatten().chain(seen.kernel.iter().flatten()).map(|(pid, _)| *pid);
            let mut pids: Vec<u32> = listed.chain(seen.processes.keys().copied()).collect();
            pids.sort_unstable();
            pids.dedup();
            pids.retain(|pid| only.is_none_or(|only| only == *pid) && sees(seen, view, *pid) == Some(true));
            pids
        };
        View { view, saw: why.is_none().then(pids), why, can_miss: view.can_miss() }
    };
    ViewName::ALL.map(of).into()
}

fn why_not(seen: &Observed, view: ViewName) -> Option<String> {
    match view {
        ViewName::DeviceNumber if seen.device.is_none() => {
            Some("the device number is unknown (class/kfd/kfd/dev in sysfs)".to_owned())
        }
        ViewName::Lsof if seen.host_node.is_none() => {
            Some("there is no /dev/kfd of the host to compare with".to_owned())
        }
        ViewName::Sysfs if seen.sysfs.is_none() => Some("class/kfd/kfd/proc cannot be read".to_owned()),
        ViewName::Kernel => seen.kernel.as_ref().err().cloned(),
        ViewName::Sampled => seen.sampled.as_ref().err().cloned(),
        _ => None,
    }
}
