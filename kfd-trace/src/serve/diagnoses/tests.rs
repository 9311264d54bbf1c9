use super::*;
use crate::serve::budget::PAUSES;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Reads by counting; `takes`: for so long.
fn ask(diagnoses: &Diagnoses<usize>, count: &Arc<AtomicUsize>, takes: Duration) -> Result<String, Refusal> {
    let count = Arc::clone(count);
    let read = move |progress: &Progress| {
        progress.begin(Step::Process(4711));
        thread::sleep(takes);
        Ok(count.fetch_add(1, Ordering::Relaxed))
    };
    diagnoses.ask(read, |number| Ok(number.to_string()))
}

#[test]
fn clients_within_a_second_share_a_reading() {
    let (diagnoses, count) = (Diagnoses::default(), Arc::default());
    let ask = || ask(&diagnoses, &count, Duration::from_millis(100));
    let answers: Vec<_> = thread::scope(|scope| {
        let all: Vec<_> = (0..20).map(|_| scope.spawn(ask)).collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    });
    assert_eq!(answers, vec![Ok("0".to_owned()); 20]);
    thread::sleep(SHARED);
    assert_eq!(ask(), Ok("1".to_owned()), "no answer is older");
}

#[test]
fn a_reading_that_is_not_shared_any_more_is_dropped() {
    let (diagnoses, reading) = (Diagnoses::default(), Arc::new(()));
    let read = Arc::clone(&reading);
    diagnoses.ask(|_| Ok(read), |_| Ok(String::new())).unwrap();
    diagnoses.drop_old();
    assert_eq!(Arc::strong_count(&reading), 2);
    thread::sleep(SHARED);
    diagnoses.drop_old();
    assert_eq!(Arc::strong_count(&reading), 1);
}

#[test]
fn a_reading_that_hangs_is_given_up_and_no_other_is_begun() {
    let diagnoses = Diagnoses { timeout: Duration::from_millis(100), ..Diagnoses::default() };
    let (release, hangs) = mpsc::channel::<()>();
    let hung = move |progress: &Progress| {
        progress.begin(Step::Process(4711));
        // Until the sender is dropped.
        let _ = hangs.recv();
        Ok(0)
    };
    let refused = |answer| match answer {
        Err(Refusal::Failed(why)) => {
            assert!(why.starts_with("looking into process 4711 takes more than 0 s"), "{why}");
        }
        answer => panic!("{answer:?}"),
    };
    refused(diagnoses.ask(hung, |number| Ok(number.to_string())));
    let count = Arc::default();
    for _ in 0..2 {
        refused(ask(&diagnoses, &count, Duration::ZERO));
    }
    assert_eq!(count.fetch_add(1, Ordering::Relaxed), 0);
    drop(release);
    let answer = until_answered(|| ask(&diagnoses, &count, Duration::ZERO));
    assert_ne!(answer, "0", "what came late is too old");
}

/// After what was given up has ended.
fn until_answered(ask: impl Fn() -> Result<String, Refusal>) -> String {
    let answers = || {
        thread::sleep(Duration::from_millis(20));
        ask().ok()
    };
    (0..1000).find_map(|_| answers()).expect("an answer")
}

/// Takes so much CPU time in all.
fn spin(cpu: Duration) {
    while cpu_time() < cpu {}
}

/// How much CPU time this reading took, and after what time another one begins.
fn pause_after(
    diagnoses: &Diagnoses<()>,
    read: impl FnOnce(&Progress) + Send + 'static,
    end: fn() -> Result<(), Refusal>,
) -> (Result<String, Refusal>, Duration, Duration) {
    let (ends, ended) = mpsc::channel();
    let read = move |progress: &Progress| {
        read(progress);
        ends.send((Instant::now(), cpu_time())).unwrap();
        end()
    };
    let answer = diagnoses.ask(read, |()| Ok(String::new()));
    let (ended, cpu) = ended.recv_timeout(Duration::from_secs(60)).expect("it ends");
    diagnoses.turn.lock().unwrap().last = None;
    let began = Arc::new(Mutex::new(None));
    until_answered(|| {
        let begins = Arc::clone(&began);
        let next = move |_: &Progress| {
            begins.lock().unwrap().get_or_insert_with(Instant::now);
            Ok(())
        };
        diagnoses.ask(next, |()| Ok(String::new()))
    });
    let began = began.lock().unwrap().expect("it began");
    (answer, cpu, began.duration_since(ended))
}

#[test]
fn a_client_without_pauses_takes_a_quarter_of_a_cpu() {
    type End = fn() -> Result<(), Refusal>;
    let ends: [(&str, End); 3] = [
        ("read", || Ok(())),
        ("refused", || Err(Refusal::Failed("why".to_owned()))),
        ("panicked", || panic!("on purpose")),
    ];
    for (what, end) in ends {
        let diagnoses = Diagnoses::default();
        let (_, cpu, paused) = pause_after(&diagnoses, |_| spin(Duration::from_millis(300)), end);
        assert!(paused >= cpu * PAUSES, "{what}: {paused:?} after {cpu:?}");
    }
}

#[test]
fn one_that_is_given_up_stops_and_its_cpu_time_counts() {
    let diagnoses = Diagnoses { timeout: Duration::from_millis(500), ..Diagnoses::default() };
    let read = |progress: &Progress| {
        while !progress.is_cancelled() {
            thread::sleep(Duration::from_millis(1));
        }
        spin(Duration::from_millis(200));
    };
    let (answer, cpu, paused) = pause_after(&diagnoses, read, || Ok(()));
    let Err(Refusal::Failed(why)) = answer else { panic!("{answer:?}") };
    assert!(why.starts_with("reading the driver takes more than 0 s"), "{why}");
    assert!(paused >= cpu * PAUSES, "{paused:?} after {cpu:?}");
}

#[test]
fn documents_of_a_shared_reading_have_pauses_too() {
    let diagnoses = Diagnoses::<()>::default();
    diagnoses.ask(|_| Ok(()), |()| Ok(String::new())).unwrap();
    // However long this takes, it is shared.
    let later = Instant::now() + Duration::from_secs(600);
    diagnoses.turn.lock().unwrap().last = Some((later, Arc::new(())));
    let (begins, began) = mpsc::channel();
    for _ in 0..2 {
        let begins = begins.clone();
        let write = move |(): &()| {
            begins.send(Instant::now()).unwrap();
            spin(Duration::from_millis(100));
            Ok(String::new())
        };
        diagnoses.ask(|_| panic!("shared"), write).unwrap();
    }
    let (first, second) = (began.recv().unwrap(), began.recv().unwrap());
    let apart = second.duration_since(first);
    assert!(apart >= Duration::from_millis(400), "100 ms of work, a pause of 300 ms: {apart:?}");
}

#[test]
fn a_pause_within_another_one_is_added() {
    let began = Instant::now();
    let at = |ms| began + Duration::from_millis(ms);
    let answer = |ended, cpu| Answer::<()> {
        reading: None,
        document: Ok(String::new()),
        ended: at(ended),
        cpu: Duration::from_millis(cpu),
    };
    let mut pause = Pause::default();
    pause.add(true, began, &answer(100, 100));
    assert_eq!((pause.reading, pause.document), (Some(at(400)), None));
    pause.add(false, at(200), &answer(210, 10));
    assert_eq!((pause.reading, pause.document), (Some(at(440)), Some(at(240))));
    pause.add(true, at(440), &answer(8440, 8000));
    assert_eq!(pause.reading, Some(at(8440) + LONGEST_PAUSE));
}

#[test]
fn a_refusal_and_a_panic_are_no_readings() {
    let diagnoses = Diagnoses::<()>::default();
    let refused = diagnoses.ask(|_| Err(Refusal::NotTraced("no driver".to_owned())), |()| panic!("unused"));
    assert_eq!(refused, Err(Refusal::NotTraced("no driver".to_owned())));
    let panicked = diagnoses.ask(|_| Ok(()), |()| panic!("on purpose"));
    assert!(matches!(panicked, Err(Refusal::Failed(line)) if line.contains("panicked")));
    assert_eq!(diagnoses.ask(|_| Ok(()), |()| Ok("well".to_owned())), Ok("well".to_owned()));
}

#[test]
fn what_takes_too_long_is_named() {
    let progress = Progress::default();
    for (step, line) in [
        (Step::Tracer, "waiting for the tracer takes more than 8 s"),
        (Step::Driver, "reading the driver takes more than 8 s: it may hang"),
        (Step::Settling, "the diagnosis takes more than 8 s: the node is busy"),
        (
            Step::Process(7),
            "looking into process 7 takes more than 8 s: its memory or one of its files blocks",
        ),
    ] {
        progress.begin(step);
        let Refusal::Failed(why) = too_long(TIMEOUT, &progress) else { panic!("{step:?}") };
        assert!(why.starts_with(line), "{why}");
    }
}
