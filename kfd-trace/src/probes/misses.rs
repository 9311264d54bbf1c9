//! Reads how often the kernel did not run a probe's program: of the program from its own information, of the places it sits
//! on from that of their links. Both came with Linux 6.7, which the kernel's types tell.

use super::load::chain;
use crate::kernel::Btf;
use crate::missed::Missed;
use crate::verdict::ProbeStatus;
use aya::Ebpf;
use aya::programs::{Program, ProgramFd};
use kfd_trace_common::counter::ProbeId;
use std::collections::BTreeMap;
use std::error::Error;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::path::Path;

/// Byte offsets in what BPF_OBJ_GET_INFO_BY_FD tells (include/uapi/linux/bpf.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// `bpf_prog_info.recursion_misses`
    program: usize,
    /// `bpf_link_info.perf_event.kprobe.missed`
    link: usize,
}

impl Layout {
    /// `None` where kprobes' misses are not counted. `recursion_misses` is older than the counting of kprobes in it; the
    /// other field came together with that (6.7).
    #[must_use]
    pub fn find(vmlinux: &Btf) -> Option<Self> {
        let place = |strukt, path| usize::try_from(vmlinux.offset_of(strukt, path).ok()?.offset).ok();
        let program = place("bpf_prog_info", "recursion_misses")?;
        Some(Layout { program, link: place("bpf_link_info", "perf_event.kprobe.missed")? })
    }
}

/// The probes that are watched for misses.
#[derive(Default)]
pub(super) struct Watched {
    layout: Option<Layout>,
    probes: Vec<Watch>,
}

struct Watch {
    id: ProbeId,
    /// A descriptor of its own: the program can be asked after its links are gone, which makes its count final.
    program: Option<ProgramFd>,
    /// Of the links that hold its places; they are closed when the probes are taken off.
    links: Vec<RawFd>,
    /// What the links told last, once they are closed.
    last: Option<u64>,
}

impl Watched {
    /// Begins with what is attached.
    pub(super) fn new(
        ebpf: &Ebpf,
        probes: &[ProbeStatus],
        programs: &BTreeMap<ProbeId, &'static str>,
        layout: Option<Layout>,
        procfs: &Path,
    ) -> Self {
        let links = layout.map(|_| links(procfs)).unwrap_or_default();
        let attached = probes.iter().filter(|probe| probe.verdict.sees());
        let watch = attached.map(|probe| {
            let program = programs.get(&probe.id).and_then(|name| ebpf.program(name));
            let (id, fd) = layout.and(program).and_then(identity).unzip();
            let of_program = links.iter().filter(|link| Some(link.program) == id && is_kprobe(program));
            Watch { id: probe.id, program: fd, links: of_program.map(|link| link.fd).collect(), last: None }
        });
        Watched { layout, probes: watch.collect() }
    }

    /// By probe, since it was attached.
    pub(super) fn read(&self) -> BTreeMap<ProbeId, Missed> {
        self.probes.iter().map(|watch| (watch.id, self.missed(watch))).collect()
    }

    fn missed(&self, watch: &Watch) -> Missed {
        let Some(layout) = self.layout else { return Missed::default() };
        let program = watch.program.as_ref().and_then(|fd| Info::of(fd.as_fd()).ok());
        Missed {
            program_skipped: program.map(|info| info.word(layout.program)),
            probe_missed: watch.last.or_else(|| of_links(&watch.links, layout)),
        }
    }

    /// Reads the links a last time. After this they may be closed.
    pub(super) fn release(&mut self) {
        let Some(layout) = self.layout else { return };
        for watch in &mut self.probes {
            watch.last = of_links(&watch.links, layout);
            watch.links.clear();
        }
    }
}

/// Sum over the links; `None` without any, and when one does not tell.
fn of_links(links: &[RawFd], layout: Layout) -> Option<u64> {
    let told = links.iter().map(|fd| {
        // SAFETY: the object that the session owns keeps its links open until `release` has emptied this list.
        let fd = unsafe { BorrowedFd::borrow_raw(*fd) };
        Info::of(fd).ok().map(|info| info.word(layout.link))
    });
    told.reduce(|one, other| Some(one? + other?)).flatten()
}

fn is_kprobe(program: Option<&Program>) -> bool {
    matches!(program, Some(Program::KProbe(_)))
}

/// Number of the loaded program, and a descriptor of it.
fn identity(program: &Program) -> Option<(u32, ProgramFd)> {
    let refused = |error: &dyn Error| log::warn!("misses of a program are not measured: {}", chain(error));
    let id = program.info().map(|info| info.id()).inspect_err(|error| refused(error)).ok()?;
    let fd = program.fd().ok()?.try_clone().inspect_err(|error| refused(error)).ok()?;
    Some((id, fd))
}

/// One link of this process.
struct Link {
    fd: RawFd,
    program: u32,
}

/// The links that this process has open. The library that makes them does not give out their descriptors, and asking for one
/// by its number takes CAP_SYS_ADMIN.
fn links(procfs: &Path) -> Vec<Link> {
    let folder = procfs.join("self/fd");
    let entries = std::fs::read_dir(&folder).into_iter().flatten().filter_map(Result::ok);
    let link = |entry: std::fs::DirEntry| {
        let target = std::fs::read_link(entry.path()).ok()?;
        let fd: RawFd = entry.file_name().to_str()?.parse().ok()?;
        // bpf_link_new_fd, bpf_link_settle (kernel/bpf/syscall.c)
        let is_link =
            target.as_os_str() == "anon_inode:bpf_link" || target.as_os_str() == "anon_inode:bpf-link";
        // SAFETY: listed a moment ago; were it closed meanwhile, the kernel would tell, or tell of another object.
        let info = is_link.then(|| Info::of(unsafe { BorrowedFd::borrow_raw(fd) }))?.ok()?;
        Some(Link { fd, program: info.half(LINK_PROGRAM) })
    };
    entries.filter_map(link).collect()
}

/// `bpf_link_info.prog_id` (include/uapi/linux/bpf.h)
const LINK_PROGRAM: usize = 8;

/// What BPF_OBJ_GET_INFO_BY_FD tells of a program or link: more room than any kernel's structure takes.
struct Info([u8; 512]);

/// `union bpf_attr`, as far as BPF_OBJ_GET_INFO_BY_FD reads it.
#[repr(C)]
struct Attr {
    bpf_fd: u32,
    info_len: u32,
    info: u64,
}

impl Info {
    fn of(fd: BorrowedFd<'_>) -> io::Result<Self> {
        const OBJ_GET_INFO_BY_FD: libc::c_long = 15;
        // Zeros: the kernel takes counts and addresses of further buffers from here, and there are none.
        let mut info = Info([0; 512]);
        let attr = Attr {
            bpf_fd: fd.as_raw_fd().cast_unsigned(),
            info_len: 512,
            info: info.0.as_mut_ptr().expose_provenance() as u64,
        };
        // SAFETY: the kernel reads `attr` and writes at most `info_len` bytes to `info`, both of which live until it is back.
        let result =
            unsafe { libc::syscall(libc::SYS_bpf, OBJ_GET_INFO_BY_FD, &raw const attr, size_of::<Attr>()) };
        if result == 0 { Ok(info) } else { Err(io::Error::last_os_error()) }
    }

    /// What the kernel does not have is 0: [`Layout`] is of the same kernel.
    fn word(&self, at: usize) -> u64 {
        self.0.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_ne_bytes)
    }

    fn half(&self, at: usize) -> u32 {
        self.0.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_ne_bytes)
    }
}
