//! Operations of `script` on the two pointers of a queue: what a program and its GPU would do to them, and
//! faults of the memory around them. Each prints the queue's totals after it: the ledger that a tracer's
//! counts are compared with.

use super::operation::Which;
use crate::kfd::{Counts, Pointers};
use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use std::thread;
use std::time::Duration;

/// One step, of one queue or of all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Activity {
    /// `None` is every queue that was created on the device in use.
    pub(crate) queue: Option<Which>,
    pub(crate) step: Step,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Submit(u64),
    Retire(u64),
    /// Submits and retires this many, in bursts.
    Busy {
        count: u64,
        burst: u64,
    },
    /// Overwrites the queue's structure with other bytes.
    Scribble(u8),
    /// Undoes that.
    Restore,
    /// Unmaps the page permanently.
    Unmap,
}

/// Default of `busy`.
const BURST: u64 = 1000;
/// How long a burst stays in the queue.
const STOP: Duration = Duration::from_millis(1);
/// Default of `scribble`.
const BYTE: u8 = 0xa5;

impl Activity {
    /// `None` if the word names no step.
    pub(crate) fn parse(name: &str, rest: &[&str]) -> Result<Option<Self>> {
        const NAMES: [&str; 6] = ["submit", "retire", "busy", "scribble", "restore", "unmap-pointers"];
        if !NAMES.contains(&name) {
            return Ok(None);
        }
        let (queue, rest) = rest.split_first().context("of which queue")?;
        let queue = match *queue {
            "all" => None,
            which => Some(which.parse().context("neither a queue nor `all`")?),
        };
        let step = match (name, rest) {
            ("submit", [count]) => Step::Submit(count.parse()?),
            ("retire", [count]) => Step::Retire(count.parse()?),
            ("busy", [count]) => Step::Busy { count: count.parse()?, burst: BURST },
            ("busy", [count, burst]) => Step::Busy { count: count.parse()?, burst: burst.parse()? },
            ("scribble", []) => Step::Scribble(BYTE),
            ("scribble", [byte]) => Step::Scribble(byte.parse()?),
            ("restore", []) => Step::Restore,
            ("unmap-pointers", []) => Step::Unmap,
            _ => bail!("wrong words after the queue"),
        };
        ensure!(!matches!(step, Step::Busy { burst: 0, .. }), "a burst of nothing has no end");
        Ok(Some(Self { queue, step }))
    }

    pub(crate) fn name(&self) -> &'static str {
        match self.step {
            Step::Submit(_) => "submit",
            Step::Retire(_) => "retire",
            Step::Busy { .. } => "busy",
            Step::Scribble(_) => "scribble",
            Step::Restore => "restore",
            Step::Unmap => "unmap-pointers",
        }
    }

    /// Performs the step on these queues, all that were created on the device, by id, the latest last: a queue
    /// is the latest with its id. `first`: the id of the first. Returns `queue_id`, or "all", and the totals.
    pub(crate) fn take<'a>(
        &self,
        first: u32,
        made: impl Iterator<Item = (u32, &'a mut Pointers)>,
    ) -> Result<Value> {
        let wanted = self.queue.map(|queue| queue.id(first));
        let mut chosen: Vec<(u32, &mut Pointers)> =
            made.filter(|(id, _)| wanted.is_none_or(|wanted| wanted == *id)).collect();
        if let (Some(queue_id), Some((_, pointers))) = (wanted, chosen.last_mut()) {
            self.step.of(pointers)?;
            let Counts { write, read } = pointers.counts();
            return Ok(json!({"queue_id": queue_id, "write": write, "read": read}));
        }
        ensure!(wanted.is_none() && !chosen.is_empty(), "no such queue was made");
        let mut sum = Counts::default();
        for (_, pointers) in &mut chosen {
            self.step.of(pointers)?;
            sum.write += pointers.counts().write;
            sum.read += pointers.counts().read;
        }
        Ok(json!({"queue_id": "all", "write": sum.write, "read": sum.read}))
    }
}

impl Step {
    fn of(self, pointers: &mut Pointers) -> Result<()> {
        match self {
            Self::Submit(count) => pointers.submit(count).map(drop),
            Self::Retire(count) => pointers.retire(count).map(drop),
            Self::Busy { count, burst } => {
                let mut left = count;
                while left > 0 {
                    let now = left.min(burst);
                    pointers.submit(now)?;
                    thread::sleep(STOP);
                    pointers.retire(now)?;
                    left -= now;
                }
                Ok(())
            }
            Self::Scribble(byte) => pointers.scribble(byte),
            Self::Restore => pointers.restore(),
            Self::Unmap => pointers.unmap(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kfd::uapi::QueueType;
    use crate::kfd::{Gpu, QueueMemory};

    const GPU: Gpu = Gpu { gpu_id: 7, ctl_stack_size: None, cwsr_size: None, num_xcc: 1 };

    fn parse(text: &str) -> Result<Option<Activity>> {
        let words: Vec<&str> = text.split(' ').collect();
        Activity::parse(words[0], &words[1..])
    }

    #[test]
    fn words_become_steps() {
        for (text, queue, step) in [
            ("submit 3 9", Some(3), Step::Submit(9)),
            ("retire all 2", None, Step::Retire(2)),
            ("busy 0 127644", Some(0), Step::Busy { count: 127_644, burst: 1000 }),
            ("busy 0 10 4", Some(0), Step::Busy { count: 10, burst: 4 }),
            ("scribble 1", Some(1), Step::Scribble(0xa5)),
            ("scribble 1 0", Some(1), Step::Scribble(0)),
            ("restore 1", Some(1), Step::Restore),
            ("unmap-pointers 7", Some(7), Step::Unmap),
        ] {
            let parsed = parse(text).unwrap().unwrap();
            assert_eq!(parsed, Activity { queue: queue.map(Which::Nth), step });
            assert_eq!(parsed.name(), text.split(' ').next().unwrap());
        }
        assert_eq!(parse("destroy 3").unwrap(), None);
    }

    #[test]
    fn nonsense_is_refused() {
        for text in [
            "submit",
            "submit 1",
            "submit x 1",
            "submit 1 -1",
            "busy 1 5 0",
            "scribble 1 256",
            "unmap-pointers 1 1",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_step_is_of_the_latest_queue_of_its_id_or_of_all() {
        let queue = || QueueMemory::new(QueueType::ComputeAql, &GPU).unwrap();
        let mut queues = [(4, queue()), (5, queue()), (4, queue())];
        let mut take = |text: &str| {
            let made = queues.iter_mut().map(|(id, memory)| (*id, &mut memory.pointers));
            let reported = parse(text).unwrap().unwrap().take(1, made).ok()?;
            Some(json!([reported["queue_id"], reported["write"], reported["read"]]))
        };
        assert_eq!(take("submit 3 3"), Some(json!([4, 3, 0])));
        assert_eq!(take("submit all 1"), Some(json!(["all", 6, 0])));
        assert_eq!(take("busy id=5 10 4"), Some(json!([5, 11, 10])));
        assert_eq!(take("submit 5 1"), None);
        assert_eq!(queues.map(|(_, memory)| memory.pointers.counts().write), [1, 11, 4]);
    }
}
