//! The page with a queue's two pointers, and the owner's operations on them: the page that a reader of queues
//! reads.
//!
//! In: a page and the structure that ROCr or the thunk would keep there. Out: the two addresses for
//! CREATE_QUEUE and the ledger of submitted and retired counts. Only the owner of the queue moves the
//! pointers here: a GPU made of memory runs nothing.

use super::uapi::QueueType;
use anyhow::{Context, Result, ensure};
use nix::sys::mman::munmap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

pub(super) const PAGE: usize = 4096;
const AQL_PACKET: u32 = 64;

/// Byte offsets in `amd_queue_t` (ROCr, inc/amd_hsa_queue.h).
mod amd_queue {
    pub(super) const BASE_ADDRESS: usize = 8;
    pub(super) const SIZE: usize = 24;
    pub(super) const WRITE_DISPATCH_ID: usize = 56;
    pub(super) const READ_DISPATCH_ID: usize = 128;
    /// Distance from the structure's start to the read id, as the structure itself states it.
    pub(super) const READ_DISPATCH_ID_OFFSET: usize = 136;
    /// At least as much as a reader needs to recognise it.
    pub(super) const LENGTH: usize = 144;
}

/// Work so far: AQL packets, bytes of commands of an SDMA queue, dwords of a PM4 queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Submitted.
    pub write: u64,
    /// Retired, never more than submitted.
    pub read: u64,
}

/// Current state of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Is {
    TheQueues,
    Scribbled,
    Unmapped,
    /// The pointers are at this address, in memory that is not the queue's.
    Elsewhere(u64),
}

#[derive(Debug)]
pub struct Pointers {
    page: NonNull<u8>,
    /// The ring's address and size in bytes, for a queue that has an `amd_queue_t`.
    described: Option<(u64, u32)>,
    counts: Counts,
    is: Is,
}

impl Pointers {
    /// Those of a queue with this ring.
    ///
    /// # Safety
    /// `page` is a page of a mapping of one's own, readable and writable, which nothing else uses or unmaps.
    pub(super) unsafe fn new(page: NonNull<u8>, queue_type: QueueType, ring: u64, ring_size: u32) -> Self {
        let described = (queue_type == QueueType::ComputeAql).then_some((ring, ring_size));
        let mut pointers = Self { page, described, counts: Counts::default(), is: Is::TheQueues };
        pointers.describe();
        pointers
    }

    /// Address of the write pointer: in `amd_queue_t` for AQL, otherwise at the start of the thunk's
    /// structure.
    pub fn write_address(&self) -> u64 {
        self.start() + self.offsets().0 as u64
    }

    pub fn read_address(&self) -> u64 {
        self.start() + self.offsets().1 as u64
    }

    fn start(&self) -> u64 {
        match self.is {
            Is::Elsewhere(address) => address,
            _ => self.page.as_ptr().expose_provenance() as u64,
        }
    }

    fn offsets(&self) -> (usize, usize) {
        match self.described {
            Some(_) => (amd_queue::WRITE_DISPATCH_ID, amd_queue::READ_DISPATCH_ID),
            None => (0, 8),
        }
    }

    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Before CREATE_QUEUE: places them in this foreign page, where they cannot be moved.
    pub fn lie_at(&mut self, page: u64) {
        self.is = Is::Elsewhere(page);
    }

    /// # Errors
    /// When the page is not the queue's.
    pub fn submit(&mut self, more: u64) -> Result<Counts> {
        self.change(Counts { write: self.counts.write.saturating_add(more), ..self.counts })
    }

    /// # Errors
    /// When fewer than that are left to retire, or the page is not the queue's.
    pub fn retire(&mut self, more: u64) -> Result<Counts> {
        let Counts { write, read } = self.counts;
        ensure!(more <= write - read, "{more} to retire of {}", write - read);
        self.change(Counts { read: read + more, ..self.counts })
    }

    fn change(&mut self, counts: Counts) -> Result<Counts> {
        self.must_be(Is::TheQueues)?;
        self.counts = counts;
        self.store();
        Ok(counts)
    }

    /// Sets every byte of the structure to this one.
    ///
    /// # Errors
    /// For a queue without structure (any bytes are valid pointers of an SDMA queue), or when the page is not
    /// the queue's.
    pub fn scribble(&mut self, byte: u8) -> Result<()> {
        ensure!(self.described.is_some(), "only an AQL queue can be distinguished from other memory");
        self.must_be(Is::TheQueues)?;
        let word = u64::from_ne_bytes([byte; 8]);
        (0..amd_queue::LENGTH).step_by(8).for_each(|offset| self.put(offset, word));
        self.is = Is::Scribbled;
        Ok(())
    }

    /// After [`Self::scribble`]: restores the contents.
    ///
    /// # Errors
    /// Where nothing was scribbled.
    pub fn restore(&mut self) -> Result<()> {
        self.must_be(Is::Scribbled)?;
        self.is = Is::TheQueues;
        self.describe();
        Ok(())
    }

    /// Unmaps the page permanently.
    ///
    /// # Errors
    /// When it is not mapped, or cannot be unmapped.
    pub fn unmap(&mut self) -> Result<()> {
        ensure!(matches!(self.is, Is::TheQueues | Is::Scribbled), "the page is {:?}", self.is);
        // SAFETY: only this object uses the page (`new`), and not any more from here on.
        unsafe { munmap(self.page.cast(), PAGE) }.context("munmap")?;
        self.is = Is::Unmapped;
        Ok(())
    }

    fn must_be(&self, wanted: Is) -> Result<()> {
        ensure!(self.is == wanted, "the page is {:?}, not {wanted:?}", self.is);
        Ok(())
    }

    /// The fields by which a reader recognises an `amd_queue_t`, and both pointers: a page that is never
    /// written is not present.
    fn describe(&mut self) {
        if let Some((ring, ring_size)) = self.described {
            self.put(amd_queue::BASE_ADDRESS, ring);
            self.put(amd_queue::SIZE, u64::from(ring_size / AQL_PACKET));
            self.put(amd_queue::READ_DISPATCH_ID_OFFSET, amd_queue::READ_DISPATCH_ID as u64);
        }
        self.store();
    }

    /// At no moment is more retired than submitted.
    fn store(&mut self) {
        let (write, read) = self.offsets();
        self.put(write, self.counts.write);
        self.put(read, self.counts.read);
    }

    fn put(&mut self, offset: usize, value: u64) {
        assert!(offset.is_multiple_of(8) && offset < PAGE);
        // SAFETY: the offset lies within the page.
        let field = unsafe { self.page.add(offset) }.cast::<u64>();
        // SAFETY: mapped and writable (`new`, and no caller gets here once it is not), aligned by the
        // assertion above.
        unsafe { AtomicU64::from_ptr(field.as_ptr()) }.store(value, Ordering::Release);
    }
}

/// The start address of a mapping, by its name in `/proc/PID/maps`.
fn mapping(maps: &str, name: &str) -> Option<u64> {
    let line = maps.lines().find(|line| line.split_whitespace().nth(5) == Some(name))?;
    u64::from_str_radix(line.split_once('-')?.0, 16).ok()
}

/// A page of this process that the kernel does not let any task read through `/proc/PID/mem`: it has page
/// frames, but no pages (VM_PFNMAP), and no access method of its own (arch/x86/entry/vdso/vma.c, lib/vdso). Since
/// 7.3 `[vvar]` has pages.
pub fn unreadable_page() -> Result<u64> {
    let maps = std::fs::read_to_string("/proc/self/maps").context("read /proc/self/maps")?;
    let memory = File::open("/proc/self/mem").context("open /proc/self/mem")?;
    let found = ["[vvar]", "[vvar_vclock]"].iter().filter_map(|name| mapping(&maps, name));
    let mut refused = found.filter(|page| memory.read_at(&mut [0; 8], *page).is_err());
    refused.next().context("this process can read all of its pages")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kfd::{Gpu, QueueMemory};

    const GPU: Gpu = Gpu { gpu_id: 7, ctl_stack_size: None, cwsr_size: None, num_xcc: 1 };

    fn of(queue_type: QueueType) -> Pointers {
        QueueMemory::new(queue_type, &GPU).unwrap().pointers
    }

    /// Reads as a tracer does.
    fn read<const N: usize>(address: u64) -> std::io::Result<[u64; N]> {
        let mut bytes = vec![0; N * 8];
        File::open("/proc/self/mem")?.read_exact_at(&mut bytes, address)?;
        let words = bytes.as_chunks::<8>().0;
        Ok(std::array::from_fn(|i| u64::from_ne_bytes(words[i])))
    }

    /// `[base_address, size, write, read, offset of read]`
    fn head(pointers: &Pointers) -> [u64; 5] {
        let words: [u64; 18] = read(pointers.write_address() - 0x38).unwrap();
        [1, 3, 7, 16, 17].map(|word| words[word])
    }

    #[test]
    fn both_counts_stand_where_the_two_addresses_lead() {
        for (queue_type, apart) in [(QueueType::ComputeAql, 0x48), (QueueType::Sdma, 8)] {
            let mut pointers = of(queue_type);
            assert_eq!(pointers.read_address() - pointers.write_address(), apart);
            pointers.submit(5).unwrap();
            assert_eq!(pointers.retire(3).unwrap(), Counts { write: 5, read: 3 });
            assert_eq!(pointers.submit(2).unwrap(), pointers.counts());
            let reported = [pointers.write_address(), pointers.read_address()].map(|at| read(at).unwrap());
            assert_eq!(reported, [[7], [3]]);
            assert!(pointers.retire(5).is_err(), "there are 4");
        }
    }

    /// A reader that does not let the kernel fault a page in, such as a BPF program, finds it.
    #[test]
    fn the_page_is_there_before_anything_is_submitted() {
        for queue_type in [QueueType::ComputeAql, QueueType::Sdma] {
            let page = of(queue_type).write_address() / PAGE as u64;
            let mut entry = [0; 8];
            File::open("/proc/self/pagemap").unwrap().read_exact_at(&mut entry, page * 8).unwrap();
            // bit 63: present (Documentation/admin-guide/mm/pagemap.rst)
            assert_eq!(u64::from_ne_bytes(entry) >> 63, 1, "{queue_type:?}");
        }
    }

    #[test]
    fn what_was_scribbled_over_can_be_restored() {
        let mut pointers = of(QueueType::ComputeAql);
        pointers.submit(9).unwrap();
        let before = head(&pointers);
        assert_eq!(before[1..], [0x4000, 9, 0, 128]);
        pointers.scribble(0xa5).unwrap();
        assert_eq!(head(&pointers), [u64::from_ne_bytes([0xa5; 8]); 5]);
        assert!(pointers.submit(1).is_err() && pointers.scribble(0).is_err());
        pointers.restore().unwrap();
        assert_eq!(head(&pointers), before);
        assert!(pointers.restore().is_err() && of(QueueType::Sdma).scribble(0).is_err());
    }

    #[test]
    fn an_unmapped_page_cannot_be_read_nor_moved() {
        let mut pointers = of(QueueType::ComputeAql);
        read::<1>(pointers.write_address()).unwrap();
        pointers.unmap().unwrap();
        assert!(read::<1>(pointers.write_address()).is_err());
        assert!(pointers.submit(1).is_err() && pointers.unmap().is_err() && pointers.restore().is_err());
    }

    #[test]
    fn nobody_reads_pointers_that_lie_in_vvar() {
        let mut pointers = of(QueueType::ComputeAql);
        pointers.lie_at(unreadable_page().unwrap());
        assert_eq!(pointers.read_address() - pointers.write_address(), 0x48);
        let reported = [pointers.write_address(), pointers.read_address()].map(read::<1>);
        assert!(reported.iter().all(Result::is_err), "{reported:?}");
        assert!(pointers.submit(1).is_err() && pointers.unmap().is_err());
    }

    #[test]
    fn a_mapping_is_found_by_its_whole_name() {
        let maps = "7f00-7f10 rw-p 00000000 00:00 0 \n7ffe1000-7ffe2000 r--p 00000000 00:00 0   [vvar_vclock]\n\
                    7ffe3000-7ffe7000 r--p 00000000 00:00 0                          [vvar]\n";
        assert_eq!(mapping(maps, "[vvar]"), Some(0x7ffe_3000));
        assert_eq!(mapping(maps, "[vdso]"), None);
    }
}
