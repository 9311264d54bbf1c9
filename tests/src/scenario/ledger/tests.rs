use super::*;

const GPUS: [u32; 2] = [11, 22];
const ONE: Owner = Owner { agent: 1, context: None };

fn made(queue_id: u32) -> Answer {
    Answer::Created(Made { queue_id, ring: 0x1000, write_pointer: 0x38, read_pointer: 0x80 })
}

fn create(owner: Owner, gpu_id: u32) -> Op {
    let queue_type = QueueType::ComputeAql;
    let new =
        NewQueue { gpu_id, queue_type, priority: 7, percent: 100, ring_size: 4096, engine: 0, spoilt: false };
    Op::Create { owner, new }
}

fn change(percent: u32, ring_size: u32, no_ring: bool) -> Op {
    let change = Change { priority: 3, percent, ring_size, no_ring };
    Op::Update { owner: ONE, queue_id: 0, change }
}

/// One agent with queue 0 on the first GPU and queue 1 on the second.
fn two_queues() -> Ledger {
    let mut ledger = Ledger::new(&GPUS, Vms::Together, 1024);
    ledger.apply(&Op::Start { agent: 1 }, &Answer::Started { pid: 100 }).unwrap();
    ledger.apply(&create(ONE, 11), &made(0)).unwrap();
    ledger.apply(&create(ONE, 22), &made(1)).unwrap();
    ledger
}

fn done(ledger: &mut Ledger, op: &Op) {
    ledger.apply(op, &Answer::Done).unwrap();
}

fn queue(ledger: &Ledger, queue_id: u32) -> &Queue {
    &ledger.process(ONE).unwrap().queues[&queue_id]
}

/// Evicted, how often, active: of queue 0 and queue 1.
fn eviction(ledger: &Ledger) -> [(bool, u64, bool); 2] {
    [0, 1].map(|id| queue(ledger, id)).map(|queue| (queue.evicted, queue.evictions, queue.active()))
}

#[test]
fn an_update_replaces_properties_and_is_one_mqd_write() {
    let mut ledger = two_queues();
    done(&mut ledger, &change(50, 512, false));
    let updated = queue(&ledger, 0);
    assert_eq!((updated.percent, updated.priority, updated.updates), (50, 3, 1));
    assert_eq!(updated.ring_size, 1024, "the driver's least");
    let mut without = Ledger { min_ring: 0, ..two_queues() };
    done(&mut without, &change(50, 512, false));
    assert_eq!(queue(&without, 0).ring_size, 512, "of a driver that has none");
    assert_eq!((updated.ring_address(), updated.active()), (0x1000, true));
    done(&mut ledger, &change(50, 4096, true));
    assert_eq!((queue(&ledger, 0).ring_address(), queue(&ledger, 0).active()), (0, false));
    done(&mut ledger, &change(0, 4096, false));
    assert_eq!((queue(&ledger, 0).ring_address(), queue(&ledger, 0).active()), (0x1000, false));
    assert_eq!(ledger.mqd_writes, MqdWrites { init: 2, update: 3 });
    assert_eq!(queue(&ledger, 1).updates, 0);
}

#[test]
fn a_cu_mask_is_an_update_of_the_mqd_alone() {
    let mut ledger = two_queues();
    done(&mut ledger, &Op::CuMask { owner: ONE, queue_id: 1, mask: vec![0xff, 1] });
    let masked = queue(&ledger, 1);
    assert_eq!((masked.cu_mask.as_deref(), masked.updates, masked.percent), (Some(&[0xff, 1][..]), 1, 100));
    assert_eq!(ledger.mqd_writes.update, 1);
    done(&mut ledger, &Op::Destroy { owner: ONE, queue_id: 1 });
    assert_eq!(ledger.mqd_writes, MqdWrites { init: 2, update: 1 }, "of dead queues too");
}

#[test]
fn what_was_refused_changes_nothing() {
    let mut ledger = two_queues();
    let before = ledger.process(ONE).unwrap().clone();
    let refused = Answer::Refused("EINVAL".to_owned());
    ledger.apply(&change(101, 4096, false), &refused).unwrap();
    ledger.apply(&Op::Destroy { owner: ONE, queue_id: 0 }, &refused).unwrap();
    ledger.apply(&create(ONE, 11), &refused).unwrap();
    assert_eq!((ledger.process(ONE), ledger.mqd_writes.update), (Some(&before), 0));
}

#[test]
fn only_the_first_eviction_and_the_last_restore_are_real() {
    let mut ledger = two_queues();
    done(&mut ledger, &Op::Evict { agent: 1 });
    done(&mut ledger, &Op::Evict { agent: 1 });
    assert_eq!(eviction(&ledger), [(true, 1, false); 2]);
    done(&mut ledger, &Op::Restore { agent: 1 });
    assert_eq!(eviction(&ledger), [(true, 1, false); 2]);
    done(&mut ledger, &Op::Restore { agent: 1 });
    assert_eq!(eviction(&ledger), [(false, 1, true); 2]);
    assert!(ledger.apply(&Op::Restore { agent: 1 }, &Answer::Done).is_err(), "nothing is left to restore");
    assert_eq!(ledger.process(ONE).unwrap().gpus[&22], OnGpu { refs: 0, evictions: 1, vm: true });
}

#[test]
fn ttm_restores_by_itself_but_not_what_another_evicted() {
    let mut ledger = two_queues();
    done(&mut ledger, &Op::TtmEvict { agent: 1 });
    assert_eq!(eviction(&ledger), [(false, 1, true); 2]);
    done(&mut ledger, &Op::Evict { agent: 1 });
    done(&mut ledger, &Op::TtmEvict { agent: 1 });
    assert_eq!(eviction(&ledger), [(true, 2, false); 2]);
}

#[test]
fn a_fault_evicts_from_the_first_gpu_for_good() {
    let mut ledger = two_queues();
    done(&mut ledger, &Op::Fault { agent: 1 });
    assert_eq!(eviction(&ledger), [(true, 1, false), (false, 0, true)]);
    assert!(!ledger.process(ONE).unwrap().restorable());
    done(&mut ledger, &Op::Evict { agent: 1 });
    assert_eq!(eviction(&ledger), [(true, 1, false), (true, 1, false)]);
    done(&mut ledger, &Op::Restore { agent: 1 });
    assert_eq!(eviction(&ledger), [(true, 1, false), (false, 1, true)]);
    assert_eq!((ledger.vm_faults, ledger.process(ONE).unwrap().vm_faults), (1, 1));
}

#[test]
fn a_queue_of_an_evicted_process_is_born_evicted() {
    let mut ledger = two_queues();
    done(&mut ledger, &Op::Evict { agent: 1 });
    ledger.apply(&create(ONE, 11), &made(2)).unwrap();
    assert_eq!((queue(&ledger, 2).evicted, queue(&ledger, 2).evictions), (true, 1));
    done(&mut ledger, &Op::Restore { agent: 1 });
    assert!(queue(&ledger, 2).active());
}

#[test]
fn a_gpu_without_a_vm_counts_along_and_is_not_evicted() {
    let mut ledger = Ledger::new(&GPUS, Vms::Each, 1024);
    ledger.apply(&Op::Start { agent: 1 }, &Answer::Started { pid: 100 }).unwrap();
    ledger.apply(&create(ONE, 22), &made(0)).unwrap();
    let fault = ledger.apply(&Op::Fault { agent: 1 }, &Answer::Done);
    assert!(fault.is_err(), "the first GPU has no VM to fault in");
    done(&mut ledger, &Op::Evict { agent: 1 });
    let gpus = |ledger: &Ledger| GPUS.map(|gpu| ledger.process(ONE).unwrap().gpus[&gpu]);
    let [first, second] = gpus(&ledger);
    assert_eq!(first, OnGpu { refs: 1, evictions: 0, vm: false });
    assert_eq!(second, OnGpu { refs: 1, evictions: 1, vm: true });
    ledger.apply(&create(ONE, 11), &made(1)).unwrap();
    assert!(queue(&ledger, 1).evicted, "the count is kept");
    done(&mut ledger, &Op::Restore { agent: 1 });
    assert!(!queue(&ledger, 1).evicted);
    assert_eq!(gpus(&ledger)[0], OnGpu { refs: 0, evictions: 0, vm: true });
}

#[test]
fn a_refused_engine_has_bound_the_process() {
    let mut ledger = Ledger::new(&GPUS, Vms::Each, 1024);
    ledger.apply(&Op::Start { agent: 1 }, &Answer::Started { pid: 100 }).unwrap();
    let refused = Answer::Refused("EINVAL".to_owned());
    ledger.apply(&create(ONE, 11), &refused).unwrap();
    assert!(!ledger.process(ONE).unwrap().bound);
    let Op::Create { owner, new } = create(ONE, 11) else { panic!("a creation") };
    let new = NewQueue { queue_type: QueueType::SdmaByEngId, engine: 2, ..new };
    ledger.apply(&Op::Create { owner, new }, &refused).unwrap();
    assert_eq!(GPUS.map(|gpu| ledger.process(ONE).unwrap().gpus[&gpu].vm), [true, false]);
}

#[test]
fn a_context_is_a_process_of_its_own_that_ends_with_its_descriptor() {
    let mut ledger = two_queues();
    ledger.apply(&Op::Context { agent: 1 }, &Answer::Context { id: 5 }).unwrap();
    let second = Owner { agent: 1, context: Some(5) };
    ledger.apply(&create(second, 11), &made(0)).unwrap();
    done(&mut ledger, &Op::Evict { agent: 1 });
    assert!(
        !ledger.process(second).unwrap().queues[&0].evicted,
        "the primary one alone is found by its memory"
    );
    done(&mut ledger, &Op::Close { owner: second });
    assert_eq!(ledger.processes().map(|(owner, _)| owner).collect::<Vec<_>>(), [ONE]);
    done(&mut ledger, &Op::Close { owner: ONE });
    assert_eq!(ledger.process(ONE).map(|process| (process.open, process.queues.len())), Some((false, 2)));
    ledger.apply(&Op::Context { agent: 1 }, &Answer::Context { id: 5 }).unwrap();
    done(&mut ledger, &Op::Kill { agent: 1 });
    assert_eq!(ledger.processes().count(), 0, "its contexts are gone, too");
}

#[test]
fn impossible_answers_are_errors() {
    let mut ledger = two_queues();
    assert!(ledger.apply(&create(ONE, 11), &made(1)).is_err(), "an id in use");
    assert!(ledger.apply(&Op::Destroy { owner: ONE, queue_id: 9 }, &Answer::Done).is_err(), "no such queue");
    assert!(ledger.apply(&Op::Fork { agent: 1 }, &Answer::Done).is_err(), "a child is refused");
    ledger.apply(&Op::Fork { agent: 1 }, &Answer::Refused("EBADF".to_owned())).unwrap();
    ledger.apply(&Op::Start { agent: 2 }, &Answer::Started { pid: 101 }).unwrap();
    assert!(ledger.apply(&Op::Evict { agent: 2 }, &Answer::Done).is_err(), "not bound");
}
