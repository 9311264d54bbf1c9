//! What is left of a trace where only some of it is requested.

use super::*;
use crate::timeline::Shown;

fn chosen_by(filter: Box<Filter>) -> Vec<String> {
    let begin = Begin::new(Machine::default(), StateLimits::default());
    let mut replay = Replay::new(&begin, clock());
    let mut bytes = Vec::new();
    let mut timeline = Timeline::new(&mut bytes).expect("memory");
    timeline.choose(filter);
    let reading = Ok(Counts { submitted: 12, retired: 4 });
    let sample =
        Sample { key: ProcessId(1).into(), queue_id: 3, since_ns: 20, reading, at_ns: 1_000_000_000 };
    let inputs = [
        at(10, seen(false)),
        at(20, create(3)),
        at(30, Body::Evict(eviction())),
        Input::Sampled(vec![sample]),
        at(2_000_000_000, destroy(3)),
        at(2_000_000_010, Body::ProcessRelease),
    ];
    for item in [Item::Gpus(topology())].into_iter().chain(inputs.map(Item::Input)) {
        timeline.take(item, &mut replay).expect("memory");
    }
    timeline.settle(&mut replay).expect("memory");
    timeline.finish().expect("memory");
    lines(&Trace::decode(&bytes[..]).expect("a trace").packet)
}

#[test]
fn lives_stay_where_other_kinds_are_not_requested() {
    let shown = chosen_by(Box::new(|_, _, _| Shown::Lives));
    let expected = [
        "10 SliceBegin train train",
        "20 SliceBegin train/queue 3 gpu 0 compute_aql",
        "20 Counter gpu 0 (0000:c1:00.0, gfx942)/queues 1",
        "1000000000 Counter train/queue 3/queue 3 backlog 8",
        "2000000000 SliceEnd train/queue 3",
        "2000000000 Counter gpu 0 (0000:c1:00.0, gfx942)/queues 0",
        "2000000010 SliceEnd train",
    ];
    assert_eq!(shown, expected);
}

#[test]
fn a_process_that_is_not_requested_has_no_track() {
    assert_eq!(chosen_by(Box::new(|_, _, _| Shown::Nothing)), [""; 0]);
}
