//! The measured situations, and their calls.

use crate::kfd::client::{self, Client};
use crate::kfd::uapi::{self, QueueType};
use crate::kfd::{Errno, QueueMemory, topology};
use anyhow::{Context, Result, bail, ensure};
use nix::unistd::pipe;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Case {
    /// Calls of KFD that the daemon counts and makes no record of.
    IoctlNoEvent,
    /// Pairs of CREATE_QUEUE and DESTROY_QUEUE.
    CreateDestroy,
    /// The first case's calls, where another process is traced and this one is not.
    FilteredOut,
    /// Calls of another driver by a process without KFD.
    UnrelatedIoctl,
}

impl Case {
    pub(super) fn work(self) -> Work {
        match self {
            Self::IoctlNoEvent | Self::FilteredOut => Work::Refused,
            Self::CreateDestroy => Work::Pair,
            Self::UnrelatedIoctl => Work::Unrelated,
        }
    }
}

/// What one operation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Work {
    /// CREATE_QUEUE on a nonexistent GPU: EINVAL before the driver has done anything.
    Refused,
    /// CREATE_QUEUE and DESTROY_QUEUE.
    Pair,
    /// FIONREAD of a pipe.
    Unrelated,
}

impl Work {
    /// Calls of KFD in an operation.
    pub(super) fn ioctls(self) -> u64 {
        match self {
            Self::Refused => 1,
            Self::Pair => 2,
            Self::Unrelated => 0,
        }
    }
}

/// Everything the calls need, prepared beforehand. Without KFD, only [`Work::Unrelated`] can be done.
#[derive(Debug)]
pub(super) struct Ready {
    kfd: Option<(Client, uapi::CreateQueue)>,
    /// Mapped as long as queues may be made of it.
    _memory: Option<QueueMemory>,
    pipe: File,
    _other_end: File,
}

impl Ready {
    pub(super) fn new(kfd: bool) -> Result<Self> {
        let (end, other) = pipe().context("make a pipe")?;
        let mut ready = Self { kfd: None, _memory: None, pipe: end.into(), _other_end: other.into() };
        if kfd {
            let gpus = topology::gpus(Path::new("/sys"))?;
            let gpu = gpus.first().context("no GPU in KFD's topology")?;
            let memory = QueueMemory::new(QueueType::ComputeAql, gpu).context("map memory for a queue")?;
            let args = uapi::CreateQueue { old: memory.create_args(gpu), sdma_engine_id: 0, pad: 0 };
            let client = Client::open(Path::new("/dev/kfd")).context("open /dev/kfd")?;
            ready.kfd = Some((client, args));
            ready._memory = Some(memory);
        }
        Ok(ready)
    }

    /// One operation.
    pub(super) fn once(&self, work: Work) -> Result<()> {
        let Some((client, template)) = &self.kfd else {
            ensure!(work == Work::Unrelated, "{work:?} without KFD");
            return self.unrelated();
        };
        let mut args = *template;
        match work {
            Work::Unrelated => self.unrelated(),
            Work::Refused => {
                args.old.gpu_id = 0;
                match client::raw(client.fd(), uapi::CREATE_QUEUE, &mut args) {
                    Err(Errno(libc::EINVAL)) => Ok(()),
                    other => bail!("CREATE_QUEUE on no GPU: {other:?}"),
                }
            }
            Work::Pair => {
                client::raw(client.fd(), uapi::CREATE_QUEUE, &mut args).context("CREATE_QUEUE")?;
                let mut queue = uapi::DestroyQueue { queue_id: args.old.queue_id, pad: 0 };
                client::raw(client.fd(), uapi::DESTROY_QUEUE, &mut queue).context("DESTROY_QUEUE")
            }
        }
    }

    fn unrelated(&self) -> Result<()> {
        let mut waiting: libc::c_int = 0;
        let fd = self.pipe.as_fd().as_raw_fd();
        // SAFETY: FIONREAD writes an integer; `waiting` lives until the call is over.
        let done = unsafe { libc::ioctl(fd, libc::FIONREAD, &raw mut waiting) };
        ensure!(done == 0, "FIONREAD: {}", Errno::last());
        Ok(())
    }
}
