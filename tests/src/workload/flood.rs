//! `burst` and `flood`: more ioctls than one record each could carry; `noise`: some all the time.

use super::until::Finish;
use super::{queues, report};
use crate::kfd::{Client, Tally};
use anyhow::{Context, Result};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// `count` ioctls in total, divided among threads that use one descriptor.
pub(crate) fn burst(threads: NonZeroU64, count: NonZeroU64, cpu: Option<usize>) -> Result<()> {
    cpu.map(pin_to).transpose()?;
    let threads = threads.get();
    let share = move |i| count.get() / threads + u64::from(i < count.get() % threads);
    together(threads, |i| {
        let share = share(i);
        move |made| made < share
    })
}

/// As many as possible in that time.
pub(crate) fn flood(threads: NonZeroU64, time: Duration) -> Result<()> {
    together(threads.get(), |_| {
        let begin = Instant::now();
        move |_| begin.elapsed() < time
    })
}

/// Each thread continues as long as `may` allows after this many ioctls.
fn together<M: Fn(u64) -> bool + Send>(threads: u64, may: impl Fn(u64) -> M) -> Result<()> {
    let gpu_id = queues::gpus()?[0].gpu_id;
    let mut client = queues::open()?;
    // the pid is in the ready line: an observer can watch it from here on
    report::ready()?;
    let tallies: Vec<Tally> = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|i| {
                let (mut client, may) = (client.share(), may(i));
                scope.spawn(move || {
                    (0..).take_while(|made| may(*made)).for_each(|i| flip(&mut client, gpu_id, i));
                    client.tally
                })
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().expect("a worker does not panic")).collect()
    });
    tallies.iter().for_each(|tally| client.tally.merge(tally));
    report::counts(&client.tally)
}

/// Pins this thread, and those it creates, to one CPU.
pub(super) fn pin_to(cpu: usize) -> Result<()> {
    let mut cpus = CpuSet::new();
    cpus.set(cpu)?;
    sched_setaffinity(Pid::from_raw(0), &cpus).with_context(|| format!("run on CPU {cpu}"))
}

/// Between two ioctls of the noise: each may have to be reported.
const PAUSE: Duration = Duration::from_millis(2);

/// One thread, from a line of standard input on until the sign to finish. Where the CPUs of a VM take turns,
/// attaching a probe waits for a busy one: a tracer is started before the noise is.
pub(crate) fn noise() -> Result<()> {
    let finish = Finish::on_signals()?;
    let gpu_id = queues::gpus()?[0].gpu_id;
    let mut client = queues::open()?;
    let (begun, stop) = (AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|scope| {
        let noise = scope.spawn(|| {
            while !begun.load(Ordering::Acquire) {
                thread::park();
            }
            for i in 0.. {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                flip(&mut client, gpu_id, i);
                thread::sleep(PAUSE);
            }
        });
        let finished = report::ready().and_then(|()| {
            if finish.input()? {
                begun.store(true, Ordering::Release);
                noise.thread().unpark();
                finish.wait()?;
            }
            Ok(())
        });
        stop.store(true, Ordering::Relaxed);
        begun.store(true, Ordering::Release);
        noise.thread().unpark();
        finished
    })?;
    report::counts(&client.tally)
}

/// GET_VERSION and GET_CLOCK_COUNTERS in turn; the outcome is in the tally.
fn flip(client: &mut Client, gpu_id: u32, i: u64) {
    if i.is_multiple_of(2) {
        let _ = client.version();
    } else {
        let _ = client.clock_counters(gpu_id);
    }
}
