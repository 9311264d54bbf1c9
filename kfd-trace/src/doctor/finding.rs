//! Why a view differs from what KFD has: one [`Kind`] per cause, with its weight and its sentence.

use serde::Serialize;

/// Severity of a finding; the worst is last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Weight {
    /// Informational.
    Note,
    /// One of the usual checks misses a process that KFD has.
    Hidden,
    /// KFD keeps something that has no owner any more.
    Wrong,
}

/// A finding about a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
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

impl Kind {
    /// Name in JSON.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Kind::Seen { .. } => "seen",
            Kind::BindMounted { .. } => "bind_mounted",
            Kind::OwnNode { .. } => "own_node",
            Kind::MappingOnly => "mapping_only",
            Kind::ClosedDescriptor => "closed_descriptor",
            Kind::ZombieLeader { .. } => "zombie_leader",
            Kind::OtherPidNamespace { .. } => "other_pid_namespace",
            Kind::NotPermitted => "not_permitted",
            Kind::HidePid => "hidepid",
            Kind::HostNodeUnknown => "host_node_unknown",
            Kind::Contexts { .. } => "contexts",
            Kind::NotInSysfs => "not_in_sysfs",
            Kind::Ending => "ending",
            Kind::Teardown { .. } => "teardown",
            Kind::KeptByDescriptor { .. } => "kept_by_descriptor",
            Kind::KeptByMemory => "kept_by_memory",
            Kind::Execed { .. } => "execed",
            Kind::Inherited { .. } => "inherited",
            Kind::Stray { .. } => "stray",
            Kind::StrayMapping => "stray_mapping",
            Kind::ServiceUnknown => "not_told",
            Kind::NotOpened { .. } => "not_opened",
            Kind::NoPart => "no_part",
            Kind::Unlooked => "unlooked",
        }
    }

    #[must_use]
    pub fn weight(&self) -> Weight {
        match self {
            Kind::OwnNode { .. }
            | Kind::ClosedDescriptor
            | Kind::ZombieLeader { .. }
            | Kind::NotPermitted
            | Kind::HidePid
            | Kind::NotInSysfs => Weight::Hidden,
            Kind::Teardown { .. }
            | Kind::KeptByDescriptor { .. }
            | Kind::KeptByMemory
            | Kind::Execed { .. } => Weight::Wrong,
            _ => Weight::Note,
        }
    }

    /// The meaning, in full sentences. Numbers are the only part that comes from outside the tracer.
    #[must_use]
    pub fn sentence(&self) -> String {
        match self {
            Kind::Seen { fd } => format!("lsof and fuser find it by descriptor {fd}, which is the host's /dev/kfd."),
            Kind::BindMounted { fd } => format!(
                "Its mount namespace is its own, but descriptor {fd} is the host's /dev/kfd (a bind mount): lsof and fuser on the host find it."
            ),
            Kind::OwnNode { fd } => format!(
                "Hidden from lsof and fuser: descriptor {fd} is another node of the same device, as container runtimes make one. They compare file system and inode with the host's /dev/kfd; only the device number is the same."
            ),
            Kind::MappingOnly => "It has closed /dev/kfd, and KFD serves its address space all the same. A mapping of the host's /dev/kfd is left: lsof shows it as `mem`, fuser as `m`.".to_owned(),
            Kind::ClosedDescriptor => "Hidden from lsof and fuser: it has closed /dev/kfd, and nothing of the host's node is mapped. KFD serves its address space until that ends; only sysfs and the driver have it.".to_owned(),
            Kind::ZombieLeader { threads } => format!(
                "Hidden from lsof and fuser: its leader has ended (pthread_exit in main) and /proc/PID/fd is empty with it, while KFD serves the {} left.",
                match threads.saturating_sub(1) {
                    1 => "thread that is".to_owned(),
                    many => format!("{many} threads that are"),
                }
            ),
            Kind::OtherPidNamespace { inner } => format!(
                "It is in another PID namespace and is {inner} there: tools inside a container show it under that number, or not at all."
            ),
            Kind::NotPermitted => "This user may not look into its descriptors, nor may lsof or fuser as this user: they show nothing of it. Run as root.".to_owned(),
            Kind::HidePid => "KFD has it, and /proc does not show it to this user (hidepid): nor does it to lsof, fuser or ps. Whether it is alive is unknown. Run as root.".to_owned(),
            Kind::HostNodeUnknown => "Whether lsof and fuser find it is not known: there is no /dev/kfd of the host to compare with.".to_owned(),
            Kind::Contexts { further } => format!(
                "KFD has {further} further contexts of this PID beside the first: rocm-smi shows one PID, and each has queues of its own."
            ),
            Kind::NotInSysfs => "Hidden from rocm-smi: the driver's table has it, and class/kfd/kfd/proc, which rocm-smi reads, has not.".to_owned(),
            Kind::Ending => "It has just ended or called exec, and the driver was about to free what it had.".to_owned(),
            Kind::Teardown { lsof } => format!(
                "It has ended, and the driver has not yet freed what it had: it waits for the GPU (each queue up to queue_preemption_timeout_ms), or hangs. {}See the kernel's log, and look again.",
                match lsof {
                    Some(true) => "lsof and fuser find it: it waits before its descriptors are closed. ",
                    Some(false) => "lsof and fuser find nothing. ",
                    None => "",
                }
            ),
            Kind::KeptByDescriptor { holders } => format!(
                "It has ended, and KFD still has what it had. Beside it {} {} /dev/kfd open without being served: a descriptor of the dead process, inherited or passed on, keeps its queues and memory until it is closed.",
                pids(holders),
                if holders.len() == 1 { "has" } else { "have" }
            ),
            Kind::KeptByMemory => "It has ended, and its KFD process lives on: somebody else shares its address space (a child made by vfork or CLONE_VM).".to_owned(),
            Kind::Execed { own, holders } => {
                let who = match (own, holders.as_slice()) {
                    (true, _) => "by its own descriptor, which was opened without O_CLOEXEC".to_owned(),
                    (false, []) => "by the driver, which has not yet freed it".to_owned(),
                    (false, holders) => format!("by a descriptor in {}", pids(holders)),
                };
                format!(
                    "It has called exec: what KFD has is of the program before, whose address space is gone, and is kept {who}. lsof may show a user that KFD does not serve."
                )
            }
            Kind::Inherited { parent, fd } => format!(
                "lsof and fuser may show it, and KFD does not serve it: it has inherited descriptor {fd} of process {parent} by fork. Its ioctls get EBADF."
            ),
            Kind::Stray { fd } => format!(
                "lsof and fuser may show it, and KFD does not serve it: KFD has no process of this PID. Descriptor {fd} was inherited, passed on, or kept over exec; ioctls of another process than the one that opened it get EBADF."
            ),
            Kind::StrayMapping => "It has a mapping of /dev/kfd, and KFD has no process of this PID.".to_owned(),
            Kind::ServiceUnknown => "Whether KFD serves it is not known: neither sysfs nor the driver's table could be read.".to_owned(),
            Kind::NotOpened { library: true } => "It has a library of ROCm mapped, and has not opened KFD: the runtime does so at its first call.".to_owned(),
            Kind::NotOpened { library: false } => "It has a render node of amdgpu, and not KFD: graphics, or video.".to_owned(),
            Kind::NoPart => "KFD has no process of this PID, and it has neither /dev/kfd nor a library of ROCm open or mapped.".to_owned(),
            Kind::Unlooked => "KFD has no process of this PID. This user may not look into its descriptors.".to_owned(),
        }
    }
}

fn pids(pids: &[u32]) -> String {
    let shown: Vec<String> = pids.iter().take(8).map(u32::to_string).collect();
    let word = if pids.len() == 1 { "process" } else { "processes" };
    let more = if pids.len() > shown.len() { " and more" } else { "" };
    format!("{word} {}{more}", shown.join(", "))
}
