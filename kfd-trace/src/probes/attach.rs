//! Attaches programs to their functions and tracepoints. No other module does.
//!
//! In: planned rows. Out: a verdict per row, and the handles that keep the programs attached. A row is
//! attached by one link where that was chosen and the kernel accepts it, else by a kprobe per function: the
//! choice never makes a verdict worse.

use super::error::chain;
use super::events::ReturnEvents;
use super::facts::ReturnRoom;
use super::multi::{self, Programs};
use super::plan::{Action, Attach, CallSession, Planned};
use super::site::{At, AttachTarget};
use super::table::{ProbeKind, ProbeRow};
use super::together::{ToAttach, Together};
use crate::kernel::perf;
use crate::kernel::return_events::MOST_CALLS;
use crate::model::verdict::{ProbeStatus, Verdict};
use aya::Ebpf;
use aya::programs::{KProbe, ProgramError, TracePoint};
use kfd_trace_common::counter::ProbeId;
use std::os::fd::{AsFd, OwnedFd};

/// Links on many functions, and the programs they are made from.
pub(super) struct Links {
    attach: Attach,
    room: LinkRoom,
    /// `None` if links were not chosen or the kernel has none.
    programs: Option<Programs>,
    held: Vec<(&'static str, multi::Attached)>,
    /// Declared before the events that they run programs at.
    at_events: Vec<OwnedFd>,
    events: ReturnEvents,
    /// Links that hold several rows each.
    shared: Vec<Together>,
    /// A required row was attached by kprobes.
    tried: bool,
}

impl Links {
    /// Creates no link yet.
    pub(super) fn new(ebpf: &Ebpf, attach: Attach, room: LinkRoom, events: ReturnEvents) -> Self {
        let failed = |why: &String| log::info!("functions are attached one by one: {why}");
        let programs = (attach != Attach::Single).then(|| Programs::new(ebpf).inspect_err(failed).ok());
        Links {
            attach,
            room,
            programs: programs.flatten(),
            held: Vec::new(),
            at_events: Vec::new(),
            events,
            shared: Vec::new(),
            tried: false,
        }
    }

    /// Attaches the entry and the return of `kfd_ioctl` by one link, where both are planned.
    pub(super) fn session(&mut self, planned: &[Planned], call: CallSession) {
        let Some(programs) = &self.programs else { return };
        let row = |id| {
            let planned = planned.iter().find(|planned| planned.row.id == id)?;
            let ProbeRow { kind, .. } = *planned.row;
            let program = planned.row.program();
            let is_planned = matches!(planned.action, Action::Attach(_));
            is_planned.then(|| ToAttach { program, kind, addresses: vec![call.function] })
        };
        let (Some(entry), Some(exit)) = (row(ProbeId::Ioctl), row(ProbeId::IoctlReturn)) else { return };
        // Where there is no instance left, the program does not run at the entry either.
        let times = match self.room.returns {
            ReturnRoom::All => 1,
            ReturnRoom::Pool | ReturnRoom::Unknown => MOST_CALLS.div_ceil(2 * self.room.cpus.max(1)),
        };
        match Together::session(programs, call.is_return, [entry, exit], times) {
            Ok(session) => self.shared.push(session),
            Err(error) => log::warn!("one link for calls and their returns is refused: {error}"),
        }
    }

    /// For a trial run only: attaches all rows that one link per kind can hold. A row that is refused here is
    /// tried again on its own, to get the kernel's reason. Must be called first.
    pub(super) fn together(&mut self, planned: &[Planned]) {
        let Some(programs) = self.programs.as_ref().filter(|_| self.attach == Attach::Tried) else { return };
        let wanted = |planned: &Planned| {
            // One at an event has no address.
            let Action::Attach(targets) = &planned.action else { return None };
            let ProbeRow { kind, required, .. } = *planned.row;
            let program = planned.row.program();
            Some((
                required,
                ToAttach { program, kind, addresses: addresses(planned.row, targets, LinkRoom::ALL)?.0 },
            ))
        };
        let wanted: Vec<(bool, ToAttach)> = planned.iter().filter_map(wanted).collect();
        // The first required row gets kprobes.
        let single = wanted.iter().position(|(required, _)| *required);
        let rest = wanted.into_iter().enumerate().filter(|(place, _)| Some(*place) != single);
        let (returns, entries): (Vec<ToAttach>, Vec<ToAttach>) =
            rest.map(|(_, (_, wanted))| wanted).partition(|wanted| wanted.kind == ProbeKind::Kretprobe);
        // Returns before entries, as in the table.
        for (kind, rows) in [(ProbeKind::Kretprobe, returns), (ProbeKind::Kprobe, entries)] {
            match Together::attach(programs, kind, rows) {
                Ok(together) => self.shared.push(together),
                Err(error) => log::info!("{}s are attached row by row: {error}", kind.name()),
            }
        }
    }

    /// A link holds this row together with those of other functions.
    pub(super) fn is_shared(&self, program: &str) -> bool {
        self.shared.iter().any(|shared| !shared.is_session() && shared.programs(program).next().is_some())
    }

    /// Another tracer may have had the events armed that rows are attached to.
    pub(super) fn at_events_of_others(&self) -> bool {
        self.events.are_of_others()
    }

    /// Attaches a row by one link if possible: where kprobes do not see more, or where kprobes are `refused`.
    fn attach(&mut self, row: &ProbeRow, targets: &[AttachTarget], refused: bool) -> bool {
        let Some(programs) = &self.programs else { return false };
        let of_row = |shared: &Together| shared.programs(row.program()).next().is_some();
        if self.shared.iter().any(|shared| shared.is_session() && of_row(shared)) {
            return true;
        }
        // Two links on one function make ftrace check each link of the machine at every call.
        if row.kind == ProbeKind::Kretprobe && targets.iter().any(AttachTarget::is_whole_call) && !refused {
            return false;
        }
        let all = addresses(row, targets, LinkRoom::ALL);
        if all.is_some_and(|(all, _)| self.shared.iter().any(|shared| shared.has(row.program(), &all))) {
            return true;
        }
        // A trial run misses no return.
        let few = refused || self.attach == Attach::Tried;
        // Each link is one more that ftrace checks at every call of a function that has two of any kind
        // (arch_ftrace_ops_list_func): not worth it for one function.
        if self.attach == Attach::Mixed && targets.len() < 2 && !refused {
            return false;
        }
        let room = if few { LinkRoom::ALL } else { self.room };
        let Some((addresses, times)) = addresses(row, targets, room) else { return false };
        if refused && self.attach == Attach::Tried {
            return false;
        }
        if self.attach == Attach::Tried && row.required && !std::mem::replace(&mut self.tried, true) {
            return false;
        }
        match programs.attach(row.program(), row.kind, &addresses, times) {
            Ok(attached) => {
                self.held.push((row.program(), attached));
                true
            }
            Err(error) => {
                log::info!("{}: one link is refused, so each function gets a kprobe: {error}", row.program());
                if self.held.is_empty() {
                    // A kernel without such links refuses all of them.
                    self.programs = None;
                }
                false
            }
        }
    }

    /// The loaded programs of a row that is attached by links.
    pub(super) fn programs<'a>(&'a self, program: &'a str) -> impl Iterator<Item = &'a OwnedFd> {
        let of_row = self.held.iter().filter(move |(name, _)| *name == program);
        let shared = self.shared.iter().flat_map(move |shared| shared.programs(program));
        of_row.map(|(_, attached)| &attached.program).chain(shared)
    }

    /// Runs a loaded program at the event of a function's return.
    fn at_event(&mut self, function: &str, program: &KProbe) -> Result<(), String> {
        let event = self.events.arm(function).map_err(|error| format!("its event: {error}"))?;
        let program = program.fd().map_err(|error| chain(&error))?;
        let link = perf::run_at(event, program.as_fd()).map_err(|error| chain(&error))?;
        self.at_events.extend(link);
        Ok(())
    }

    /// Detaches all links.
    pub(super) fn release(&mut self) {
        self.held.clear();
        self.shared.clear();
        self.at_events.clear();
        self.events.release();
    }
}

/// What decides how many calls under way a link still sees return.
#[derive(Clone, Copy, Debug)]
pub(super) struct LinkRoom {
    /// Possible CPUs.
    pub(super) cpus: usize,
    pub(super) returns: ReturnRoom,
}

impl LinkRoom {
    const ALL: LinkRoom = LinkRoom { cpus: 1, returns: ReturnRoom::All };
}

/// Calls under way whose returns a link with a pool sees, at least: hundreds of threads may wait in one handler. An
/// instance takes some 80 bytes.
const POOL: usize = 1024;

/// Instances of a kretprobe on one function: the number of concurrent calls whose returns are still seen
/// (kernel/kprobes.c:register_kretprobe).
fn instances(possible_cpus: usize) -> usize {
    (2 * possible_cpus).max(10)
}

/// The addresses for one link, and how many times each is listed; `None` where kprobes may see more, or where
/// addresses are hidden. A function that is listed again is not attached again, but makes the pool larger.
fn addresses(row: &ProbeRow, targets: &[AttachTarget], room: LinkRoom) -> Option<(Vec<u64>, usize)> {
    let instances_of_link = 2 * room.cpus * targets.len();
    let times = match (row.kind, room.returns) {
        (ProbeKind::Tracepoint, _) => return None,
        (ProbeKind::Kprobe, _) | (_, ReturnRoom::All) => 1,
        (_, ReturnRoom::Pool) => POOL.div_ceil(instances_of_link.max(1)),
        (_, ReturnRoom::Unknown) if instances_of_link >= instances(room.cpus) => 1,
        (_, ReturnRoom::Unknown) => return None,
    };
    let addresses: Vec<u64> = targets.iter().map(AttachTarget::address).collect::<Option<_>>()?;
    Some((addresses, times))
}

/// Loads and attaches one planned row.
pub(super) fn row(ebpf: &mut Ebpf, links: &mut Links, planned: Planned) -> ProbeStatus {
    let Planned { row, symbols, strangers, action } = planned;
    let (places, verdict) = match action {
        Action::Skip(verdict) => (0, verdict),
        Action::Attach(targets) => places(ebpf, links, row, &targets, strangers),
    };
    ProbeStatus {
        id: row.id,
        kind: row.kind.name(),
        symbols,
        places,
        required: row.required,
        may_lack: row.optional,
        feeds: row.feeds,
        verdict,
    }
}

/// Attaches to these functions; returns the number of functions that are attached now.
pub(super) fn places(
    ebpf: &mut Ebpf,
    links: &mut Links,
    row: &ProbeRow,
    targets: &[AttachTarget],
    strangers: Vec<String>,
) -> (usize, Verdict) {
    let all = targets.len();
    if links.attach(row, targets, false) {
        return (all, verdict(all, Vec::new(), strangers));
    }
    match one_by_one(ebpf, links, row, targets) {
        // Where perf_event_open is restricted to root, links are not.
        Ok(failed) if failed.len() == all && links.attach(row, targets, true) => {
            (all, verdict(all, Vec::new(), strangers))
        }
        Ok(failed) => (all - failed.len(), verdict(all, failed, strangers)),
        Err(why) => (0, Verdict::Refused(why)),
    }
}

/// Loads the program and attaches it to its functions; returns those that failed, each with the reason.
fn one_by_one(
    ebpf: &mut Ebpf,
    links: &mut Links,
    row: &ProbeRow,
    targets: &[AttachTarget],
) -> Result<Vec<(String, String)>, String> {
    let program = ebpf.program_mut(row.program()).ok_or("not in the object")?;
    let mut failed = Vec::new();
    let mut note = |target: &AttachTarget, attached: Result<(), String>| {
        if let Err(why) = attached {
            failed.push((target.symbol.clone(), why));
        }
    };
    let short = |error: ProgramError| chain(&error);
    if row.kind == ProbeKind::Tracepoint {
        let program: &mut TracePoint = program.try_into().map_err(|error: ProgramError| chain(&error))?;
        program.load().map_err(|error| chain(&error))?;
        for target in targets {
            if let At::Tracepoint(system) = target.at {
                note(target, program.attach(system, &target.symbol).map(drop).map_err(short));
            }
        }
        return Ok(failed);
    }
    let program: &mut KProbe = program.try_into().map_err(|error: ProgramError| chain(&error))?;
    // A GPU that was added later uses other functions of a program that is already loaded.
    if program.fd().is_err() {
        program.load().map_err(|error| chain(&error))?;
    }
    for target in targets {
        let attached = match target.at {
            At::Name | At::Tracepoint(_) => program.attach(&target.symbol, 0).map(drop).map_err(short),
            // With an empty name the kernel uses the offset as the address (perf_kprobe_init).
            At::Address(address) => program.attach("", address).map(drop).map_err(short),
            At::ReturnEvent => links.at_event(&target.symbol, program),
        };
        note(target, attached);
    }
    Ok(failed)
}

fn verdict(targets: usize, mut failed: Vec<(String, String)>, strangers: Vec<String>) -> Verdict {
    if let Some((_, why)) = failed.first().filter(|_| failed.len() == targets) {
        return Verdict::Refused(why.clone());
    }
    let unknown = "not known to this version, so not probed";
    failed.extend(strangers.into_iter().map(|name| (name, unknown.to_owned())));
    if failed.is_empty() { Verdict::Attached } else { Verdict::Partly { failed } }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probes::rows::PROBES;

    fn row(id: ProbeId) -> &'static ProbeRow {
        PROBES.iter().find(|row| row.id == id).unwrap()
    }

    fn targets(addresses: &[Option<u64>]) -> Vec<AttachTarget> {
        let at = |address: &Option<u64>| address.map_or(At::Name, At::Address);
        let target = |address| AttachTarget { symbol: "f".into(), at: at(address) };
        addresses.iter().map(target).collect()
    }

    #[test]
    fn one_link_takes_the_functions_whose_addresses_are_known() {
        let room = LinkRoom { cpus: 1, returns: ReturnRoom::Unknown };
        let of = |id, list: &[Option<u64>]| addresses(row(id), &targets(list), room);
        assert_eq!(of(ProbeId::Ioctl, &[Some(8)]), Some((vec![8], 1)));
        assert_eq!(of(ProbeId::MqdInit, &[Some(8), None]), None);
        assert_eq!(of(ProbeId::TpCs, &[Some(8)]), None);
    }

    #[test]
    fn a_link_has_room_for_a_crowd_of_returns() {
        let listed = |functions: &[Option<u64>], cpus, returns| {
            addresses(row(ProbeId::EvictGpuReturn), &targets(functions), LinkRoom { cpus, returns })
        };
        let pool = |cpus| listed(&[Some(8), Some(9)], cpus, ReturnRoom::Pool);
        assert_eq!(pool(2), Some((vec![8, 9], 128)), "4 instances each time");
        assert_eq!(pool(300), Some((vec![8, 9], 1)), "the CPUs alone are enough");
        assert_eq!(
            listed(&[Some(8)], 1, ReturnRoom::All),
            Some((vec![8], 1)),
            "listed twice, it would be seen twice"
        );
        assert_eq!(listed(&[Some(8), None], 2, ReturnRoom::Pool), None);
    }

    #[test]
    fn returns_share_an_unknown_pool_where_as_many_calls_can_be_under_way() {
        let takes = |functions: usize, cpus| {
            let room = LinkRoom { cpus, returns: ReturnRoom::Unknown };
            addresses(row(ProbeId::EvictGpuReturn), &targets(&vec![Some(8); functions]), room).is_some()
        };
        assert_eq!([4, 5].map(|functions| takes(functions, 1)), [false, true]);
        assert_eq!([2, 3].map(|functions| takes(functions, 2)), [false, true]);
        assert_eq!([1, 2].map(|functions| takes(functions, 4)), [false, true]);
        assert!(takes(1, 5));
    }
}
