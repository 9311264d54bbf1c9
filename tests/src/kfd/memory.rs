//! The memory behind a queue, laid out as ROCr and the thunk lay it out, so that following the two pointers
//! of CREATE_QUEUE leads to the same data as in a real process.

use super::pointers::{PAGE, Pointers};
use super::topology::Gpu;
use super::uapi::{CreateQueueOld, QueueType};
use nix::sys::mman::{MapFlags, MmapAdvise, ProtFlags, madvise, mmap_anonymous};
use std::num::NonZeroUsize;
use std::ptr::NonNull;

/// HIP's default: 16384 packets of 64 bytes. SDMA rings have the same size.
const RING_SIZE: u32 = 1 << 20;
const RING: usize = RING_SIZE as usize;
const EOP: usize = PAGE;
/// For drivers that do not report their needs and check nothing.
const CTL_STACK: u32 = 0x1000;
const CWSR: u32 = 0x10000;

/// One mapping: page of the pointers, EOP page, ring, save area. It is never unmapped, because a GPU may
/// write to it until the process has ended; only a test that requests it loses the first page.
#[derive(Debug)]
pub struct QueueMemory {
    start: NonNull<u8>,
    pub pointers: Pointers,
    queue_type: QueueType,
    ctl_stack_size: u32,
    cwsr_size: u32,
}

impl QueueMemory {
    pub fn new(queue_type: QueueType, gpu: &Gpu) -> nix::Result<Self> {
        let ctl_stack_size = gpu.ctl_stack_size.unwrap_or(CTL_STACK);
        let cwsr_size = gpu.cwsr_size.unwrap_or(CWSR);
        let save_area = cwsr_size as usize * gpu.num_xcc as usize;
        let length = NonZeroUsize::MIN.saturating_add(PAGE + EOP + RING + save_area - 1);
        // SAFETY: a new anonymous mapping at an address of the kernel's choice touches nothing of ours.
        let start = unsafe {
            mmap_anonymous(
                None,
                length,
                ProtFlags::PROT_READ | ProtFlags::PROT_WRITE,
                MapFlags::MAP_PRIVATE | MapFlags::MAP_NORESERVE,
            )
        }?;
        // as the thunk does with all memory that a GPU uses (fmm.c): a child would get a copy that no task
        // updates
        // SAFETY: changes how a child inherits the mapping just made, and nothing here.
        unsafe { madvise(start, length.get(), MmapAdvise::MADV_DONTFORK) }?;
        // While khugepaged merges small pages into a huge page, none of them is present, and a probe that
        // reads them at the queue's end cannot wait. A kernel without huge pages refuses this, and does not
        // need it.
        // SAFETY: changes how the kernel backs the mapping just made, and nothing here.
        let _ = unsafe { madvise(start, length.get(), MmapAdvise::MADV_NOHUGEPAGE) };
        let start = start.cast::<u8>();
        let ring = (start.as_ptr().expose_provenance() + PAGE + EOP) as u64;
        // SAFETY: the first page is used by nothing else here, and no part of the mapping is unmapped.
        let pointers = unsafe { Pointers::new(start, queue_type, ring, RING_SIZE) };
        Ok(Self { start, pointers, queue_type, ctl_stack_size, cwsr_size })
    }

    fn address(&self, offset: usize) -> u64 {
        (self.start.as_ptr().expose_provenance() + offset) as u64
    }

    pub fn ring(&self) -> u64 {
        self.address(PAGE + EOP)
    }

    pub fn ring_size(&self) -> u32 {
        RING_SIZE
    }

    /// The arguments that ROCr would pass: priority 7 for compute, 15 for SDMA, no EOP nor save area for
    /// SDMA.
    pub fn create_args(&self, gpu: &Gpu) -> CreateQueueOld {
        let mut args = CreateQueueOld {
            ring_base_address: self.ring(),
            write_pointer_address: self.pointers.write_address(),
            read_pointer_address: self.pointers.read_address(),
            ring_size: self.ring_size(),
            gpu_id: gpu.gpu_id,
            queue_type: self.queue_type as u32,
            queue_percentage: 100,
            queue_priority: 15,
            ..CreateQueueOld::default()
        };
        if self.queue_type.is_compute() {
            args.queue_priority = 7;
            args.eop_buffer_address = self.address(PAGE);
            args.eop_buffer_size = EOP as u64;
            args.ctx_save_restore_address = self.address(PAGE + EOP + RING);
            args.ctx_save_restore_size = self.cwsr_size;
            args.ctl_stack_size = self.ctl_stack_size;
        }
        args
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GPU: Gpu = Gpu { gpu_id: 7, ctl_stack_size: Some(0x2000), cwsr_size: Some(0x9000), num_xcc: 2 };

    fn read(address: u64) -> u64 {
        // SAFETY: the tests pass addresses within a live QueueMemory only.
        unsafe { std::ptr::with_exposed_provenance::<u64>(usize::try_from(address).unwrap()).read_volatile() }
    }

    #[test]
    fn an_aql_queue_carries_rocrs_signature() {
        let memory = QueueMemory::new(QueueType::ComputeAql, &GPU).unwrap();
        let descriptor = memory.pointers.write_address() - 0x38;
        assert_eq!(memory.pointers.read_address() - memory.pointers.write_address(), 0x48);
        assert_eq!(read(descriptor + 8), memory.ring());
        assert_eq!(read(descriptor + 24) * 64, u64::from(memory.ring_size()));
        assert_eq!(read(descriptor + 136), 128);
    }

    #[test]
    fn an_sdma_queue_has_neither_eop_nor_save_area() {
        let args = QueueMemory::new(QueueType::Sdma, &GPU).unwrap().create_args(&GPU);
        assert_eq!((args.eop_buffer_address, args.ctx_save_restore_address, args.ctl_stack_size), (0, 0, 0));
        assert_eq!((args.queue_priority, args.read_pointer_address - args.write_pointer_address), (15, 8));
    }

    #[test]
    fn the_drivers_own_sizes_are_used() {
        let args = QueueMemory::new(QueueType::ComputeAql, &GPU).unwrap().create_args(&GPU);
        assert_eq!((args.ctl_stack_size, args.ctx_save_restore_size), (0x2000, 0x9000));
    }

    /// Flags of the mapping that holds an address (proc_pid_smaps(5)).
    fn flags(address: u64) -> String {
        let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let begin = |line: &str| {
            let (begin, end) = line.split(' ').next()?.split_once('-')?;
            let [begin, end] = [begin, end].map(|text| u64::from_str_radix(text, 16));
            Some((begin.ok()?..end.ok()?).contains(&address))
        };
        let of = smaps.lines().skip_while(|line| begin(line) != Some(true));
        of.into_iter().find(|line| line.starts_with("VmFlags:")).unwrap().to_owned()
    }

    #[test]
    fn a_child_gets_none_of_it_and_no_page_of_it_is_taken_away() {
        let memory = QueueMemory::new(QueueType::ComputeAql, &GPU).unwrap();
        for address in [memory.pointers.write_address(), memory.ring()] {
            // do not copy on fork, no huge pages
            for wanted in ["dc", "nh"] {
                assert!(flags(address).split(' ').any(|flag| flag == wanted), "{}", flags(address));
            }
        }
    }
}
