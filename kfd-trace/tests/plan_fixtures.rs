//! The plan for the real kernels of the matrix, from files that `cargo xtask fixtures` took out of their
//! packages: symbols and types of the amdgpu module, types of the kernel.

mod fixture;

use kfd_trace::kernel::{Kernel, Roots};
use kfd_trace::model::event::QueueType;
use kfd_trace::model::verdict::Verdict;
use kfd_trace::probes::facts::Facts;
use kfd_trace::probes::plan::{Action, Choice, Plan, PlanRequest, plan};
use kfd_trace::probes::table::ProbeKind;
use kfd_trace_common::counter::ProbeId;

/// `None` for a series that Debian no longer has.
fn kernel(series: &str) -> Option<(Kernel, Facts)> {
    let kernel = Kernel::read(&Roots::under(&fixture::folder(series)?)).expect("a fixture");
    let facts = Facts::gather(&kernel);
    Some((kernel, facts))
}

fn planned(series: &str, ask: &PlanRequest) -> Option<Plan> {
    let (kernel, facts) = kernel(series)?;
    Some(plan(&kernel.symbols, &facts, ask))
}

fn action(plan: &Plan, id: ProbeId) -> &Action {
    &plan.rows.iter().find(|row| row.row.id == id).expect("a row").action
}

/// Rows without a target in a kernel with the driver's types, beside the one that the row of all handlers replaces; tracepoints are not in these fixtures.
fn absent(series: &str) -> Vec<ProbeId> {
    use ProbeId::{
        HangScope, HungQueues, HwException, HwsHang, MqdAddress, ResetRequest, ResumeQueues, RunlistChange,
        RunlistExecute, SuspendQueues, SuspensionReturn, UserQueue, UserQueueReturn,
    };
    let users = [UserQueueReturn, UserQueue];
    let requests = [HangScope, ResetRequest, HungQueues];
    match series {
        "6.1" => {
            let debugger = [SuspensionReturn, SuspendQueues, ResumeQueues];
            [&[MqdAddress, HwsHang][..], &requests, &users, &debugger, &[RunlistExecute, RunlistChange]]
                .concat()
        }
        "6.12" => [&[MqdAddress, HwException][..], &requests, &users, &[RunlistChange]].concat(),
        "7.2" => vec![MqdAddress, HwException, HangScope, RunlistChange],
        _ => vec![HwException, HangScope, RunlistChange],
    }
}

#[test]
#[ignore = "needs cargo xtask fixtures"]
fn with_the_drivers_types_every_probe_has_its_place() {
    for series in ["6.1", "6.12", "7.2", "7.3"] {
        let choice = Choice { runlists: true, ..Choice::default() };
        let request = PlanRequest { ioctl_records: true, choice };
        let Some(plan) = planned(series, &request) else { continue };
        let of_functions = plan.rows.iter().filter(|row| row.row.kind != ProbeKind::Tracepoint);
        let (attached, left): (Vec<_>, Vec<_>) =
            of_functions.partition(|row| matches!(row.action, Action::Attach(_)));
        let expected = [&[ProbeId::MemoryCall][..], &absent(series)].concat();
        assert_eq!(left.iter().map(|row| row.row.id).collect::<Vec<_>>(), expected, "{series}");
        assert!(!plan.queues_by_ioctl, "{series}");
        for row in attached {
            let Action::Attach(targets) = &row.action else { panic!("{series}: {row:?}") };
            assert!(!targets.is_empty(), "{series}: {row:?}");
            assert!(targets.iter().all(|target| target.address().is_some()), "{series}: {row:?}");
        }
    }
}

#[test]
#[ignore = "needs cargo xtask fixtures"]
fn every_copy_of_an_mqd_function_is_probed() {
    // Copies in the text of amdgpu.ko, without those of the kernel's own queues: cik, vi, v9, v10, v11, v12,
    // v12_1 and 9.4.3's own.
    for (series, init, update, moved, restore) in
        [("6.1", 10, 12, 0, 8), ("6.12", 13, 13, 0, 10), ("7.2", 15, 16, 0, 15), ("7.3", 15, 16, 2, 15)]
    {
        let Some(plan) = planned(series, &PlanRequest::default()) else { continue };
        let count = |id| match action(&plan, id) {
            Action::Attach(targets) => targets.len(),
            Action::Skip(Verdict::NotInKernel) => 0,
            other => panic!("{series}: {other:?}"),
        };
        let found =
            [ProbeId::MqdInit, ProbeId::MqdUpdate, ProbeId::MqdAddress, ProbeId::MqdRestore].map(count);
        assert_eq!(found, [init, update, moved, restore], "{series}");
        assert!(plan.rows.iter().all(|row| row.strangers.is_empty()), "{series}: {:?}", plan.rows);
    }
}

#[test]
#[ignore = "needs cargo xtask fixtures"]
fn the_mqd_functions_of_gpus_are_found_where_the_driver_has_types() {
    for (series, found) in [("5.10", false), ("6.1", true), ("6.12", true), ("7.2", true), ("7.3", true)] {
        let Some((_, facts)) = kernel(series) else { continue };
        assert_eq!(facts.mqds.is_some(), found, "{series}");
    }
}

#[test]
#[ignore = "needs cargo xtask fixtures"]
fn the_range_of_commands_is_that_of_the_driver() {
    // AMDKFD_COMMAND_END of each version's include/uapi/linux/kfd_ioctl.h.
    for (series, end) in [("5.10", 0x20), ("6.1", 0x24), ("6.12", 0x27), ("7.2", 0x29), ("7.3", 0x29)] {
        let Some(plan) = planned(series, &PlanRequest::default()) else { continue };
        assert_eq!((plan.ioctl_end, plan.ioctl_rocm_end), (end, 0), "{series}");
    }
}

#[test]
#[ignore = "needs cargo xtask fixtures"]
fn every_command_but_wait_events_has_a_probed_handler() {
    for series in ["5.10", "6.1", "6.12", "7.2", "7.3"] {
        let Some(plan) = planned(series, &PlanRequest::default()) else { continue };
        let Action::Attach(targets) = action(&plan, ProbeId::IoctlReturn) else { panic!("{series}") };
        // One handler for each command of 1..end, minus the one that sleeps.
        assert_eq!(u32::try_from(targets.len()), Ok(plan.ioctl_end - 2), "{series}: {targets:?}");
    }
}

#[test]
#[ignore = "needs cargo xtask fixtures"]
fn without_the_drivers_types_ioctls_are_left() {
    let Some(plan) = planned("5.10", &PlanRequest::default()) else { return };
    for id in [ProbeId::Ioctl, ProbeId::IoctlReturn, ProbeId::Open, ProbeId::CreateProcess, ProbeId::Release]
    {
        assert!(matches!(action(&plan, id), Action::Attach(_)), "{id:?}");
    }
    for id in [ProbeId::QueueAdd, ProbeId::QueueDel, ProbeId::NotifierRelease, ProbeId::WqRelease] {
        let Action::Skip(Verdict::MissingFields(fields)) = action(&plan, id) else { panic!("{id:?}") };
        assert!(fields.iter().all(|field| field.contains("no BTF of amdgpu")), "{id:?}: {fields:?}");
    }
}

#[test]
#[ignore = "needs cargo xtask fixtures"]
fn the_types_of_queues_are_numbered_by_each_kernel() {
    // enum kfd_queue_type, kfd_priv.h: 7.2 dropped DIQ, and the numbers after it moved up.
    for (series, raw, expected) in [
        ("6.1", 4, QueueType::SdmaXgmi),
        ("6.12", 5, QueueType::SdmaByEngId),
        ("7.2", 3, QueueType::SdmaXgmi),
        ("7.2", 4, QueueType::SdmaByEngId),
        ("7.3", 4, QueueType::SdmaByEngId),
    ] {
        let Some((_, facts)) = kernel(series) else { continue };
        assert_eq!(facts.layout.queue_type(raw), expected, "{series}");
        assert_eq!(facts.layout.format_aql, Some(1), "{series}");
    }
}

#[test]
#[ignore = "needs cargo xtask fixtures"]
fn misses_are_distinguished_from_6_7_on() {
    for (series, reported) in [("5.10", false), ("6.1", false), ("6.12", true), ("7.2", true), ("7.3", true)]
    {
        let Some((_, facts)) = kernel(series) else { continue };
        assert_eq!(facts.misses.is_some(), reported, "{series}");
    }
}

#[test]
#[ignore = "needs cargo xtask fixtures"]
fn the_sizes_of_arguments_are_those_of_the_driver() {
    for (series, create) in
        [("6.1", Some(88)), ("6.12", Some(96)), ("7.2", Some(96)), ("7.3", Some(96)), ("5.10", None)]
    {
        let Some((_, facts)) = kernel(series) else { continue };
        assert_eq!(facts.ioctl_sizes.get(&0x02).copied(), create, "{series}");
    }
}
