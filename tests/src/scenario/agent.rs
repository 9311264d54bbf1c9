//! An agent: a `kfd-workload agent` that performs one operation at a time, and its results.

use super::op::{Answer, Change, NewQueue, Op, Owner};
use crate::harness::Workload;
use crate::harness::wait::SOON;
use crate::kfd::uapi::QueueType;
use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;
use serde_json::Value;

#[derive(Debug)]
pub struct Agent {
    workload: Workload,
    /// Lines of its output that were processed.
    seen: usize,
    /// Its secondary processes: id, and the place in its list of devices.
    contexts: Vec<(u64, usize)>,
    /// Devices it has opened, and the one in use.
    devices: usize,
    current: usize,
}

impl Agent {
    pub fn start() -> Result<Self> {
        let workload = Workload::ready(&["agent"])?;
        // it prints nothing after this until it gets an operation
        let seen = workload.lines().len();
        Ok(Self { workload, seen, contexts: Vec::new(), devices: 1, current: 0 })
    }

    pub fn pid(&self) -> u32 {
        self.workload.pid()
    }

    /// Performs an ioctl or another operation of the agent itself. `gpu_ids` in the order of the topology.
    pub fn perform(&mut self, op: &Op, gpu_ids: &[u32]) -> Result<Answer> {
        match op {
            Op::Create { owner, new } => {
                let line = self.ask_as(*owner, &create_words(new, gpu_ids)?)?;
                match refusal(&line) {
                    Some(refused) => Ok(refused),
                    None => Answer::made(&line).map(Answer::Created).with_context(|| line.to_string()),
                }
            }
            Op::Update { owner, queue_id, change } => self.done_as(*owner, &update_words(*queue_id, change)),
            Op::CuMask { owner, queue_id, mask } => {
                let words: Vec<String> = mask.iter().map(|word| format!("{word:#x}")).collect();
                self.done_as(*owner, &format!("cu-mask id={queue_id} {}", words.join(" ")))
            }
            Op::Destroy { owner, queue_id } => self.done_as(*owner, &format!("destroy id={queue_id}")),
            Op::Fork { agent } => self.done_as(Owner::primary(*agent), "fork-ioctl"),
            Op::Close { owner } => self.done_as(*owner, "close"),
            Op::Open { agent } => self.done_as(Owner::primary(*agent), "open"),
            Op::Context { .. } => self.context(),
            Op::Exit { .. } => self.workload.finish().map(|_| Answer::Done),
            Op::Kill { .. } => {
                self.workload.signal(Signal::SIGKILL)?;
                self.workload.wait_exit(SOON)?;
                Ok(Answer::Done)
            }
            Op::Start { .. }
            | Op::Evict { .. }
            | Op::Restore { .. }
            | Op::TtmEvict { .. }
            | Op::Fault { .. } => anyhow::bail!("{op:?} is not an agent's to do"),
        }
    }

    fn context(&mut self) -> Result<Answer> {
        let line = self.request("context")?;
        if let Some(refused) = refusal(&line) {
            return Ok(refused);
        }
        let ids = line["context_ids"].as_array().context("context_ids")?;
        ensure!(ids.len() == 1, "one new context was expected: {line}");
        let id = ids[0].as_u64().context("an id")?;
        self.contexts.push((id, self.devices));
        self.current = self.devices;
        self.devices += 1;
        Ok(Answer::Context { id })
    }

    fn done_as(&mut self, owner: Owner, words: &str) -> Result<Answer> {
        let line = self.ask_as(owner, words)?;
        Ok(refusal(&line).unwrap_or(Answer::Done))
    }

    fn ask_as(&mut self, owner: Owner, words: &str) -> Result<Value> {
        let device = match owner.context {
            None => 0,
            // ids are reused: the newest is meant
            Some(id) => {
                let found = self.contexts.iter().rfind(|(have, _)| *have == id);
                found.with_context(|| format!("no context {id}"))?.1
            }
        };
        if device != self.current {
            self.request(&format!("use {device}"))?;
            self.current = device;
        }
        self.request(words)
    }

    fn request(&mut self, words: &str) -> Result<Value> {
        self.workload.send_line(words)?;
        let seen = self.seen;
        let line = self.workload.wait_lines(words, SOON, |lines| lines.get(seen).cloned())?;
        self.seen += 1;
        Ok(line)
    }
}

fn refusal(line: &Value) -> Option<Answer> {
    line["errno"].as_str().map(|errno| Answer::Refused(errno.to_owned()))
}

fn create_words(new: &NewQueue, gpu_ids: &[u32]) -> Result<String> {
    let queue_type = match new.queue_type {
        QueueType::ComputeAql => "aql",
        QueueType::Compute => "compute",
        QueueType::Sdma => "sdma",
        QueueType::SdmaXgmi => "xgmi",
        QueueType::SdmaByEngId => "sdma-engine",
    };
    let gpu = gpu_ids.iter().position(|id| *id == new.gpu_id).context("no such GPU")?;
    let NewQueue { priority, percent, ring_size, engine, .. } = new;
    let spoil = if new.spoilt { " bad" } else { "" };
    Ok(format!(
        "create {queue_type}{spoil} gpu={gpu} priority={priority} percent={percent} ring={ring_size} engine={engine}"
    ))
}

fn update_words(queue_id: u32, change: &Change) -> String {
    let Change { priority, percent, ring_size, .. } = change;
    let no_ring = if change.no_ring { " no-ring" } else { "" };
    format!("update id={queue_id} {percent} priority={priority} ring={ring_size}{no_ring}")
}
