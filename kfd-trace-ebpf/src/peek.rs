//! Reads kernel memory for the daemon: it walks the driver's process table with the offsets it has from BTF.
//!
//! Attached to nothing: the daemon runs it by BPF_PROG_TEST_RUN, one read per run, and has `PEEK` mapped into
//! its memory. The only owner of `PEEK`.

use crate::kernel;
use aya_ebpf::bindings::BPF_F_MMAPABLE;
use aya_ebpf::macros::{map, raw_tracepoint};
use aya_ebpf::maps::Array;
use aya_ebpf::programs::RawTracePointContext;
use kfd_trace_common::limits::PEEK_LEN;
use kfd_trace_common::peek::Answer;

#[map]
static PEEK: Array<Answer> = Array::with_max_entries(1, BPF_F_MMAPABLE);

/// Arguments: address, length. The result is in the map: a raw tracepoint's program has no return value.
#[raw_tracepoint]
pub(crate) fn peek(ctx: RawTracePointContext) -> i32 {
    let (address, len): (u64, u64) = (ctx.arg(0), ctx.arg(1));
    let Some(answer) = PEEK.get_ptr_mut(0) else { return 0 };
    // SAFETY: the one value of the map; the daemon runs this program from one thread at a time.
    let answer = unsafe { &mut *answer };
    answer.len = 0;
    if len == 0 || len > PEEK_LEN as u64 {
        return 0;
    }
    if let Some(out) = answer.bytes.get_mut(..len as usize)
        && kernel::read_bytes(address, out).is_some()
    {
        answer.len = len;
    }
    0
}
