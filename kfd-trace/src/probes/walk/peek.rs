//! Reads of kernel memory through the `peek` program, for the walk over existing queues.

use crate::model::ioctl::Named;
use crate::probes::error::{LoadError, chain};
use crate::probes::facts::Facts;
use crate::probes::load::{self, Options, Room};
use crate::probes::maps::mapped::Mapped;
use crate::probes::memory::KernelMemory;
use crate::probes::plan::Plan;
use aya::Ebpf;
use aya::programs::{RawTracePoint, RawTracePointRunOptions, TestRun};
use kfd_trace_common::limits::PEEK_LEN;
use kfd_trace_common::lookup::NOT_RUN;
use kfd_trace_common::peek::Answer;
use std::error::Error;

const PROGRAM: &str = "peek";
const MAP: &str = "PEEK";

/// The program alone, not attached.
pub struct Peek {
    ebpf: Ebpf,
    answer: Mapped,
}

impl Peek {
    /// Loads this one program.
    ///
    /// # Errors
    /// If the kernel refuses it: no CAP_BPF and CAP_PERFMON, or a kernel before 5.10.
    pub fn open() -> Result<Self, LoadError> {
        let plan = Plan {
            rows: Vec::new(),
            named: Named::default(),
            ioctl_end: 0,
            ioctl_rocm_end: 0,
            queues_by_ioctl: false,
            whole_calls: false,
            session: None,
        };
        let mut ebpf = load::object(&plan, &Facts::default(), &Options::default(), Room::Least)?;
        let answer = load_program(&mut ebpf)?;
        Ok(Peek { ebpf, answer })
    }

    pub fn memory(&self) -> KernelReader<'_> {
        KernelReader { ebpf: &self.ebpf, answer: &self.answer }
    }
}

/// Loads the program; returns the array that it writes its results to.
pub(crate) fn load_program(ebpf: &mut Ebpf) -> Result<Mapped, LoadError> {
    load(ebpf, PROGRAM, MAP)
}

/// Loads a program that is not attached; returns the array that it writes its results to.
pub(crate) fn load(ebpf: &mut Ebpf, program: &'static str, map: &'static str) -> Result<Mapped, LoadError> {
    let refused = |error: &dyn Error| LoadError::Object(format!("{program}: {}", chain(error)));
    let loaded = ebpf.program_mut(program).ok_or(LoadError::NoMap(program))?;
    let loaded: &mut RawTracePoint = loaded.try_into().map_err(|error| refused(&error))?;
    loaded.load().map_err(|error| refused(&error))?;
    Mapped::new::<Answer>(ebpf, map)
}

/// Runs such a program once by BPF_PROG_TEST_RUN, from one thread at a time.
pub(crate) fn run(ebpf: &Ebpf, program: &str, answer: &Mapped, args: &[u64]) -> Result<Answer, String> {
    let program = ebpf.program(program).ok_or("not in the object")?;
    let program: &RawTracePoint =
        program.try_into().map_err(|error: aya::programs::ProgramError| chain(&error))?;
    let mut options = RawTracePointRunOptions::new();
    options.args.iter_mut().zip(args).for_each(|(to, from)| *to = *from);
    // The kernel may skip a program that is running already, without an error.
    answer.set_first(NOT_RUN);
    program.test_run(options).map_err(|error| chain(&error))?;
    let answer: Answer = answer.elements::<Answer>().next().ok_or("no answer")?.copy();
    if answer.len == NOT_RUN { Err("the kernel did not run the program".to_owned()) } else { Ok(answer) }
}

/// Kernel memory through the loaded program.
pub struct KernelReader<'a> {
    pub(crate) ebpf: &'a Ebpf,
    pub(crate) answer: &'a Mapped,
}

impl KernelReader<'_> {
    fn run(&self, address: u64, len: usize) -> Option<[u8; PEEK_LEN]> {
        let requested = u64::try_from(len).ok()?;
        let answer = run(self.ebpf, PROGRAM, self.answer, &[address, requested]).ok()?;
        (answer.len == requested).then_some(answer.bytes)
    }
}

impl KernelMemory for KernelReader<'_> {
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
