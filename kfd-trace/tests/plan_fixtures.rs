//! The plan for the real kernels of the matrix, from files that `cargo xtask fixtures` took out of their
//! packages: symbols and types of the amdgpu module, types of the kernel.

use kfd_trace::events::event::QueueType;
use kfd_trace::kernel::{Kernel, Roots};
use kfd_trace::probes::facts::Facts;
use kfd_trace::probes::plan::{Action, Ask, At, Plan, plan};
use kfd_trace::verdict::Verdict;
use kfd_trace_common::counter::ProbeId;
use std::path::PathBuf;

fn kernel(series: &str) -> (Kernel, Facts) {
    let root = std::env::var("KFD_TRACE_FIXTURES").expect("KFD_TRACE_FIXTURES: run `cargo xtask test`");
    let kernel = Kernel::read(&Roots::under(&PathBuf::from(root).join(series))).expect("a fixture");
    let facts = Facts::gather(&kernel);
    (kernel, facts)
}

fn planned(series: &str, ask: Ask) -> Plan {
    let (kernel, facts) = kernel(series);
    plan(&kernel.symbols, &facts, ask)
}

fn action(plan: &Plan, id: ProbeId) -> &Action {
    &plan.rows.iter().find(|row| row.row.id == id).expect("a row").action
}

#[test]
#[ignore = "needs cargo xtask fixtures"]
fn with_the_drivers_types_every_probe_is_attached_by_name() {
    for series in ["6.1", "6.12", "7.2"] {
        let plan = planned(series, Ask { ioctl_records: true });
        for row in &plan.rows {
            let Action::Attach(targets) = &row.action else { panic!("{series}: {row:?}") };
            assert!(
                !targets.is_empty() && targets.iter().all(|target| target.at == At::Name),
                "{series}: {row:?}"
            );
        }
    }
}

#[test]
#[ignore = "needs cargo xtask fixtures"]
fn the_range_of_commands_is_that_of_the_driver() {
    // AMDKFD_COMMAND_END of each version's include/uapi/linux/kfd_ioctl.h.
    for (series, end) in [("5.10", 0x20), ("6.1", 0x24), ("6.12", 0x27), ("7.2", 0x29)] {
        let plan = planned(series, Ask::default());
        assert_eq!((plan.ioctl_end, plan.ioctl_rocm_end), (end, 0), "{series}");
    }
}

#[test]
#[ignore = "needs cargo xtask fixtures"]
fn every_command_but_wait_events_has_a_probed_handler() {
    for series in ["5.10", "6.1", "6.12", "7.2"] {
        let plan = planned(series, Ask::default());
        let Action::Attach(targets) = action(&plan, ProbeId::IoctlReturn) else { panic!("{series}") };
        // One handler for each command of 1..end, less the one that sleeps.
        assert_eq!(u32::try_from(targets.len()), Ok(plan.ioctl_end - 2), "{series}: {targets:?}");
    }
}

#[test]
#[ignore = "needs cargo xtask fixtures"]
fn without_the_drivers_types_ioctls_are_left() {
    let plan = planned("5.10", Ask::default());
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
    // enum kfd_queue_type, kfd_priv.h: 7.2 dropped DIQ, and the numbers behind it moved up.
    for (series, raw, expected) in [
        ("6.1", 4, QueueType::SdmaXgmi),
        ("6.12", 5, QueueType::SdmaByEngId),
        ("7.2", 3, QueueType::SdmaXgmi),
        ("7.2", 4, QueueType::SdmaByEngId),
    ] {
        let (_, facts) = kernel(series);
        assert_eq!(facts.layout.queue_type(raw), expected, "{series}");
        assert_eq!(facts.layout.format_aql, Some(1), "{series}");
    }
}

#[test]
#[ignore = "needs cargo xtask fixtures"]
fn the_sizes_of_arguments_are_those_of_the_driver() {
    for (series, create) in [("6.1", Some(88)), ("6.12", Some(96)), ("7.2", Some(96)), ("5.10", None)] {
        let (_, facts) = kernel(series);
        assert_eq!(facts.ioctl_sizes.get(&0x02).copied(), create, "{series}");
    }
}
