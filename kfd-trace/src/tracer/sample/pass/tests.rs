use super::*;
use crate::model::event::{ProcessId, QueueFacts};
use crate::model::pointers::Counts;
use crate::model::pointers::samples::head_bytes;
use crate::state::Sought;
use crate::state::samples::facts;
use crate::tracer::sample::order::PATIENCE;
use crate::tracer::sample::samples::Procfs;

fn target(process: u64, tgid: u32, address: u64) -> Target {
    let queue = QueueFacts {
        write_pointer_address: Some(address + 0x38),
        read_pointer_address: Some(address + 0x80),
        ..facts(1)
    };
    let pointers = Pointers::of(&queue).expect("an AQL queue");
    let queues = vec![Sought { queue_id: 1, since_ns: 5, pointers }];
    let key = ProcessId(process).into();
    Target { key, tgid, uid: Some(1000), cgroup: None, start_boottime_ns: None, queues }
}

fn sampler(procfs: PathBuf) -> Sampler {
    Sampler::new(procfs, WaitingReaders::default())
}

fn pass(sampler: &mut Sampler, targets: &[Target]) -> Pass {
    match sampler.begin(targets.to_vec(), Instant::now()).run() {
        Read::All(pass) => pass,
        Read::Returned(key) => panic!("{key:?} was not set aside"),
    }
}

fn memories(sampler: &Sampler) -> Vec<ProcessKey> {
    lock(&sampler.shared).memories.keys().copied().collect()
}

fn readings(pass: &Pass) -> Vec<Result<(u64, u64), Unmeasured>> {
    let counts = |counts: Counts| (counts.submitted, counts.retired);
    pass.samples.iter().map(|sample| sample.reading.map(counts)).collect()
}

#[test]
fn a_file_of_a_memory_that_went_is_let_go() {
    let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("sleep");
    let targets = [target(1, child.id(), 0x1000)];
    let mut sampler = sampler("/proc".into());
    let before = readings(&pass(&mut sampler, &targets));
    let open = memories(&sampler).len();
    child.kill().expect("it lives");
    child.wait().expect("it ends");
    assert_eq!((before, open), (vec![Err(Unmeasured::Unreadable)], 1));
    assert_eq!(readings(&pass(&mut sampler, &targets)), [Err(Unmeasured::Gone)]);
    assert_eq!(memories(&sampler), [], "another thread of it may live");
}

#[test]
fn each_queue_is_read_through_one_file_of_its_process() {
    let head = head_bytes(9, 4);
    let own = std::process::id();
    let address = std::ptr::from_ref(&head) as u64;
    let targets = [target(1, own, address), target(2, u32::MAX, address), target(3, own, 0x1000)];
    let mut sampler = sampler("/proc".into());
    let from_ns = clock::mono_ns();
    let all = pass(&mut sampler, &targets);
    assert!(all.samples.iter().all(|sample| (from_ns..=all.at_ns).contains(&sample.at_ns)));
    assert_eq!(readings(&all), [Ok((9, 4)), Err(Unmeasured::Gone), Err(Unmeasured::Unreadable)]);
    assert!(all.cpu_ns > 0 && all.samples.iter().all(|sample| sample.since_ns == 5));
    assert_eq!(memories(&sampler), [ProcessId(1).into(), ProcessId(3).into()]);
    // It is opened once: if procfs no longer exists, it is read all the same.
    lock(&sampler.shared).procfs = "/nowhere".into();
    assert_eq!(readings(&pass(&mut sampler, &targets[..1])), [Ok((9, 4))]);
    assert_eq!(memories(&sampler).len(), 1, "who is not sampled any more is let go");
    lock(&sampler.shared).most = 1;
    lock(&sampler.shared).procfs = "/proc".into();
    assert_eq!(
        readings(&pass(&mut sampler, &[target(4, own, address), target(5, own, address)])),
        [Ok((9, 4)), Err(Unmeasured::Descriptors)]
    );
}

#[test]
fn a_bounded_number_of_threads_waits() {
    let procfs = Procfs::new();
    let blocking = procfs.blocking(4321);
    let mut sampler = sampler(procfs.path());
    let waiting = sampler.waiting.clone();
    let reader = sampler.begin(vec![target(1, blocking, 0)], Instant::now());
    let reader = std::thread::spawn(|| reader.run());
    let late = || Instant::now() + 2 * PATIENCE;
    while sampler.blocks(late()) != Some(blocking) {
        std::thread::sleep(PATIENCE / 100);
    }
    (0..MOST).for_each(|_| waiting.begins());
    assert!(sampler.set_aside(late()).is_none(), "some may be of an earlier sampler");
    waiting.ends();
    assert!(sampler.set_aside(late()).is_some() && waiting.count() == MOST);
    procfs.answer(blocking);
    let Ok(Read::Returned(_)) = reader.join() else { panic!("it was set aside") };
    assert_eq!(waiting.count(), MOST - 1);
}

#[test]
fn the_others_are_read_where_one_process_blocks_its_reader() {
    let procfs = Procfs::new();
    let (blocking, head) = (procfs.blocking(4321), head_bytes(9, 4));
    let own = procfs.own(77);
    let address = std::ptr::from_ref(&head) as u64;
    let all = [target(1, own, address), target(2, blocking, address), target(3, own, address)];
    let mut sampler = sampler(procfs.path());
    let first = sampler.begin(all.to_vec(), Instant::now());
    let first = std::thread::spawn(|| first.run());
    let late = || Instant::now() + 2 * PATIENCE;
    while sampler.blocks(late()) != Some(blocking) {
        std::thread::sleep(PATIENCE / 100);
    }
    assert!(sampler.blocks(Instant::now() - PATIENCE).is_none(), "it has its time");
    let Some(Read::All(pass)) = sampler.set_aside(late()).map(Reader::run) else { panic!("another goes on") };
    let by_process = |pass: &Pass| {
        let mut all: Vec<_> = pass.samples.iter().map(|sample| (sample.key, sample.reading)).collect();
        all.sort_unstable_by_key(|(key, _)| *key);
        all.into_iter().map(|(_, reading)| reading.map(|counts| counts.submitted)).collect::<Vec<_>>()
    };
    let expected = [Ok(9), Err(Unmeasured::Late), Ok(9)];
    assert_eq!((by_process(&pass), sampler.waiting.count()), (expected.to_vec(), 1));
    // It is not read again while its thread waits, nor soon after that.
    assert_eq!(by_process(&self::pass(&mut sampler, &all)), expected);
    procfs.answer(blocking);
    let Ok(Read::Returned(key)) = first.join() else { panic!("it was set aside") };
    assert_eq!(key, all[1].key);
    sampler.returned(key, Instant::now());
    assert_eq!(
        (by_process(&self::pass(&mut sampler, &all)), sampler.waiting.count()),
        (expected.to_vec(), 0)
    );
}
