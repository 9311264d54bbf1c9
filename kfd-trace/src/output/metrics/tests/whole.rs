//! An exposition with every metric of the table. `cargo xtask rules` passes it to promtool.

use super::*;
use crate::model::incident::{Eviction, QueueUpdate, Trigger, VmFault};
use crate::model::inventory::Listed;
use crate::model::memory::samples::{VRAM, allocated, imported};
use crate::model::mes::MesQueue;
use crate::model::mes::samples::mes_queue;
use crate::model::pointers::Counts;
use crate::model::pointers::samples::sdma;
use crate::model::runlist::samples::{list, preemption};
use crate::model::runlist::{Preemption, Runlist};
use crate::model::suspension::samples::{resume_of_all, suspension};
use crate::state::Process;
use std::collections::BTreeSet;

/// Where the exposition is written (xtask/src/check/rules/exposition.rs).
const FILE: &str = "KFD_TRACE_EXPOSITION";

/// A state in which everything has happened once.
fn world() -> World {
    let mut world = World::new(traced());
    let gpu_id = Some(58270);
    let evict = |trigger| Eviction { gpu_id, trigger, errno: 0, latency_ns: 5 };
    let preemption = Preemption { latency_ns: 5_000, ..preemption() };
    let list = Runlist { unmapped_ns: Some(700), ..list() };
    for (at_ns, body) in [
        (30_000, Body::Open { comm: "train".into(), errno: 13 }),
        (
            40_000,
            Body::QueueUpdate(QueueUpdate {
                now: facts(3),
                cu_mask: None,
                mask_unread: false,
                errno: Some(22),
            }),
        ),
        (50_000, Body::Evict(evict(Some(Trigger::Ttm)))),
        (60_000, Body::Restore(evict(None))),
        (70_000, Body::VmFault(VmFault { gpu_id, access: None })),
        (75_000, Body::QueuesSuspended(suspension())),
        (76_000, Body::QueuesResumed(resume_of_all())),
        (80_000, Body::QueueCreate(sdma(4))),
        (81_000, Body::Preempt(preemption)),
        (82_000, Body::Preempt(Preemption { errno: 62, ..preemption })),
        (83_000, Body::Runlist(Runlist { errno: 12, ..list })),
        (84_000, Body::Runlist(list)),
        (84_500, Body::MesQueue(mes_queue())),
        (84_600, Body::MesQueue(MesQueue { errno: 110, ..mes_queue() })),
    ] {
        world.state.apply(&event(at_ns, 1, PID, body));
    }
    for body in [allocated(1, 58270, 4096, VRAM), imported(2, 58270)] {
        world.state.apply(&event(84_700, 1, PID, body));
    }
    let listed = Listed { tgid: PID, vram: [(58270, 4096)].into(), ..Listed::default() };
    world.state.count_vram(84_800.into(), &[listed]);
    for queue_id in [3, 4] {
        sampled(&mut world.state, queue_id, Ok(Counts { submitted: 9, retired: 4 }), 85_000);
    }
    world.state.apply(&event(87_000, 1, PID, Body::Evict(evict(Some(Trigger::Svm)))));
    world.state.apply(&event(88_000, 2, 5000, seen(false)));
    world.state.apply(&event(90_000, 2, 5000, Body::MmRelease));
    let open = [DESTROY, WAIT].map(|cmd| open_call(1, cmd, PID, 1_000_000_000));
    world.tables = Tables {
        whole_calls: true,
        ioctls: vec![ioctl_row(1, CREATE, 3, 1_500)],
        errors: vec![error_row(1, CREATE, 22, 2)],
        counters: counters(&[], &[(loss::trouble(ProbeId::QueueAdd, Trouble::QueueUnreadable), 1)]),
        missed: [(ProbeId::Open, Missed { program_skipped: Some(1), probe_missed: Some(2) })].into(),
        ..Tables::default().with_open(open.into())
    };
    world.collectors = [BPF_MAPS, STATE, SYSFS]
        .map(|collector| Collected { collector, took_ns: 1_000, failed: None })
        .into();
    world.detail.queues = Some(10);
    world.samples.last_ns = Some(2_000_000_000);
    let identity = |row: &Process| (row.tgid, row.id());
    let processes = world.state.snapshot().processes.iter().map(identity).collect();
    world.admitted = Some(Admitted { processes: std::sync::Arc::new(processes), refused: 4 });
    world
}

#[test]
fn every_metric_of_the_table_is_exported_and_no_other() {
    let text = world().text();
    let exported: BTreeSet<_> =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    let described: BTreeSet<_> = describe().iter().map(|doc| doc.name).collect();
    assert_eq!(exported.symmetric_difference(&described).collect::<Vec<_>>(), Vec::<&&str>::new());
    if let Some(file) = std::env::var_os(FILE) {
        std::fs::write(file, text).expect("a file that can be written");
    }
}

#[test]
fn the_exposition_as_a_whole() {
    crate::output::golden::check("metrics.prom", &world().text());
}
