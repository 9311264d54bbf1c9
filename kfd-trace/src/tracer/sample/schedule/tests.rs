use super::*;
use crate::kernel::Roots;
use crate::model::event::ProcessId;
use crate::runtime::timeout::LONG;
use crate::tracer::sample::order::PATIENCE;
use crate::tracer::sample::samples::Procfs;

const MS: Duration = Duration::from_millis(1);

#[test]
fn the_interval_stretches_where_a_sample_takes_more_than_its_share() {
    assert_eq!(stretched(1000 * MS, 10 * MS), 1000 * MS);
    assert_eq!(stretched(1000 * MS, 11 * MS), 1100 * MS);
    assert_eq!(stretched(1000 * MS, 10_000 * MS), 60_000 * MS);
    assert_eq!(stretched(90_000 * MS, 10_000 * MS), 90_000 * MS);
}

fn new(interval: Duration, procfs: PathBuf) -> Sampling {
    Sampling::new(interval, procfs, WaitingReaders::default())
}

/// A process that does not exist.
fn missing_process() -> Target {
    let (key, start_boottime_ns) = (ProcessId(1).into(), None);
    Target { key, tgid: u32::MAX, uid: None, cgroup: None, start_boottime_ns, queues: Vec::new() }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    runtime.expect("a runtime").block_on(future)
}

#[test]
fn a_sample_of_no_process_takes_no_thread() {
    block_on(async {
        let mut sampling = new(1000 * MS, "/proc".into());
        assert!(matches!(sampling.step().await, Ok(Step::Due)));
        sampling.begin(Vec::new());
        assert!(sampling.running.is_none() && sampling.overdue().is_none());
        let Ok(Step::Done(pass)) = sampling.step().await else { panic!("it is over") };
        assert!(pass.samples.is_empty());
        let timer = tokio::time::timeout(Duration::from_secs(3600), sampling.step()).await;
        assert!(timer.is_err(), "it has no timer: {timer:?}");
        sampling.turn();
        assert!(matches!(sampling.step().await, Ok(Step::Due)), "at the next turn");
        sampling.begin(Vec::new());
        sampling.turn();
        assert!(matches!(sampling.step().await, Ok(Step::Done(_))));
        tokio::time::advance(900 * MS).await;
        sampling.turn();
        assert!(matches!(sampling.step().await, Ok(Step::Due)), "a turn may be early");
        sampling.begin(vec![missing_process()]);
        assert!(matches!(sampling.step().await, Ok(Step::Done(_))));
        assert!(matches!(sampling.step().await, Ok(Step::Due)), "by a timer again");
    });
}

#[test]
fn samples_follow_each_other_and_never_where_they_are_off() {
    block_on(async {
        let mut sampling = new(1000 * MS, "/proc".into());
        let mut tracer = Tracer::idle(&Roots::default());
        let begin = Instant::now();
        for cpu in [MS, 20 * MS, MS] {
            assert!(matches!(sampling.step().await, Ok(Step::Due)));
            sampling.begin(vec![missing_process()]);
            let Ok(Step::Done(mut pass)) = sampling.step().await else { panic!("it is done") };
            pass.cpu_ns = u64::try_from(cpu.as_nanos()).unwrap();
            sampling.take(&mut tracer, &pass);
            let stretched = (1000 * MS).max(100 * cpu);
            assert_eq!(u128::from(tracer.samples.interval_ns), stretched.as_nanos());
        }
        assert!(matches!(sampling.step().await, Ok(Step::Due)));
        let passed = begin.elapsed();
        assert!((4000 * MS..4900 * MS).contains(&passed), "1 s, 2 s, 1 s: {passed:?}");
        assert_eq!(tracer.samples.cpu_ns, 22_000_000);
        assert!(tracer.samples.last_ns.is_some());
        let mut off = new(Duration::ZERO, "/proc".into());
        let step = tokio::time::timeout(Duration::from_secs(3600), off.step()).await;
        assert!(step.is_err(), "{step:?}");
    });
}

/// A process whose memory blocks until it answers.
const BLOCKING: u32 = 4321;

/// That process, and one whose memory does not block.
fn targets(procfs: &Procfs) -> Vec<Target> {
    let target = |process, tgid| Target { key: ProcessId(process).into(), tgid, ..missing_process() };
    vec![target(1, procfs.blocking(BLOCKING)), target(2, procfs.own(77))]
}

/// A test that takes this long waits for the process that blocks, and would for ever.
const HANGS: Duration = Duration::from_secs(60);

/// Threads that block wait in real time, which cannot be paused.
fn in_real_time(test: impl AsyncFnOnce(&Procfs, &[Target])) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let procfs = Procfs::new();
    let targets = targets(&procfs);
    let ended = runtime.block_on(async { tokio::time::timeout(HANGS, test(&procfs, &targets)).await });
    ended.expect("the sampling waits for the process that blocks");
}

fn tracing(procfs: &Procfs) -> (Tracer, Sampling) {
    let tracer = Tracer::idle(&Roots::default());
    let sampling = Sampling::new(10 * MS, procfs.path(), tracer.samples.waiting.clone());
    (tracer, sampling)
}

#[test]
fn a_process_that_blocks_is_set_aside_and_the_sample_ends() {
    in_real_time(async |procfs, targets| {
        let (mut tracer, mut sampling) = tracing(procfs);
        let waiting = tracer.samples.waiting.clone();
        assert!(matches!(sampling.step().await, Ok(Step::Due)));
        sampling.begin(targets.to_vec());
        let Ok(Step::Done(pass)) = sampling.step().await else { panic!("it is done") };
        sampling.take(&mut tracer, &pass);
        assert_eq!((waiting.count(), sampling.is_late()), (1, false));
        // The next ones come and go while it waits.
        for _ in 0..2 {
            assert!(matches!(sampling.step().await, Ok(Step::Due)));
            sampling.begin(targets.to_vec());
            assert!(matches!(sampling.step().await, Ok(Step::Done(_))));
            assert_eq!((sampling.watch(), waiting.count()), (Vec::new(), 1));
        }
        procfs.answer(BLOCKING);
        while waiting.count() > 0 {
            assert!(matches!(sampling.step().await, Ok(Step::Due)));
            sampling.begin(targets.to_vec());
            assert!(matches!(sampling.step().await, Ok(Step::Done(_))));
        }
    });
}

#[test]
fn a_process_that_blocks_is_named_and_so_is_one_that_answers_too_late() {
    for (answers, expected) in
        [(false, "process 4321 blocks"), (true, "memory of process 4321 takes too long")]
    {
        in_real_time(async |procfs, targets| {
            let mut sampling = new(1000 * MS, procfs.path());
            sampling.begin(targets.to_vec());
            let blocks = |sampling: &Sampling| {
                let sampler = sampling.sampler.as_ref().expect("it samples");
                sampler.blocks(std::time::Instant::now() + 2 * PATIENCE)
            };
            while blocks(&sampling).is_none() {
                std::thread::sleep(MS);
            }
            std::thread::sleep(PATIENCE + 100 * MS);
            if answers {
                procfs.answer(BLOCKING);
                assert!(matches!(joined(&mut sampling.threads).await, Ok(Read::All(_))));
            }
            let lines = sampling.watch();
            assert!(lines.len() == 1 && lines[0].contains(expected), "{lines:?}");
            if !answers {
                procfs.answer(BLOCKING);
            }
        });
    }
}

/// An unload of the driver ends the sampling, not the thread.
#[test]
fn threads_that_wait_are_counted_until_they_return_also_after_the_sampling() {
    in_real_time(async |procfs, targets| {
        let (mut tracer, mut sampling) = tracing(procfs);
        sampling.begin(targets.to_vec());
        assert!(matches!(sampling.step().await, Ok(Step::Done(_))));
        drop(sampling);
        tracer.samples.interval_ns = 60_000_000_000;
        tracer.driver_unloaded();
        let shown = tracer.samples.clone();
        assert_eq!(shown.interval_ns, 0, "as requested of this one, no longer stretched");
        assert_eq!(shown.waiting.count(), 1, "it waits all the same");
        procfs.answer(BLOCKING);
        while shown.waiting.count() > 0 {
            tokio::time::sleep(10 * MS).await;
        }
    });
}

#[test]
fn a_sample_that_takes_long_is_reported_once() {
    let procfs = Procfs::new();
    let targets = targets(&procfs);
    block_on(async {
        let mut sampling = new(1000 * MS, procfs.path());
        assert_eq!(sampling.overdue(), None, "none is under way");
        sampling.begin(targets);
        tokio::time::advance(LONG - MS).await;
        assert_eq!((sampling.overdue(), sampling.is_late()), (None, false));
        tokio::time::advance(2 * MS).await;
        let line = sampling.overdue().expect("a line");
        assert!(line.contains("has taken 30 s") && sampling.is_late(), "{line}");
        assert_eq!(sampling.overdue(), None);
        procfs.answer(BLOCKING);
    });
}
