//! `lookups`: bpf(2) lookups on one CPU. While one is under way the kernel runs no kprobe program on that
//! CPU, and where threads are preempted inside the kernel, others run there meanwhile.

use super::flood::pin_to;
use super::report;
use super::until::Finish;
use anyhow::Result;
use aya::maps::{Array, MapData};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// Copied while programs are kept from running, so that a lookup spends much of its time there.
type Large = [u64; 32_768];

pub(crate) fn run(cpu: usize) -> Result<()> {
    let finish = Finish::on_signals()?;
    let map: Array<MapData, Large> = Array::create(1, 0)?;
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let looker = scope.spawn(|| {
            pin_to(cpu)?;
            while !stop.load(Ordering::Relaxed) {
                map.get(&0, 0)?;
            }
            Ok(())
        });
        let finished = report::ready().and_then(|()| finish.wait());
        stop.store(true, Ordering::Relaxed);
        looker.join().expect("the looker does not panic").and(finished)
    })
}
