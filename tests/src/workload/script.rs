//! `script`: operations in the order a test wants them, each reported by the line of its ioctl.

use std::io::{BufRead, stdin};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};
use serde_json::{Value, json};

use super::operation::{Operation, Place};
use super::{lives, queues, report};
use crate::kfd::client::{NewQueue, raw};
use crate::kfd::{Client, Errno, Gpu, Queue, Tally, uapi};

/// The device (`None` once closed), the queues made so far, and what was counted on closed devices.
struct Script {
    gpus: Vec<Gpu>,
    client: Option<Client>,
    queues: Vec<Queue>,
    earlier: Tally,
}

/// From the arguments, or line by line from standard input, so that a test can steer it.
pub(crate) fn run(operations: &[String]) -> Result<()> {
    let mut script = Script {
        gpus: queues::gpus().unwrap_or_default(),
        client: Some(queues::open()?),
        queues: Vec::new(),
        earlier: Tally::default(),
    };
    for (i, text) in operations.iter().enumerate() {
        let operation = text.parse().with_context(|| format!("operation `{text}`"))?;
        if matches!(operation, Operation::Exec) {
            report::counts(&script.tally())?;
            return lives::exec_script(&operations[i + 1..]);
        }
        script.step(&operation).with_context(|| format!("operation `{text}`"))?;
    }
    if operations.is_empty() {
        report::ready()?;
        for line in stdin().lock().lines() {
            let text = line.context("read standard input")?;
            let operation: Operation = text.parse().with_context(|| format!("operation `{text}`"))?;
            script.step(&operation).with_context(|| format!("operation `{text}`"))?;
        }
    }
    report::counts(&script.tally())
}

impl Script {
    fn step(&mut self, operation: &Operation) -> Result<()> {
        match *operation {
            Operation::Open => {
                ensure!(self.client.is_none(), "the device is open");
                self.client = Some(queues::open()?);
            }
            Operation::Close => {
                self.earlier = self.tally();
                self.client = None;
                report::done("close", &json!({}))?;
            }
            Operation::Sleep(time) => {
                std::thread::sleep(time);
                report::done("sleep", &json!({}))?;
            }
            Operation::Wait => {
                report::ready()?;
                std::io::copy(&mut stdin(), &mut std::io::sink()).context("read standard input")?;
            }
            Operation::Exec => bail!("exec needs the operations as arguments"),
            _ => self.ioctl(operation)?,
        }
        Ok(())
    }

    fn ioctl(&mut self, operation: &Operation) -> Result<()> {
        let client = self.client.as_mut().context("the device is closed")?;
        let detail = match *operation {
            Operation::Version => queues::version_detail(client.version()),
            Operation::Clock { gpu } => {
                let gpu_id = at(&self.gpus, gpu)?.gpu_id;
                let _ = client.clock_counters(gpu_id);
                json!({"gpu_id": gpu_id})
            }
            Operation::Apertures => return queues::apertures(client),
            Operation::Create { queue_type, spoil, old, gpu } => {
                let gpu = at(&self.gpus, gpu)?;
                let mut new = NewQueue::new(queue_type, &gpu).context("map memory for a queue")?;
                spoil.apply(&mut new.args);
                match client.create_queue(new, old) {
                    Ok(queue) => {
                        let detail = report::queue(&queue, queue_type);
                        self.queues.push(queue);
                        detail
                    }
                    Err(_) => json!({"gpu_id": gpu.gpu_id}),
                }
            }
            Operation::Destroy { queue_id } => return queues::destroy(client, queue_id),
            Operation::Update { queue_id, percent } => {
                let queue = self.queues.iter().rfind(|queue| queue.queue_id == queue_id);
                let _ = client.update_queue(queue.context("this script made no such queue")?, percent);
                json!({"queue_id": queue_id, "percent": percent})
            }
            Operation::CuMask { queue_id } => {
                let _ = client.set_cu_mask(queue_id, &[0x0f0f_0f0f; 2]);
                json!({"queue_id": queue_id})
            }
            Operation::MemoryPolicy { gpu } => {
                let gpu_id = at(&self.gpus, gpu)?.gpu_id;
                let _ = client.set_memory_policy(gpu_id);
                json!({"gpu_id": gpu_id})
            }
            Operation::Criu => {
                let _ = client.criu();
                json!({})
            }
            Operation::Unknown { nr, size } => {
                let _ = client.by_number(nr, size);
                json!({"size": size})
            }
            Operation::ForkIoctl => return fork_ioctl(client),
            _ => bail!("no ioctl"),
        };
        report::call(operation.name(), client, detail)
    }

    fn tally(&self) -> Tally {
        let mut tally = self.earlier.clone();
        tally.merge(&self.client.as_ref().map(|client| client.tally.clone()).unwrap_or_default());
        tally
    }
}

/// No GPU has this id: it is a hash of properties, never so small.
const NOWHERE: Gpu = Gpu { gpu_id: 1, ctl_stack_size: None, cwsr_size: None, num_xcc: 1 };

fn at(gpus: &[Gpu], place: Place) -> Result<Gpu> {
    let Place::Gpu(index) = place else { return Ok(NOWHERE) };
    gpus.get(index).copied().with_context(|| format!("no GPU number {index}: there are {}", gpus.len()))
}

/// GET_VERSION by a child on the inherited descriptor: refused, and counted with the file's owner.
fn fork_ioctl(client: &mut Client) -> Result<()> {
    // SAFETY: script runs no other thread; the child makes one system call and leaves by _exit.
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

/// The program a script runs on, for [`lives`].
pub(crate) fn program() -> &'static Path {
    Path::new("/proc/self/exe")
}
