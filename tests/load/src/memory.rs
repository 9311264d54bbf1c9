//! Memory: anonymous pages, including the allocator's own overhead.

use crate::load::Scraped;
use crate::records::Tape;
use crate::region::value;
use crate::world::{self, BATCH, Daemon, NODE, QueueAt};
use anyhow::{Context as _, Result, ensure};
use kfd_trace::kernel::Roots;
use kfd_trace::output::metrics::Format;
use kfd_trace::state::{History, StateLimits};
use std::fs;

/// Bytes of `RssAnon` and, since the last [`forget_peak`], of `VmHWM` (/proc/self/status).
struct Pages {
    anonymous: u64,
    peak: u64,
}

fn pages() -> Result<Pages> {
    let status = procfs::process::Process::myself()?.status()?;
    let bytes = |kib: Option<u64>| kib.map(|kib| kib * 1024).context("/proc/self/status lacks a line");
    Ok(Pages { anonymous: bytes(status.rssanon)?, peak: bytes(status.vmhwm)? })
}

/// Resets the peak (Documentation/filesystems/proc.rst, `clear_refs`).
pub(crate) fn forget_peak() -> Result<()> {
    fs::write("/proc/self/clear_refs", "5").context("cannot write /proc/self/clear_refs")
}

/// Processes what `write` writes; returns the growth in pages.
fn growth(daemon: &mut Daemon, write: impl FnOnce(&mut Tape)) -> Result<u64> {
    let mut tape = Tape::default();
    write(&mut tape);
    let before = pages()?.anonymous;
    daemon.follow(&tape);
    Ok(pages()?.anonymous.saturating_sub(before))
}

pub(crate) fn run() -> Result<()> {
    // Otherwise a page is 2 MiB on some machines.
    rustix::thread::disable_transparent_huge_pages(true)?;
    let host = world::host(NODE)?;
    let roots = Roots::under(host.path());
    // One-time allocations are made before this: they are no part of any growth.
    let mut first = Daemon::new(&roots);
    growth(&mut first, |tape| {
        processes(tape);
        (0..BATCH).for_each(|_| tape.ioctl(1));
    })?;
    let mut daemon = first.renewed();
    let seen = growth(&mut daemon, processes)?;
    let queues =
        growth(&mut daemon, |tape| births(tape, (0..NODE.queues).map(|number| world::queue(NODE, number))))?;
    value("memory.process", seen / NODE.processes as u64, "bytes");
    value("memory.queue", queues / NODE.queues as u64, "bytes");
    value("memory.state.10000_queues", seen + queues, "bytes");
    let remembered = NODE.processes * StateLimits::default().ended_queues;
    let ended = growth(&mut daemon, |tape| {
        for number in 0..remembered {
            let queue = QueueAt { queue_id: 1_000, ..world::queue(NODE, number) };
            births(tape, std::iter::once(queue));
            tape.queue_destroy(queue);
        }
    })?;
    value("memory.ended_queue", ended / remembered as u64, "bytes");
    ensure!(daemon.faults() == 0, "{} records were refused: the generated ones are wrong", daemon.faults());
    let world = Scraped::new(NODE);
    forget_peak()?;
    let before = pages()?;
    let snapshot = daemon.state.snapshot();
    let text = world.text(&daemon, &snapshot, Format::Text)?;
    value("memory.scrape.10000_queues", pages()?.peak.saturating_sub(before.peak), "bytes");
    ensure!(!text.is_empty(), "a scrape without a line");
    drop((text, snapshot));
    let left = pages()?.anonymous.saturating_sub(before.anonymous);
    value("memory.scrape_left.10000_queues", left, "bytes");
    Ok(())
}

/// Processes and queues of [`NODE`], all alive.
pub(crate) fn fill(daemon: &mut Daemon, history: &mut History) {
    let mut tape = Tape::default();
    processes(&mut tape);
    births(&mut tape, (0..NODE.queues).map(|number| world::queue(NODE, number)));
    daemon.follow_with_history(&tape, history);
}

fn processes(tape: &mut Tape) {
    (1..=NODE.processes as u64).for_each(|process| tape.process_seen(process));
}

pub(crate) fn births(tape: &mut Tape, queues: impl Iterator<Item = QueueAt>) {
    for queue in queues {
        tape.mqd_write(queue, kfd_trace_common::record::mqd_op::INIT);
        tape.queue_create(queue);
    }
}
