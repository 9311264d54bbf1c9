//! `script`: operations in a test's order, each reported by a line: its ioctl's, or the result of an
//! operation without one.

use super::crowd::{Crowd, Sleepers};
use super::operation::{Operation, Place};
use super::rewritten::Rewritten;
use super::{lives, queues, report};
use crate::kfd::client::{NewQueue, raw};
use crate::kfd::pointers::unreadable_page;
use crate::kfd::{Client, Errno, Gpu, Queue, QueueMemory, Tally, uapi};
use anyhow::{Context, Result, bail, ensure};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs::{self, DirEntry};
use std::io::{BufRead, stdin};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::thread;

/// The open devices, one for each KFD process (`None` once closed), which of them is in use, the queues
/// created so far with their device, the counts of closed devices, and the result of CRIU's info step.
struct Script {
    gpus: Vec<Gpu>,
    clients: Vec<Option<Client>>,
    current: usize,
    queues: Vec<(usize, Queue)>,
    earlier: Tally,
    criu_info: Option<uapi::Criu>,
    /// Of the last operation on memory, in the GPU's space: nothing is mapped there.
    addresses: u64,
    /// Threads that stay until the next operation.
    crowd: Crowd,
    sleepers: Option<Sleepers>,
    rewritten: Option<Rewritten>,
}

/// Where allocations begin, and how far they are apart.
const FIRST_ADDRESS: u64 = 1 << 44;
const ADDRESS: u64 = 1 << 36;

/// From the arguments, or line by line from standard input, so that a test can steer it.
pub(crate) fn run(operations: &[String]) -> Result<()> {
    let mut script = Script::new()?;
    for (i, text) in operations.iter().enumerate() {
        let operation = text.parse().with_context(|| format!("operation `{text}`"))?;
        if matches!(operation, Operation::Exec) {
            report::counts(&script.tally())?;
            return lives::exec_script(&operations[i + 1..]);
        }
        script.step(&operation).with_context(|| format!("operation `{text}`"))?;
    }
    if operations.is_empty() { script.steered() } else { report::counts(&script.tally()) }
}

/// A ROCm process's first calls, then the given operations.
pub(crate) fn agent() -> Result<()> {
    let mut script = Script::new()?;
    script.clients.iter_mut().flatten().try_for_each(queues::greet)?;
    script.steered()
}

impl Script {
    fn new() -> Result<Self> {
        Ok(Self {
            gpus: queues::gpus().unwrap_or_default(),
            clients: vec![Some(queues::open()?)],
            current: 0,
            queues: Vec::new(),
            earlier: Tally::default(),
            criu_info: None,
            addresses: FIRST_ADDRESS,
            crowd: Crowd::default(),
            sleepers: None,
            rewritten: None,
        })
    }

    /// One line per operation (`apertures` has two), until standard input ends; after exec the rest belongs
    /// to another life, which prints ready again.
    fn steered(&mut self) -> Result<()> {
        report::ready()?;
        for line in stdin().lock().lines() {
            let text = line.context("read standard input")?;
            let operation: Operation = text.parse().with_context(|| format!("operation `{text}`"))?;
            if matches!(operation, Operation::Exec) {
                report::counts(&self.tally())?;
                report::done("exec", &json!({}))?;
                return lives::exec_script(&[]);
            }
            self.step(&operation).with_context(|| format!("operation `{text}`"))?;
        }
        report::counts(&self.tally())
    }

    fn step(&mut self, operation: &Operation) -> Result<()> {
        self.crowd = Crowd::default();
        match *operation {
            Operation::Open => {
                ensure!(self.clients[self.current].is_none(), "the device is open");
                self.clients[self.current] = Some(queues::open()?);
            }
            Operation::Close => {
                let closed = self.clients[self.current].take().context("the device is closed")?;
                self.earlier.merge(&closed.tally);
                drop(closed);
                report::done("close", &json!({}))?;
            }
            Operation::Context => self.context()?,
            Operation::Use(index) => {
                ensure!(index < self.clients.len(), "no device {index}");
                self.current = index;
                report::done("use", &json!({"index": index}))?;
            }
            Operation::Sleep(time) => {
                thread::sleep(time);
                report::done("sleep", &json!({}))?;
            }
            Operation::Wait => {
                report::ready()?;
                std::io::copy(&mut stdin(), &mut std::io::sink()).context("read standard input")?;
            }
            Operation::Fork => lives::fork_that_stays()?,
            Operation::Activity(ref activity) => {
                let current = self.current;
                let first = self.first_id();
                let made = self.queues.iter_mut().filter(|(at, _)| *at == current);
                let made = made.map(|(_, queue)| (queue.queue_id, &mut queue.memory.pointers));
                let reported = activity.take(first, made)?;
                report::done(activity.name(), &reported)?;
            }
            Operation::Exec => bail!("it ends this life"),
            _ => self.ioctl(operation)?,
        }
        Ok(())
    }

    /// A device that did not become a secondary process is closed again.
    fn context(&mut self) -> Result<()> {
        let mut client = Client::open(Path::new("/dev/kfd")).context("open /dev/kfd")?;
        let before = contexts()?;
        let made = client.create_process();
        let ids: Vec<u64> = contexts()?.difference(&before).copied().collect();
        report::call("context", &client, json!({"context_ids": ids}))?;
        if made.is_ok() {
            self.current = self.clients.len();
            self.clients.push(Some(client));
        } else {
            self.earlier.merge(&client.tally);
        }
        Ok(())
    }

    fn ioctl(&mut self, operation: &Operation) -> Result<()> {
        let first = self.first_id();
        let client = self.clients[self.current].as_mut().context("the device is closed")?;
        let detail = match *operation {
            Operation::Version => queues::version_detail(client.version()),
            Operation::Clock { gpu } => {
                let gpu_id = at(&self.gpus, gpu)?.gpu_id;
                let _ = client.clock_counters(gpu_id);
                json!({"gpu_id": gpu_id})
            }
            Operation::Apertures => return queues::apertures(client),
            Operation::Create(ref create) => {
                let gpu = at(&self.gpus, create.gpu)?;
                let mut memory =
                    QueueMemory::new(create.queue_type, &gpu).context("map memory for a queue")?;
                if create.unreadable {
                    memory.pointers.lie_at(unreadable_page()?);
                }
                let mut new = NewQueue::of(memory, &gpu);
                create.apply(&mut new.args);
                new.sdma_engine_id = create.engine;
                let ring_size = new.args.ring_size;
                match client.create_queue(new, create.old) {
                    Ok(queue) => {
                        let mut detail = report::queue(&queue, create.queue_type);
                        detail["ring_size"] = ring_size.into();
                        self.queues.push((self.current, queue));
                        detail
                    }
                    Err(_) => json!({"gpu_id": gpu.gpu_id}),
                }
            }
            Operation::Destroy { queue } => return queues::destroy(client, queue.id(first)),
            Operation::Update { queue, percent, priority, ring_size, no_ring } => {
                let queue_id = queue.id(first);
                let own = (self.current, queue_id);
                let mut made = self.queues.iter().rev().map(|(at, queue)| ((*at, queue.queue_id), queue));
                let memory = made.find(|(id, _)| *id == own).map(|(_, queue)| &queue.memory);
                // a queue that was never created has no ring either: the driver looks up the queue first
                let ring = memory.map_or(0, QueueMemory::ring);
                let args = uapi::UpdateQueue {
                    ring_base_address: if no_ring { 0 } else { ring },
                    queue_id,
                    ring_size: ring_size.or(memory.map(QueueMemory::ring_size)).unwrap_or(0),
                    queue_percentage: percent,
                    queue_priority: priority,
                };
                let _ = client.update_queue(args);
                json!({"queue_id": queue_id, "percent": percent})
            }
            Operation::CuMask { queue, ref mask } => {
                let queue_id = queue.id(first);
                let _ = client.set_cu_mask(queue_id, mask);
                json!({"queue_id": queue_id})
            }
            Operation::MemoryPolicy { gpu } => {
                let gpu_id = at(&self.gpus, gpu)?.gpu_id;
                let _ = client.set_memory_policy(gpu_id);
                json!({"gpu_id": gpu_id})
            }
            Operation::Memory(ref step) => {
                self.addresses += ADDRESS;
                step.take(client, &self.gpus, self.addresses)?
            }
            Operation::Criu(ref step) => step.take(client, &mut self.criu_info)?,
            Operation::RuntimeEnable => {
                let _ = client.runtime_enable();
                json!({})
            }
            Operation::Unknown { nr, size } => {
                let _ = client.by_number(nr, size);
                json!({"size": size})
            }
            Operation::ForkIoctl => return fork_ioctl(client),
            Operation::Threads(number) => {
                self.crowd = Crowd::of(client, number)?;
                return Ok(());
            }
            Operation::Sleepers(number) => {
                ensure!(self.sleepers.is_none(), "some sleep already");
                self.sleepers = Some(Sleepers::new(client, number)?);
                return Ok(());
            }
            Operation::BeginUpdate { queue, percent } => {
                let queue_id = queue.id(first);
                let own = |(at, queue): &&(usize, Queue)| *at == self.current && queue.queue_id == queue_id;
                let memory = &self.queues.iter().find(own).context("no such queue")?.1.memory;
                let update = uapi::UpdateQueue {
                    ring_base_address: memory.ring(),
                    queue_id,
                    ring_size: memory.ring_size(),
                    queue_percentage: percent,
                    queue_priority: 7,
                };
                self.rewritten = Some(Rewritten::begin(client, &update)?);
                return Ok(());
            }
            Operation::Rewrite => return self.rewritten.as_ref().context("no update")?.rewrite(),
            Operation::EndUpdate => return self.rewritten.take().context("no update")?.end(client),
            Operation::Wake => return self.sleepers.take().context("nobody sleeps")?.wake(client),
            Operation::CreateCrowd(number) => {
                self.crowd = Crowd::creating(client, &at(&self.gpus, Place::Gpu(0))?, number)?;
                return Ok(());
            }
            _ => bail!("no ioctl"),
        };
        report::call(operation.name(), client, detail)
    }

    /// What the numbers of queues count from ([`operation::Which`](super::operation::Which)).
    fn first_id(&self) -> u32 {
        let first = self.queues.iter().find(|(at, _)| *at == self.current);
        first.map_or(0, |(_, queue)| queue.queue_id)
    }

    fn tally(&self) -> Tally {
        let mut tally = self.earlier.clone();
        self.clients.iter().flatten().for_each(|client| tally.merge(&client.tally));
        tally
    }
}

/// The secondary KFD processes of this PID, as sysfs lists them (kfd_process.c:kfd_create_process_sysfs).
fn contexts() -> Result<BTreeSet<u64>> {
    let dir = format!("/sys/class/kfd/kfd/proc/{}", std::process::id());
    let entries = fs::read_dir(&dir).with_context(|| format!("list {dir}"))?;
    let id = |entry: std::io::Result<DirEntry>| {
        entry.ok()?.file_name().to_str()?.strip_prefix("context_")?.parse().ok()
    };
    Ok(entries.filter_map(id).collect())
}

/// No GPU has this id: it is a hash of properties, never so small.
const NOWHERE: Gpu = Gpu { gpu_id: 1, ctl_stack_size: None, cwsr_size: None, num_xcc: 1 };

pub(super) fn at(gpus: &[Gpu], place: Place) -> Result<Gpu> {
    let Place::Gpu(index) = place else { return Ok(NOWHERE) };
    gpus.get(index).copied().with_context(|| format!("no GPU number {index}: there are {}", gpus.len()))
}

/// GET_VERSION by a child on the inherited descriptor: refused, and counted with the file's owner.
fn fork_ioctl(client: &mut Client) -> Result<()> {
    // SAFETY: no other thread of script runs now; the child makes one system call and leaves by _exit.
    let child = match unsafe { fork() }.context("fork")? {
        ForkResult::Child => exit_with_errno_of_get_version(client.fd()),
        ForkResult::Parent { child } => child,
    };
    let WaitStatus::Exited(_, status) = waitpid(child, None).context("wait for the child")? else {
        bail!("the child did not exit");
    };
    let outcome = if status == 0 { Ok(()) } else { Err(Errno(status)) };
    client.tally.add(uapi::GET_VERSION, outcome);
    let errno: Value = outcome.err().map(Errno::name).into();
    let detail = json!({"child": child.as_raw(), "nr": uapi::nr(uapi::GET_VERSION),
        "cmd": uapi::GET_VERSION, "errno": errno});
    report::done("fork-ioctl", &detail)
}

fn exit_with_errno_of_get_version(fd: BorrowedFd<'_>) -> ! {
    let outcome = raw(fd.as_fd(), uapi::GET_VERSION, &mut uapi::GetVersion::default());
    let status = outcome.map_or_else(|errno| errno.0, |()| 0);
    // SAFETY: _exit runs no handler of the parent's copy.
    unsafe { libc::_exit(status) }
}

/// The executable of a script, for [`lives`].
pub(crate) fn program() -> &'static Path {
    Path::new("/proc/self/exe")
}
