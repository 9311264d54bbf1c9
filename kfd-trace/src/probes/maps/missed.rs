//! Reads how often the kernel did not run a probe's program: for the program from its own info, for its
//! attach points from the info of their links. Both exist since Linux 6.7, which shows in the kernel's types.

use crate::kernel::bpf_info::{Info, InfoLayout, KPROBE_MULTI, LINK_PROGRAM, LINK_TYPE, PROGRAM_ID};
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
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::path::Path;

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
    /// What the links had missed before: for other tracers.
    before: u64,
    /// The last count of the links, once they are closed.
    last: Option<u64>,
}

impl WatchedProbes {
    /// Starts with what is attached. `earlier`: what was watched until now, empty at first.
    pub(crate) fn new(
        earlier: &Self,
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
            let links: Vec<RawFd> = of_program.map(|link| link.fd).collect();
            let shared = row.is_some_and(|row| multi.is_shared(row.program()));
            let at_first = || of_links(&links, layout.filter(|_| multi.at_events_of_others())?);
            let known = earlier.probes.iter().find(|watch| watch.id == probe.id).map(|watch| watch.before);
            let before = known.unwrap_or_else(|| at_first().unwrap_or(0));
            Watch { id: probe.id, programs, links, shared, before, last: None }
        });
        WatchedProbes { layout, probes: watch.collect() }
    }

    /// Misses by probe, since it was attached.
    pub(crate) fn read(&self) -> BTreeMap<ProbeId, Missed> {
        self.of(ProbeId::ALL).collect()
    }

    /// Those of these probes.
    pub(crate) fn of<'a>(&'a self, probes: &'a [ProbeId]) -> impl Iterator<Item = (ProbeId, Missed)> + 'a {
        let wanted = self.probes.iter().filter(|watch| probes.contains(&watch.id));
        wanted.map(|watch| (watch.id, self.missed(watch)))
    }

    fn missed(&self, watch: &Watch) -> Missed {
        let Some(layout) = self.layout else { return Missed::default() };
        let skipped = watch.programs.iter().map(|fd| Some(Info::of(fd.as_fd()).ok()?.word(layout.program)));
        let own = |count: &u64| !watch.shared || *count == 0;
        let own_misses = |count: u64| count.saturating_sub(watch.before);
        Missed {
            program_skipped: sum(skipped).filter(own),
            probe_missed: watch.last.or_else(|| of_links(&watch.links, layout)).map(own_misses).filter(own),
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
