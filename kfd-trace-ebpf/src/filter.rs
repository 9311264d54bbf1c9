//! Selection of processes. The only owner of `FILTER`.

use crate::kernel::{self, read};
use aya_ebpf::helpers::generated::bpf_get_current_task;
use aya_ebpf::{Global, macros::map, maps::HashMap};
use kfd_trace_common::limits::{ANCESTORS, FILTER_MAX};

/// Selected tgids of the initial PID namespace; filled before the probes are attached.
#[map]
static FILTER: HashMap<u32, u8> = HashMap::with_max_entries(FILTER_MAX, 0);

/// 0: every process is selected.
#[unsafe(no_mangle)]
static FILTER_ON: Global<u32> = Global::new(0);

/// tgid whose descendants are selected, too; 0 for none.
#[unsafe(no_mangle)]
static FILTER_ROOT: Global<u32> = Global::new(0);

/// Whether a process is selected: by its number, or by an ancestor. `task`: one of its threads.
#[inline(always)]
pub(crate) fn wanted(tgid: u32, task: u64) -> bool {
    if FILTER_ON.load() == 0 || FILTER.get_ptr(tgid).is_some() {
        return true;
    }
    let root = FILTER_ROOT.load();
    root != 0 && descends(task, root)
}

/// The same of the running thread's process.
#[inline(always)]
pub(crate) fn wants_caller(tgid: u32) -> bool {
    // SAFETY: no arguments.
    wanted(tgid, unsafe { bpf_get_current_task() })
}

#[inline(never)]
fn descends(mut task: u64, root: u32) -> bool {
    for _ in 0..ANCESTORS {
        let Some(parent) = read::<u64>(task, &kernel::TASK_REAL_PARENT) else { return false };
        match read::<u32>(parent, &kernel::TASK_TGID) {
            Some(tgid) if tgid == root => return true,
            // The ancestor of all
            Some(0) | None => return false,
            Some(_) => task = parent,
        }
    }
    false
}
