//! Selection of processes. The only owner of `FILTER`.

use aya_ebpf::{Global, macros::map, maps::HashMap};
use kfd_trace_common::limits::FILTER_MAX;

/// Selected tgids of the initial PID namespace; filled before the probes are attached.
#[map]
static FILTER: HashMap<u32, u8> = HashMap::with_max_entries(FILTER_MAX, 0);

/// 0: every process is selected.
#[unsafe(no_mangle)]
static FILTER_ON: Global<u32> = Global::new(0);

#[inline(always)]
pub(crate) fn wanted(tgid: u32) -> bool {
    FILTER_ON.load() == 0 || FILTER.get_ptr(tgid).is_some()
}
