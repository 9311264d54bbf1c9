//! One open `/dev/kfd`. Every method issues exactly one ioctl, counts it and stores its outcome.

use super::errno::Errno;
use super::memory::QueueMemory;
use super::tally::Tally;
use super::topology::Gpu;
use super::uapi::{self, Command};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

/// Outcome of the last ioctl of a [`Client`].
#[derive(Clone, Copy, Debug)]
pub struct Call {
    pub cmd: Command,
    pub outcome: Result<(), Errno>,
    pub elapsed: Duration,
}

/// A queue created by the driver.
#[derive(Debug)]
pub struct Queue {
    pub queue_id: u32,
    pub doorbell_offset: u64,
    pub gpu_id: u32,
    pub memory: QueueMemory,
}

/// The arguments of CREATE_QUEUE before they are sent: a test may spoil them.
#[derive(Debug)]
pub struct NewQueue {
    pub args: uapi::CreateQueueOld,
    /// For [`uapi::QueueType::SdmaByEngId`] only.
    pub sdma_engine_id: u32,
    pub memory: QueueMemory,
}

impl NewQueue {
    pub fn new(queue_type: uapi::QueueType, gpu: &Gpu) -> nix::Result<Self> {
        Ok(Self::of(QueueMemory::new(queue_type, gpu)?, gpu))
    }

    pub fn of(memory: QueueMemory, gpu: &Gpu) -> Self {
        Self { args: memory.create_args(gpu), sdma_engine_id: 0, memory }
    }
}

#[derive(Debug)]
pub struct Client {
    fd: Arc<OwnedFd>,
    pub tally: Tally,
    pub last: Option<Call>,
}

impl Client {
    /// Opens the device close-on-exec, as the thunk does.
    pub fn open(device: &Path) -> io::Result<Self> {
        let file: File = OpenOptions::new().read(true).write(true).open(device)?;
        Ok(Self { fd: Arc::new(file.into()), tally: Tally::default(), last: None })
    }

    /// Takes a descriptor of the device opened elsewhere.
    pub fn of(fd: OwnedFd) -> Self {
        Self { fd: Arc::new(fd), tally: Tally::default(), last: None }
    }

    /// The same open file for another thread, with a tally of its own.
    pub fn share(&self) -> Self {
        Self { fd: Arc::clone(&self.fd), tally: Tally::default(), last: None }
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    pub fn version(&mut self) -> Result<uapi::GetVersion, Errno> {
        let mut args = uapi::GetVersion::default();
        self.issue(uapi::GET_VERSION, &mut args)?;
        Ok(args)
    }

    pub fn clock_counters(&mut self, gpu_id: u32) -> Result<uapi::GetClockCounters, Errno> {
        let mut args = uapi::GetClockCounters { gpu_id, ..Default::default() };
        self.issue(uapi::GET_CLOCK_COUNTERS, &mut args)?;
        Ok(args)
    }

    /// Number of GPUs: requesting more entries than that is EINVAL.
    pub fn aperture_count(&mut self) -> Result<u32, Errno> {
        let mut args = uapi::GetProcessAperturesNew::default();
        self.issue(uapi::GET_PROCESS_APERTURES_NEW, &mut args)?;
        Ok(args.num_of_nodes)
    }

    pub fn apertures(&mut self, count: u32) -> Result<Vec<uapi::ProcessDeviceApertures>, Errno> {
        let mut list = vec![uapi::ProcessDeviceApertures::default(); count as usize];
        let mut args = uapi::GetProcessAperturesNew {
            apertures_ptr: list.as_mut_ptr().expose_provenance() as u64,
            num_of_nodes: count,
            pad: 0,
        };
        // the driver writes at most `count` entries (kfd_ioctl_get_process_apertures_new)
        self.issue(uapi::GET_PROCESS_APERTURES_NEW, &mut args)?;
        list.truncate(args.num_of_nodes as usize);
        Ok(list)
    }

    /// `old` issues the 88-byte command of programs built before UAPI 1.17.
    pub fn create_queue(&mut self, new: NewQueue, old: bool) -> Result<Queue, Errno> {
        let mut args = uapi::CreateQueue { old: new.args, sdma_engine_id: new.sdma_engine_id, pad: 0 };
        let cmd = if old { uapi::CREATE_QUEUE_OLD } else { uapi::CREATE_QUEUE };
        self.issue(cmd, &mut args)?;
        Ok(Queue {
            queue_id: args.old.queue_id,
            doorbell_offset: args.old.doorbell_offset,
            gpu_id: args.old.gpu_id,
            memory: new.memory,
        })
    }

    pub fn destroy_queue(&mut self, queue_id: u32) -> Result<(), Errno> {
        self.issue(uapi::DESTROY_QUEUE, &mut uapi::DestroyQueue { queue_id, pad: 0 })
    }

    /// Percentage 0 or a ring at 0 suspends the queue.
    pub fn update_queue(&mut self, mut args: uapi::UpdateQueue) -> Result<(), Errno> {
        self.issue(uapi::UPDATE_QUEUE, &mut args)
    }

    /// UPDATE_QUEUE with arguments that another thread may change meanwhile: the words of [`uapi::UpdateQueue`].
    pub fn update_queue_at(&mut self, args: &[AtomicU64; 3]) -> Result<(), Errno> {
        let start = Instant::now();
        // SAFETY: the driver reads as many bytes as `args` has, and writes none.
        let status = unsafe {
            libc::ioctl(self.fd.as_raw_fd(), uapi::UPDATE_QUEUE as libc::Ioctl, std::ptr::from_ref(args))
        };
        let outcome = if status == -1 { Err(Errno::last()) } else { Ok(()) };
        self.tally.add(uapi::UPDATE_QUEUE, outcome);
        self.last = Some(Call { cmd: uapi::UPDATE_QUEUE, outcome, elapsed: start.elapsed() });
        outcome
    }

    /// # Panics
    /// If the mask has more words than its number of bits can express.
    pub fn set_cu_mask(&mut self, queue_id: u32, mask: &[u32]) -> Result<(), Errno> {
        let words = u32::try_from(mask.len()).expect("a mask has few words");
        let mut args = uapi::SetCuMask {
            queue_id,
            num_cu_mask: u32::BITS * words,
            cu_mask_ptr: mask.as_ptr().expose_provenance() as u64,
        };
        self.issue(uapi::SET_CU_MASK, &mut args)
    }

    /// Returns its handle.
    pub fn alloc_memory(&mut self, mut args: uapi::AllocMemory) -> Result<u64, Errno> {
        self.issue(uapi::ALLOC_MEMORY_OF_GPU, &mut args)?;
        Ok(args.handle)
    }

    pub fn free_memory(&mut self, handle: u64) -> Result<(), Errno> {
        self.issue(uapi::FREE_MEMORY_OF_GPU, &mut uapi::FreeMemory { handle })
    }

    /// Maps memory on GPUs, or unmaps it from them: one after the other, up to the first that fails. Returns for how many
    /// that was done.
    ///
    /// # Panics
    /// With more GPUs than 32 bits count.
    pub fn map_memory(&mut self, map: bool, handle: u64, gpu_ids: &[u32]) -> u32 {
        let mut args = uapi::MapMemory {
            handle,
            device_ids_array_ptr: gpu_ids.as_ptr().expose_provenance() as u64,
            n_devices: u32::try_from(gpu_ids.len()).expect("few GPUs"),
            n_success: 0,
        };
        let cmd = if map { uapi::MAP_MEMORY_TO_GPU } else { uapi::UNMAP_MEMORY_FROM_GPU };
        let _ = self.issue(cmd, &mut args);
        args.n_success
    }

    /// Returns its handle.
    pub fn import_dmabuf(&mut self, mut args: uapi::ImportDmabuf) -> Result<u64, Errno> {
        self.issue(uapi::IMPORT_DMABUF, &mut args)?;
        Ok(args.handle)
    }

    pub fn set_memory_policy(&mut self, gpu_id: u32) -> Result<(), Errno> {
        let mut args = uapi::SetMemoryPolicy { gpu_id, ..Default::default() };
        self.issue(uapi::SET_MEMORY_POLICY, &mut args)
    }

    /// From here on this open file belongs to a KFD process of its own, with the same PID (Linux 7.x).
    pub fn create_process(&mut self) -> Result<(), Errno> {
        self.issue(uapi::CREATE_PROCESS, &mut [0u64; 0])
    }

    /// Lets a debugger suspend the queues of this process: before it has any.
    pub fn runtime_enable(&mut self) -> Result<(), Errno> {
        let mode_mask = uapi::RUNTIME_ENABLE_MODE_ENABLE;
        self.issue(uapi::RUNTIME_ENABLE, &mut uapi::RuntimeEnable { mode_mask, ..Default::default() })
    }

    /// DBG_TRAP. The addresses in `args` are those of memory with the sizes in it.
    pub(super) fn debug_trap(&mut self, args: &mut uapi::DebugTrap) -> Result<(), Errno> {
        self.issue(uapi::DBG_TRAP, args)
    }

    /// CRIU_OP. The addresses in `args` are null or those of vectors with the given number of elements.
    pub(super) fn criu(&mut self, args: &mut uapi::Criu) -> Result<(), Errno> {
        self.issue(uapi::CRIU_OP, args)
    }

    /// Any number with `size` zero bytes of arguments (at most 256).
    ///
    /// # Panics
    /// For a number in [`uapi::NEEDS_GPU_MEMORY`] or a larger size.
    pub fn by_number(&mut self, nr: u8, size: usize) -> Result<(), Errno> {
        assert!(!uapi::NEEDS_GPU_MEMORY.contains(&nr), "ioctl {nr:#x} needs real GPU memory");
        self.issue(uapi::iowr(nr, size), &mut [0u64; 32])
    }

    pub(super) fn issue<T: Copy>(&mut self, cmd: Command, args: &mut T) -> Result<(), Errno> {
        let start = Instant::now();
        let outcome = raw(self.fd.as_fd(), cmd, args);
        let elapsed = start.elapsed();
        self.tally.add(cmd, outcome);
        self.last = Some(Call { cmd, outcome, elapsed });
        outcome
    }
}

/// One ioctl, without tally or allocation: also usable in a forked child. `T` is one of [`uapi`]'s structures
/// or an array of integers, so that any bytes the driver writes make a valid value.
pub(crate) fn raw<T: Copy>(fd: BorrowedFd<'_>, cmd: Command, args: &mut T) -> Result<(), Errno> {
    assert!(uapi::size(cmd) <= size_of::<T>(), "the driver would write past the arguments");
    // SAFETY: KFD copies at most the size named in the command to and from `args`, checked above. Addresses
    // inside the arguments are those of vectors that outlive the call, of queue memory, of which the driver
    // reads as of any user memory, or null.
    let status = unsafe { libc::ioctl(fd.as_raw_fd(), cmd as libc::Ioctl, std::ptr::from_mut(args)) };
    if status == -1 { Err(Errno::last()) } else { Ok(()) }
}
