//! The events of a log.

use crate::filler;
use crate::format::Format;
use crate::ledger::{Ledger, OfQueue};
use crate::writer::{Who, Writer};
use std::io::{self, Write};

/// The amount of each.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub processes: u32,
    /// Hardware queues of each.
    pub queues: u32,
    /// Kernels of all together.
    pub kernels: u64,
    /// Unrelated lines per kernel.
    pub filler: u32,
    /// Microseconds from one kernel to the next.
    pub apart_us: u64,
    /// With copies, barriers, trouble and truncated lines; otherwise kernels only.
    pub mixed: bool,
    /// Packets of a queue before the log's first.
    pub before: u64,
}

impl Plan {
    /// The GEMM test of the report: 127,644 kernels on one queue in 180 s, and a log of 1.5 GB.
    pub const REPORTED: Plan = Plan {
        processes: 1,
        queues: 1,
        kernels: 127_644,
        filler: 73,
        apart_us: 1410,
        mixed: false,
        before: 0,
    };

    /// Some of everything.
    pub const MIXED: Plan =
        Plan { processes: 3, queues: 4, kernels: 3000, filler: 7, apart_us: 91_000, mixed: true, before: 5 };
}

const GEMM: &str =
    "Cijk_Ailk_Bljk_S_B_Bias_HA_S_SAV_UserArgs_MT256x208x16_MI16x16x1_SN_LDSB0_AFC1_AFEM1_AFEM1_ASEM1_CLR1";
const KINDS: [&str; 5] = ["CopyHostToDevice", "CopyDeviceToHost", "Marker", "InternalMarker", "FillBuffer"];

/// Writes a log, and returns its ledger.
///
/// # Errors
/// The errors of `out`.
pub fn write(out: impl Write, format: Format, plan: &Plan) -> io::Result<Ledger> {
    let mut writer = Writer::new(out, format, 7_270_505_876);
    let mut queues = Vec::new();
    for process in 0..plan.processes {
        let pid = 157_801 + process;
        let who = Who { pid, thread: 0x7f31_6f40_06c0 };
        writer.runtime(who, 8)?;
        for number in 0..plan.queues {
            let apart = u64::from(process) << 36 | u64::from(number) << 24;
            let mut queue = OfQueue {
                pid,
                id: u64::from(number) + 1,
                hwq: 0x7fad_66c0_0000 + apart,
                swq: 0x7faf_945b_8000 + apart,
                host_queue: 0xbe0_0d60 + u64::from(number) * 0x1000,
                ..OfQueue::default()
            };
            writer.birth(who, &mut queue)?;
            queues.push(queue);
        }
    }
    let mut written = vec![plan.before; queues.len()];
    for turn in 0..plan.kernels {
        let at = usize::try_from(turn % queues.len() as u64).unwrap_or(0);
        let (queue, write) = (&mut queues[at], &mut written[at]);
        let who = Who { pid: queue.pid, thread: 0x7f31_6f40_06c0 + at as u64 * 0x1000 };
        filler::launch(&mut writer, who, plan.filler, turn)?;
        launch(&mut writer, who, queue, write, plan, turn)?;
        if plan.mixed {
            between(&mut writer, who, queue, write, turn)?;
        }
        writer.now_us += plan.apart_us;
    }
    for queue in &mut queues {
        let who = Who { pid: queue.pid, thread: 0x7f31_6f40_06c0 };
        writer.released(who, queue)?;
        writer.deleted(who, queue)?;
    }
    writer.ledger.queues = queues;
    writer.finish()
}

fn launch<W: Write>(
    writer: &mut Writer<W>,
    who: Who,
    queue: &mut OfQueue,
    write: &mut u64,
    plan: &Plan,
    turn: u64,
) -> io::Result<()> {
    writer.command(who, queue, "KernelExecution", turn)?;
    let (grid, behind) = if plan.mixed {
        ([256 << (turn % 7), 1, 1 + turn % 2], turn % 97)
    } else {
        ([20480, 1, 1], turn % 4)
    };
    if plan.mixed && turn.is_multiple_of(11) {
        writer.kernel(who, &format!("void at::native::kernel_{}<float, 4>(int)", turn % 23))?;
    } else {
        writer.kernel(who, GEMM)?;
    }
    writer.dispatch(who, queue, grid, [256, 1, 1], *write, behind)?;
    *write += 1;
    let gpu_us = (plan.mixed && turn.is_multiple_of(2)).then_some(1300);
    writer.completed(who, turn, gpu_us)?;
    writer.returned(who, "hipSuccess")
}

fn between<W: Write>(
    writer: &mut Writer<W>,
    who: Who,
    queue: &mut OfQueue,
    write: &mut u64,
    turn: u64,
) -> io::Result<()> {
    if turn.is_multiple_of(3) {
        let kind = KINDS[usize::try_from(turn % 5).unwrap_or(0)];
        writer.command(who, queue, kind, turn)?;
        writer.barrier(who, queue, *write, 1)?;
        *write += 1;
    }
    if turn.is_multiple_of(17) {
        writer.copy(who, 1 << (turn % 4), 4096 * (turn + 1))?;
        writer.barrier_value(who, queue, *write)?;
        *write += 1;
        writer.blank()?;
    }
    if turn.is_multiple_of(101) {
        writer.full(who)?;
        writer.released(who, queue)?;
        writer.acquired(who, queue)?;
        writer.selected(who, queue)?;
        writer.returned(who, "hipErrorNotReady")?;
        writer.damaged(who, queue)?;
        writer.foreign("epoch 1: loss 0.25")?;
    }
    if turn.is_multiple_of(31) {
        writer.graph(who, queue, write, turn % 5)?;
        writer.rectangle(who)?;
        writer.signal(who)?;
    }
    if turn == 150 {
        writer.aborts(who, queue)?;
        writer.faults(who, queue)?;
    }
    Ok(())
}
