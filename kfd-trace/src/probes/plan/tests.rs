use super::*;
use crate::model::runlist::Callers;
use crate::probes::site::At;
use std::collections::{BTreeMap, BTreeSet};

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
    fn callers(&self) -> Callers {
        Callers::default()
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
fn a_function_is_attached_by_its_address_and_by_a_unique_name_where_that_is_hidden() {
    let mut made = driver();
    let ioctl = |made: &CommandsMade| action(made, &facts(), &PlanRequest::default(), ProbeId::Ioctl);
    let target = |at| Action::Attach(vec![AttachTarget { symbol: "kfd_ioctl".into(), at }]);
    assert_eq!(ioctl(&made), target(At::Address(1)));
    made.0.insert("kfd_ioctl", (vec![0], false));
    assert_eq!(ioctl(&made), target(At::Name));
    made.0.insert("kfd_ioctl", (vec![0], true));
    assert!(matches!(ioctl(&made), Action::Skip(Verdict::Refused(why)) if why.contains("CAP_SYSLOG")));
}

#[test]
fn the_handler_that_sleeps_carries_no_probe() {
    let Action::Attach(targets) = action(&driver(), &facts(), &PlanRequest::default(), ProbeId::IoctlReturn)
    else {
        panic!("not attached")
    };
    let symbols: Vec<_> = targets.iter().map(|target| target.symbol.as_str()).collect();
    assert_eq!(symbols, ["kfd_ioctl_get_version"]);
}

#[test]
fn a_call_is_probed_as_a_whole_where_its_return_has_room_for_sleepers() {
    let mut facts = facts();
    let planned = |facts: &Facts, attach| {
        let choice = Choice { attach, ..Choice::default() };
        let planned = plan(&driver(), facts, &PlanRequest { choice, ..PlanRequest::default() });
        let row = planned.rows.into_iter().find(|row| row.row.id == ProbeId::IoctlReturn).unwrap();
        let Action::Attach(targets) = row.action else { panic!("not attached") };
        let targets: Vec<_> = targets.into_iter().map(|target| (target.symbol, target.at)).collect();
        (planned.whole_calls, targets)
    };
    let handler = (false, vec![("kfd_ioctl_get_version".to_owned(), At::Address(2))]);
    assert_eq!(planned(&facts, Attach::Single), handler);
    let whole = |at| (true, vec![("kfd_ioctl".to_owned(), at)]);
    facts.session = Some(7);
    assert_eq!(planned(&facts, Attach::Multi), handler, "nobody knows how many sleepers it has room for");
    facts.return_room = ReturnRoom::Pool;
    assert_eq!(planned(&facts, Attach::Single), handler, "a link would hold the driver");
    for attach in [Attach::Multi, Attach::Mixed] {
        assert_eq!(planned(&facts, attach), whole(At::Address(1)), "a session");
    }
    facts.session = None;
    facts.return_events = ["kfd_ioctl".to_owned()].into();
    for attach in [Attach::Single, Attach::Multi, Attach::Mixed, Attach::Tried] {
        assert_eq!(planned(&facts, attach), whole(At::ReturnEvent));
    }
}

#[test]
fn a_call_is_not_probed_as_a_whole_where_its_return_is_left_out_or_its_address_hidden() {
    let facts = Facts {
        return_events: ["kfd_ioctl".to_owned()].into(),
        return_room: ReturnRoom::All,
        session: Some(7),
        ..facts()
    };
    let planned = |made: &CommandsMade, facts: &Facts, without: &[ProbeId]| {
        let choice = Choice { attach: Attach::Multi, without: without.to_vec(), ..Choice::default() };
        let plan = plan(made, facts, &PlanRequest { choice, ..PlanRequest::default() });
        (plan.whole_calls, plan.session)
    };
    let session = CallSession { is_return: 7, function: 1 };
    assert_eq!(planned(&driver(), &facts, &[]), (true, Some(session)));
    assert_eq!(planned(&driver(), &facts, &[ProbeId::IoctlReturn]), (false, None));
    let mut hidden = driver();
    hidden.0.insert("kfd_ioctl", (vec![0], false));
    assert_eq!(planned(&hidden, &facts, &[]), (true, None), "by its event");
    let no_event = Facts { return_events: BTreeSet::new(), ..facts };
    assert_eq!(planned(&hidden, &no_event, &[]), (false, None));
}

#[test]
fn only_a_return_is_attached_to_its_event() {
    let mut made = with_queues();
    made.0.insert("update_queue", (vec![9], false));
    let facts = Facts { return_events: ["update_queue".to_owned()].into(), ..facts() };
    let at = |id| match action(&made, &facts, &PlanRequest::default(), id) {
        Action::Attach(targets) => targets[0].at,
        Action::Skip(verdict) => panic!("{verdict:?}"),
    };
    assert_eq!([ProbeId::QueueUpdateReturn, ProbeId::QueueUpdate].map(at), [At::ReturnEvent, At::Address(9)]);
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
    let names = ["evict_process_queues_cpsch", "restore_process_queues_nocpsch"];
    made.0.extend(names.iter().zip(0x10..).map(|(name, address)| (*name, (vec![address], false))));
    let planned = plan(&made, &facts(), &PlanRequest::default());
    let row = planned.rows.iter().find(|row| row.row.id == ProbeId::EvictGpuReturn).unwrap();
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

/// The worker asks for the reset of a hang that its own row, or that of `kfd_hws_hang`, has reported.
#[test]
fn requests_for_a_reset_are_probed_where_no_worker_makes_them() {
    let mut made = with_queues();
    made.0.insert("amdgpu_amdkfd_gpu_reset", (vec![0x10], false));
    made.0.insert("reset_queues_on_hws_hang", (vec![0x20], false));
    let actions = |made: &CommandsMade| {
        [ProbeId::HungQueues, ProbeId::ResetRequest]
            .map(|id| action(made, &facts(), &PlanRequest::default(), id))
    };
    assert!(actions(&made).iter().all(|action| matches!(action, Action::Attach(_))));
    made.0.insert("kfd_process_hw_exception", (vec![0x30], false));
    let replaced = Action::Skip(Verdict::ReportedBy("kfd_process_hw_exception"));
    assert_eq!(actions(&made), [replaced.clone(), replaced]);
}

/// Plans a driver that has the functions of hangs and runlists but these; the actions of the rows.
fn inlined(names: &[&'static str], choice: &Choice, ids: &[ProbeId]) -> Vec<Action> {
    let mut made = with_queues();
    let all = [
        "kfd_hws_hang",
        "reset_queues_on_hws_hang",
        "amdgpu_amdkfd_gpu_reset",
        "unmap_queues_cpsch",
        "create_queue_cpsch",
    ];
    let kept = all.iter().zip(0x100..).filter(|(name, _)| !names.contains(*name));
    made.0.extend(kept.map(|(name, address)| (*name, (vec![address], false))));
    let request = PlanRequest { choice: choice.clone(), ..PlanRequest::default() };
    ids.iter().map(|id| action(&made, &facts(), &request, *id)).collect()
}

fn attached(action: &Action) -> bool {
    matches!(action, Action::Attach(_))
}

/// ROCm's 6.12.12: `reset_queues_on_hws_hang` and the call of `kfd_hws_hang` after it are parts of their caller.
#[test]
fn hangs_whose_functions_are_inlined_are_seen_by_what_calls_these() {
    let ids = [ProbeId::HungQueues, ProbeId::HwsHang, ProbeId::ResetRequest, ProbeId::HangScope];
    let of = |names: &[&'static str]| inlined(names, &Choice::default(), &ids);
    let all = of(&[]);
    assert!(all[..3].iter().all(attached), "{all:?}");
    assert_eq!(all[3], Action::Skip(Verdict::ReportedBy("hung_queues")));
    for (name, row) in [("reset_queues_on_hws_hang", 0), ("kfd_hws_hang", 1)] {
        let without = of(&[name]);
        assert_eq!(without[row], Action::Skip(Verdict::ReportedBy("hang_scope")), "{name}");
        assert!(attached(&without[2]) && attached(&without[3]), "{name}: {without:?}");
        assert!(attached(&without[1 - row]), "{name}: {without:?}");
    }
}

/// ROCm's 6.0.5.
#[test]
fn preemptions_are_seen_where_their_function_is_inlined() {
    let ids = [ProbeId::RunlistUnmap, ProbeId::RunlistChange];
    let runlists = Choice { runlists: true, ..Choice::default() };
    assert!(attached(&inlined(&[], &runlists, &ids)[0]));
    let [unmap, change] = &inlined(&["unmap_queues_cpsch"], &runlists, &ids)[..] else { panic!() };
    assert_eq!(*unmap, Action::Skip(Verdict::ReportedBy("runlist_change")));
    assert!(attached(change));
    let not_asked = Action::Skip(Verdict::NotAsked);
    let unasked = inlined(&["unmap_queues_cpsch"], &Choice::default(), &ids);
    assert_eq!(unasked, [not_asked.clone(), not_asked]);
    let left_out = Choice { without: vec![ProbeId::RunlistUnmap], ..runlists.clone() };
    let [unmap, change] = &inlined(&[], &left_out, &ids)[..] else { panic!() };
    assert_eq!(*unmap, Action::Skip(Verdict::LeftOut), "as the user wants it");
    assert!(attached(change));
    let neither = Choice { without: ids.to_vec(), ..runlists };
    let left_out = Action::Skip(Verdict::LeftOut);
    assert_eq!(inlined(&[], &neither, &ids), [left_out.clone(), left_out]);
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
    let target = AttachTarget { symbol: "drm_sched_job".into(), at };
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
    let Action::Skip(verdict) = action(&driver(), &facts, &PlanRequest::default(), ProbeId::QueueAdd) else {
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
    assert_eq!(with(&["kfd_ioctl_of_tomorrow"]), (0x100, 0), "nothing is called unknown to a newer driver");
    assert_eq!(ends(&CommandsMade::default(), Named::default()), (0x100, 0));
}

#[test]
fn calls_that_change_memory_have_a_probe_of_their_own_where_the_handlers_have_none() {
    let mut made = with_queues();
    made.0.insert("kfd_ioctl_alloc_memory_of_gpu", (vec![0x40], false));
    let of = |ioctl_records, without: &[ProbeId]| {
        let choice = Choice { without: without.to_vec(), ..Choice::default() };
        action(&made, &facts(), &PlanRequest { ioctl_records, choice }, ProbeId::MemoryCall)
    };
    assert!(matches!(of(false, &[]), Action::Attach(targets) if targets.len() == 1));
    assert_eq!(of(true, &[]), Action::Skip(Verdict::ReportedBy("ioctl_handler")));
    assert!(
        matches!(of(true, &[ProbeId::IoctlHandler]), Action::Attach(_)),
        "else nothing has the arguments"
    );
    assert_eq!(of(false, &[ProbeId::MemoryCall]), Action::Skip(Verdict::LeftOut));
}
