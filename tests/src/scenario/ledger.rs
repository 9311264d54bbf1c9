//! The expected state after the operations so far, derived only from the driver's results and the rules of
//! its source.
//!
//! Rules (amdkfd/kfd_device_queue_manager.c unless noted, 6.1 to 7.2):
//! - CREATE_QUEUE is one call of init_mqd, whose own call of update_mqd does not count. A queue created while
//!   its process is evicted from the GPU starts evicted (create_queue_cpsch).
//! - UPDATE_QUEUE and SET_CU_MASK that succeed are one call of update_mqd each (update_queue).
//! - Evictions are counted per process and GPU: only from 0 to 1 and back queues change
//!   (evict_/restore_process_queues_cpsch). All GPUs of the machine are evicted together, except for a VM
//!   fault, after which there is no restore (kfd_dqm_evict_pasid). A GPU on which the process has no VM is
//!   counted too, and nothing is evicted there; queues that are created while the count is not 0 start
//!   evicted, and are restored with it.
//! - Closing the device ends nothing but a secondary process (kfd_chardev.c:kfd_release).

use super::op::{Answer, Change, Made, NewQueue, Op, Owner};
use crate::kfd::uapi::QueueType;
use anyhow::{Context, Result, bail, ensure};
use std::collections::BTreeMap;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queue {
    pub gpu_id: u32,
    pub queue_type: QueueType,
    /// The ring's address in memory; see [`Queue::ring_address`].
    home: u64,
    no_ring: bool,
    /// Bytes.
    pub ring_size: u32,
    pub write_pointer: u64,
    pub read_pointer: u64,
    pub priority: u32,
    pub percent: u32,
    pub cu_mask: Option<Vec<u32>>,
    /// Calls of update_queue, each of which calls update_mqd.
    pub updates: u64,
    pub evicted: bool,
    /// Evictions during its life; being created evicted counts as one: it waits as the others do.
    pub evictions: u64,
}

impl Queue {
    fn new(new: &NewQueue, made: &Made, evicted: bool, min_ring: u32) -> Self {
        let queue_type = match new.queue_type {
            // the driver changes it to the engine's own type (allocate_sdma_queue)
            QueueType::SdmaByEngId => QueueType::Sdma,
            other => other,
        };
        Self {
            gpu_id: new.gpu_id,
            queue_type,
            home: made.ring,
            no_ring: false,
            ring_size: new.ring_size.max(min_ring),
            write_pointer: made.write_pointer,
            read_pointer: made.read_pointer,
            priority: new.priority,
            percent: new.percent,
            cu_mask: None,
            updates: 0,
            evicted,
            evictions: evicted.into(),
        }
    }

    fn change(&mut self, change: &Change, min_ring: u32) {
        self.no_ring = change.no_ring;
        self.ring_size = change.ring_size.max(min_ring);
        self.priority = change.priority;
        self.percent = change.percent;
        self.updates += 1;
    }

    pub fn ring_address(&self) -> u64 {
        if self.no_ring { 0 } else { self.home }
    }

    /// QUEUE_IS_ACTIVE of kfd_priv.h; here no debugger suspends anything.
    pub fn active(&self) -> bool {
        !self.no_ring && self.percent > 0 && !self.evicted
    }
}

/// A process on a GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OnGpu {
    /// qcm_process_device.evicted
    pub refs: u32,
    /// Effective ones: from 0 to 1, where it has a VM.
    pub evictions: u64,
    /// kfd_process_device.drm_priv
    pub vm: bool,
}

/// When a process gets a VM (kfdsim's `each_vm`): on all GPUs with the first one that it binds to, or on each
/// GPU separately.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Vms {
    #[default]
    Together,
    Each,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    pub pid: u32,
    pub gpus: BTreeMap<u32, OnGpu>,
    /// A CREATE_QUEUE reached kfd_bind_process_to_device. On 6.1 the restore after an eviction of an unbound
    /// process reads through a null pointer.
    pub bound: bool,
    /// Whether the agent has the device open.
    pub open: bool,
    pub queues: BTreeMap<u32, Queue>,
    pub vm_faults: u64,
}

impl Process {
    fn evict(&mut self, gpu_id: u32) {
        let Some(gpu) = self.gpus.get_mut(&gpu_id) else { return };
        gpu.refs += 1;
        if gpu.refs > 1 || !gpu.vm {
            return;
        }
        gpu.evictions += 1;
        for queue in self.queues.values_mut().filter(|queue| queue.gpu_id == gpu_id) {
            queue.evicted = true;
            queue.evictions += 1;
        }
    }

    fn restore(&mut self, gpu_id: u32) {
        let Some(gpu) = self.gpus.get_mut(&gpu_id) else { return };
        gpu.refs -= 1;
        if gpu.refs == 0 {
            let on_gpu = self.queues.values_mut().filter(|queue| queue.gpu_id == gpu_id);
            on_gpu.for_each(|queue| queue.evicted = false);
        }
    }

    fn bind(&mut self, gpu_id: u32, vms: Vms) {
        self.bound = true;
        for (id, gpu) in &mut self.gpus {
            gpu.vm |= vms == Vms::Together || *id == gpu_id;
        }
    }

    /// sysfs shows the restore of an eviction by TTM if it shows it on the last GPU.
    pub fn shows_restore(&self) -> bool {
        self.gpus.values().last().is_some_and(|gpu| gpu.refs == 0 && gpu.vm)
    }

    /// On every GPU: the driver warns if there is nothing to restore.
    pub fn restorable(&self) -> bool {
        self.gpus.values().all(|gpu| gpu.refs > 0)
    }
}

/// Calls of MQD functions by all queues so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MqdWrites {
    pub init: u64,
    /// Without those made by init_mqd itself.
    pub update: u64,
}

#[derive(Clone, Debug, Default)]
pub struct Ledger {
    /// In the order of the topology.
    gpu_ids: Vec<u32>,
    vms: Vms,
    /// KFD_MIN_QUEUE_RING_SIZE (kfd_ioctl.h), bytes: a smaller ring is treated as this large. 0: the driver has none.
    min_ring: u32,
    processes: BTreeMap<Owner, Process>,
    pub mqd_writes: MqdWrites,
    pub vm_faults: u64,
}

impl Ledger {
    pub fn new(gpu_ids: &[u32], vms: Vms, min_ring: u32) -> Self {
        Self { gpu_ids: gpu_ids.to_vec(), vms, min_ring, ..Self::default() }
    }

    pub fn gpu_ids(&self) -> &[u32] {
        &self.gpu_ids
    }

    /// Live processes.
    pub fn processes(&self) -> impl Iterator<Item = (Owner, &Process)> {
        self.processes.iter().map(|(owner, process)| (*owner, process))
    }

    pub fn process(&self, owner: Owner) -> Option<&Process> {
        self.processes.get(&owner)
    }

    /// An error is a result that is impossible by the rules.
    pub fn apply(&mut self, op: &Op, answer: &Answer) -> Result<()> {
        self.book(op, answer).with_context(|| format!("{op:?} was answered by {answer:?}"))
    }

    fn book(&mut self, op: &Op, answer: &Answer) -> Result<()> {
        let primary = Owner::primary(op.agent());
        match (op, answer) {
            (Op::Start { .. }, Answer::Started { pid }) => {
                let new = self.new_process(*pid);
                ensure!(self.processes.insert(primary, new).is_none(), "this agent lives");
            }
            (Op::Create { owner, new }, answer) => self.create(*owner, new, answer)?,
            (Op::Update { owner, queue_id, change }, Answer::Done) => {
                let min_ring = self.min_ring;
                self.queue(*owner, *queue_id)?.change(change, min_ring);
                self.mqd_writes.update += 1;
            }
            (Op::CuMask { owner, queue_id, mask }, Answer::Done) => {
                let queue = self.queue(*owner, *queue_id)?;
                queue.cu_mask = Some(mask.clone());
                queue.updates += 1;
                self.mqd_writes.update += 1;
            }
            (Op::Destroy { owner, queue_id }, Answer::Done) => {
                let gone = self.live(*owner)?.queues.remove(queue_id);
                ensure!(gone.is_some(), "there is no such queue");
            }
            // the ledger follows: a refused operation has changed nothing
            (Op::Update { .. } | Op::CuMask { .. } | Op::Destroy { .. }, Answer::Refused(_)) => {}
            (Op::Fork { .. }, Answer::Refused(errno)) => ensure!(errno == "EBADF", "for a child's ioctl"),
            (Op::Context { .. }, Answer::Context { id }) => {
                let pid = self.live(primary)?.pid;
                let new = self.new_process(pid);
                let owner = Owner { agent: op.agent(), context: Some(*id) };
                ensure!(self.processes.insert(owner, new).is_none(), "this context lives");
            }
            (Op::Close { owner }, Answer::Done) => {
                self.live(*owner)?.open = false;
                if owner.context.is_some() {
                    self.processes.remove(owner);
                }
            }
            (Op::Open { .. }, Answer::Done) => self.live(primary)?.open = true,
            (Op::Exit { .. } | Op::Kill { .. }, Answer::Done) => {
                self.processes.retain(|owner, _| owner.agent != op.agent());
            }
            (_, Answer::Done) => self.evictions(op, primary)?,
            _ => bail!("no driver does that"),
        }
        Ok(())
    }

    fn new_process(&self, pid: u32) -> Process {
        let gpus = self.gpu_ids.iter().map(|gpu_id| (*gpu_id, OnGpu::default())).collect();
        Process { pid, gpus, bound: false, open: true, queues: BTreeMap::new(), vm_faults: 0 }
    }

    fn create(&mut self, owner: Owner, new: &NewQueue, answer: &Answer) -> Result<()> {
        let vms = self.vms;
        let min_ring = self.min_ring;
        let process = self.live(owner)?;
        match answer {
            Answer::Created(made) => {
                ensure!(!new.spoilt, "its arguments were wrong");
                let on_gpu = process.gpus.get(&new.gpu_id).context("there is no such GPU")?;
                let queue = Queue::new(new, made, on_gpu.refs > 0, min_ring);
                ensure!(process.queues.insert(made.queue_id, queue).is_none(), "this queue lives");
                process.bind(new.gpu_id, vms);
                self.mqd_writes.init += 1;
            }
            // the driver checks arguments before it binds the process, and the free resources of the GPU
            // after it; also the number of the engine (6.12), where it supports it at all
            Answer::Refused(errno) => {
                let engine = new.queue_type == QueueType::SdmaByEngId && vms == Vms::Each && !new.spoilt;
                if engine || ["ENOMEM", "ENOSPC"].contains(&errno.as_str()) {
                    process.bind(new.gpu_id, vms);
                }
            }
            _ => bail!("no driver does that"),
        }
        Ok(())
    }

    fn evictions(&mut self, op: &Op, primary: Owner) -> Result<()> {
        let first = self.gpu_ids.first().copied().context("there is no GPU")?;
        let gpu_ids = self.gpu_ids.clone();
        let process = self.live(primary)?;
        ensure!(process.bound, "not bound to a GPU");
        match op {
            Op::Evict { .. } => gpu_ids.iter().for_each(|gpu| process.evict(*gpu)),
            Op::Restore { .. } => {
                ensure!(process.restorable(), "there is nothing to restore");
                gpu_ids.iter().for_each(|gpu| process.restore(*gpu));
            }
            Op::TtmEvict { .. } => {
                gpu_ids.iter().for_each(|gpu| process.evict(*gpu));
                gpu_ids.iter().for_each(|gpu| process.restore(*gpu));
            }
            // kfdsim raises it on the first GPU of the process
            Op::Fault { .. } => {
                ensure!(process.gpus.get(&first).is_some_and(|gpu| gpu.vm), "no VM on the first GPU");
                process.evict(first);
                process.vm_faults += 1;
                self.vm_faults += 1;
            }
            _ => bail!("no driver does that"),
        }
        Ok(())
    }

    fn live(&mut self, owner: Owner) -> Result<&mut Process> {
        self.processes.get_mut(&owner).context("there is no such process")
    }

    fn queue(&mut self, owner: Owner, queue_id: u32) -> Result<&mut Queue> {
        self.live(owner)?.queues.get_mut(&queue_id).context("there is no such queue")
    }
}

#[cfg(test)]
mod tests;
