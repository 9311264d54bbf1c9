use super::*;
use crate::workload::activity::Step;

fn parse(text: &str) -> Result<Operation> {
    text.parse()
}

#[test]
fn words_become_operations() {
    let plain = Create::of(QueueType::Sdma);
    let spoiled = Create { spoil: Spoil::Percentage, old: true, gpu: Place::Gpu(1), ..plain.clone() };
    assert_eq!(parse("create sdma bad old gpu=1").unwrap(), Operation::Create(spoiled));
    let created = Create { percent: Some(50), priority: Some(3), ring_size: Some(4096), ..plain };
    assert_eq!(parse("create sdma percent=50 priority=3 ring=4096").unwrap(), Operation::Create(created));
    assert_eq!(parse("unknown 0x82").unwrap(), Operation::Unknown { nr: 0x82, size: 0x28 });
    assert_eq!(parse("unknown 130 64").unwrap(), Operation::Unknown { nr: 0x82, size: 64 });
    let update = |priority, ring_size, no_ring| Operation::Update {
        queue: Which::Nth(3),
        percent: 0,
        priority,
        ring_size,
        no_ring,
    };
    assert_eq!(parse("update 3 0").unwrap(), update(7, None, false));
    assert_eq!(parse("update 3 0 priority=1 ring=4096 no-ring").unwrap(), update(1, Some(4096), true));
    let masked = Operation::CuMask { queue: Which::Id(1), mask: vec![0xff, 0] };
    assert_eq!(parse("cu-mask id=1 0xff 0x0").unwrap(), masked);
    assert_eq!(parse("criu").unwrap(), Operation::Criu(criu::Step::Nothing));
    assert_eq!(parse("criu restore /a").unwrap(), Operation::Criu(criu::Step::Restore("/a".into())));
    let unreadable = Create { unreadable: true, ..Create::of(QueueType::ComputeAql) };
    assert_eq!(parse("create aql unreadable").unwrap(), Operation::Create(unreadable));
    let submit = Activity { queue: Some(Which::Nth(3)), step: Step::Submit(9) };
    assert_eq!(parse("submit 3 9").unwrap(), Operation::Activity(submit));
    assert_eq!(parse("runtime-enable").unwrap(), Operation::RuntimeEnable);
    assert_eq!(parse("fork").unwrap(), Operation::Fork);
    assert_eq!(parse("use 1").unwrap(), Operation::Use(1));
    assert_eq!(parse("threads 9").unwrap(), Operation::Threads(9));
    assert_eq!(parse("create-crowd 9").unwrap(), Operation::CreateCrowd(9));
    assert_eq!(
        ["sleepers 9", "wake"].map(|text| parse(text).unwrap()),
        [Operation::Sleepers(9), Operation::Wake]
    );
    assert_eq!(parse(" clock ").unwrap(), Operation::Clock { gpu: Place::Gpu(0) });
    assert_eq!(parse("memory-policy gpu=none").unwrap(), Operation::MemoryPolicy { gpu: Place::Nowhere });
}

#[test]
fn a_number_counts_from_the_first_queue_and_an_id_is_itself() {
    assert_eq!(["2", "id=2"].map(|text| text.parse::<Which>().unwrap().id(4)), [6, 2]);
}

#[test]
fn what_would_crash_a_fake_gpu_is_refused() {
    assert!(parse("unknown 0x16").is_err());
    assert!(parse("unknown 0x82 4096").is_err());
    assert!(parse("unknown 300").is_err());
}

#[test]
fn nonsense_is_refused() {
    for text in [
        "",
        "create",
        "create gfx",
        "create aql fast",
        "destroy",
        "destroy id=",
        "version 2",
        "clock gpu=x",
        "update 1 2 x",
        "cu-mask 1 9",
        "criu restore",
        "submit 1",
        "map 1",
        "alloc vram",
        "fork 1",
    ] {
        assert!(parse(text).is_err(), "{text}");
    }
}
