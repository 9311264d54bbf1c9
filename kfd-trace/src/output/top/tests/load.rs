//! Sums over queues, trends, and a crowd.

use super::*;
use crate::output::load::Load;
use rustix::time::{ClockId, clock_gettime};

fn load(node: &Node, tgid: u32) -> Load {
    let mut load = Load::default();
    let process = node.state.process_of_tgid(tgid).expect("it lives");
    process.queues.values().for_each(|queue| load.add(queue));
    load
}

#[test]
fn sums_are_of_what_is_measured_and_marked_where_it_is_not_all() {
    let mut node = Node::new(1);
    node.process(1, 7, "one", ProcessDetails::default());
    assert_eq!((load(&node, 7).rate(), load(&node, 7).backlog()), (None, None), "no queue");
    node.queue(1, 7, 1, 0, QueueType::ComputeAql);
    assert_eq!((load(&node, 7).rate(), load(&node, 7).backlog()), (None, None), "not read yet");
    node.counts(1, &[(1, 100, 90)]);
    let text = |text: &str| Some(text.to_owned());
    assert_eq!((load(&node, 7).rate(), load(&node, 7).backlog()), (None, text("10")), "a rate takes two");
    node.counts(1, &[(2, 200, 190)]);
    node.queue(1, 7, 2, 0, QueueType::ComputeAql);
    assert_eq!((load(&node, 7).rate(), load(&node, 7).backlog()), (text("≥100/s"), text("≥10")));
    node.counts(2, &[(1, 0, 0), (2, 50, 45)]);
    assert_eq!((load(&node, 7).rate(), load(&node, 7).backlog()), (text("145/s"), text("15")));
    node.queue(1, 7, 3, 0, QueueType::Sdma);
    assert_eq!(load(&node, 7).rate(), text("145/s"), "bytes are another sum");
    sampled(&mut node.state, 2, Err(Unmeasured::Denied), 3 * S);
    assert_eq!(load(&node, 7).rate(), text("≥100/s"));
    assert_eq!(load(&node, 7).idle_ns(), Some(0), "one is busy");
}

#[test]
fn idle_is_known_only_where_all_are_measured() {
    let mut node = Node::new(1);
    node.process(1, 7, "one", ProcessDetails::default());
    node.queue(1, 7, 1, 0, QueueType::ComputeAql);
    node.queue(1, 7, 2, 0, QueueType::ComputeAql);
    node.counts(1, &[(1, 5, 5), (9, 5, 5)]);
    assert_eq!(load(&node, 7).idle_ns(), None);
    node.counts(2, &[(4, 5, 5), (9, 5, 5)]);
    assert_eq!(load(&node, 7).idle_ns(), Some(5 * S), "of the one that was busy last");
}

#[test]
fn a_trend_has_what_came_between_two_moments() {
    let moment = node().moment(30);
    let of = |moment: &Moment| {
        let trends = trends(moment);
        let trend = trends.of(GPU + 1).expect("a GPU").clone();
        let points = |points: std::collections::VecDeque<_>| Vec::from(points);
        (points(trend.packets), points(trend.evictions))
    };
    let (packets, evictions) = of(&moment);
    assert_eq!(packets, [Some(0), Some(0), Some(0), Some(0)], "gpu 1 has SDMA, and what does not run");
    assert_eq!(evictions, [None, Some(0), Some(0), Some(1)]);
    let blind = Moment { sight: Sight::default(), sample: Some(Duration::ZERO), ..moment };
    assert_eq!(of(&blind).1, [None; 4]);
    assert_eq!(of(&blind).0[0], None);
}

/// CPU time of this thread.
fn cpu() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(u64::try_from(now.tv_sec).expect("a time"), u32::try_from(now.tv_nsec).expect("a time"))
}

/// The bound is several times what a build without optimisation takes.
#[test]
fn a_screen_of_10_000_queues_is_cheap() {
    let mut node = Node::new(8);
    for process in 0..500_u32 {
        let (number, tgid) = (u64::from(process) + 1, 1_000 + process);
        node.process(number, tgid, "train", of_cgroup("/slurm/uid_5/job_7/step_0"));
        for queue in 0..20 {
            node.queue(number, tgid, process * 20 + queue, queue % 8, QueueType::ComputeAql);
        }
    }
    let moment = node.moment(30);
    let mut shown = Trends::default();
    for keys in ["", "t"] {
        let ui = typed(&moment, keys);
        let begin = cpu();
        shown.add(&moment);
        let trends = cpu();
        let view = View::new(&moment, &shown, &ui, Size { width: 200, height: 60 });
        let made = cpu();
        let _ = drawn(&view, (200, 60), true);
        let end = cpu();
        println!("{keys:?}: trends {:?}, view {:?}, frame {:?}", trends - begin, made - trends, end - made);
        assert!(end - begin < Duration::from_secs(1), "{:?}", end - begin);
        assert!(view.panes.iter().all(|pane| pane.rows.len() < 60), "only what is visible");
    }
}
