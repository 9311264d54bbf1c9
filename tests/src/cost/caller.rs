//! The process whose calls are measured. In: orders on standard input, one JSON line each. Out: one line per
//! order on standard output with the measurement. The guest's other programs are idle meanwhile.

use super::case::{Ready, Work};
use super::clock;
use crate::harness::JsonProcess;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::io::{Write, stdin, stdout};
use std::time::Duration;

/// After a burst: the tracer's own process reads what has arrived. Too short for most of its own periodic
/// work of each second.
const PAUSE: Duration = Duration::from_millis(10);

/// For an order, in the guest's time, which advances with its instructions.
const LIMIT: Duration = Duration::from_secs(600);

/// What to do: `bursts` times `operations`, with a pause after each burst.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Order {
    pub(super) work: Work,
    pub(super) operations: u32,
    pub(super) bursts: u32,
}

/// Cost of a burst, in instructions; each the least of all bursts, since any interruption increases it.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Took {
    /// From its begin to its end: the caller's waiting time.
    pub(super) caller: u64,
    /// Of all tasks from its begin to the end of the pause after it.
    pub(super) machine: u64,
}

/// Serves orders until standard input ends.
pub fn serve(kfd: bool) -> Result<()> {
    let ready = Ready::new(kfd)?;
    answer(&json!({"ready": true}))?;
    for line in stdin().lines() {
        let line = line.context("read an order")?;
        let order: Order = serde_json::from_str(&line).with_context(|| format!("the order `{line}`"))?;
        answer(&measure(&ready, &order)?)?;
    }
    Ok(())
}

fn answer(value: &impl Serialize) -> Result<()> {
    let mut out = stdout().lock();
    writeln!(out, "{}", serde_json::to_string(value)?).and_then(|()| out.flush()).context("answer")
}

fn measure(ready: &Ready, order: &Order) -> Result<Took> {
    let mut least = Took { caller: u64::MAX, machine: u64::MAX };
    for _ in 0..order.bursts {
        let busy = clock::busy()?;
        let start = clock::now()?;
        for _ in 0..order.operations {
            ready.once(order.work)?;
        }
        least.caller = least.caller.min(clock::now()? - start);
        std::thread::sleep(PAUSE);
        least.machine = least.machine.min(clock::busy()? - busy);
    }
    Ok(least)
}

/// Such a process, as the ordering process sees it.
#[derive(Debug)]
pub(super) struct Caller {
    process: JsonProcess,
    answers: usize,
}

impl Caller {
    /// `program` is one that calls [`serve`] when its first argument is `caller`, with `--kfd` for
    /// [`Work::Refused`] and [`Work::Pair`].
    pub(super) fn start(program: &str, kfd: bool) -> Result<Self> {
        let words: &[&str] = if kfd { &["caller", "--kfd"] } else { &["caller"] };
        let mut caller = Self { process: JsonProcess::spawn(program, words)?, answers: 0 };
        caller.next_answer()?;
        Ok(caller)
    }

    pub(super) fn pid(&self) -> u32 {
        self.process.pid()
    }

    pub(super) fn order(&mut self, order: Order) -> Result<Took> {
        self.process.send_line(&serde_json::to_string(&order)?)?;
        let answer = self.next_answer()?;
        serde_json::from_value(answer).with_context(|| format!("the answer to {order:?}"))
    }

    fn next_answer(&mut self) -> Result<serde_json::Value> {
        let have = self.answers;
        self.answers += 1;
        self.process.wait_lines("a caller's answer", LIMIT, |lines| lines.get(have).cloned())
    }
}
