use super::*;
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
    let count = Arc::default();
    let hangs = Duration::from_millis(1500);
    let begin = Instant::now();
    for turn in 0..3 {
        let Err(Refusal::Failed(why)) = ask(&diagnoses, &count, hangs) else { panic!("{turn}") };
        assert!(why.starts_with("looking into process 4711 takes more than 0 s"), "{why}");
    }
    assert!(begin.elapsed() < Duration::from_millis(600), "the others do not wait for it");
    assert_eq!(count.load(Ordering::Relaxed), 0);
    thread::sleep(hangs);
    assert_eq!(ask(&diagnoses, &count, Duration::ZERO), Ok("1".to_owned()), "what came late is too old");
}

/// Takes CPU time until it is cancelled, or for so long.
fn spin(progress: &Progress, cpu: Duration) {
    let end = cpu_time() + cpu;
    while cpu_time() < end && !progress.is_cancelled() {}
}

/// How long after this reading another one begins.
fn pause_after(
    diagnoses: &Diagnoses<()>,
    read: impl FnOnce(&Progress) -> Result<(), Refusal> + Send + 'static,
) -> (Result<String, Refusal>, Duration) {
    let answer = diagnoses.ask(read, |()| Ok(String::new()));
    let (ended, began) = (Instant::now(), Arc::new(Mutex::new(None)));
    diagnoses.turn.lock().unwrap().last = None;
    thread::sleep(Duration::from_millis(50));
    let begins = Arc::clone(&began);
    let next = move |_: &Progress| {
        *begins.lock().unwrap() = Some(Instant::now());
        Ok(())
    };
    diagnoses.ask(next, |()| Ok(String::new())).unwrap();
    let began = began.lock().unwrap().expect("it began");
    (answer, began.duration_since(ended))
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
        let (_, paused) = pause_after(&Diagnoses::default(), move |progress| {
            spin(progress, Duration::from_millis(300));
            end()
        });
        assert!(paused >= Duration::from_millis(880), "{what}: {paused:?}");
    }
}

#[test]
fn one_that_is_given_up_stops_and_its_cpu_time_counts() {
    let diagnoses = Diagnoses { timeout: Duration::from_secs(2), ..Diagnoses::default() };
    let (answer, paused) = pause_after(&diagnoses, |progress| {
        thread::sleep(Duration::from_millis(1800));
        spin(progress, Duration::from_secs(600));
        Ok(())
    });
    let Err(Refusal::Failed(why)) = answer else { panic!("{answer:?}") };
    assert!(why.starts_with("reading the driver takes more than 2 s"), "{why}");
    assert!(paused >= Duration::from_millis(300), "of some 200 ms: {paused:?}");
}

#[test]
fn documents_of_a_shared_reading_have_pauses_too() {
    let diagnoses = Diagnoses::<()>::default();
    diagnoses.ask(|_| Ok(()), |()| Ok(String::new())).unwrap();
    let begin = Instant::now();
    for _ in 0..2 {
        let write = |(): &()| {
            spin(&Progress::default(), Duration::from_millis(100));
            Ok(String::new())
        };
        diagnoses.ask(|_| panic!("shared"), write).unwrap();
    }
    let took = begin.elapsed();
    assert!(took >= Duration::from_millis(490), "100 ms, a pause of 300 ms, 100 ms: {took:?}");
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
