//! The guest's clocks where each instruction takes a nanosecond.

use anyhow::{Context, Result, ensure};
use nix::time::{ClockId, clock_gettime};
use std::arch::asm;
use std::fs;
use std::time::Duration;

/// Instructions since boot, plus the time that the guest was idle.
pub(super) fn now() -> Result<u64> {
    let time = clock_gettime(ClockId::CLOCK_MONOTONIC).context("read the clock")?;
    u64::try_from(Duration::from(time).as_nanos()).context("a clock of this century")
}

/// Instructions of all tasks together, kernel threads and interrupts in any of them included; without those
/// of the idle task. The running task is counted up to when it ran last, so the caller must sleep first.
pub(super) fn busy() -> Result<u64> {
    std::thread::sleep(Duration::from_millis(1));
    let text = fs::read_to_string("/proc/schedstat").context("read /proc/schedstat")?;
    run_time(&text).context("/proc/schedstat has no CPU")
}

/// The sum of the CPUs' `rq_cpu_time` (Documentation/scheduler/sched-stats.rst: the seventh number), ns.
fn run_time(schedstat: &str) -> Option<u64> {
    let cpus = schedstat.lines().filter(|line| line.starts_with("cpu"));
    let times: Option<Vec<u64>> = cpus.map(|line| line.split_whitespace().nth(7)?.parse().ok()).collect();
    times.filter(|times| !times.is_empty()).map(|times| times.iter().sum())
}

/// Fails where the clock does not count instructions: the figures would then be meaningless.
pub(super) fn check() -> Result<()> {
    const TURNS: u64 = 500_000;
    // an interrupt may hit some of them
    let mut shortest = u64::MAX;
    for _ in 0..8 {
        let start = now()?;
        // SAFETY: counts a register down to 0 and touches nothing else.
        unsafe { asm!("2: dec {0}", "jnz 2b", inout(reg) TURNS => _, options(nomem, nostack)) };
        shortest = shortest.min(now()? - start);
    }
    let made = 2 * TURNS;
    ensure!(
        shortest.abs_diff(made) * 1000 < made,
        "{made} instructions take {shortest} ns here: the guest's clock does not count instructions"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_all_cpus_is_summed() {
        let text = "version 16\ntimestamp 4294954310\ncpu0 0 0 0 0 0 0 7000000123 5 99\ndomain0 3 1 2 3 4 5 6 7\n\
            cpu1 0 0 0 0 0 0 77 5 99\n";
        assert_eq!(run_time(text), Some(7_000_000_200));
        assert_eq!(run_time("version 16\ntimestamp 1\n"), None);
        assert_eq!(run_time("cpu0 0 0\n"), None);
    }
}
