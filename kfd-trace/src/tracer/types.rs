//! Trust in the driver's types. Those of the kernel itself are believed. Those of a file or of the shipped
//! table are compared with the running driver: with the processes that exist, with the first that come, and
//! with each record before it is used. Once they contradict each other, the next source is taken, and in the
//! end none.

mod counts;

use self::counts::Counts;
use crate::attribute::births;
use crate::attribute::driver_sysfs::{Costly, KfdSysfs};
use crate::attribute::gpu::Topology;
use crate::events::decode::Undecodable;
use crate::kernel::types::{TypesReport, TypesSource};
use crate::kernel::{Finding, Kernel, Roots, SymbolError};
use crate::model::event::{Body, Event, QueueFacts};
use crate::probes::error::chain;
use crate::probes::facts::Facts;
use crate::probes::memory::KernelMemory;
use crate::probes::walk::check::{Checked, Compared, ListedQueue, Listing, TypesCheck, plausible};
use crate::probes::walk::peek::Peek;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, TryRecvError};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

/// A structure may be freed during a comparison: only what is wrong this many times is.
const WRONG: u32 = 3;
/// Where sysfs lists something else each time, so many comparisons are enough: a later one will do.
const TRIES: u32 = 6;
const PAUSE: Duration = Duration::from_millis(20);

/// A comparison waits so long for sysfs, which may hang; then it is left to a later one.
const LISTED: Duration = Duration::from_secs(2);

/// A kernel whose types do not contradict its driver, as far as that could be compared.
pub struct Known {
    pub kernel: Kernel,
    pub facts: Facts,
    /// `None`: the types are the kernel's, or there are none.
    pub trust: Option<Trust>,
    /// Sources that were refuted, and why.
    pub refuted: Vec<(TypesSource, String)>,
}

/// What types of another source are compared by, and how far that went.
#[derive(Debug)]
pub struct Trust {
    pub source: TypesSource,
    /// `None`: kernel memory cannot be walked here, so that only records are checked.
    check: Option<TypesCheck>,
    pub compared: Compared,
    /// `None`: the topology cannot be read whole.
    gpu_ids: Option<BTreeSet<u32>>,
    lists: Lists,
    counts: Counts,
}

/// Readings of sysfs, each in a thread of its own.
#[derive(Debug, Default)]
struct Lists {
    /// One that took too long.
    late: Option<Receiver<Option<Listing>>>,
}

impl Lists {
    /// What sysfs lists now; `None` if it does not list processes, or hangs.
    fn read(&mut self, sysfs: &Path) -> Option<Listing> {
        if let Some(late) = self.late.take()
            && matches!(late.try_recv(), Err(TryRecvError::Empty))
        {
            self.late = Some(late);
            return None;
        }
        let (sender, listed) = mpsc::channel();
        let sysfs = sysfs.to_owned();
        let reads = move || sender.send(listing(&sysfs));
        thread::Builder::new().name("listing".to_owned()).spawn(reads).ok()?;
        match listed.recv_timeout(LISTED) {
            Ok(listing) => listing,
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => {
                self.late = Some(listed);
                None
            }
        }
    }
}

/// Reads the kernel, and compares types that are not its own with what the driver has now.
///
/// # Errors
/// No symbols are available.
pub fn known(roots: &Roots) -> Result<Known, SymbolError> {
    let mut roots = roots.clone();
    loop {
        let kernel = Kernel::read(&roots)?;
        let facts = Facts::gather(&kernel);
        let refuted = roots.types.refuted.clone();
        if kernel.types.is_kernel() || kernel.types == TypesSource::None {
            return Ok(Known { kernel, facts, trust: None, refuted });
        }
        let mut trust = Trust::new(&kernel, &facts, &roots.sysfs);
        let peek = Peek::open().inspect_err(|error| log::debug!("types are not compared: {}", chain(error)));
        let compared = peek.map_or(Ok(()), |peek| trust.compare(&mut peek.memory(), &roots.sysfs));
        match compared {
            Ok(()) => return Ok(Known { kernel, facts, trust: Some(trust), refuted }),
            Err(why) => roots.types.refuted.push((kernel.types, why)),
        }
    }
}

impl Known {
    /// What is known of the types.
    #[must_use]
    pub fn report(&self) -> TypesReport {
        TypesReport {
            source: self.kernel.types.clone(),
            agree: self.trust.as_ref().map(Trust::is_complete),
            refuted: self.refuted.clone(),
        }
    }

    /// What of the types is missing, could not be used, or was refuted.
    #[must_use]
    pub fn findings(&self) -> Vec<Finding> {
        self.kernel.types_findings()
    }
}

impl Trust {
    fn new(kernel: &Kernel, facts: &Facts, sysfs: &Path) -> Self {
        let check = TypesCheck::new(kernel, facts);
        let check = check.inspect_err(|why| log::info!("types are compared with records alone: {why}")).ok();
        let gpu_ids = gpu_ids(sysfs);
        let (source, compared) = (kernel.types.clone(), Compared::default());
        Trust { source, check, compared, gpu_ids, lists: Lists::default(), counts: Counts::default() }
    }

    /// The driver agreed with every structure once: then nothing more is compared.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.compared.is_complete()
    }

    /// Compares with the processes that the driver has now.
    ///
    /// # Errors
    /// What the driver contradicts.
    pub fn compare(&mut self, memory: &mut impl KernelMemory, sysfs: &Path) -> Result<(), String> {
        let Some(check) = &self.check else { return Ok(()) };
        let until = Instant::now() + LISTED;
        let list = || self.lists.read(sysfs).filter(|_| Instant::now() < until);
        let Compared { processes, devices, queues } = settled(list, |listing| check.run(memory, listing))?;
        let seen = &mut self.compared;
        seen.processes = seen.processes.max(processes);
        seen.devices = seen.devices.max(devices);
        seen.queues = seen.queues.max(queues);
        Ok(())
    }

    /// Removes a scheduler's counts from these records, unless they are known to be its counts.
    pub fn confirm_counts(
        &mut self,
        records: &mut [Result<Event, Undecodable>],
        memory: Option<&mut impl KernelMemory>,
    ) {
        let mut check = self.check.as_ref().zip(memory);
        let mut agree = || check.as_mut().is_some_and(|(check, memory)| check.counts_agree(*memory));
        self.counts.confirm(records, &mut agree);
    }

    /// The first record that contradicts the types, and how.
    pub fn contradicted(
        &mut self,
        records: &[Result<Event, Undecodable>],
        sysfs: &Path,
    ) -> Option<(usize, String)> {
        let known = |(index, record): (usize, &Result<Event, Undecodable>)| {
            let event = record.as_ref().ok()?;
            let why = contradiction(event).or_else(|| self.unknown_gpu(event, sysfs))?;
            Some((index, why))
        };
        records.iter().enumerate().find_map(known)
    }

    /// A GPU that the topology does not have, which is read again for it: one may have been added.
    fn unknown_gpu(&mut self, event: &Event, sysfs: &Path) -> Option<String> {
        let gpu_id = event.body.gpu_id()?;
        let unknown = |all: &Option<BTreeSet<u32>>| all.as_ref().is_some_and(|all| !all.contains(&gpu_id));
        if !unknown(&self.gpu_ids) {
            return None;
        }
        self.gpu_ids = gpu_ids(sysfs);
        unknown(&self.gpu_ids).then(|| {
            format!("{} of GPU {gpu_id}, which the topology does not have", event.body.kind().name())
        })
    }
}

/// Compares until one comparison holds, or enough of them do not. A mismatch counts where sysfs lists what it rests on as
/// before. Where it always lists something else, or not in time, nothing is compared, which a later record makes up for.
///
/// # Errors
/// What does not hold.
fn settled(
    mut list: impl FnMut() -> Option<Listing>,
    mut check: impl FnMut(&Listing) -> Checked,
) -> Result<Compared, String> {
    let mut wrong = 0;
    for turn in 0..TRIES {
        sleep(if turn > 0 { PAUSE } else { Duration::ZERO });
        // Without the listing of queues nothing can be compared with them, and all else can wait.
        let Some(before) = list() else { break };
        let checked = check(&before);
        let Err(mismatch) = checked else { return checked.map_err(|mismatch| mismatch.why) };
        let Some(after) = list() else { break };
        if before.agrees(&after, mismatch.rests) {
            wrong += 1;
            if wrong == WRONG {
                return Err(mismatch.why);
            }
        } else if let Ok(compared) = check(&Listing::common(before, after)) {
            return Ok(compared);
        }
    }
    Ok(Compared::default())
}

/// How a record contradicts itself.
fn contradiction(event: &Event) -> Option<String> {
    // The task that makes a process or a queue is one of its owner (`kfd_create_process`, `kfd_ioctl`).
    let by_owner = |structure: &str| {
        (event.tgid != Some(event.task_tgid))
            .then(|| format!("{structure} leads to process {:?}, and {} called", event.tgid, event.task_tgid))
    };
    let of_queue = |facts: &QueueFacts| plausible(facts).err().map(|mismatch| mismatch.why);
    match &event.body {
        Body::ProcessSeen(seen) if !seen.standing => by_owner("kfd_process.lead_thread"),
        Body::QueueCreate(facts) if event.in_ioctl.is_some_and(is_create) => {
            by_owner("queue.process").or_else(|| of_queue(facts))
        }
        Body::QueueCreate(facts) => of_queue(facts),
        Body::QueueUpdate(update) => of_queue(&update.now),
        Body::MqdWrite { queue_id, .. } => of_queue(&QueueFacts {
            queue_id: Some(*queue_id),
            ..QueueFacts::unknown(crate::model::event::Origin::Other)
        }),
        _ => None,
    }
}

fn is_create(cmd: u32) -> bool {
    crate::model::ioctl::nr(cmd) == 0x02
}

/// `None`: the topology cannot be read whole.
fn gpu_ids(sysfs: &Path) -> Option<BTreeSet<u32>> {
    let topology = Topology::read(sysfs);
    topology.errors.is_empty().then(|| topology.gpus.iter().map(|gpu| gpu.gpu_id).collect())
}

/// What sysfs lists now; `None` if it does not list processes.
fn listing(sysfs: &Path) -> Option<Listing> {
    let read = KfdSysfs::read(sysfs, Costly::default());
    let mut listing = Listing { gpu_ids: gpu_ids(sysfs), ..Listing::default() };
    let births = births(sysfs, &read.processes).unwrap_or_default();
    for process in read.there.then_some(read.processes)? {
        if process.context_id.is_some() {
            continue;
        }
        // 7.2 shows 0, and has one per GPU.
        listing.processes.insert(process.tgid, process.pasid.filter(|pasid| *pasid != 0));
        let queues = process.queues.into_iter().map(|queue| {
            let key = (process.tgid, queue.queue_id);
            let birth = births.get(&key).copied();
            let (gpu_id, size, queue_type) = (queue.gpu_id, queue.size, queue.queue_type_raw);
            (key, ListedQueue { gpu_id, size, queue_type, birth })
        });
        listing.queues.extend(queues);
    }
    Some(listing)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::incident::MqdOp;
    use crate::probes::walk::check::{Mismatch, Rests};
    use crate::state::samples::{create, event, facts, seen};
    use std::process::Command;

    fn by(task_tgid: u32, body: Body) -> Event {
        Event { task_tgid, ..event(1, 1, 700, body) }
    }

    #[test]
    fn a_record_must_agree_with_its_caller() {
        assert_eq!(contradiction(&by(700, seen(false))), None);
        assert!(contradiction(&by(701, seen(false))).is_some_and(|why| why.contains("lead_thread")));
        assert_eq!(contradiction(&by(701, seen(true))), None, "any task may meet it");
        let created = |task_tgid| Event { in_ioctl: Some(0xc058_4b02), ..by(task_tgid, create(3)) };
        assert_eq!(contradiction(&created(700)), None);
        assert!(contradiction(&created(701)).is_some_and(|why| why.contains("queue.process")));
    }

    #[test]
    fn properties_must_be_possible() {
        let wrong = |facts: QueueFacts| contradiction(&by(700, Body::QueueCreate(facts)));
        assert_eq!(wrong(facts(3)), None);
        for (facts, member) in [
            (QueueFacts { percent: Some(0x64_0000), ..facts(3) }, "queue_percent"),
            (QueueFacts { ring_size: Some(3), ..facts(3) }, "queue_size"),
            (QueueFacts { queue_id: Some(1 << 20), ..facts(3) }, "queue_id"),
            (QueueFacts { read_pointer_address: Some(1 << 63), ..facts(3) }, "read_ptr"),
        ] {
            assert!(wrong(facts).is_some_and(|why| why.contains(member)), "{member}");
        }
        let write = |queue_id| by(700, Body::MqdWrite { queue_id, gpu_id: None, op: MqdOp::Update });
        assert!(contradiction(&write(5)).is_none() && contradiction(&write(5000)).is_some());
    }

    #[test]
    fn the_first_record_that_contradicts_is_named() {
        let sysfs = tempfile::tempdir().unwrap();
        let mut trust = Trust {
            source: TypesSource::Table("6.12.12".to_owned()),
            check: None,
            compared: Compared::default(),
            gpu_ids: Some(BTreeSet::from([facts(3).gpu_id.unwrap()])),
            lists: Lists::default(),
            counts: Counts::default(),
        };
        let mut records = vec![Ok(by(700, seen(false))), Ok(by(700, create(3)))];
        assert_eq!(trust.contradicted(&records, sysfs.path()), None);
        records.push(Ok(by(700, Body::HwsHang { gpu_id: Some(9) })));
        let (index, why) = trust.contradicted(&records, sysfs.path()).unwrap();
        assert_eq!(index, 2);
        assert!(why.contains("hws_hang of GPU 9"), "{why}");
        assert!(!trust.is_complete(), "records alone are never enough");
    }

    #[test]
    fn a_mismatch_counts_where_what_it_rests_on_is_listed_as_before() {
        let listing = |birth| {
            let queue = ListedQueue { gpu_id: Some(7), size: None, queue_type: None, birth: Some(birth) };
            Listing { queues: [((700, 0), queue)].into(), ..Listing::default() }
        };
        let one = Compared { processes: 1, devices: 1, queues: 1 };
        let after = |wrong: u32, rests: Rests, births: fn(u64) -> u64| {
            let (mut readings, mut comparisons) = (0, 0);
            let list = || {
                readings += 1;
                Some(listing(births(readings)))
            };
            let settled = settled(list, |_| {
                comparisons += 1;
                let mismatch = Mismatch { why: "queue.device".to_owned(), rests };
                if comparisons > wrong { Ok(one) } else { Err(mismatch) }
            });
            (settled, comparisons)
        };
        let (own, refuted) = (Rests::QueuesOf(700), Err("queue.device".to_owned()));
        assert_eq!(after(0, own, |_| 1), (Ok(one), 1));
        assert_eq!(after(2, own, |_| 1), (Ok(one), 3), "what was freed meanwhile");
        assert_eq!(after(3, own, |_| 1), (refuted.clone(), 3));
        // Another queue of the same id in each reading: then what two readings have in common is compared, too.
        assert_eq!(after(u32::MAX, own, |reading| reading), (Ok(Compared::default()), 2 * TRIES));
        assert_eq!(after(4, own, |reading| reading), (Ok(one), 5));
        for rests in [Rests::Memory, Rests::Processes, Rests::Gpus, Rests::QueuesOf(8)] {
            assert_eq!(after(u32::MAX, rests, |reading| reading), (refuted.clone(), 3), "{rests:?}");
        }
        let never = settled(|| None, |_| unreachable!("nothing to compare with"));
        assert_eq!(never, Ok(Compared::default()));
    }

    #[test]
    fn a_sysfs_that_hangs_is_waited_for_once() {
        let root = tempfile::tempdir().unwrap();
        let queue = root.path().join("class/kfd/kfd/proc/700/queues/0");
        std::fs::create_dir_all(&queue).unwrap();
        let mut lists = Lists::default();
        assert!(lists.read(root.path()).is_some_and(|listing| listing.processes.contains_key(&700)));
        let fifo = queue.join("gpuid");
        assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        assert_eq!(lists.read(root.path()), None);
        let begin = Instant::now();
        assert_eq!(lists.read(root.path()), None);
        assert!(begin.elapsed() < LISTED, "it still hangs");
        // What was read meanwhile is too old.
        std::fs::write(&fifo, "7").unwrap();
        std::fs::remove_file(&fifo).unwrap();
        let again = || lists.read(root.path());
        assert!(std::iter::repeat_with(again).take(100).any(|listing| {
            sleep(PAUSE);
            listing.is_some()
        }));
    }
}
