//! Where a row of the table is attached on this kernel.

use super::facts::Facts;
use super::functions::Functions;
use super::rows::{NOT_OF_USERS, PROBES};
use super::table::{ProbeRow, Site};
use crate::model::ioctl::{Def, IOCTLS, WAIT_EVENTS};
use kfd_trace_common::rules;
use std::collections::BTreeSet;

/// Where one program is attached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttachTarget {
    pub symbol: String,
    pub at: At,
}

/// How the kernel identifies it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// A function, wherever that is known: before Linux 6.2 each search for a name unpacks all names of the kernel, and
    /// one probe takes several.
    Address(u64),
    /// A function whose address is hidden: the name must be unique in the whole kernel, or it is refused.
    Name,
    /// A tracepoint of this system.
    Tracepoint(&'static str),
    /// The return of a function, by its event.
    ReturnEvent,
}

impl AttachTarget {
    /// Address of a function; `None` if addresses are hidden, and for tracepoints and events.
    #[must_use]
    pub fn address(&self) -> Option<u64> {
        match self.at {
            At::Address(address) => Some(address),
            At::Name | At::Tracepoint(_) | At::ReturnEvent => None,
        }
    }

    pub(super) fn is_whole_call(&self) -> bool {
        Site::is_whole_call(&self.symbol)
    }
}

/// What is wanted of the calls of ioctls.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Wanted {
    /// Only those handlers that change queues.
    pub(super) queues_only: bool,
    /// The return of `kfd_ioctl` itself, not those of the handlers.
    pub(super) whole_calls: bool,
}

/// Names of the functions or tracepoints of a site that this kernel has.
pub(super) fn names(site: Site, functions: &impl Functions, facts: &Facts, wanted: Wanted) -> Vec<String> {
    let has = |name: &&&str| !functions.copies(name).is_empty();
    let own = |name: &&str| (*name).to_owned();
    match site {
        Site::Function(candidates) => candidates.iter().find(has).map(own).into_iter().collect(),
        Site::Each(lists) => lists.iter().copied().flatten().filter(has).map(own).collect(),
        Site::Family { members, .. } => members.iter().filter(has).map(own).collect(),
        Site::Handlers => handlers(functions, |nr| !wanted.queues_only || rules::changes_queue(nr)),
        Site::CallReturns if wanted.whole_calls => Site::WHOLE_CALL.iter().filter(has).map(own).collect(),
        Site::CallReturns => handlers(functions, |nr| nr != u32::from(WAIT_EVENTS)),
        Site::Tracepoint { system, names } => {
            let there = |name: &&&str| facts.tracepoints.contains(&format!("{system}:{name}"));
            names.iter().find(there).map(own).into_iter().collect()
        }
    }
}

/// Names that are searched for, for a kernel that has none of them.
pub(super) fn candidates(site: Site) -> Vec<String> {
    let named = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    match site {
        Site::Function(names) | Site::Family { members: names, .. } | Site::Tracepoint { names, .. } => {
            named(names)
        }
        Site::Each(lists) => named(&lists.concat()),
        Site::Handlers | Site::CallReturns => Vec::new(),
    }
}

/// Functions of a family that this program does not know, in any family: their arguments may differ.
pub(super) fn strangers(site: Site, functions: &impl Functions) -> Vec<String> {
    let Site::Family { prefixes, .. } = site else { return Vec::new() };
    let is_known = |name: &str| {
        PROBES.iter().any(|row| matches!(row.site, Site::Family { members, .. } if members.contains(&name)))
    };
    let found = prefixes.iter().flat_map(|prefix| functions.beginning(prefix));
    found.filter(|name| !is_known(name) && !name.contains(NOT_OF_USERS)).collect()
}

/// Handlers of the driver for the commands that are wanted, each once.
fn handlers(functions: &impl Functions, wanted: impl Fn(u32) -> bool) -> Vec<String> {
    let of = |def: &&Def| wanted(u32::from(def.nr));
    let names = IOCTLS.iter().filter(of).flat_map(|def| def.handlers).copied();
    let names: BTreeSet<&str> = names.filter(|name| !functions.copies(name).is_empty()).collect();
    names.into_iter().map(str::to_owned).collect()
}

/// The attach targets of a row's functions with these names.
///
/// # Errors
/// Why a function cannot be identified to the kernel.
pub(super) fn targets(
    row: &ProbeRow,
    names: &[String],
    functions: &impl Functions,
    facts: &Facts,
) -> Result<Vec<AttachTarget>, String> {
    let target = |name: &String, at| AttachTarget { symbol: name.clone(), at };
    if let Site::Tracepoint { system, .. } = row.site {
        return Ok(names.iter().map(|name| target(name, At::Tracepoint(system))).collect());
    }
    let mut targets = Vec::new();
    for name in names {
        let copies = functions.copies(name);
        if row.crowded && copies.len() == 1 && facts.return_events.contains(name) {
            targets.push(target(name, At::ReturnEvent));
        } else if !copies.contains(&0) {
            targets.extend(copies.into_iter().map(|address| target(name, At::Address(address))));
        } else if functions.is_unique(name) {
            targets.push(target(name, At::Name));
        } else {
            return Err(format!(
                "{name} is not unique and its address is hidden: needs CAP_SYSLOG, or kptr_restrict=0"
            ));
        }
    }
    Ok(targets)
}
