//! The driver's own tracepoints: only counted. They cover work that does not pass KFD (submissions through
//! DRM), or exist in ROCm's out-of-tree driver only.

use crate::counters;
use aya_ebpf::macros::tracepoint;
use aya_ebpf::programs::TracePointContext;
use kfd_trace_common::counter::ProbeId;

macro_rules! counted {
    ($($program:ident = $id:ident;)*) => {
        $(
            #[tracepoint]
            pub(crate) fn $program(_ctx: TracePointContext) -> u32 {
                counters::hit(ProbeId::$id);
                0
            }
        )*
    };
}

counted! {
    tp_cs = TpCs;
    tp_interrupt = TpInterrupt;
    tp_job_queue = TpJobQueue;
    tp_job_run = TpJobRun;
    tp_job_done = TpJobDone;
    tp_evict_start = TpEvictStart;
    tp_evict_end = TpEvictEnd;
    tp_restore_start = TpRestoreStart;
    tp_restore_end = TpRestoreEnd;
}
