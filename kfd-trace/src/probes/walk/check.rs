//! Compares types that are not the kernel's own with the running driver: whether its structures hold, at these
//! offsets, what sysfs, the kernel's symbols and they themselves say they hold.
//!
//! In: offsets, kernel memory, what sysfs lists. Out: [`Checked`]. Nothing is locked: a structure may be freed, and
//! sysfs may list something else, meanwhile, so that a caller repeats a check that fails, and counts a [`Mismatch`] only
//! where what it rests on is listed as before. Pure but for the memory.

mod counts;
mod listing;

use self::counts::CountsCheck;
pub use self::listing::{ListedQueue, Listing, Rests};
use super::{Met, Walk};
use crate::events::decode::secondary;
use crate::kernel::{Btf, Kernel};
use crate::model::event::{QueueFacts, QueueType};
use crate::probes::facts::Facts;
use crate::probes::memory::{KernelMemory, half, quarter, word};
use crate::text::count::counted;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// How much was compared, all of it right.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compared {
    pub processes: u32,
    /// A process on a GPU (`struct kfd_process_device`).
    pub devices: u32,
    pub queues: u32,
}

impl Compared {
    /// Every structure was seen once.
    #[must_use]
    pub fn is_complete(self) -> bool {
        self.processes > 0 && self.devices > 0 && self.queues > 0
    }
}

/// The first thing that was not right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    pub why: String,
    pub rests: Rests,
}

impl Mismatch {
    fn new(why: impl Into<String>, rests: Rests) -> Self {
        Mismatch { why: why.into(), rests }
    }
}

/// Outcome of a check: what was right, or the first thing that was not.
pub type Checked = Result<Compared, Mismatch>;

impl fmt::Display for Compared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Compared { processes, devices, queues } = *self;
        let (processes, devices) =
            (counted(processes, "process", "processes"), counted(devices, "device", "devices"));
        write!(f, "{processes}, {devices} of them, {}", counted(queues, "queue", "queues"))
    }
}

/// Offsets and addresses for a check. `None`: these types do not have the field, and nothing rests on it.
#[derive(Debug)]
pub struct TypesCheck {
    walk: Walk,
    fields: BTreeMap<&'static str, u64>,
    /// Bytes of `struct kfd_process`.
    process_bytes: usize,
    /// `mmu_notifier.ops` and `work_struct.func`, which point to these.
    notifier: Option<(u64, u64)>,
    exception: Option<(u64, u64)>,
    device_dqm: Option<u64>,
    /// A process has a list of its devices, not an array of pointers.
    device_list: bool,
    /// `None`: these types do not have a scheduler's counts.
    counts: Option<CountsCheck>,
}

/// In `struct process_queue_manager` of every driver: its process, then its queues.
const QUEUES_IN_MANAGER: u64 = 8;
/// In `struct qcm_process_device` of every driver: the queue manager of the GPU, then the process's.
const MANAGER_IN_QPD: u64 = 8;
/// In `struct qcm_process_device` of every driver: `queue_count`, `vmid`, `is_debug`, `evicted`.
const COUNT_BEFORE_EVICTED: u64 = 12;
/// `struct kref ref` comes right before `release_work` in `struct kfd_process` of every driver.
const COUNT_BEFORE_RELEASE: u64 = 8;
/// Bytes of a `struct work_struct`.
const WORK_BYTES: usize = 32;
/// Bytes of a `struct hlist_node`.
const HASH_NODE_BYTES: u64 = 16;
/// More references than anything holds.
const MOST_REFERENCES: u32 = 1 << 20;
/// Where user addresses end on x86-64, with five-level page tables.
const USER_END: u64 = 1 << 56;

impl TypesCheck {
    /// Looks up all that a check needs.
    ///
    /// # Errors
    /// One line that names what is missing: then nothing can be compared.
    pub fn new(kernel: &Kernel, facts: &Facts) -> Result<Self, String> {
        let walk = Walk::new(kernel, facts)?;
        let btf = kernel.amdgpu_btf.as_deref().ok_or("no types of amdgpu")?;
        let fields =
            facts.fields.iter().filter_map(|(name, at)| Some((*name, u64::from(*at.as_ref().ok()?))));
        let fields: BTreeMap<&'static str, u64> = fields.collect();
        let symbol = |name: &str| {
            let found = kernel.symbols.find(name);
            found.first().map(|symbol| symbol.address).filter(|address| *address != 0)
        };
        let offset = |btf: &Btf, structure: &str, path: &str| {
            btf.offset_of(structure, path).ok().map(|member| u64::from(member.offset))
        };
        let vmlinux = kernel.vmlinux_btf.as_deref();
        let pair = |structure: &str, path: &str, name: &str| {
            Some((offset(vmlinux?, structure, path)?, symbol(name)?))
        };
        let device_dqm = offset(btf, "kfd_node", "dqm").or_else(|| offset(btf, "kfd_dev", "dqm"));
        Ok(TypesCheck {
            process_bytes: btf.size_of("kfd_process").ok().and_then(|size| size.try_into().ok()).unwrap_or(0),
            notifier: pair("mmu_notifier", "ops", "kfd_process_mmu_notifier_ops"),
            exception: pair("work_struct", "func", "kfd_process_hw_exception"),
            device_dqm,
            device_list: offset(btf, "kfd_process", "per_device_data").is_some(),
            counts: CountsCheck::new(&walk, device_dqm, btf, |name| fields.get(name).copied()),
            fields,
            walk,
        })
    }

    /// Compares every process that the driver has.
    ///
    /// # Errors
    /// The first thing that does not hold.
    pub fn run(&self, memory: &mut impl KernelMemory, listing: &Listing) -> Checked {
        let mut compared = Compared::default();
        for process in self.walk.table(memory, &mut Met::default()) {
            self.process(memory, process, listing, &mut compared)?;
        }
        Ok(compared)
    }

    /// Whether a scheduler's counts are what the queues of all processes add up to; false while that cannot be compared.
    #[must_use]
    pub fn counts_agree(&self, memory: &mut impl KernelMemory) -> bool {
        self.counts.as_ref().is_some_and(|counts| counts.agree(memory))
    }

    fn field(&self, name: &str) -> Option<u64> {
        self.fields.get(name).copied()
    }

    fn process(
        &self,
        memory: &mut impl KernelMemory,
        process: u64,
        listing: &Listing,
        compared: &mut Compared,
    ) -> Result<(), Mismatch> {
        let leader = word(memory, process + self.walk.lead_thread);
        let tgid = leader.and_then(|leader| half(memory, leader + self.walk.task_tgid));
        let Some(tgid) = tgid.filter(|tgid| listing.processes.contains_key(tgid)) else {
            return Err(Mismatch::new(
                "kfd_process.lead_thread is no task that the driver lists",
                Rests::Processes,
            ));
        };
        // A further context of its PID has no notifier of its own (7.2).
        let context = self.walk.context_id.and_then(|offset| quarter(memory, process + offset));
        let is_first = context.map(u32::from).and_then(secondary).is_none();
        if let (Some(at), Some((ops, expected)), true) =
            (self.field("KFD_PROCESS_MMU_NOTIFIER"), self.notifier, is_first)
        {
            holds(
                word(memory, process + at + ops) == Some(expected),
                "kfd_process.mmu_notifier has other operations",
            )?;
        }
        if let Some(at) = self.field("KFD_PROCESS_RELEASE_WORK") {
            let references = half(memory, (process + at).wrapping_sub(COUNT_BEFORE_RELEASE));
            let unused = unused(memory, process + at);
            let counted = references.is_some_and(|count| (1..MOST_REFERENCES).contains(&count));
            holds(
                unused && counted,
                "kfd_process.release_work is not unused work behind a count of references",
            )?;
        }
        if let (Some(at), Some(Some(pasid))) = (self.walk.pasid, listing.processes.get(&tgid)) {
            let is_right = half(memory, process + at) == Some(*pasid);
            agrees(is_right, "kfd_process.pasid is not what sysfs shows", Rests::Processes)?;
        }
        let manager = process + self.walk.process_queues - QUEUES_IN_MANAGER;
        holds(word(memory, manager) == Some(process), "kfd_process.pqm does not point back to its process")?;
        compared.processes += 1;

        // sysfs has the queues of a further context in a folder of its own.
        let none = Listing { gpu_ids: listing.gpu_ids.clone(), ..Listing::default() };
        let queues = self.queues(memory, process, tgid, if is_first { listing } else { &none })?;
        compared.queues +=
            u32::try_from(queues.iter().filter(|queue| queue.listed).count()).unwrap_or(u32::MAX);
        let devices = self.devices(memory, process);
        for device in &devices {
            let here = queues.iter().filter(|queue| queue.device == device.gpu).count();
            let here = (tgid, u32::try_from(here).unwrap_or(u32::MAX));
            let whole = self.device(memory, device, manager, here, listing)?;
            compared.devices += u32::from(whole);
        }
        let gpus: BTreeSet<u64> = devices.iter().map(|device| device.gpu).collect();
        // Of a list (5.10) only the ends are found.
        let known = |queue: &SeenQueue| gpus.contains(&queue.device) || self.device_list && !gpus.is_empty();
        holds(queues.iter().all(known), "a queue's GPU has no kfd_process_device of its process")?;
        Ok(())
    }

    fn queues(
        &self,
        memory: &mut impl KernelMemory,
        process: u64,
        tgid: u32,
        listing: &Listing,
    ) -> Result<Vec<SeenQueue>, Mismatch> {
        let (mut seen, own) = (Vec::new(), Rests::QueuesOf(tgid));
        for queue in self.walk.queues(memory, process, &mut Met::default()) {
            let owner = self.field("QUEUE_PROCESS").and_then(|at| word(memory, queue + at));
            holds(owner == Some(process), "queue.process is not the process that has the queue")?;
            let device = word(memory, queue + self.walk.queue_device).unwrap_or(0);
            let gpu_id = half(memory, device + self.walk.device_id);
            let known = gpu_id.is_some_and(|gpu_id| listing.has_gpu(gpu_id));
            agrees(known, "queue.device has no gpu_id that the topology has", Rests::Gpus)?;
            let facts = self
                .walk
                .queue(memory, queue, &mut Met::default())
                .ok_or_else(|| Mismatch::new("queue.properties cannot be read", Rests::Memory))?;
            let id = facts
                .queue_id
                .ok_or_else(|| Mismatch::new("queue_properties.queue_id is not known", Rests::Memory))?;
            let listed = listing.queues.get(&(tgid, id));
            if let Some(listed) = listed {
                let raw = facts.queue_type.and_then(|kind| self.walk.layout.raw_type(kind.of_driver()));
                let is_device = listed.gpu_id.is_none() || listed.gpu_id == gpu_id;
                agrees(is_device, "queue.device is not what sysfs shows", own)?;
                let is_size = listed.size.is_none() || listed.size == facts.ring_size;
                agrees(is_size, "queue_properties.queue_size is not what sysfs shows", own)?;
                let is_type = listed.queue_type.is_none() || listed.queue_type == raw;
                agrees(is_type, "queue_properties.type is not what sysfs shows", own)?;
            }
            plausible(&facts)?;
            seen.push(SeenQueue { device, listed: listed.is_some() });
        }
        let listed = listing.queues.keys().filter(|(owner, _)| *owner == tgid).count();
        let found = seen.iter().filter(|queue| queue.listed).count();
        agrees(found >= listed, "kfd_process.pqm.queues does not have the queues that sysfs lists", own)?;
        Ok(seen)
    }

    /// Finds the `struct kfd_process_device` of a process among its pointers: where they are differs between
    /// drivers.
    fn devices(&self, memory: &mut impl KernelMemory, process: u64) -> Vec<SeenDevice> {
        let (Some(owner), Some(gpu)) = (self.field("PDD_PROCESS"), self.field("PDD_DEV")) else {
            return Vec::new();
        };
        let mut bytes = vec![0; self.process_bytes];
        if !memory.read(process, &mut bytes) {
            return Vec::new();
        }
        // The next process of its bucket in the table points back, too.
        let bucket = self.walk.process_hash..self.walk.process_hash + HASH_NODE_BYTES;
        let words = (0_u64..).step_by(8).zip(bytes.as_chunks::<8>().0);
        let words = words.filter(|(offset, _)| !bucket.contains(offset));
        let words = words.map(|(_, word)| u64::from_le_bytes(*word));
        let pointers: BTreeSet<u64> =
            words.filter(|word| *word > u64::MAX / 2 && word.is_multiple_of(8)).collect();
        let devices = pointers.into_iter().filter_map(|at| {
            let is_own = word(memory, at.wrapping_add(owner)) == Some(process);
            let gpu = word(memory, at.wrapping_add(gpu)).filter(|_| is_own)?;
            Some(SeenDevice { at, gpu })
        });
        devices.collect()
    }

    /// Whether all of it was compared.
    fn device(
        &self,
        memory: &mut impl KernelMemory,
        device: &SeenDevice,
        manager: u64,
        (tgid, queues): (u32, u32),
        listing: &Listing,
    ) -> Result<bool, Mismatch> {
        let SeenDevice { at, gpu } = *device;
        let gpu_id = half(memory, gpu.wrapping_add(self.walk.device_id));
        let known = gpu_id.is_some_and(|gpu_id| listing.has_gpu(gpu_id));
        agrees(known, "kfd_process_device.dev has no gpu_id that the topology has", Rests::Gpus)?;
        let dqm = self.device_dqm.and_then(|offset| word(memory, gpu.wrapping_add(offset)));
        if let Some(dqm) = dqm {
            if let Some(offset) = self.field("DQM_DEV") {
                holds(
                    word(memory, dqm.wrapping_add(offset)) == Some(gpu),
                    "device_queue_manager.dev is another GPU",
                )?;
            }
            if let (Some(offset), Some((function, expected))) =
                (self.field("DQM_HW_EXCEPTION_WORK"), self.exception)
            {
                let work = dqm.wrapping_add(offset);
                // Without the hardware scheduler the driver does not initialize it.
                let right =
                    word(memory, work.wrapping_add(function)) == Some(expected) || unused(memory, work);
                holds(right, "device_queue_manager.hw_exception_work is other work")?;
            }
        }
        let Some(qpd) = self.field("PDD_QPD").map(|offset| at.wrapping_add(offset)) else { return Ok(true) };
        let managers = (word(memory, qpd), word(memory, qpd.wrapping_add(MANAGER_IN_QPD)));
        let expected = managers.1 == Some(manager) && (dqm.is_none() || managers.0 == dqm);
        holds(expected, "kfd_process_device.qpd has other queue managers")?;
        // The scheduler counts a queue before the process has it, or after, and waits for the hardware between.
        let at_work = self.walk.is_at_work(memory, gpu);
        if let Some(offset) = self.field("QPD_EVICTED").filter(|_| !at_work) {
            let count = half(memory, qpd.wrapping_add(offset).wrapping_sub(COUNT_BEFORE_EVICTED));
            let is_right = count == Some(queues);
            let why = "qcm_process_device.evicted is not behind the number of queues";
            agrees(is_right, why, Rests::QueuesOf(tgid))?;
        }
        if let (Some(offset), true) = (self.field("PDD_DRM_PRIV"), queues > 0) {
            let private = word(memory, at.wrapping_add(offset));
            holds(private.is_some_and(|at| at > u64::MAX / 2), "kfd_process_device.drm_priv is no address")?;
        }
        Ok(!at_work)
    }
}

/// Whether a `struct work_struct` is as before INIT_WORK, for example until `kfd_process_ref_release`: all zero.
fn unused(memory: &mut impl KernelMemory, work: u64) -> bool {
    let mut bytes = [0xff; WORK_BYTES];
    memory.read(work, &mut bytes) && bytes == [0; WORK_BYTES]
}

struct SeenQueue {
    /// Address of its GPU.
    device: u64,
    /// sysfs has it, too.
    listed: bool,
}

struct SeenDevice {
    at: u64,
    /// Address of its GPU.
    gpu: u64,
}

fn holds(holds: bool, otherwise: &str) -> Result<(), Mismatch> {
    agrees(holds, otherwise, Rests::Memory)
}

fn agrees(agrees: bool, otherwise: &str, rests: Rests) -> Result<(), Mismatch> {
    if agrees { Ok(()) } else { Err(Mismatch::new(otherwise, rests)) }
}

/// Whether the properties of a queue can be what they are read as: what the driver refuses at its creation cannot
/// (kfd_chardev.c, set_queue_properties_from_user). What a user is free to choose proves nothing.
///
/// # Errors
/// The member that cannot be.
pub fn plausible(queue: &QueueFacts) -> Result<(), Mismatch> {
    let none_or = |value: Option<u64>, is: fn(u64) -> bool| value.is_none_or(is);
    let user = |address: u64| address < USER_END;
    let small = |value: Option<u32>, most: u32| value.is_none_or(|value| value <= most);
    let is_type = !matches!(queue.queue_type, Some(QueueType::Unknown(_)));
    holds(is_type, "queue_properties.type is no type of a queue")?;
    // KFD_MAX_NUM_OF_QUEUES_PER_PROCESS (kfd_priv.h)
    holds(small(queue.queue_id, 1023), "queue_properties.queue_id is too large")?;
    holds(small(queue.percent, 100), "queue_properties.queue_percent is too large")?;
    holds(small(queue.priority, 15), "queue_properties.priority is too large")?;
    let is_size = |size: u64| size == 0 || size.is_power_of_two();
    holds(none_or(queue.ring_size, is_size), "queue_properties.queue_size is no power of two")?;
    holds(none_or(queue.ring_address, user), "queue_properties.queue_address is no user address")?;
    holds(none_or(queue.write_pointer_address, user), "queue_properties.write_ptr is no user address")?;
    holds(none_or(queue.read_pointer_address, user), "queue_properties.read_ptr is no user address")
}

#[cfg(test)]
mod tests;
