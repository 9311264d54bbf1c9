//! What to attach where: a pure function of the table, the kernel and what is asked for.

use super::facts::{Facts, Functions};
use super::table::{PROBES, Row, Site, When};
use crate::events::ioctl::{IOCTLS, WAIT_EVENTS};
use crate::verdict::Verdict;
use kfd_trace_common::rules;
use std::collections::BTreeSet;

/// What the caller wants to see.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ask {
    /// A record of each ioctl with its arguments.
    pub ioctl_records: bool,
}

/// Where one program goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    pub symbol: String,
    pub at: At,
}

/// How the kernel is told the place: a name must be unique in the whole kernel, or it is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    Name,
    Address(u64),
}

/// What to do with one row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    Attach(Vec<Target>),
    Skip(Verdict),
}

/// One row of the table on this kernel.
#[derive(Debug)]
pub struct Planned {
    pub row: &'static Row,
    /// The functions it sits on, or would sit on.
    pub symbols: Vec<String>,
    pub action: Action,
}

/// The whole plan.
#[derive(Debug)]
pub struct Plan {
    pub rows: Vec<Planned>,
    /// One past the driver's last command, and of the range of ROCm's driver (0 when it has none).
    pub ioctl_end: u32,
    pub ioctl_rocm_end: u32,
}

/// Plans every row of the table.
#[must_use]
pub fn plan(functions: &impl Functions, facts: &Facts, ask: Ask) -> Plan {
    let (ioctl_end, ioctl_rocm_end) = ends(functions);
    let rows = PROBES.iter().map(|row| planned(row, functions, facts, ask)).collect();
    Plan { rows, ioctl_end, ioctl_rocm_end }
}

fn planned(row: &'static Row, functions: &impl Functions, facts: &Facts, ask: Ask) -> Planned {
    let names: Vec<&str> = match row.site {
        Site::Function(candidates) => {
            candidates.iter().find(|name| !functions.copies(name).is_empty()).into_iter().copied().collect()
        }
        Site::Handlers => handlers(functions).into_iter().collect(),
    };
    let action = if row.when == When::IoctlRecords && !ask.ioctl_records {
        Action::Skip(Verdict::NotAsked)
    } else if names.is_empty() {
        Action::Skip(Verdict::NotInKernel)
    } else {
        match missing(row, facts) {
            fields if fields.is_empty() => targets(&names, functions),
            fields => Action::Skip(Verdict::MissingFields(fields)),
        }
    };
    let symbols = match (names.is_empty(), row.site) {
        (true, Site::Function(candidates)) => candidates.iter().map(|name| (*name).to_owned()).collect(),
        _ => names.into_iter().map(str::to_owned).collect(),
    };
    Planned { row, symbols, action }
}

/// Handlers that can carry a probe: those of the driver that do not sleep, each once.
fn handlers(functions: &impl Functions) -> BTreeSet<&'static str> {
    let awake = IOCTLS.iter().filter(|def| def.nr != WAIT_EVENTS);
    awake.map(|def| def.handler).filter(|name| !functions.copies(name).is_empty()).collect()
}

fn missing(row: &Row, facts: &Facts) -> Vec<String> {
    row.needs.iter().filter_map(|need| facts.field(need).err()).collect()
}

fn targets(names: &[&str], functions: &impl Functions) -> Action {
    let mut targets = Vec::new();
    for name in names {
        let copies = functions.copies(name);
        if functions.is_unique(name) {
            targets.push(Target { symbol: (*name).to_owned(), at: At::Name });
            continue;
        }
        if copies.contains(&0) {
            let why = format!(
                "{name} is not unique and its address is hidden: needs CAP_SYSLOG, or kptr_restrict=0"
            );
            return Action::Skip(Verdict::Refused(why));
        }
        let at_address = |address| Target { symbol: (*name).to_owned(), at: At::Address(address) };
        targets.extend(copies.into_iter().map(at_address));
    }
    Action::Attach(targets)
}

/// One past the last command of either range. The driver's table has an entry for each of its handlers;
/// `kfd_ioctl_profiler` stands in ROCm's range where the driver has one, else in the upstream range.
fn ends(functions: &impl Functions) -> (u32, u32) {
    const SHARED: &str = "kfd_ioctl_profiler";
    let has = |name: &str| !functions.copies(name).is_empty();
    let is_rocm = |nr: u8| u32::from(nr) >= rules::FIRST_ROCM;
    let rocm = IOCTLS.iter().any(|def| is_rocm(def.nr) && def.handler != SHARED && has(def.handler));
    let end = |rocm_range: bool| {
        let here = IOCTLS.iter().filter(|def| is_rocm(def.nr) == rocm_range && has(def.handler));
        let here = here.filter(|def| def.handler != SHARED || rocm_range == rocm);
        here.map(|def| u32::from(def.nr) + 1).max().unwrap_or(0)
    };
    let upstream = end(false);
    if upstream == 0 || has_newer_commands(functions) {
        // The driver has commands that this program does not know: none is called unknown to it.
        return (ALL_NUMBERS, 0);
    }
    (upstream, if rocm { end(true) } else { 0 })
}

/// One past the largest number that a command can have.
const ALL_NUMBERS: u32 = 0x100;

/// A handler by its name that is in no row of the table, and no validator (`AMDKFD_IOCTL_DEF_V`).
fn has_newer_commands(functions: &impl Functions) -> bool {
    let known = |name: &str| IOCTLS.iter().any(|def| def.handler == name) || name.ends_with("_validate");
    functions.beginning("kfd_ioctl_").iter().any(|name| !known(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use kfd_trace_common::counter::ProbeId;
    use std::collections::BTreeMap;

    /// name -> addresses in the driver, and whether vmlinux has the name, too.
    #[derive(Default)]
    struct Made(BTreeMap<&'static str, (Vec<u64>, bool)>);

    impl Functions for Made {
        fn copies(&self, name: &str) -> Vec<u64> {
            self.0.get(name).map_or_else(Vec::new, |(addresses, _)| addresses.clone())
        }
        fn is_unique(&self, name: &str) -> bool {
            self.0.get(name).is_some_and(|(addresses, clash)| addresses.len() == 1 && !clash)
        }
        fn beginning(&self, prefix: &str) -> Vec<String> {
            self.0.keys().filter(|name| name.starts_with(prefix)).map(|name| (*name).to_owned()).collect()
        }
    }

    fn driver() -> Made {
        let names = ["kfd_ioctl", "kfd_ioctl_get_version", "kfd_ioctl_wait_events", "kfd_procfs_add_queue"];
        Made(names.iter().zip(1..).map(|(name, address)| (*name, (vec![address], false))).collect())
    }

    fn facts() -> Facts {
        let fields = kfd_trace_common::offset::FIELDS.iter().map(|field| (field.global, Ok(8)));
        Facts { fields: fields.collect(), ..Facts::default() }
    }

    fn action(made: &Made, facts: &Facts, ask: Ask, id: ProbeId) -> Action {
        plan(made, facts, ask).rows.into_iter().find(|row| row.row.id == id).unwrap().action
    }

    #[test]
    fn a_unique_name_is_attached_by_name_and_a_clash_by_address() {
        let mut made = driver();
        let name = |symbol: &str| Target { symbol: symbol.into(), at: At::Name };
        let ioctl = |made: &Made| action(made, &facts(), Ask::default(), ProbeId::Ioctl);
        assert_eq!(ioctl(&made), Action::Attach(vec![name("kfd_ioctl")]));
        made.0.insert("kfd_ioctl", (vec![0x10], true));
        let address = Target { symbol: "kfd_ioctl".into(), at: At::Address(0x10) };
        assert_eq!(ioctl(&made), Action::Attach(vec![address]));
        made.0.insert("kfd_ioctl", (vec![0], true));
        assert!(matches!(ioctl(&made), Action::Skip(Verdict::Refused(why)) if why.contains("CAP_SYSLOG")));
    }

    #[test]
    fn the_handler_that_sleeps_carries_no_probe() {
        let Action::Attach(targets) = action(&driver(), &facts(), Ask::default(), ProbeId::IoctlReturn)
        else {
            panic!("not attached")
        };
        let symbols: Vec<_> = targets.iter().map(|target| target.symbol.as_str()).collect();
        assert_eq!(symbols, ["kfd_ioctl_get_version"]);
    }

    #[test]
    fn arguments_are_probed_only_when_asked_for() {
        let of = |ioctl_records| action(&driver(), &facts(), Ask { ioctl_records }, ProbeId::IoctlHandler);
        assert_eq!(of(false), Action::Skip(Verdict::NotAsked));
        assert!(matches!(of(true), Action::Attach(_)));
    }

    #[test]
    fn a_missing_field_is_named() {
        let mut facts = facts();
        facts.fields.insert("QUEUE_PROCESS", Err("queue.process: no BTF of amdgpu".into()));
        let Action::Skip(verdict) = action(&driver(), &facts, Ask::default(), ProbeId::QueueAdd) else {
            panic!("attached")
        };
        assert_eq!(verdict, Verdict::MissingFields(vec!["queue.process: no BTF of amdgpu".into()]));
        assert_eq!(
            action(&driver(), &facts, Ask::default(), ProbeId::QueueDel),
            Action::Skip(Verdict::NotInKernel)
        );
    }

    #[test]
    fn the_ends_of_the_ranges_follow_from_the_handlers() {
        let with = |names: &[&'static str]| {
            let mut made = driver();
            made.0.extend(names.iter().map(|name| (*name, (vec![9], false))));
            ends(&made)
        };
        assert_eq!(with(&[]), (0x0d, 0), "WAIT_EVENTS is a command, though not probed");
        assert_eq!(with(&["kfd_ioctl_set_debug_trap"]), (0x27, 0));
        assert_eq!(with(&["kfd_ioctl_profiler"]), (0x29, 0));
        assert_eq!(with(&["kfd_ioctl_profiler", "kfd_ioctl_rlc_spm"]), (0x0d, 0x87));
        assert_eq!(with(&["kfd_ioctl_svm_validate"]), (0x0d, 0));
        assert_eq!(
            with(&["kfd_ioctl_of_tomorrow"]),
            (0x100, 0),
            "nothing is called unknown to a newer driver"
        );
        assert_eq!(ends(&Made::default()), (0x100, 0));
    }
}
