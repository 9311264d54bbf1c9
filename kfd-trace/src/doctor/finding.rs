//! Why a view differs from what KFD has: one [`FindingKind`] per cause, with its weight and its sentence.

use super::evicted::{self, Backlog};
use crate::model::incident::Trigger;
use serde::Serialize;

/// Severity of a finding; the worst is last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Weight {
    /// Informational.
    Note,
    /// One of the usual checks misses a process that KFD has.
    Hidden,
    /// KFD keeps something that has no owner any more, or does not run what has one.
    Wrong,
}

/// A finding about a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FindingKind {
    /// lsof and fuser find it by this descriptor.
    Seen { fd: u32 },
    /// lsof and fuser find it by this descriptor, in a mount namespace of its own.
    BindMounted { fd: u32 },
    /// Its descriptor is of a file other than the host's /dev/kfd.
    OwnNode { fd: u32 },
    /// It has no descriptor, but a mapping of the host's /dev/kfd.
    MappingOnly,
    /// It has neither a descriptor nor a mapping by which lsof and fuser find it.
    ClosedDescriptor,
    /// Its leader is dead, other threads run.
    ZombieLeader { threads: u32 },
    /// It has another PID in its own namespace.
    OtherPidNamespace { inner: u32 },
    /// This user may not read its descriptors.
    NotPermitted,
    /// procfs does not show it to this user.
    HidePid,
    /// The host's /dev/kfd is not known.
    HostNodeUnknown,
    /// Several `kfd_process` for one PID (7.2).
    Contexts { further: usize },
    /// It is in the driver's table, but not in sysfs.
    NotInSysfs,
    /// It was evicted from these GPUs at two looks, and worked between them, or that is not known.
    Evicted { gpu_ids: Vec<u32> },
    /// It is evicted from these GPUs and not restored, for so many seconds at least; `None`: at two looks, and nothing was
    /// retired between them.
    NotRestored {
        gpu_ids: Vec<u32>,
        trigger: Option<Trigger>,
        seconds: Option<u64>,
        backlog: Option<Backlog>,
    },
    /// It has just ended, or is about to.
    Ending,
    /// It ended, and the driver is still removing its queues from the GPU. `lsof`: whether lsof and fuser
    /// find it, as descriptors may be closed after that; `None` where this user may not read them.
    Teardown { lsof: Option<bool> },
    /// It ended, and these processes have KFD open without being served: one of them keeps its `kfd_process`.
    KeptByDescriptor { holders: Vec<u32> },
    /// It ended, but its address space still exists.
    KeptByMemory,
    /// It is alive, and its address space is not the one that KFD has: it called exec.
    Execed { own: bool, holders: Vec<u32> },
    /// It has KFD open and is a child of a process that KFD serves.
    Inherited { parent: u32, fd: u32 },
    /// It has KFD open, and KFD has nothing for it.
    Stray { fd: u32 },
    /// It has a mapping of KFD, and KFD has nothing for it.
    StrayMapping,
    /// No source reports whether KFD serves it.
    ServiceUnknown,
    /// It has a ROCm library or a render node, but not KFD.
    NotOpened { library: bool },
    /// It has none of these.
    NoPart,
    /// It may not be inspected; KFD does not have it.
    Unlooked,
}

impl FindingKind {
    /// Name in JSON.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            FindingKind::Seen { .. } => "seen",
            FindingKind::BindMounted { .. } => "bind_mounted",
            FindingKind::OwnNode { .. } => "own_node",
            FindingKind::MappingOnly => "mapping_only",
            FindingKind::ClosedDescriptor => "closed_descriptor",
            FindingKind::ZombieLeader { .. } => "zombie_leader",
            FindingKind::OtherPidNamespace { .. } => "other_pid_namespace",
            FindingKind::NotPermitted => "not_permitted",
            FindingKind::HidePid => "hidepid",
            FindingKind::HostNodeUnknown => "host_node_unknown",
            FindingKind::Contexts { .. } => "contexts",
            FindingKind::NotInSysfs => "not_in_sysfs",
            FindingKind::Evicted { .. } => "evicted",
            FindingKind::NotRestored { .. } => "not_restored",
            FindingKind::Ending => "ending",
            FindingKind::Teardown { .. } => "teardown",
            FindingKind::KeptByDescriptor { .. } => "kept_by_descriptor",
            FindingKind::KeptByMemory => "kept_by_memory",
            FindingKind::Execed { .. } => "execed",
            FindingKind::Inherited { .. } => "inherited",
            FindingKind::Stray { .. } => "stray",
            FindingKind::StrayMapping => "stray_mapping",
            FindingKind::ServiceUnknown => "not_told",
            FindingKind::NotOpened { .. } => "not_opened",
            FindingKind::NoPart => "no_part",
            FindingKind::Unlooked => "unlooked",
        }
    }

    #[must_use]
    pub fn weight(&self) -> Weight {
        match self {
            FindingKind::OwnNode { .. }
            | FindingKind::ClosedDescriptor
            | FindingKind::ZombieLeader { .. }
            | FindingKind::NotPermitted
            | FindingKind::HidePid
            | FindingKind::NotInSysfs => Weight::Hidden,
            FindingKind::Teardown { .. }
            | FindingKind::KeptByDescriptor { .. }
            | FindingKind::KeptByMemory
            | FindingKind::Execed { .. } => Weight::Wrong,
            FindingKind::NotRestored { trigger, .. } => match trigger {
                // It is held for as long as that takes.
                Some(Trigger::CriuCheckpoint | Trigger::CriuRestore) => Weight::Note,
                _ => Weight::Wrong,
            },
            _ => Weight::Note,
        }
    }

    /// The meaning, in full sentences. Numbers are the only part that comes from outside the tracer.
    #[must_use]
    pub fn sentence(&self) -> String {
        match self {
            FindingKind::Seen { fd } => format!("lsof and fuser find it by descriptor {fd}, which is the host's /dev/kfd."),
            FindingKind::BindMounted { fd } => format!(
                "Its mount namespace is its own, but descriptor {fd} is the host's /dev/kfd (a bind mount): lsof and fuser on the host find it."
            ),
            FindingKind::OwnNode { fd } => format!(
                "Hidden from lsof and fuser: descriptor {fd} is another node of the same device, as container runtimes make one. They compare file system and inode with the host's /dev/kfd; only the device number is the same."
            ),
            FindingKind::MappingOnly => "It has closed /dev/kfd, and KFD serves its address space all the same. A mapping of the host's /dev/kfd is left: lsof shows it as `mem`, fuser as `m`.".to_owned(),
            FindingKind::ClosedDescriptor => "Hidden from lsof and fuser: it has closed /dev/kfd, and nothing of the host's node is mapped. KFD serves its address space until that ends; only sysfs and the driver have it.".to_owned(),
            FindingKind::ZombieLeader { threads } => format!(
                "Hidden from lsof and fuser: its leader has ended (pthread_exit in main) and /proc/PID/fd is empty with it, while KFD serves the {} left.",
                match threads.saturating_sub(1) {
                    1 => "thread that is".to_owned(),
                    many => format!("{many} threads that are"),
                }
            ),
            FindingKind::OtherPidNamespace { inner } => format!(
                "It is in another PID namespace and is {inner} there: tools inside a container show it under that number, or not at all."
            ),
            FindingKind::NotPermitted => "This user may not look into its descriptors, nor may lsof or fuser as this user: they show nothing of it. Run as root.".to_owned(),
            FindingKind::HidePid => "KFD has it, and /proc does not show it to this user (hidepid): nor does it to lsof, fuser or ps. Whether it is alive is unknown. Run as root.".to_owned(),
            FindingKind::HostNodeUnknown => "Whether lsof and fuser find it is not known: there is no /dev/kfd of the host to compare with.".to_owned(),
            FindingKind::Contexts { further } => format!(
                "KFD has {further} further contexts of this PID beside the first: rocm-smi shows one PID, and each has queues of its own."
            ),
            FindingKind::NotInSysfs => "Hidden from rocm-smi: the driver's table has it, and class/kfd/kfd/proc, which rocm-smi reads, has not.".to_owned(),
            FindingKind::Evicted { gpu_ids } => format!(
                "It is evicted from {} at two looks. Again and again, or for long: a daemon shows which (`kfd-trace doctor --url`).",
                evicted::gpus(gpu_ids)
            ),
            FindingKind::NotRestored { gpu_ids, trigger, seconds, backlog } => {
                evicted::sentence(gpu_ids, *trigger, *seconds, *backlog)
            }
            FindingKind::Ending => "It has just ended or called exec, and the driver was about to free what it had.".to_owned(),
            FindingKind::Teardown { lsof } => format!(
                "It has ended, and the driver has not yet freed what it had: it waits for the GPU (each queue up to queue_preemption_timeout_ms), or hangs. {}See the kernel's log, and look again.",
                match lsof {
                    Some(true) => "lsof and fuser find it: it waits before its descriptors are closed. ",
                    Some(false) => "lsof and fuser find nothing. ",
                    None => "",
                }
            ),
            FindingKind::KeptByDescriptor { holders } => format!(
                "It has ended, and KFD still has what it had. Beside it {} {} /dev/kfd open without being served: a descriptor of the dead process, inherited or passed on, keeps its queues and memory until it is closed.",
                pids(holders),
                if holders.len() == 1 { "has" } else { "have" }
            ),
            FindingKind::KeptByMemory => "It has ended, and its KFD process still exists: another process shares its address space (a child made by vfork or CLONE_VM).".to_owned(),
            FindingKind::Execed { own, holders } => {
                let who = match (own, holders.as_slice()) {
                    (true, _) => "by its own descriptor, which was opened without O_CLOEXEC".to_owned(),
                    (false, []) => "by the driver, which has not yet freed it".to_owned(),
                    (false, holders) => format!("by a descriptor in {}", pids(holders)),
                };
                format!(
                    "It has called exec: KFD's resources belong to the program before, whose address space has ended, and are kept {who}. lsof may show a user that KFD does not serve."
                )
            }
            FindingKind::Inherited { parent, fd } => format!(
                "lsof and fuser may show it, and KFD does not serve it: it has inherited descriptor {fd} of process {parent} by fork. Its ioctls get EBADF."
            ),
            FindingKind::Stray { fd } => format!(
                "lsof and fuser may show it, and KFD does not serve it: KFD has no process of this PID. Descriptor {fd} was inherited, passed on, or kept over exec; ioctls of another process than the one that opened it get EBADF."
            ),
            FindingKind::StrayMapping => "It has a mapping of /dev/kfd, and KFD has no process of this PID.".to_owned(),
            FindingKind::ServiceUnknown => "Whether KFD serves it is not known: neither sysfs nor the driver's table could be read.".to_owned(),
            FindingKind::NotOpened { library: true } => "It has a library of ROCm mapped, and has not opened KFD: the runtime does so at its first call.".to_owned(),
            FindingKind::NotOpened { library: false } => "It has a render node of amdgpu, and not KFD: graphics, or video.".to_owned(),
            FindingKind::NoPart => "KFD has no process of this PID, and it has neither /dev/kfd nor a library of ROCm open or mapped.".to_owned(),
            FindingKind::Unlooked => "KFD has no process of this PID. This user may not look into its descriptors.".to_owned(),
        }
    }
}

fn pids(pids: &[u32]) -> String {
    let shown: Vec<String> = pids.iter().take(8).map(u32::to_string).collect();
    let word = if pids.len() == 1 { "process" } else { "processes" };
    let more = if pids.len() > shown.len() { " and more" } else { "" };
    format!("{word} {}{more}", shown.join(", "))
}
