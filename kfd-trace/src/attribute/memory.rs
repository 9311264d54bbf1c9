//! Reads queue pointers in the memory of their process through /proc/PID/mem; if the leader is dead, through
//! that of a live thread.
//!
//! An open mem file stays bound to its address space, so neither an exec nor a reused PID can redirect it.
//! Only pread is used: the process is neither stopped nor involved. For a driver mapping (VM_PFNMAP) the
//! kernel reads through `vm_ops->access` here, which process_vm_readv does not (mm/memory.c,
//! __access_remote_vm).

use super::process::{self, ProcessError};
use super::task;
use crate::model::pointers::{Counts, Head, Memory, Pointers, Unmeasured};
use kfd_trace_common::aql::HEAD_LEN;
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

/// The memory of one process.
#[derive(Debug)]
pub struct ProcessMemory(File);

impl ProcessMemory {
    /// Opens the memory of exactly that process ([`process::read`]).
    ///
    /// # Errors
    /// [`Unmeasured::Denied`], [`Unmeasured::Gone`], [`Unmeasured::Descriptors`], [`Unmeasured::Failed`].
    pub fn open(procfs: &Path, tgid: u32, start_boottime_ns: Option<u64>) -> Result<Self, Unmeasured> {
        let life = process::life(procfs, tgid).map_err(|error| of_process(&error))?;
        let task = task::living(procfs, tgid, &life).ok_or(Unmeasured::Gone)?;
        let file = File::open(task.join("mem")).map_err(|error| of_open(&error))?;
        // Checked after the open: a process that still exists existed before.
        process::check(procfs, tgid, start_boottime_ns).map_err(|error| of_process(&error))?;
        Ok(ProcessMemory(file))
    }

    /// Reads a queue's pointers. May wait for the owner of the memory if that is the driver.
    ///
    /// # Errors
    /// Why the pointers could not be read.
    pub fn counts(&self, pointers: &Pointers) -> Result<Counts, Unmeasured> {
        let memory = match pointers.head() {
            Some(head) => Memory::Head(Head::parse(&self.bytes::<HEAD_LEN>(head)?)),
            None => {
                // This order ensures that the read pointer is never ahead.
                let read = self.word(pointers.read)?;
                Memory::Words { write: self.word(pointers.write)?, read }
            }
        };
        pointers.counts(&memory)
    }

    fn word(&self, address: u64) -> Result<u64, Unmeasured> {
        self.bytes(address).map(u64::from_le_bytes)
    }

    fn bytes<const N: usize>(&self, address: u64) -> Result<[u8; N], Unmeasured> {
        let mut bytes = [0; N];
        match self.0.read_at(&mut bytes, address) {
            Ok(read) if read == N => Ok(bytes),
            Ok(0) => Err(Unmeasured::Gone),
            Ok(_) => Err(Unmeasured::Unreadable),
            Err(error) => Err(of_read(&error)),
        }
    }
}

fn of_process(error: &ProcessError) -> Unmeasured {
    match error {
        ProcessError::Gone { .. } | ProcessError::Reused { .. } => Unmeasured::Gone,
        ProcessError::Denied { .. } => Unmeasured::Denied,
        ProcessError::Unreadable { .. } => Unmeasured::Failed,
    }
}

fn of_open(error: &io::Error) -> Unmeasured {
    match Errno::from_io_error(error) {
        Some(Errno::ACCESS | Errno::PERM) => Unmeasured::Denied,
        Some(Errno::NOENT | Errno::SRCH) => Unmeasured::Gone,
        Some(Errno::MFILE | Errno::NFILE) => Unmeasured::Descriptors,
        _ => Unmeasured::Failed,
    }
}

/// EIO: nothing is mapped there, or it cannot be accessed. EINVAL: the address exceeds the range of file
/// offsets.
fn of_read(error: &io::Error) -> Unmeasured {
    match Errno::from_io_error(error) {
        Some(Errno::IO | Errno::FAULT | Errno::INVAL) => Unmeasured::Unreadable,
        Some(Errno::ACCESS | Errno::PERM) => Unmeasured::Denied,
        _ => Unmeasured::Failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::event::QueueFacts;
    use crate::model::pointers::samples::{head_bytes, sdma};
    use crate::state::samples::facts;

    fn own() -> ProcessMemory {
        ProcessMemory::open("/proc".as_ref(), std::process::id(), None).expect("its own memory")
    }

    fn address<T>(of: &T) -> u64 {
        std::ptr::from_ref(of) as u64
    }

    fn counts(queue: &QueueFacts) -> Result<(u64, u64), Unmeasured> {
        own().counts(&Pointers::of(queue)?).map(|counts| (counts.submitted, counts.retired))
    }

    #[test]
    fn the_pointers_of_a_queue_are_read_where_they_are() {
        let mut head = head_bytes(127_644, 127_640);
        let at = |head: &[u8; HEAD_LEN]| QueueFacts {
            write_pointer_address: Some(address(head) + 0x38),
            read_pointer_address: Some(address(head) + 0x80),
            ..facts(1)
        };
        assert_eq!(counts(&at(&head)), Ok((127_644, 127_640)));
        head[8] ^= 1;
        assert_eq!(counts(&at(&head)), Err(Unmeasured::Foreign));
        let words = [4096_u64, 64];
        let queue = QueueFacts {
            write_pointer_address: Some(address(&words)),
            read_pointer_address: Some(address(&words) + 8),
            ..sdma(1)
        };
        assert_eq!(counts(&queue), Ok((4096, 64)));
    }

    #[test]
    fn memory_that_is_not_there_is_unreadable() {
        for page in [0x1000, 1 << 46, u64::MAX - 0xfff] {
            let queue = QueueFacts {
                write_pointer_address: Some(page + 0x38),
                read_pointer_address: Some(page + 0x80),
                ..facts(1)
            };
            assert_eq!(counts(&queue), Err(Unmeasured::Unreadable), "{page:#x}");
        }
    }

    #[test]
    fn another_process_of_this_number_is_not_read() {
        let open = |tgid, start| ProcessMemory::open("/proc".as_ref(), tgid, start).map(drop);
        let own = process::identify("/proc".as_ref(), std::process::id(), None).expect("this process");
        assert_eq!(open(own.tgid, Some(own.start_boottime_ns)), Ok(()));
        assert_eq!(open(own.tgid, Some(own.start_boottime_ns + 1_000_000_000)), Err(Unmeasured::Gone));
        assert_eq!(open(u32::MAX, None), Err(Unmeasured::Gone), "there is no such process");
    }

    #[test]
    fn released_memory_is_distinguished_from_unreadable_memory() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("a process");
        let memory = ProcessMemory::open("/proc".as_ref(), child.id(), None).expect("its memory");
        let pointers = Pointers::of(&facts(1)).expect("an AQL queue");
        assert_eq!(memory.counts(&pointers), Err(Unmeasured::Unreadable), "nothing is there");
        child.kill().and_then(|()| child.wait()).expect("its end");
        assert_eq!(memory.counts(&pointers), Err(Unmeasured::Gone));
    }

    #[test]
    fn errors_have_their_names() {
        let of = |errno: Errno| io::Error::from(errno);
        assert_eq!(of_open(&of(Errno::ACCESS)), Unmeasured::Denied);
        assert_eq!(of_open(&of(Errno::MFILE)), Unmeasured::Descriptors);
        assert_eq!(of_open(&of(Errno::NOMEM)), Unmeasured::Failed);
        assert_eq!(of_read(&of(Errno::IO)), Unmeasured::Unreadable);
        assert_eq!(of_read(&of(Errno::NOMEM)), Unmeasured::Failed);
    }
}
