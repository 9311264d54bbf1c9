//! Evictions that run, and how they are described. In: the rows of the state. Out: what of each process is evicted, and
//! sentences. Pure.

use crate::model::incident::Trigger;
use crate::state::State;
use std::collections::BTreeMap;

/// A GPU on which a process has queues, and from which it is evicted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvictedFrom {
    pub gpu_id: u32,
    /// `None`: not seen.
    pub trigger: Option<Trigger>,
    /// For how long, at least.
    pub lasts_ns: u64,
}

/// By PID.
pub type AllEvicted = BTreeMap<u32, Vec<EvictedFrom>>;

/// The evictions that run. `now_ns`: CLOCK_MONOTONIC.
#[must_use]
pub fn of_state(state: &State, now_ns: u64) -> AllEvicted {
    let mut all = AllEvicted::new();
    for process in state.live() {
        let here = process.evictions.iter().filter_map(|(gpu_id, evictions)| {
            let lasts_ns = evictions.lasts_ns(now_ns).filter(|_| process.has_queue_on(*gpu_id))?;
            Some(EvictedFrom { gpu_id: *gpu_id, trigger: evictions.trigger, lasts_ns })
        });
        let here: Vec<_> = here.collect();
        if let Some(pid) = process.tgid.filter(|_| !here.is_empty()) {
            all.entry(pid).or_default().extend(here);
        }
    }
    all
}

/// What waits in the queues of a process: packets, and bytes of SDMA commands.
pub type Backlog = (u64, u64);

/// How long it has lasted, as far as it was seen; what waits, why, and what to do.
pub(super) fn sentence(
    gpu_ids: &[u32],
    trigger: Option<Trigger>,
    seconds: Option<u64>,
    backlog: Option<Backlog>,
) -> String {
    let from = gpus(gpu_ids);
    let by = trigger.map(|trigger| format!(" by {}", trigger.name())).unwrap_or_default();
    let lasted = match seconds {
        Some(seconds) => format!("It was evicted from {from}{by} {seconds} s ago and not restored"),
        None => {
            format!("It is evicted from {from}{by} at two looks, and nothing of it was retired between them")
        }
    };
    let waits = match backlog {
        Some((packets, 0)) => format!("backlog {packets} packets"),
        Some((packets, bytes)) => format!("backlog {packets} packets and {bytes} bytes of SDMA commands"),
        None => "its backlog is not measured".to_owned(),
    };
    format!("{lasted}; {waits}. {}", advice(trigger))
}

fn advice(trigger: Option<Trigger>) -> &'static str {
    match trigger {
        Some(Trigger::Svm) => {
            "A buffer that a queue needs, as its save area, was unmapped or reclaimed: then the driver restores nothing, and \
             the process must end. Look at the memory limit of its cgroup (memory.high, memory.max; pgscan in memory.stat), \
             and in the kernel's log for \"queue evicted\"."
        }
        Some(Trigger::Userptr) => {
            "Memory of the process that the GPU maps was moved or unmapped, and the driver cannot map it again: look at free \
             memory and at the memory limit of its cgroup (memory.high, memory.max)."
        }
        Some(Trigger::Ttm) => {
            "Memory of the GPU is short, and the driver cannot put its buffers back: see in `kfd-trace ps` who has it."
        }
        Some(Trigger::Suspend) => {
            "Its GPU was reset or is suspended. No queue from before a reset is restored: then the process must end."
        }
        Some(Trigger::Fault) => {
            "After a VM fault or poisoned memory the driver does not restore the queues of the process: it must end."
        }
        Some(Trigger::CriuCheckpoint | Trigger::CriuRestore) => {
            "A checkpoint or restore by CRIU is under way: see whether it gets on."
        }
        Some(Trigger::Unknown(_)) | None => {
            "A daemon that ran before shows why (`kfd-trace doctor --url`). Look for a reset, a VM fault, or a buffer of a queue \
             that was unmapped or reclaimed (\"queue evicted\" in the kernel's log; the memory limit of its cgroup): after these \
             nothing is restored, and the process must end."
        }
    }
}

pub(super) fn gpus(gpu_ids: &[u32]) -> String {
    let shown: Vec<String> = gpu_ids.iter().map(u32::to_string).collect();
    format!("{} {}", if shown.len() == 1 { "GPU" } else { "GPUs" }, shown.join(", "))
}
