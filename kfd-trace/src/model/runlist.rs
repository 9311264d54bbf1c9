//! What a GPU with a scheduler runs, and why that changes.

use serde::{Deserialize, Serialize};

/// Why the driver changed what a GPU runs: its function that did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// A queue was created.
    Create,
    /// A queue was destroyed.
    Destroy,
    /// A queue was updated: ring, percent, priority, CU mask, GWS or a workaround of the debugger.
    Update,
    Evict,
    Restore,
    /// A process ended that had /dev/kfd open: on every GPU, also without queues.
    ProcessEnd,
    /// The scheduler was started, or continues.
    Start,
    /// The scheduler was stopped, or halted.
    Stop,
    SuspendQueues,
    ResumeQueues,
    /// The debugger changed something else.
    Debugger,
    /// Queues are reset after a poisoned memory access.
    Poison,
    /// A queue had a bad packet (MES).
    BadQueue,
    /// A queue that hangs is reset (MES).
    QueueReset,
    /// A queue of the driver itself.
    KernelQueue,
    /// A write to a file in debugfs.
    Debugfs,
    /// PC sampling ended.
    PcSampling,
}

/// Functions of kfd_device_queue_manager.c (kfd_pc_sampling.c for the last one), of any driver, that change what a
/// GPU runs. `None`: one that others call for that.
pub const FUNCTIONS: &[(&str, Option<Reason>)] = &[
    (EXECUTE, None),
    ("create_queue_cpsch", Some(Reason::Create)),
    ("destroy_queue_cpsch", Some(Reason::Destroy)),
    ("update_queue", Some(Reason::Update)),
    // ROCm's 6.12.12
    ("update_queue_locked", Some(Reason::Update)),
    ("evict_process_queues_cpsch", Some(Reason::Evict)),
    ("restore_process_queues_cpsch", Some(Reason::Restore)),
    ("process_termination_cpsch", Some(Reason::ProcessEnd)),
    ("start_cpsch", Some(Reason::Start)),
    ("unhalt_cpsch", Some(Reason::Start)),
    ("stop_cpsch", Some(Reason::Stop)),
    ("halt_cpsch", Some(Reason::Stop)),
    // With MES the two before call the first of these; since 7.2, and in ROCm's 6.12.12, the second.
    ("remove_all_queues_mes", Some(Reason::Stop)),
    ("remove_all_kfd_queues_mes", Some(Reason::Stop)),
    ("suspend_queues", Some(Reason::SuspendQueues)),
    ("resume_queues", Some(Reason::ResumeQueues)),
    ("debug_lock_and_unmap", Some(Reason::Debugger)),
    ("debug_map_and_unlock", Some(Reason::Debugger)),
    ("debug_refresh_runlist", Some(Reason::Debugger)),
    ("reserve_debug_trap_vmid", Some(Reason::Debugger)),
    ("release_debug_trap_vmid", Some(Reason::Debugger)),
    ("reset_queues_cpsch", Some(Reason::Poison)),
    ("kfd_dqm_suspend_bad_queue_mes", Some(Reason::BadQueue)),
    // 7.2: hung queues, as the first of these suspends all; the second is inlined there.
    ("suspend_all_queues_mes", Some(Reason::QueueReset)),
    ("reset_queues_mes", Some(Reason::QueueReset)),
    // 7.3
    ("kfd_reset_queue_mes", Some(Reason::QueueReset)),
    ("create_kernel_queue_cpsch", Some(Reason::KernelQueue)),
    ("destroy_kernel_queue_cpsch", Some(Reason::KernelQueue)),
    ("dqm_debugfs_hang_hws", Some(Reason::Debugfs)),
    ("dqm_debugfs_execute_queues", Some(Reason::Debugfs)),
    ("remap_queue", Some(Reason::PcSampling)),
];

const EXECUTE: &str = "execute_queues_cpsch";

impl Reason {
    /// All of them.
    pub const ALL: &'static [Reason] = &[
        Reason::Create,
        Reason::Destroy,
        Reason::Update,
        Reason::Evict,
        Reason::Restore,
        Reason::ProcessEnd,
        Reason::Start,
        Reason::Stop,
        Reason::SuspendQueues,
        Reason::ResumeQueues,
        Reason::Debugger,
        Reason::Poison,
        Reason::BadQueue,
        Reason::QueueReset,
        Reason::KernelQueue,
        Reason::Debugfs,
        Reason::PcSampling,
    ];

    /// The name in metrics and JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Reason::Create => "create",
            Reason::Destroy => "destroy",
            Reason::Update => "update",
            Reason::Evict => "evict",
            Reason::Restore => "restore",
            Reason::ProcessEnd => "process_end",
            Reason::Start => "start",
            Reason::Stop => "stop",
            Reason::SuspendQueues => "suspend_queues",
            Reason::ResumeQueues => "resume_queues",
            Reason::Debugger => "debugger",
            Reason::Poison => "poison",
            Reason::BadQueue => "bad_queue",
            Reason::QueueReset => "queue_reset",
            Reason::KernelQueue => "kernel_queue",
            Reason::Debugfs => "debugfs",
            Reason::PcSampling => "pc_sampling",
        }
    }
}

/// One function of the driver in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    start: u64,
    /// Of the next symbol.
    end: u64,
    reason: Option<Reason>,
}

/// The functions of [`FUNCTIONS`] in the running kernel, by address. Empty where addresses are hidden: then no reason
/// is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Callers {
    places: Vec<Place>,
}

impl Callers {
    /// From start, end, and name in [`FUNCTIONS`].
    pub fn new(found: impl Iterator<Item = (u64, u64, &'static str)>) -> Self {
        let known = |name| FUNCTIONS.iter().find(|(known, _)| *known == name);
        let place = |(start, end, name)| known(name).map(|(_, reason)| Place { start, end, reason: *reason });
        let mut places: Vec<Place> = found.filter_map(place).collect();
        places.sort_unstable();
        Callers { places }
    }

    /// The reason of a change by the two return addresses of a record.
    #[must_use]
    pub fn reason(&self, caller: u64, outer: u64) -> Option<Reason> {
        let inner = self.place(caller)?;
        inner.reason.or_else(|| self.place(outer)?.reason)
    }

    /// A return address is after the call, which may be the last instruction of its function.
    fn place(&self, address: u64) -> Option<&Place> {
        let call = address.checked_sub(1)?;
        self.places.iter().find(|place| (place.start..place.end).contains(&call))
    }
}

/// The queues of all processes were taken off a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Preemption {
    pub gpu_id: Option<u32>,
    pub reason: Option<Reason>,
    /// From the request until all queues were off, or the driver gave up; nanoseconds.
    pub latency_ns: u64,
    /// Positive errno of the wait, 0 for success.
    pub errno: i32,
    /// The list that ended had more than the GPU runs at once.
    pub oversubscribed: Option<bool>,
}

/// A list of queues was submitted to a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Runlist {
    pub gpu_id: Option<u32>,
    pub reason: Option<Reason>,
    /// Since the end of the preemption, nanoseconds; `None` if nothing ran before, the preemption failed, or the
    /// scheduler was stopped or halted in between.
    pub unmapped_ns: Option<u64>,
    /// Positive errno, 0 for success.
    pub errno: i32,
    /// With queues on the GPU, inactive ones included.
    pub processes: Option<u32>,
    /// On the list.
    pub queues: Option<u32>,
    /// Compute queues of these.
    pub cp_queues: Option<u32>,
    /// It has more than the GPU runs at once, so that its queues run in turns.
    pub oversubscribed: Option<bool>,
}

#[cfg(test)]
pub(crate) mod samples {
    use super::*;

    pub(crate) fn preemption() -> Preemption {
        Preemption {
            gpu_id: Some(58270),
            reason: Some(Reason::Create),
            latency_ns: 420_000,
            errno: 0,
            oversubscribed: Some(true),
        }
    }

    pub(crate) fn list() -> Runlist {
        Runlist {
            gpu_id: Some(58270),
            reason: Some(Reason::Create),
            unmapped_ns: Some(31_000),
            errno: 0,
            processes: Some(1),
            queues: Some(25),
            cp_queues: Some(24),
            oversubscribed: Some(true),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn callers() -> Callers {
        let found = [
            (0x100, 0x200, "create_queue_cpsch"),
            (0x300, 0x400, EXECUTE),
            (0x200, 0x280, "update_queue"),
            (0x500, 0x600, "no_such"),
        ];
        Callers::new(found.into_iter())
    }

    #[test]
    fn the_reason_is_the_function_that_calls_or_the_one_that_has_it_called() {
        let callers = callers();
        assert_eq!(callers.reason(0x210, 0x110), Some(Reason::Update), "directly: the other one is older");
        assert_eq!(callers.reason(0x310, 0x110), Some(Reason::Create));
        assert_eq!(callers.reason(0x310, 0), None);
        assert_eq!(callers.reason(0x550, 0x110), None);
        assert_eq!(Callers::default().reason(0x110, 0x110), None, "addresses are hidden");
    }

    #[test]
    fn a_call_may_be_the_last_instruction_of_its_function() {
        assert_eq!(callers().reason(0x200, 0), Some(Reason::Create));
        assert_eq!(callers().reason(0x201, 0), Some(Reason::Update));
    }

    /// Functions of single drivers, whose reasons others have as well.
    #[test]
    fn what_only_some_drivers_have_has_its_reason() {
        let functions = [
            ("update_queue_locked", Reason::Update),
            ("remove_all_queues_mes", Reason::Stop),
            ("remove_all_kfd_queues_mes", Reason::Stop),
            ("debug_map_and_unlock", Reason::Debugger),
            ("suspend_all_queues_mes", Reason::QueueReset),
            ("reset_queues_mes", Reason::QueueReset),
            ("kfd_reset_queue_mes", Reason::QueueReset),
        ];
        for (name, reason) in functions {
            let callers = Callers::new([(0x100, 0x200, name), (0x300, 0x400, EXECUTE)].into_iter());
            assert_eq!(callers.reason(0x310, 0x110), Some(reason), "{name}");
        }
    }

    #[test]
    fn every_reason_has_a_function_and_a_name_of_its_own() {
        let names: BTreeSet<_> = Reason::ALL.iter().map(|reason| reason.name()).collect();
        assert_eq!(names.len(), Reason::ALL.len());
        for reason in Reason::ALL {
            assert!(FUNCTIONS.iter().any(|(_, of)| *of == Some(*reason)), "{reason:?}");
        }
    }
}
