//! The walk over the driver's own table of processes and their queues: finds those that existed before the
//! tracer, even if every descriptor of /dev/kfd is closed.
//!
//! `kfd_processes_table` (kfd_process.c) is a hash table of `struct kfd_process`; each has a list of `struct
//! process_queue_node` in `pqm.queues`. The walk takes no lock: what it reads may be partly freed. Chains are
//! bounded, unreadable links end them and are counted, and the caller compares with sysfs. At the end it
//! checks which of the GPUs found have a scheduler at work: differences there may be a change in progress.

pub mod check;
pub mod peek;

use super::facts::Facts;
use super::memory::{KernelMemory, half, quarter, word};
use crate::events::decode::secondary;
use crate::kernel::Kernel;
use crate::model::event::{Origin, QueueFacts};
use crate::model::inventory::Listed;
use crate::model::layout::QueueLayout;
use std::collections::{BTreeMap, BTreeSet};

/// Minimum and maximum buckets of the table: `1 << KFD_PROCESS_TABLE_SIZE` (kfd_priv.h) is 32 up to 6.12 and
/// 256 on 7.2.
const BUCKETS: std::ops::RangeInclusive<u64> = 32..=4096;

/// Longest chain that is followed: more than a node can have, so only a loop through freed memory reaches it.
const CHAIN_MAX: usize = 65_536;

/// One process of the kernel's own table.
#[derive(Clone, Debug)]
pub struct TableEntry {
    /// Address of its `struct kfd_process` and of the task of its leader: keys for the BPF side, never shown.
    pub address: u64,
    pub leader: u64,
    /// 0 if the driver keeps one per GPU.
    pub pasid: u32,
    /// Its queues have addresses; origin [`Origin::Standing`]. Without what only procfs has.
    pub process: Listed,
}

/// Result of a walk.
#[derive(Clone, Debug, Default)]
pub struct DriverTable {
    pub entries: Vec<TableEntry>,
    /// Links that could not be read or did not end: something was freed during the walk.
    pub broken: u32,
    /// gpu_ids whose scheduler was at work when all queues had been read: it changes queues with its lock
    /// held, and waits for the hardware before it releases the lock (`unmap_queues_cpsch`, up to
    /// `queue_preemption_timeout_ms`).
    pub at_work: BTreeSet<u32>,
}

/// What a walk finds on its way.
#[derive(Default)]
struct Met {
    broken: u32,
    /// gpu_id by address of the GPU's `struct kfd_node` (`kfd_dev` on 6.1).
    devices: BTreeMap<u64, u32>,
}

/// Where the lock of a GPU's scheduler is.
#[derive(Clone, Copy, Debug)]
struct SchedulerLock {
    /// The pointer to its `struct device_queue_manager`, in `kfd_node` (`kfd_dev` on 6.1).
    device_dqm: u64,
    /// The owner of `lock_hidden`, in `struct device_queue_manager`.
    dqm_owner: u64,
}

/// The addresses and offsets on this kernel.
#[derive(Clone, Debug)]
pub struct Walk {
    table: u64,
    buckets: u64,
    process_hash: u64,
    process_queues: u64,
    node_list: u64,
    node_queue: u64,
    lead_thread: u64,
    task_tgid: u64,
    task_start: Option<u64>,
    pasid: Option<u64>,
    context_id: Option<u64>,
    queue_device: u64,
    queue_properties: u64,
    device_id: u64,
    properties_bytes: usize,
    layout: QueueLayout,
    /// `None` if the types do not show it.
    lock: Option<SchedulerLock>,
}

impl SchedulerLock {
    fn find(member: &impl Fn(&str, &str) -> Result<u64, String>) -> Option<Self> {
        let device_dqm = member("kfd_node", "dqm").or_else(|_| member("kfd_dev", "dqm")).ok()?;
        let owner = |path| member("device_queue_manager", path);
        // With PREEMPT_RT a mutex is a different structure.
        let dqm_owner = owner("lock_hidden.owner").or_else(|_| owner("lock_hidden.rtmutex.owner")).ok()?;
        Some(SchedulerLock { device_dqm, dqm_owner })
    }
}

impl Walk {
    /// Looks up all that a walk needs.
    ///
    /// # Errors
    /// One line that names what this kernel does not provide.
    pub fn new(kernel: &Kernel, facts: &Facts) -> Result<Self, String> {
        const TABLE: &str = "kfd_processes_table";
        let table = kernel.symbols.find(TABLE).first().map(|symbol| symbol.address);
        let table = table.ok_or_else(|| format!("no symbol {TABLE}"))?;
        if table == 0 {
            return Err("kernel addresses are hidden: needs CAP_SYSLOG, or kptr_restrict=0".to_owned());
        }
        if facts.properties_bytes == 0 {
            return Err("struct queue_properties: size not known".to_owned());
        }
        let btf = kernel.amdgpu_btf.as_ref().ok_or("no BTF of amdgpu")?;
        let member = |strukt: &str, path: &str| match btf.offset_of(strukt, path) {
            Ok(member) => Ok(u64::from(member.offset)),
            Err(error) => Err(error.to_string()),
        };
        Ok(Walk {
            table,
            buckets: buckets(kernel, table)?,
            process_hash: member("kfd_process", "kfd_processes")?,
            process_queues: member("kfd_process", "pqm.queues")?,
            node_list: member("process_queue_node", "process_queue_list")?,
            node_queue: member("process_queue_node", "q")?,
            lead_thread: facts.field("KFD_PROCESS_LEAD_THREAD")?,
            task_tgid: facts.field("TASK_TGID")?,
            task_start: facts.field("TASK_START_BOOTTIME").ok(),
            pasid: facts.field("KFD_PROCESS_PASID").ok(),
            context_id: facts.field("KFD_PROCESS_CONTEXT_ID").ok(),
            queue_device: facts.field("QUEUE_DEVICE")?,
            queue_properties: facts.field("QUEUE_PROPERTIES")?,
            device_id: facts.field("DEVICE_ID")?,
            properties_bytes: usize::try_from(facts.properties_bytes).unwrap_or(0),
            layout: facts.layout.clone(),
            lock: SchedulerLock::find(&member),
        })
    }

    /// A walk reports which schedulers are at work.
    #[must_use]
    pub fn knows_locks(&self) -> bool {
        self.lock.is_some()
    }

    /// Leaves out whether queues are suspended.
    pub fn without_suspensions(&mut self) {
        self.layout.is_suspended = None;
    }

    /// Walks the table once.
    pub fn run(&self, memory: &mut impl KernelMemory) -> DriverTable {
        let (mut entries, mut met) = (Vec::new(), Met::default());
        for process in self.table(memory, &mut met) {
            match self.process(memory, process, &mut met) {
                Some(entry) => entries.push(entry),
                None => met.broken += 1,
            }
        }
        entries.sort_by_key(|entry| entry.process.tgid);
        let at_work = met.devices.iter().filter(|(device, _)| self.is_at_work(memory, **device));
        let at_work = at_work.map(|(_, gpu_id)| *gpu_id).collect();
        DriverTable { entries, broken: met.broken, at_work }
    }

    /// Addresses of all processes.
    fn table(&self, memory: &mut impl KernelMemory, met: &mut Met) -> Vec<u64> {
        let mut found = Vec::new();
        for bucket in 0..self.buckets {
            // struct hlist_head { struct hlist_node *first; }, struct hlist_node { next, pprev }
            let nodes = self.chain(memory, self.table + bucket * 8, 0, met);
            found.extend(nodes.into_iter().map(|node| node.wrapping_sub(self.process_hash)));
        }
        found
    }

    /// Addresses of the queues of a process.
    fn queues(&self, memory: &mut impl KernelMemory, process: u64, met: &mut Met) -> Vec<u64> {
        let head = process + self.process_queues;
        let mut queues = Vec::new();
        // struct list_head { next, prev }: circular, so it ends at its head.
        for node in self.chain(memory, head, head, met) {
            match word(memory, node.wrapping_sub(self.node_list).wrapping_add(self.node_queue)) {
                // A kernel queue (DIQ) has kq instead of q.
                Some(0) => {}
                Some(queue) => queues.push(queue),
                None => met.broken += 1,
            }
        }
        queues
    }

    /// The lock of its scheduler is held. If it cannot be read, the answer is no.
    fn is_at_work(&self, memory: &mut impl KernelMemory, device: u64) -> bool {
        // The lowest bits of the owner are flags (MUTEX_FLAGS, kernel/locking/mutex.h; RT_MUTEX_HAS_WAITERS).
        const FLAGS: u64 = 7;
        let mut owner = |lock: SchedulerLock| {
            let dqm = word(memory, device + lock.device_dqm)?;
            word(memory, dqm.wrapping_add(lock.dqm_owner))
        };
        self.lock.and_then(&mut owner).is_some_and(|owner| owner & !FLAGS != 0)
    }

    /// Nodes of a list: from `head` until the link is `end`.
    fn chain(&self, memory: &mut impl KernelMemory, head: u64, end: u64, met: &mut Met) -> Vec<u64> {
        let mut nodes = Vec::new();
        let mut at = head;
        while nodes.len() < CHAIN_MAX {
            match word(memory, at) {
                Some(next) if next == end => return nodes,
                Some(next) => {
                    nodes.push(next);
                    at = next;
                }
                None => break,
            }
        }
        met.broken += 1;
        // The last link was not readable: it is no node.
        nodes.pop();
        nodes
    }

    fn process(&self, memory: &mut impl KernelMemory, process: u64, met: &mut Met) -> Option<TableEntry> {
        let leader = word(memory, process + self.lead_thread)?;
        let tgid = half(memory, leader + self.task_tgid)?;
        let start_boottime_ns = self.task_start.and_then(|offset| word(memory, leader + offset));
        let pasid = self.pasid.and_then(|offset| half(memory, process + offset)).unwrap_or(0);
        let context_id = self.context_id.and_then(|offset| quarter(memory, process + offset));
        let context_id = context_id.map(u32::from).and_then(secondary);
        let mut queues = Vec::new();
        for queue in self.queues(memory, process, met) {
            match self.queue(memory, queue, met) {
                Some(queue) => queues.push(queue),
                None => met.broken += 1,
            }
        }
        let listed = Listed { tgid, context_id, start_boottime_ns, queues, ..Listed::default() };
        Some(TableEntry { address: process, leader, pasid, process: listed })
    }

    fn queue(&self, memory: &mut impl KernelMemory, queue: u64, met: &mut Met) -> Option<QueueFacts> {
        let mut properties = vec![0; self.properties_bytes];
        if !memory.read(queue + self.queue_properties, &mut properties) {
            return None;
        }
        let device = word(memory, queue + self.queue_device);
        let gpu_id = device.and_then(|device| half(memory, device + self.device_id));
        met.devices.extend(device.zip(gpu_id));
        Some(QueueFacts { origin: Origin::Standing, ..self.layout.queue(&properties, gpu_id, 0) })
    }
}

/// The largest power of two that fits between the table and the driver's next symbol: symbols have no sizes
/// here, and the linker's padding between two of them is smaller than the table itself.
fn buckets(kernel: &Kernel, table: u64) -> Result<u64, String> {
    let room = kernel.symbols.room_at("amdgpu", table).unwrap_or(0) / 8;
    let buckets = if room.is_power_of_two() { room } else { room.next_power_of_two() / 2 };
    let error = format!("the table of processes has room for {buckets} buckets, which is not plausible");
    if BUCKETS.contains(&buckets) { Ok(buckets) } else { Err(error) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::layout::PropertyField;
    use crate::probes::memory::samples::Words;

    const TABLE: u64 = 0x1000;
    const PROCESS: u64 = 0x2000;
    const TASK: u64 = 0x3000;
    const NODE: u64 = 0x4000;
    const QUEUE: u64 = 0x5000;
    const DEVICE: u64 = 0x6000;
    const DQM: u64 = 0x7000;

    fn walk() -> Walk {
        let queue_id = Some(PropertyField { offset: 0, size: 4 });
        Walk {
            table: TABLE,
            buckets: 32,
            process_hash: 0,
            process_queues: 16,
            node_list: 8,
            node_queue: 0,
            lead_thread: 8,
            task_tgid: 0,
            task_start: Some(8),
            pasid: None,
            context_id: None,
            queue_device: 8,
            queue_properties: 0,
            device_id: 0,
            properties_bytes: 8,
            layout: QueueLayout { queue_id, ..QueueLayout::default() },
            lock: Some(SchedulerLock { device_dqm: 8, dqm_owner: 16 }),
        }
    }

    /// One process with one queue in the third bucket.
    fn memory() -> Words {
        let mut words = Words((0..32).map(|bucket| (TABLE + 8 * bucket, 0)).collect());
        words.0.insert(TABLE + 16, PROCESS);
        words.0.extend([(PROCESS, 0), (PROCESS + 8, TASK), (PROCESS + 16, NODE + 8)]);
        words.0.extend([(TASK, 4242), (TASK + 8, 77)]);
        words.0.extend([(NODE, QUEUE), (NODE + 8, PROCESS + 16)]);
        words.0.extend([(QUEUE, 5), (QUEUE + 8, DEVICE), (DEVICE, 999)]);
        words.0.extend([(DEVICE + 8, DQM), (DQM + 16, 0)]);
        words
    }

    #[test]
    fn a_standing_queue_is_found_with_its_owner() {
        let table = walk().run(&mut memory());
        assert_eq!(table.broken, 0);
        let [TableEntry { address, leader, process, .. }] = &table.entries[..] else { panic!("{table:?}") };
        assert_eq!((process.tgid, process.start_boottime_ns), (4242, Some(77)));
        assert_eq!((*address, *leader), (PROCESS, TASK));
        let [queue] = &process.queues[..] else { panic!("{process:?}") };
        assert_eq!((queue.queue_id, queue.gpu_id, queue.origin), (Some(5), Some(999), Origin::Standing));
    }

    #[test]
    fn a_scheduler_is_at_work_while_its_lock_is_held() {
        let mut memory = memory();
        assert_eq!(walk().run(&mut memory).at_work, BTreeSet::new());
        memory.0.insert(DQM + 16, TASK | 1);
        assert_eq!(walk().run(&mut memory).at_work, BTreeSet::from([999]));
        assert_eq!(Walk { lock: None, ..walk() }.run(&mut memory).at_work, BTreeSet::new());
        memory.0.insert(DQM + 16, 1);
        assert_eq!(walk().run(&mut memory).at_work, BTreeSet::new(), "flags without an owner");
        memory.0.remove(&(DQM + 16));
        let table = walk().run(&mut memory);
        assert_eq!((table.broken, table.at_work), (0, BTreeSet::new()), "only the lock is unknown");
    }

    #[test]
    fn memory_that_goes_under_the_walk_is_counted() {
        let mut gone = memory();
        gone.0.remove(&QUEUE);
        let table = walk().run(&mut gone);
        assert_eq!((table.broken, table.entries[0].process.queues.len()), (1, 0));
        let mut gone = memory();
        gone.0.insert(NODE + 8, 0xdead_0000);
        let table = walk().run(&mut gone);
        assert_eq!((table.broken, table.entries[0].process.queues.len()), (1, 1));
        let mut gone = memory();
        gone.0.remove(&TASK);
        assert_eq!((walk().run(&mut gone).broken, walk().run(&mut gone).entries.len()), (1, 0));
    }

    #[test]
    fn a_loop_ends() {
        let mut looped = memory();
        looped.0.insert(PROCESS, PROCESS);
        assert!(walk().run(&mut looped).broken > 0);
    }
}
