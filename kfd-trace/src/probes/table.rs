//! The probe table: one row a probe. Nothing is attached that does not stand here.

use kfd_trace_common::counter::ProbeId;

/// Entry or return of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeKind {
    Kprobe,
    Kretprobe,
}

impl ProbeKind {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            ProbeKind::Kprobe => "kprobe",
            ProbeKind::Kretprobe => "kretprobe",
        }
    }
}

/// What a probe sits on.
#[derive(Clone, Copy, Debug)]
pub enum Site {
    /// One function of the driver: the first of these names that the kernel has.
    Function(&'static [&'static str]),
    /// Every ioctl handler that the driver has, but those that sleep.
    Handlers,
}

/// When a probe is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    Always,
    /// Only where a record of each ioctl, with its arguments, is asked for.
    IoctlRecords,
}

/// One row.
#[derive(Debug)]
pub struct Row {
    pub id: ProbeId,
    /// Name of the BPF program (kfd-trace-ebpf/src/probes/).
    pub program: &'static str,
    pub kind: ProbeKind,
    pub site: Site,
    pub when: When,
    /// Globals of `kfd_trace_common::offset` without which the program can tell nothing.
    pub needs: &'static [&'static str],
    /// Without any of the required probes the tracer sees nothing at all.
    pub required: bool,
    /// What is seen by it.
    pub feeds: &'static str,
}

const OWNER: [&str; 2] = ["KFD_PROCESS_LEAD_THREAD", "TASK_TGID"];

/// All probes. Returns stand before entries, so that no entry is seen whose return could not be.
pub const PROBES: &[Row] = &[
    Row {
        id: ProbeId::IoctlReturn,
        program: "ioctl_return",
        kind: ProbeKind::Kretprobe,
        site: Site::Handlers,
        when: When::Always,
        needs: &["FILE_PRIVATE_DATA"],
        required: false,
        feeds: "errno and latency of ioctls",
    },
    Row {
        id: ProbeId::IoctlHandler,
        program: "ioctl_handler",
        kind: ProbeKind::Kprobe,
        site: Site::Handlers,
        when: When::IoctlRecords,
        needs: &["FILE_PRIVATE_DATA"],
        required: false,
        feeds: "arguments of ioctls",
    },
    Row {
        id: ProbeId::Ioctl,
        program: "ioctl",
        kind: ProbeKind::Kprobe,
        site: Site::Function(&["kfd_ioctl"]),
        when: When::Always,
        needs: &["FILE_PRIVATE_DATA"],
        required: true,
        feeds: "ioctls: counts, refused calls",
    },
    Row {
        id: ProbeId::CreateProcess,
        program: "create_process",
        kind: ProbeKind::Kretprobe,
        site: Site::Function(&["kfd_create_process"]),
        when: When::Always,
        needs: &[],
        required: false,
        feeds: "new KFD processes, before they end",
    },
    Row {
        id: ProbeId::Open,
        program: "open",
        kind: ProbeKind::Kretprobe,
        site: Site::Function(&["kfd_open"]),
        when: When::Always,
        needs: &[],
        required: false,
        feeds: "opens of /dev/kfd, failed ones too",
    },
    Row {
        id: ProbeId::Release,
        program: "release",
        kind: ProbeKind::Kprobe,
        site: Site::Function(&["kfd_release"]),
        when: When::Always,
        needs: &["FILE_PRIVATE_DATA"],
        required: false,
        feeds: "closes of /dev/kfd",
    },
    Row {
        id: ProbeId::QueueAdd,
        program: "queue_add",
        kind: ProbeKind::Kprobe,
        site: Site::Function(&["kfd_procfs_add_queue"]),
        when: When::Always,
        needs: &["QUEUE_PROCESS", "QUEUE_PROPERTIES", OWNER[0], OWNER[1]],
        required: true,
        feeds: "births of queues",
    },
    Row {
        id: ProbeId::QueueDel,
        program: "queue_del",
        kind: ProbeKind::Kprobe,
        site: Site::Function(&["kfd_procfs_del_queue"]),
        when: When::Always,
        needs: &["QUEUE_PROCESS", "QUEUE_ID", OWNER[0], OWNER[1]],
        required: true,
        feeds: "ends of queues",
    },
    Row {
        id: ProbeId::NotifierRelease,
        program: "notifier_release",
        kind: ProbeKind::Kprobe,
        site: Site::Function(&["kfd_process_notifier_release"]),
        when: When::Always,
        needs: &["KFD_PROCESS_MMU_NOTIFIER"],
        required: false,
        feeds: "ends of address spaces",
    },
    Row {
        id: ProbeId::WqReleaseReturn,
        program: "wq_release_return",
        kind: ProbeKind::Kretprobe,
        site: Site::Function(&["kfd_process_wq_release"]),
        when: When::Always,
        needs: &["KFD_PROCESS_RELEASE_WORK"],
        required: false,
        feeds: "ends of KFD processes",
    },
    Row {
        id: ProbeId::WqRelease,
        program: "wq_release",
        kind: ProbeKind::Kprobe,
        site: Site::Function(&["kfd_process_wq_release"]),
        when: When::Always,
        needs: &["KFD_PROCESS_RELEASE_WORK"],
        required: false,
        feeds: "begin of the release of KFD processes",
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use kfd_trace_common::offset;
    use std::collections::BTreeSet;

    #[test]
    fn every_probe_has_one_row_and_needs_only_known_fields() {
        let ids: BTreeSet<_> = PROBES.iter().map(|row| row.id).collect();
        assert_eq!(ids.len(), PROBES.len());
        assert_eq!(ids.len(), ProbeId::ALL.len());
        for row in PROBES {
            for need in row.needs {
                assert!(offset::field(need).is_some(), "{}: {need}", row.program);
            }
        }
    }
}
