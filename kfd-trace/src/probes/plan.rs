//! What to attach where: a pure function of the table, the kernel and what is requested.

use super::facts::Facts;
use super::functions::Functions;
use super::rows::PROBES;
use super::site::{self, AttachTarget};
use super::table::{ProbeRow, When};
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
}

/// Plans every row of the table.
#[must_use]
pub fn plan(functions: &impl Functions, facts: &Facts, request: &PlanRequest) -> Plan {
    let named = named(functions);
    let (ioctl_end, ioctl_rocm_end) = ends(functions, named);
    let queues_by_ioctl = !PROBES.iter().filter(|row| QUEUES.contains(&row.id)).all(|row| {
        !site::names(row.site, functions, facts, false).is_empty() && missing(row, facts).is_empty()
    });
    let wanted = PlannedProbe { request, queues_by_ioctl };
    let rows = PROBES.iter().map(|row| planned(row, functions, facts, wanted)).collect();
    Plan { rows, named, ioctl_end, ioctl_rocm_end, queues_by_ioctl }
}

/// If either of these is missing, queues are followed by the ioctls alone.
const QUEUES: [ProbeId; 2] = [ProbeId::QueueAdd, ProbeId::QueueDel];

#[derive(Clone, Copy)]
struct PlannedProbe<'a> {
    request: &'a PlanRequest,
    queues_by_ioctl: bool,
}

impl PlannedProbe<'_> {
    /// Why a row is left out; `None` if it is not.
    fn skips(self, row: &ProbeRow, functions: &impl Functions) -> Option<Verdict> {
        match row.when {
            _ if self.request.choice.without.contains(&row.id) => Some(Verdict::LeftOut),
            When::IoctlRecords if !self.request.ioctl_records && !self.queues_by_ioctl => {
                Some(Verdict::NotAsked)
            }
            When::Tracepoints if !self.request.choice.tracepoints => Some(Verdict::NotAsked),
            When::Without(other) if !functions.copies(other).is_empty() => Some(Verdict::ReportedBy(other)),
            _ => None,
        }
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
    let names = site::names(row.site, functions, facts, wanted.queues_only(row));
    let action = if let Some(verdict) = wanted.skips(row, functions) {
        Action::Skip(verdict)
    } else if names.is_empty() {
        Action::Skip(Verdict::NotInKernel)
    } else {
        match missing(row, facts) {
            fields if fields.is_empty() => match site::targets(row.site, &names, functions) {
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
mod tests {
    use super::*;
    use crate::probes::site::At;
    use std::collections::BTreeMap;

    /// name -> addresses in the driver, and whether vmlinux has the name.
    #[derive(Default)]
    struct CommandsMade(BTreeMap<&'static str, (Vec<u64>, bool)>);

    impl Functions for CommandsMade {
        fn copies(&self, name: &str) -> Vec<u64> {
            self.0.get(name).map_or_else(Vec::new, |(addresses, _)| addresses.clone())
        }
        fn is_unique(&self, name: &str) -> bool {
            self.0.get(name).is_some_and(|(addresses, clash)| addresses.len() == 1 && !clash)
        }
        fn beginning(&self, prefix: &str) -> Vec<String> {
            self.0.keys().filter(|name| name.starts_with(prefix)).map(|name| (*name).to_owned()).collect()
        }
        fn room(&self, _: u64) -> Option<u64> {
            None
        }
    }

    fn driver() -> CommandsMade {
        let names = ["kfd_ioctl", "kfd_ioctl_get_version", "kfd_ioctl_wait_events", "kfd_procfs_add_queue"];
        CommandsMade(names.iter().zip(1..).map(|(name, address)| (*name, (vec![address], false))).collect())
    }

    /// A driver whose queues can be probed.
    fn with_queues() -> CommandsMade {
        let mut made = driver();
        made.0.insert("kfd_procfs_del_queue", (vec![77], false));
        made
    }

    fn facts() -> Facts {
        let fields = kfd_trace_common::offset::FIELDS.iter().map(|field| (field.global, Ok(8)));
        Facts { fields: fields.collect(), ..Facts::default() }
    }

    fn action(made: &CommandsMade, facts: &Facts, request: &PlanRequest, id: ProbeId) -> Action {
        plan(made, facts, request).rows.into_iter().find(|row| row.row.id == id).unwrap().action
    }

    #[test]
    fn a_unique_name_is_attached_by_name_and_a_clash_by_address() {
        let mut made = driver();
        let name = |symbol: &str| AttachTarget { symbol: symbol.into(), at: At::Name, address: Some(1) };
        let ioctl = |made: &CommandsMade| action(made, &facts(), &PlanRequest::default(), ProbeId::Ioctl);
        assert_eq!(ioctl(&made), Action::Attach(vec![name("kfd_ioctl")]));
        made.0.insert("kfd_ioctl", (vec![0x10], true));
        let address = AttachTarget { symbol: "kfd_ioctl".into(), at: At::Address(0x10), address: Some(0x10) };
        assert_eq!(ioctl(&made), Action::Attach(vec![address]));
        made.0.insert("kfd_ioctl", (vec![0], true));
        assert!(matches!(ioctl(&made), Action::Skip(Verdict::Refused(why)) if why.contains("CAP_SYSLOG")));
    }

    #[test]
    fn the_handler_that_sleeps_carries_no_probe() {
        let Action::Attach(targets) =
            action(&driver(), &facts(), &PlanRequest::default(), ProbeId::IoctlReturn)
        else {
            panic!("not attached")
        };
        let symbols: Vec<_> = targets.iter().map(|target| target.symbol.as_str()).collect();
        assert_eq!(symbols, ["kfd_ioctl_get_version"]);
    }

    #[test]
    fn arguments_are_probed_only_on_request() {
        let of = |ioctl_records| {
            let request = PlanRequest { ioctl_records, ..PlanRequest::default() };
            action(&with_queues(), &facts(), &request, ProbeId::IoctlHandler)
        };
        assert_eq!(of(false), Action::Skip(Verdict::NotAsked));
        assert!(matches!(of(true), Action::Attach(_)));
    }

    #[test]
    fn queues_that_cannot_be_probed_are_followed_by_their_ioctls() {
        let mut made = driver();
        for (name, address) in [("kfd_ioctl_create_queue", 50), ("kfd_ioctl_destroy_queue", 51)] {
            made.0.insert(name, (vec![address], false));
        }
        let planned = plan(&made, &facts(), &PlanRequest::default());
        assert!(planned.queues_by_ioctl, "kfd_procfs_del_queue is missing");
        let Action::Attach(targets) = action(&made, &facts(), &PlanRequest::default(), ProbeId::IoctlHandler)
        else {
            panic!("not attached")
        };
        let symbols: Vec<_> = targets.iter().map(|target| target.symbol.as_str()).collect();
        assert_eq!(symbols, ["kfd_ioctl_create_queue", "kfd_ioctl_destroy_queue"]);
        assert!(!plan(&with_queues(), &facts(), &PlanRequest::default()).queues_by_ioctl);
    }

    #[test]
    fn every_copy_of_a_family_is_attached_and_an_unknown_member_is_reported() {
        let mut made = with_queues();
        made.0.insert("init_mqd", (vec![0x10, 0x20], false));
        made.0.insert("init_mqd_hiq", (vec![0x30], false));
        made.0.insert("init_mqd_v99", (vec![0x40], false));
        let planned = plan(&made, &facts(), &PlanRequest::default());
        let row = planned.rows.iter().find(|row| row.row.id == ProbeId::MqdInit).unwrap();
        let Action::Attach(targets) = &row.action else { panic!("{row:?}") };
        let places: Vec<_> = targets.iter().map(|target| target.at).collect();
        assert_eq!(places, [At::Address(0x10), At::Address(0x20)]);
        assert_eq!(row.strangers, ["init_mqd_v99"]);
    }

    #[test]
    fn a_function_of_another_row_is_not_unknown() {
        let mut made = with_queues();
        made.0.insert("update_mqd_gpu_addr", (vec![0x10], false));
        let planned = plan(&made, &facts(), &PlanRequest::default());
        let row = |id| planned.rows.iter().find(|row| row.row.id == id).unwrap();
        assert!(row(ProbeId::MqdUpdate).strangers.is_empty(), "its properties are another parameter");
        assert!(matches!(&row(ProbeId::MqdAddress).action, Action::Attach(targets) if targets.len() == 1));
    }

    #[test]
    fn the_functions_of_every_list_of_a_site_are_attached() {
        let mut made = with_queues();
        let names = ["init_mqd", "update_mqd_v9_4_3", "restore_mqd_sdma"];
        made.0.extend(names.iter().zip(0x10..).map(|(name, address)| (*name, (vec![address], false))));
        let planned = plan(&made, &facts(), &PlanRequest::default());
        let row = planned.rows.iter().find(|row| row.row.id == ProbeId::MqdReturn).unwrap();
        assert_eq!(row.symbols, names);
        let planned = plan(&driver(), &facts(), &PlanRequest::default());
        let row = planned.rows.iter().find(|row| row.row.id == ProbeId::EvictReturn).unwrap();
        assert_eq!(row.action, Action::Skip(Verdict::NotInKernel));
        let last = ["kfd_process_vm_fault", "kfd_dqm_evict_pasid", "kfd_evict_process_device"];
        assert_eq!(row.symbols, [&["kfd_process_evict_queues"], &last[..]].concat());
    }

    #[test]
    fn no_reason_of_an_eviction_is_looked_for_where_evictions_cannot_be_read() {
        let mut facts = facts();
        facts.fields.insert("QPD_EVICTED", Err("no BTF of amdgpu".into()));
        let mut made = with_queues();
        made.0.extend([
            ("kfd_process_evict_queues", (vec![0x10], false)),
            ("kfd_dqm_evict_pasid", (vec![0x20], false)),
        ]);
        for id in [ProbeId::EvictProcess, ProbeId::EvictFault, ProbeId::EvictReturn] {
            let action = action(&made, &facts, &PlanRequest::default(), id);
            assert!(matches!(action, Action::Skip(Verdict::MissingFields(_))), "{id:?}: {action:?}");
        }
    }

    #[test]
    fn a_row_that_another_one_replaces_is_left_out() {
        let mut made = with_queues();
        made.0.insert("kfd_process_hw_exception", (vec![0x10], false));
        let exception =
            |made: &CommandsMade| action(made, &facts(), &PlanRequest::default(), ProbeId::HwException);
        assert!(matches!(exception(&made), Action::Attach(_)));
        made.0.insert("kfd_hws_hang", (vec![0x20], false));
        assert_eq!(exception(&made), Action::Skip(Verdict::ReportedBy("kfd_hws_hang")));
    }

    #[test]
    fn tracepoints_are_attached_if_requested_and_present() {
        let mut facts = facts();
        facts.tracepoints = ["gpu_scheduler:drm_sched_job".to_owned()].into();
        let of = |tracepoints, id| {
            let choice = Choice { tracepoints, ..Choice::default() };
            action(&with_queues(), &facts, &PlanRequest { choice, ..PlanRequest::default() }, id)
        };
        assert_eq!(of(false, ProbeId::TpJobQueue), Action::Skip(Verdict::NotAsked));
        let at = At::Tracepoint("gpu_scheduler");
        let target = AttachTarget { symbol: "drm_sched_job".into(), at, address: None };
        assert_eq!(of(true, ProbeId::TpJobQueue), Action::Attach(vec![target]));
        assert_eq!(of(true, ProbeId::TpEvictEnd), Action::Skip(Verdict::NotInKernel));
    }

    #[test]
    fn a_row_that_is_not_wanted_is_left_out_though_queues_could_be_followed() {
        let choice = Choice { without: vec![ProbeId::QueueDel], ..Choice::default() };
        let planned = plan(&with_queues(), &facts(), &PlanRequest { choice, ..PlanRequest::default() });
        let left_out = planned.rows.iter().filter(|row| row.action == Action::Skip(Verdict::LeftOut));
        assert_eq!(left_out.map(|row| row.row.id).collect::<Vec<_>>(), [ProbeId::QueueDel]);
        assert!(!planned.queues_by_ioctl);
    }

    #[test]
    fn a_missing_field_is_named() {
        let mut facts = facts();
        facts.fields.insert("QUEUE_PROCESS", Err("queue.process: no BTF of amdgpu".into()));
        let Action::Skip(verdict) = action(&driver(), &facts, &PlanRequest::default(), ProbeId::QueueAdd)
        else {
            panic!("attached")
        };
        assert_eq!(verdict, Verdict::MissingFields(vec!["queue.process: no BTF of amdgpu".into()]));
        assert_eq!(
            action(&driver(), &facts, &PlanRequest::default(), ProbeId::QueueDel),
            Action::Skip(Verdict::NotInKernel)
        );
    }

    #[test]
    fn the_ends_of_the_ranges_follow_from_the_handlers() {
        let with = |names: &[&'static str]| {
            let mut made = driver();
            made.0.extend(names.iter().map(|name| (*name, (vec![9], false))));
            ends(&made, named(&made))
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
        assert_eq!(ends(&CommandsMade::default(), Named::default()), (0x100, 0));
    }
}
