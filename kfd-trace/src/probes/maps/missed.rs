//! Reads how often the kernel did not run a probe's program: for the program from its own info, for its
//! attach points from the info of their links. Both exist since Linux 6.7, which shows in the kernel's types.

use crate::kernel::Btf;
use crate::model::missed::Missed;
use crate::model::verdict::ProbeStatus;
use crate::probes::attach::Links;
use crate::probes::error::chain;
use crate::probes::rows::PROBES;
use crate::probes::table::{ProbeKind, ProbeRow};
use aya::Ebpf;
use kfd_trace_common::counter::ProbeId;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::Path;

/// Byte offsets in the result of BPF_OBJ_GET_INFO_BY_FD (include/uapi/linux/bpf.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InfoLayout {
    /// `bpf_prog_info.recursion_misses`
    program: usize,
    /// `bpf_link_info.perf_event.kprobe.missed`
    link: usize,
    /// `bpf_link_info.kprobe_multi.missed`; `None` if links on many functions do not count it.
    multi: Option<usize>,
}

impl InfoLayout {
    /// `None` if misses of kprobes are not counted. `recursion_misses` is older than the counting of kprobes
    /// in it; the other field was added together with that (6.7).
    #[must_use]
    pub fn find(vmlinux: &Btf) -> Option<Self> {
        let place = |strukt, path| usize::try_from(vmlinux.offset_of(strukt, path).ok()?.offset).ok();
        let program = place("bpf_prog_info", "recursion_misses")?;
        let link = place("bpf_link_info", "perf_event.kprobe.missed")?;
        Some(InfoLayout { program, link, multi: place("bpf_link_info", "kprobe_multi.missed") })
    }
}

/// The probes whose misses are read.
#[derive(Default)]
pub(crate) struct WatchedProbes {
    layout: Option<InfoLayout>,
    probes: Vec<Watch>,
}

struct Watch {
    id: ProbeId,
    /// Own descriptors: a program can be queried after its links are closed, which makes its count final. A
    /// row has two programs where some of its functions are on a link of their own.
    programs: Vec<OwnedFd>,
    /// Descriptors of the links that attach it; they are closed when the probes are detached.
    links: Vec<RawFd>,
    /// A link holds it together with other rows: the link's misses are known to be this row's only if they
    /// are zero.
    shared: bool,
    /// The last count of the links, once they are closed.
    last: Option<u64>,
}

impl WatchedProbes {
    /// Starts with what is attached.
    pub(crate) fn new(
        ebpf: &Ebpf,
        multi: &Links,
        probes: &[ProbeStatus],
        layout: Option<InfoLayout>,
        procfs: &Path,
    ) -> Self {
        let links = layout.map(|_| links(procfs)).unwrap_or_default();
        let attached = probes.iter().filter(|probe| probe.places > 0);
        let watch = attached.map(|probe| {
            let row = layout.and_then(|_| PROBES.iter().find(|row| row.id == probe.id));
            let (ids, programs): (Vec<u32>, Vec<OwnedFd>) =
                row.map(|row| programs(ebpf, multi, row)).unwrap_or_default().into_iter().unzip();
            let is_kprobe = row.is_some_and(|row| row.kind != ProbeKind::Tracepoint);
            let of_program = links.iter().filter(|link| is_kprobe && ids.contains(&link.program));
            let shared = row.is_some_and(|row| multi.is_shared(row.program()));
            Watch {
                id: probe.id,
                programs,
                links: of_program.map(|link| link.fd).collect(),
                shared,
                last: None,
            }
        });
        WatchedProbes { layout, probes: watch.collect() }
    }

    /// Misses by probe, since it was attached.
    pub(crate) fn read(&self) -> BTreeMap<ProbeId, Missed> {
        self.probes.iter().map(|watch| (watch.id, self.missed(watch))).collect()
    }

    fn missed(&self, watch: &Watch) -> Missed {
        let Some(layout) = self.layout else { return Missed::default() };
        let skipped = watch.programs.iter().map(|fd| Some(Info::of(fd.as_fd()).ok()?.word(layout.program)));
        let own = |count: &u64| !watch.shared || *count == 0;
        Missed {
            program_skipped: sum(skipped).filter(own),
            probe_missed: watch.last.or_else(|| of_links(&watch.links, layout)).filter(own),
        }
    }

    /// Reads the links one last time. After this they may be closed.
    pub(crate) fn release(&mut self) {
        let Some(layout) = self.layout else { return };
        for watch in &mut self.probes {
            watch.last = of_links(&watch.links, layout);
            watch.links.clear();
        }
    }
}

/// Sum over the links; `None` if there are none or one does not report a count.
fn of_links(links: &[RawFd], layout: InfoLayout) -> Option<u64> {
    sum(links.iter().map(|fd| {
        // SAFETY: the session keeps its links open until `release` has emptied this list.
        let fd = unsafe { BorrowedFd::borrow_raw(*fd) };
        let info = Info::of(fd).ok()?;
        let missed = if info.half(LINK_TYPE) == KPROBE_MULTI { layout.multi? } else { layout.link };
        Some(info.word(missed))
    }))
}

/// `None` if there are none or one is not known.
fn sum(counts: impl Iterator<Item = Option<u64>>) -> Option<u64> {
    counts.reduce(|one, other| Some(one? + other?)).flatten()
}

/// ID and a descriptor of each loaded program of a row.
fn programs(ebpf: &Ebpf, multi: &Links, row: &ProbeRow) -> Vec<(u32, OwnedFd)> {
    let single = ebpf.program(row.program()).and_then(|program| program.fd().ok());
    let fds = single.map(|fd| fd.as_fd()).into_iter().chain(multi.programs(row.program()).map(AsFd::as_fd));
    let refused =
        |error: &io::Error| log::warn!("misses of {} are not measured: {}", row.program(), chain(error));
    let identity = |fd: BorrowedFd<'_>| Ok((Info::of(fd)?.half(PROGRAM_ID), fd.try_clone_to_owned()?));
    fds.filter_map(|fd| identity(fd).inspect_err(refused).ok()).collect()
}

/// One link of this process.
struct Link {
    fd: RawFd,
    program: u32,
}

/// The links that this process has open. The library that makes them does not expose their descriptors, and
/// opening one by its ID requires CAP_SYS_ADMIN.
fn links(procfs: &Path) -> Vec<Link> {
    let folder = procfs.join("self/fd");
    let entries = std::fs::read_dir(&folder).into_iter().flatten().filter_map(Result::ok);
    let link = |entry: std::fs::DirEntry| {
        let target = std::fs::read_link(entry.path()).ok()?;
        let fd: RawFd = entry.file_name().to_str()?.parse().ok()?;
        // bpf_link_new_fd, bpf_link_settle (kernel/bpf/syscall.c)
        let is_link =
            target.as_os_str() == "anon_inode:bpf_link" || target.as_os_str() == "anon_inode:bpf-link";
        // SAFETY: listed just before; if it was closed meanwhile, the kernel returns an error or describes
        // another object.
        let info = is_link.then(|| Info::of(unsafe { BorrowedFd::borrow_raw(fd) }))?.ok()?;
        Some(Link { fd, program: info.half(LINK_PROGRAM) })
    };
    entries.filter_map(link).collect()
}

/// `bpf_link_info.type` and `.prog_id`, `bpf_prog_info.id`, `BPF_LINK_TYPE_KPROBE_MULTI`
/// (include/uapi/linux/bpf.h)
const LINK_TYPE: usize = 0;
const LINK_PROGRAM: usize = 8;
const PROGRAM_ID: usize = 4;
const KPROBE_MULTI: u32 = 8;

/// Result of BPF_OBJ_GET_INFO_BY_FD for a program or link: larger than any kernel's structure.
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
        // Zeros: the kernel reads counts and addresses of further buffers from here, and there are none.
        let mut info = Info([0; 512]);
        let attr = Attr {
            bpf_fd: fd.as_raw_fd().cast_unsigned(),
            info_len: 512,
            info: info.0.as_mut_ptr().expose_provenance() as u64,
        };
        // SAFETY: the kernel reads `attr` and writes at most `info_len` bytes to `info`, both of which live
        // until it returns.
        let result =
            unsafe { libc::syscall(libc::SYS_bpf, OBJ_GET_INFO_BY_FD, &raw const attr, size_of::<Attr>()) };
        if result == 0 { Ok(info) } else { Err(io::Error::last_os_error()) }
    }

    /// What the kernel does not have is 0: [`InfoLayout`] is of the same kernel.
    fn word(&self, at: usize) -> u64 {
        self.0.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_ne_bytes)
    }

    fn half(&self, at: usize) -> u32 {
        self.0.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_ne_bytes)
    }
}
