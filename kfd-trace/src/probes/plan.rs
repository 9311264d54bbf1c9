//! What to attach where: a pure function of the table, the kernel and what is requested.

use super::facts::{Facts, ReturnRoom};
use super::functions::Functions;
use super::rows::PROBES;
use super::site::{self, AttachTarget, Wanted};
use super::table::{ProbeRow, Site, When};
use crate::model::ioctl::{IOCTLS, Named};
use crate::model::verdict::Verdict;
use kfd_trace_common::counter::ProbeId;

/// What the caller wants to see.
#[derive(Clone, Debug, Default)]
pub struct PlanRequest {
    /// A record per ioctl with its arguments.
    pub ioctl_records: bool,
    pub choice: Choice,
}

/// The user's choice of probes.
#[derive(Clone, Debug, Default)]
pub struct Choice {
    /// Count the kernel's own tracepoints.
    pub tracepoints: bool,
    /// Report preemptions and runlists.
    pub runlists: bool,
    /// Rows that are not attached, whatever else is requested.
    pub without: Vec<ProbeId>,
    pub attach: Attach,
}

/// How functions are attached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Attach {
    /// A kprobe per function: the driver can be unloaded meanwhile; each kprobe takes the kernel as long as a
    /// whole link.
    #[default]
    Single,
    /// One link for all functions of a program (Linux 5.18 and later): the driver cannot be unloaded
    /// meanwhile.
    Multi,
    /// As `Multi` for programs with several functions, a kprobe for each other function: starts nearly as
    /// fast, and costs the callers of the driver less.
    Mixed,
    /// One link for the entries of all functions and one for the returns, except for one of the required
    /// rows: this shows whether the kernel accepts kprobes.
    Tried,
}

/// What to do with one row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    Attach(Vec<AttachTarget>),
    Skip(Verdict),
}

/// One row of the table on this kernel.
#[derive(Debug)]
pub struct Planned {
    pub row: &'static ProbeRow,
    /// The functions that it is attached to, or would be attached to.
    pub symbols: Vec<String>,
    /// Functions of the same family that this program does not know.
    pub strangers: Vec<String>,
    pub action: Action,
}

/// The whole plan.
#[derive(Debug)]
pub struct Plan {
    pub rows: Vec<Planned>,
    /// The driver's ioctls that have a name.
    pub named: Named,
    /// One past the driver's last command, and of the range of ROCm's driver (0 if it has none).
    pub ioctl_end: u32,
    pub ioctl_rocm_end: u32,
    /// Queues cannot be probed: they are followed by the ioctls alone.
    pub queues_by_ioctl: bool,
    /// The return of `kfd_ioctl` itself is probed, not that of each handler.
    pub whole_calls: bool,
    /// The entry and the return of `kfd_ioctl` by one link.
    pub session: Option<CallSession>,
}

/// What one link on the entry and the return of `kfd_ioctl` needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallSession {
    /// The number of `bpf_session_is_return` in the kernel's types.
    pub is_return: u32,
    /// The address of `kfd_ioctl`.
    pub function: u64,
}

/// Plans every row of the table.
#[must_use]
pub fn plan(functions: &impl Functions, facts: &Facts, request: &PlanRequest) -> Plan {
    let named = named(functions);
    let (ioctl_end, ioctl_rocm_end) = ends(functions, named);
    let queues_by_ioctl = !PROBES.iter().filter(|row| QUEUES.contains(&row.id)).all(|row| {
        !site::names(row.site, functions, facts, Wanted::default()).is_empty()
            && missing(row, facts).is_empty()
    });
    let session = session(functions, facts, request.choice.attach);
    let has_event = facts.return_events.iter().any(|function| Site::is_whole_call(function));
    let whole_calls =
        (has_event || session.is_some()) && !request.choice.without.contains(&ProbeId::IoctlReturn);
    let wanted = PlannedProbe { request, queues_by_ioctl, whole_calls };
    let mut rows: Vec<_> = PROBES.iter().map(|row| planned(row, functions, facts, wanted)).collect();
    replace(&mut rows);
    let session = session.filter(|_| whole_calls);
    Plan { rows, named, ioctl_end, ioctl_rocm_end, queues_by_ioctl, whole_calls, session }
}

/// `None` where the kernel has no such link or its room for sleepers is not known, where the address is hidden, or where
/// links are not to be used: they keep the driver from being unloaded.
fn session(functions: &impl Functions, facts: &Facts, attach: Attach) -> Option<CallSession> {
    let is_return = facts.session.filter(|_| matches!(attach, Attach::Multi | Attach::Mixed))?;
    match Site::WHOLE_CALL.iter().flat_map(|name| functions.copies(name)).collect::<Vec<_>>()[..] {
        [function] if function != 0 && facts.return_room != ReturnRoom::Unknown => {
            Some(CallSession { is_return, function })
        }
        _ => None,
    }
}

/// Rows that report what others would ([`When::InPlaceOf`]): they are attached only if one of those is not, and those
/// are then reported by them.
fn replace(rows: &mut [Planned]) {
    for at in 0..rows.len() {
        let (id, When::InPlaceOf(others)) = (rows[at].row.id, rows[at].row.when) else { continue };
        let skipped = |other: &ProbeId| match &rows.iter().find(|row| row.row.id == *other)?.action {
            Action::Skip(verdict) => Some(verdict.clone()),
            Action::Attach(_) => None,
        };
        let missing: Vec<Verdict> = others.iter().filter_map(skipped).collect();
        let unwanted = |verdict: &&Verdict| matches!(verdict, Verdict::NotAsked | Verdict::ReportedBy(_));
        let verdict = match missing.iter().find(unwanted) {
            Some(verdict) => Some(verdict.clone()),
            None if missing.is_empty() => others.first().map(|other| Verdict::ReportedBy(other.name())),
            None => None,
        };
        if let Some(verdict) = verdict {
            if rows[at].action != Action::Skip(Verdict::LeftOut) {
                rows[at].action = Action::Skip(verdict);
            }
            continue;
        }
        if matches!(rows[at].action, Action::Skip(_)) {
            continue;
        }
        for row in rows.iter_mut().filter(|row| others.contains(&row.row.id)) {
            // A row that the user left out is shown as that.
            if matches!(&row.action, Action::Skip(verdict) if *verdict != Verdict::LeftOut) {
                row.action = Action::Skip(Verdict::ReportedBy(id.name()));
            }
        }
    }
}

/// If either of these is missing, queues are followed by the ioctls alone.
const QUEUES: [ProbeId; 2] = [ProbeId::QueueAdd, ProbeId::QueueDel];

#[derive(Clone, Copy)]
struct PlannedProbe<'a> {
    request: &'a PlanRequest,
    queues_by_ioctl: bool,
    whole_calls: bool,
}

impl PlannedProbe<'_> {
    /// Why a row is left out; `None` if it is not.
    fn skips(self, row: &ProbeRow, functions: &impl Functions) -> Option<Verdict> {
        match row.when {
            _ if self.request.choice.without.contains(&row.id) => Some(Verdict::LeftOut),
            When::IoctlRecords if !self.request.ioctl_records && !self.queues_by_ioctl => {
                Some(Verdict::NotAsked)
            }
            When::NoIoctlRecords if self.handlers() => {
                Some(Verdict::ReportedBy(ProbeId::IoctlHandler.name()))
            }
            When::Tracepoints if !self.request.choice.tracepoints => Some(Verdict::NotAsked),
            When::Runlists if !self.request.choice.runlists => Some(Verdict::NotAsked),
            When::Without(other) if !functions.copies(other).is_empty() => Some(Verdict::ReportedBy(other)),
            _ => None,
        }
    }

    /// Every handler is probed.
    fn handlers(self) -> bool {
        self.request.ioctl_records && !self.request.choice.without.contains(&ProbeId::IoctlHandler)
    }

    /// Of the handlers, only those that change queues.
    fn queues_only(self, row: &ProbeRow) -> bool {
        row.when == When::IoctlRecords && !self.request.ioctl_records
    }
}

fn planned(
    row: &'static ProbeRow,
    functions: &impl Functions,
    facts: &Facts,
    wanted: PlannedProbe<'_>,
) -> Planned {
    let of_row = Wanted { queues_only: wanted.queues_only(row), whole_calls: wanted.whole_calls };
    let names = site::names(row.site, functions, facts, of_row);
    let action = if let Some(verdict) = wanted.skips(row, functions) {
        Action::Skip(verdict)
    } else if names.is_empty() {
        Action::Skip(Verdict::NotInKernel)
    } else {
        match missing(row, facts) {
            fields if fields.is_empty() => match site::targets(row, &names, functions, facts) {
                Ok(targets) => Action::Attach(targets),
                Err(why) => Action::Skip(Verdict::Refused(why)),
            },
            fields => Action::Skip(Verdict::MissingFields(fields)),
        }
    };
    let strangers = site::strangers(row.site, functions);
    let symbols = if names.is_empty() { site::candidates(row.site) } else { names };
    Planned { row, symbols, strangers, action }
}

fn missing(row: &ProbeRow, facts: &Facts) -> Vec<String> {
    row.needs.iter().filter_map(|need| facts.field(need).err()).collect()
}

fn named(functions: &impl Functions) -> Named {
    Named::of(|name| !functions.copies(name).is_empty())
}

/// One past the last command of either range: the driver's table has an entry for each of its handlers.
fn ends(functions: &impl Functions, named: Named) -> (u32, u32) {
    let has_handlers =
        IOCTLS.iter().flat_map(|def| def.handlers).any(|name| !functions.copies(name).is_empty());
    if !has_handlers || has_newer_commands(functions) {
        // The driver has commands that this program does not know: no command is reported as unknown to the
        // driver.
        return (ALL_NUMBERS, 0);
    }
    let end = |rocm: bool| {
        let range = named.defs().filter(|def| def.is_rocm() == rocm);
        range.map(|def| u32::from(def.nr) + 1).max().unwrap_or(0)
    };
    (end(false), end(true))
}

/// One past the largest possible command number.
const ALL_NUMBERS: u32 = 0x100;

/// A function with a handler's name that is in no row of the table and is no validator
/// (`AMDKFD_IOCTL_DEF_V`).
fn has_newer_commands(functions: &impl Functions) -> bool {
    let known =
        |name: &str| IOCTLS.iter().any(|def| def.handlers.contains(&name)) || name.ends_with("_validate");
    functions.beginning("kfd_ioctl_").iter().any(|name| !known(name))
}

#[cfg(test)]
mod tests;
