//! Reads of kernel memory through the `peek` program, for the walk over standing queues.

use super::facts::Facts;
use super::load::{self, LoadError, Room, chain};
use super::mapped::Mapped;
use super::plan::Plan;
use super::session::Options;
use aya::Ebpf;
use aya::programs::{RawTracePoint, RawTracePointRunOptions, TestRun};
use kfd_trace_common::limits::PEEK_LEN;
use kfd_trace_common::peek::Answer;
use std::error::Error;

const PROGRAM: &str = "peek";
const MAP: &str = "PEEK";

/// Kernel memory, read a few bytes at a time.
pub trait KernelMemory {
    /// Fills `out` from `address`; false when it cannot be read.
    fn read(&mut self, address: u64, out: &mut [u8]) -> bool;
}

/// The program alone, attached to nothing.
pub struct Peek {
    ebpf: Ebpf,
    answer: Mapped,
}

impl Peek {
    /// Loads the one program.
    ///
    /// # Errors
    /// When the kernel refuses it: no CAP_BPF and CAP_PERFMON, or a kernel before 5.10.
    pub fn open() -> Result<Self, LoadError> {
        let plan = Plan { rows: Vec::new(), ioctl_end: 0, ioctl_rocm_end: 0, queues_by_ioctl: false };
        let mut ebpf = load::object(&plan, &Facts::default(), &Options::default(), Room::Least)?;
        let answer = load_program(&mut ebpf)?;
        Ok(Peek { ebpf, answer })
    }

    pub fn memory(&self) -> Memory<'_> {
        Memory { ebpf: &self.ebpf, answer: &self.answer }
    }
}

/// Loads the program; gives the array that it answers in.
pub(super) fn load_program(ebpf: &mut Ebpf) -> Result<Mapped, LoadError> {
    let refused = |error: &dyn Error| LoadError::Object(chain(error));
    let program = ebpf.program_mut(PROGRAM).ok_or(LoadError::NoMap(PROGRAM))?;
    let program: &mut RawTracePoint = program.try_into().map_err(|error| refused(&error))?;
    program.load().map_err(|error| refused(&error))?;
    Mapped::new::<Answer>(ebpf, MAP)
}

/// Kernel memory through BPF_PROG_TEST_RUN of the loaded program.
pub struct Memory<'a> {
    pub(super) ebpf: &'a Ebpf,
    pub(super) answer: &'a Mapped,
}

impl Memory<'_> {
    fn run(&self, address: u64, len: usize) -> Option<[u8; PEEK_LEN]> {
        let program: &RawTracePoint = self.ebpf.program(PROGRAM)?.try_into().ok()?;
        let mut options = RawTracePointRunOptions::new();
        options.args[0] = address;
        options.args[1] = u64::try_from(len).ok()?;
        program.test_run(options).ok()?;
        // `kfd_trace_common::peek::Answer`: a word with the length, and the bytes.
        let mut answer = self.answer.load();
        if usize::try_from(answer.next()?).ok()? != len {
            return None;
        }
        let mut bytes = [0; PEEK_LEN];
        for (eight, word) in bytes.chunks_mut(size_of::<u64>()).zip(answer) {
            eight.copy_from_slice(&word.to_ne_bytes());
        }
        Some(bytes)
    }
}

impl KernelMemory for Memory<'_> {
    fn read(&mut self, address: u64, out: &mut [u8]) -> bool {
        let mut at = address;
        for part in out.chunks_mut(PEEK_LEN) {
            let Some(bytes) = self.run(at, part.len()) else { return false };
            let Some(bytes) = bytes.get(..part.len()) else { return false };
            part.copy_from_slice(bytes);
            at = at.wrapping_add(PEEK_LEN as u64);
        }
        true
    }
}
