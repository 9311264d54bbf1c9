//! One exposition of a small node, for `cargo xtask fleet`: processes that live and processes that ended, all on each
//! GPU, with samples of their queues, allocations, and the driver's count of VRAM.

use crate::load::Scraped;
use crate::memory;
use crate::records::Tape;
use crate::world::{self, Daemon, QueueAt, START_BOOTTIME_NS, Size};
use anyhow::{Context as _, Result, ensure};
use kfd_trace::kernel::Roots;
use kfd_trace::model::inventory::Listed;
use kfd_trace::output::metrics::Format;
use kfd_trace_common::kind::Kind;
use std::time::Duration;

/// `KFD_IOC_ALLOC_MEM_FLAGS_VRAM`, `_GTT`, `_DOORBELL` and `_MMIO_REMAP`: what each process has on a GPU that it opened.
const FLAGS: [u32; 4] = [1, 1 << 1, 1 << 3, 1 << 4];

/// In: how many processes live and have ended, queues of each, and GPUs. Out: the text.
pub(crate) fn run() -> Result<()> {
    let usage = "exposition LIVE ENDED QUEUES GPUS";
    let numbers = std::env::args().skip(2).map(|number| number.parse().context(usage));
    let numbers: Vec<usize> = numbers.collect::<Result<_>>()?;
    let [live, ended, each, gpus] = numbers[..] else { anyhow::bail!(usage) };
    ensure!(gpus > 0, "at least one GPU");
    print!("{}", text(live, ended, each, gpus)?);
    Ok(())
}

fn text(live: usize, ended: usize, each: usize, gpus: usize) -> Result<String> {
    let size = Size { processes: live + ended, queues: (live + ended) * each, gpus };
    let host = world::host(size)?;
    let mut daemon = Daemon::new(&Roots::under(host.path()));
    let queues: Vec<QueueAt> = (0..size.queues).map(|number| world::queue(size, number)).collect();
    let mut tape = Tape::default();
    for process in 1..=size.processes as u64 {
        tape.process_seen(process);
        tape.open(process);
    }
    memory::births(&mut tape, queues.iter().copied());
    for (handle, queue) in queues.iter().enumerate() {
        let (handle, flags) = (handle as u64 + 1, FLAGS[handle / size.processes % FLAGS.len()]);
        tape.allocate(*queue, handle, flags);
    }
    daemon.follow(&tape);
    daemon.state.count_vram((START_BOOTTIME_NS + 1_000_000_000).into(), &listed(&queues));
    for before_ns in [1_500_000_000, 500_000_000] {
        daemon.sample(START_BOOTTIME_NS * 2 - before_ns);
    }
    daemon.follow(&ends(live as u64, &queues, tape));
    ensure!(daemon.faults() == 0, "{} records were refused: the generated ones are wrong", daemon.faults());
    // They ended an hour before the scrape.
    let scraped = Scraped::new(size).quiet().lingering(Duration::from_secs(2 * 3600));
    scraped.text(&daemon, &daemon.state.snapshot(), Format::Text)
}

/// As sysfs lists the memory of their processes.
fn listed(queues: &[QueueAt]) -> Vec<Listed> {
    let one = |queue: &QueueAt| Listed {
        tgid: world::tgid(queue.process),
        vram: [(queue.gpu_id, 64 << 30)].into(),
        ..Listed::default()
    };
    queues.iter().map(one).collect()
}

/// The ends of all processes above this one, after what was on the tape.
fn ends(live: u64, queues: &[QueueAt], before: Tape) -> Tape {
    let mut tape = before.continued();
    let ended = queues.iter().map(|queue| queue.process).max().unwrap_or(live);
    for process in live + 1..=ended {
        tape.bare(Kind::Close, process);
        tape.bare(Kind::MmRelease, process);
        queues.iter().filter(|queue| queue.process == process).for_each(|queue| tape.queue_destroy(*queue));
        tape.bare(Kind::ProcessRelease, process);
    }
    tape
}
