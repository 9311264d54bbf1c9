//! The memory behind a queue, laid out as ROCr and the thunk lay it out, so that a reader who follows the
//! two pointers of CREATE_QUEUE finds what it would find in a real process.

use std::num::NonZeroUsize;
use std::ptr::NonNull;

use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous};

use super::topology::Gpu;
use super::uapi::{CreateQueueOld, QueueType};

const PAGE: usize = 4096;
/// HIP's default: 16384 packets of 64 bytes. SDMA rings have the same size.
const RING_SIZE: u32 = 1 << 20;
const RING: usize = RING_SIZE as usize;
const AQL_PACKET: usize = 64;
const EOP: usize = PAGE;
/// For drivers that do not tell their needs and check nothing.
const CTL_STACK: u32 = 0x1000;
const CWSR: u32 = 0x10000;

/// Byte offsets in `amd_queue_t` (ROCr, inc/amd_hsa_queue.h).
mod amd_queue {
    pub(super) const BASE_ADDRESS: usize = 8;
    pub(super) const SIZE: usize = 24;
    pub(super) const WRITE_DISPATCH_ID: usize = 56;
    pub(super) const READ_DISPATCH_ID: usize = 128;
    /// Distance from the structure's start to the read id, as the structure itself states it.
    pub(super) const READ_DISPATCH_ID_OFFSET: usize = 136;
}

/// One mapping: descriptor page, EOP page, ring, save area. It is never unmapped, because a GPU may write
/// to it until the process is gone.
#[derive(Debug)]
pub struct QueueMemory {
    start: NonNull<u8>,
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
        let mut memory = Self { start: start.cast(), queue_type, ctl_stack_size, cwsr_size };
        if queue_type == QueueType::ComputeAql {
            memory.describe();
        }
        Ok(memory)
    }

    /// The fields by which a reader recognises an `amd_queue_t`.
    fn describe(&mut self) {
        self.put(amd_queue::BASE_ADDRESS, self.ring());
        self.put(amd_queue::SIZE, (RING / AQL_PACKET) as u64);
        self.put(amd_queue::READ_DISPATCH_ID_OFFSET, amd_queue::READ_DISPATCH_ID as u64);
    }

    fn put(&mut self, offset: usize, value: u64) {
        assert!(offset.is_multiple_of(8) && offset < PAGE);
        // SAFETY: the offset lies within the first page of the mapping.
        let field = unsafe { self.start.add(offset) };
        // SAFETY: mapped, writable, aligned by the assertion above, and nobody else writes this page here.
        unsafe { field.cast::<u64>().write_volatile(value) };
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

    /// Where the write pointer lies: in `amd_queue_t` for AQL, at the start of the thunk's structure else.
    pub fn write_pointer(&self) -> u64 {
        match self.queue_type {
            QueueType::ComputeAql => self.address(amd_queue::WRITE_DISPATCH_ID),
            _ => self.address(0),
        }
    }

    pub fn read_pointer(&self) -> u64 {
        match self.queue_type {
            QueueType::ComputeAql => self.address(amd_queue::READ_DISPATCH_ID),
            _ => self.address(8),
        }
    }

    /// The arguments ROCr would give: priority 7 for compute, 15 for SDMA, no EOP nor save area for SDMA.
    pub fn create_args(&self, gpu: &Gpu) -> CreateQueueOld {
        let mut args = CreateQueueOld {
            ring_base_address: self.ring(),
            write_pointer_address: self.write_pointer(),
            read_pointer_address: self.read_pointer(),
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
        let descriptor = memory.write_pointer() - 0x38;
        assert_eq!(memory.read_pointer() - memory.write_pointer(), 0x48);
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
}
