use super::control::{Descriptors, Orders, receive_files, receive_orders, send_files, send_orders};
use super::lane::{Lanes, answer, pairs};
use crate::output::api::{Refusal, Resource};
use crate::output::metrics::Format;
use crate::output::page::Place;
use crate::runtime::confine::Seccomp;
use crate::runtime::frames::{read_frame, write_frame};
use crate::serve::budget::{Budget, PAUSES, cpu_time};
use crate::serve::question::PageSource;
use crate::serve::web::settings::SettingsSource;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

pub(super) struct Fake;

/// What a diagnosis takes.
pub(super) const SLOW: Duration = Duration::from_secs(3);

impl PageSource for Fake {
    fn metrics(&self, format: Format) -> Result<String, String> {
        Ok(format.content_type().repeat(100_000))
    }

    fn page(&self, place: Place, pairs: &[(String, String)]) -> Result<String, Refusal> {
        Err(Refusal::Failed(format!("no {place:?} {pairs:?}")))
    }

    fn api(&self, resource: Resource, pairs: &[(String, String)]) -> Result<String, Refusal> {
        match resource {
            Resource::Queues => Ok(format!("{pairs:?}")),
            Resource::Processes => panic!("on purpose"),
            Resource::Gpus => Err(Refusal::NotTraced("no driver".to_owned())),
            Resource::Doctor => {
                thread::sleep(SLOW);
                Ok("a diagnosis".to_owned())
            }
            _ => Err(Refusal::Bad("limit is -1".to_owned())),
        }
    }

    fn ready(&self) -> Result<(), String> {
        Err("starting".to_owned())
    }

    fn healthy(&self) -> Result<(), String> {
        Ok(())
    }
}

#[test]
fn each_answer_is_that_of_the_tracer() {
    let (ours, theirs) = pairs().unwrap();
    let answering = ours.map(|stream| thread::spawn(move || answer(stream, &Fake, &Budget::default())));
    let lanes = Lanes::new(theirs, || ());
    for _ in 0..2 {
        for format in [Format::Text, Format::OpenMetrics] {
            assert_eq!(lanes.metrics(format), Ok(format.content_type().repeat(100_000)));
        }
        let query = [("at".to_owned(), "\u{1b}\u{202e}é".to_owned())];
        for place in [Place::Node, Place::Process, Place::Queue] {
            let refused = Refusal::Failed(format!("no {place:?} {query:?}"));
            assert_eq!(lanes.page(place, &query), Err(refused));
        }
        assert_eq!(lanes.api(Resource::Queues, &query), Ok(format!("{query:?}")));
        assert_eq!(lanes.api(Resource::Gpus, &[]), Err(Refusal::NotTraced("no driver".to_owned())));
        assert_eq!(lanes.api(Resource::Events, &[]), Err(Refusal::Bad("limit is -1".to_owned())));
        assert_eq!(lanes.ready(), Err("starting".to_owned()));
        let panicked = lanes.api(Resource::Processes, &[]);
        assert_eq!(panicked, Err(Refusal::Failed("the document's making panicked".to_owned())));
    }
    // As many pairs as a request's head has room for.
    let many = vec![("a".to_owned(), String::new()); 8 << 10];
    assert_eq!(lanes.api(Resource::Events, &many), Err(Refusal::Bad("limit is -1".to_owned())));
    drop(lanes);
    for answering in answering {
        answering.join().unwrap();
    }
}

#[test]
fn a_diagnosis_delays_no_other_document() {
    let (ours, theirs) = pairs().unwrap();
    let answering = ours.map(|stream| thread::spawn(move || answer(stream, &Fake, &Budget::default())));
    let lanes = Arc::new(Lanes::new(theirs, || ()));
    let slow = {
        let lanes = Arc::clone(&lanes);
        thread::spawn(move || lanes.api(Resource::Doctor, &[]))
    };
    thread::sleep(Duration::from_millis(50));
    assert_eq!(lanes.api(Resource::Queues, &[]), Ok("[]".to_owned()));
    lanes.metrics(Format::Text).unwrap();
    lanes.ready().unwrap_err();
    assert!(!slow.is_finished(), "the others waited for it");
    assert_eq!(slow.join().unwrap(), Ok("a diagnosis".to_owned()));
    drop(lanes);
    answering.into_iter().for_each(|answering| answering.join().unwrap());
}

/// A process that was taken over asks as fast as it can.
#[test]
fn each_document_is_followed_by_three_times_its_cpu_time() {
    struct Busy(Sender<(Instant, Instant)>);

    impl PageSource for Busy {
        fn metrics(&self, _: Format) -> Result<String, String> {
            let (begin, from) = (Instant::now(), cpu_time());
            while cpu_time() - from < BUSY {}
            self.0.send((begin, Instant::now())).unwrap();
            Ok(String::new())
        }

        fn page(&self, _: Place, _: &[(String, String)]) -> Result<String, Refusal> {
            self.metrics(Format::Text).map_err(Refusal::Failed)
        }

        fn api(&self, _: Resource, _: &[(String, String)]) -> Result<String, Refusal> {
            self.metrics(Format::Text).map_err(Refusal::Failed)
        }

        fn ready(&self) -> Result<(), String> {
            self.metrics(Format::Text).map(drop)
        }

        fn healthy(&self) -> Result<(), String> {
            self.ready()
        }
    }

    const BUSY: Duration = Duration::from_millis(20);
    for question in [
        r#"{"Metrics":"Text"}"#,
        r#"{"Page":["Node",[]]}"#,
        r#"{"Api":["Doctor",[]]}"#,
        "\"Ready\"",
        "\"Healthy\"",
    ] {
        let (sends, made) = channel();
        let budget = Arc::new(Budget::default());
        let asks = |times: usize| {
            let (ours, mut theirs) = UnixStream::pair().unwrap();
            let (source, budget) = (Busy(sends.clone()), Arc::clone(&budget));
            let answering = thread::spawn(move || answer(ours, &source, &budget));
            (0..times).for_each(|_| write_frame(&mut theirs, question.as_bytes()).unwrap());
            (0..times).for_each(|_| theirs.read_exact(&mut [0; 5]).unwrap());
            drop(theirs);
            answering.join().unwrap();
        };
        asks(2);
        // As the next process of the web server.
        asks(1);
        let times: Vec<(Instant, Instant)> = made.try_iter().collect();
        for pair in times.windows(2) {
            assert!(pair[1].0 - pair[0].1 >= BUSY * PAUSES, "{question}: {times:?}");
        }
        assert_eq!(times.len(), 3);
    }
}

#[test]
fn without_a_tracer_one_line_says_so() {
    let (ours, theirs) = pairs().unwrap();
    drop(ours);
    let line = Lanes::new(theirs, || ()).metrics(Format::Text).unwrap_err();
    assert!(line.starts_with("the tracer does not answer: "), "{line}");
}

#[test]
fn what_is_no_question_has_no_answer() {
    let ask = |bytes: &[u8]| {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let answering = thread::spawn(move || answer(ours, &Fake, &Budget::default()));
        theirs.write_all(bytes).unwrap();
        let read = theirs.read(&mut [0; 1]);
        drop(theirs);
        answering.join().unwrap();
        // Closed with or without what it did not read.
        read.unwrap_or_else(|error| if error.kind() == ErrorKind::ConnectionReset { 0 } else { 1 })
    };
    let framed = |text: &str| {
        let mut bytes = Vec::new();
        write_frame(&mut bytes, text.as_bytes()).unwrap();
        bytes
    };
    assert_eq!(ask(&framed("\"Ready\"")), 1, "a good one has");
    assert_eq!(ask(&framed("\"Shadow\"")), 0);
    assert_eq!(ask(&framed("")), 0);
    // Longer than any: it is not even read.
    assert_eq!(ask(&u32::MAX.to_le_bytes()), 0);
}

#[test]
fn a_frame_that_is_cut_off_is_an_error() {
    let mut bytes = Vec::new();
    write_frame(&mut bytes, b"text").unwrap();
    assert_eq!(read_frame(&mut bytes.as_slice(), 4).unwrap(), b"text");
    assert_eq!(read_frame(&mut &bytes[..7], 4).unwrap_err().kind(), ErrorKind::UnexpectedEof);
    assert_eq!(read_frame(&mut bytes.as_slice(), 3).unwrap_err().kind(), ErrorKind::InvalidData);
}

#[test]
fn what_it_is_to_serve_comes_with_its_sockets() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("web.yml");
    std::fs::write(&path, "http_server_config:\n  http2: false\n").unwrap();
    let (_, loaded) = SettingsSource::open(&path).unwrap_or_else(|line| panic!("{line}"));
    let (mut ours, mut theirs) = UnixStream::pair().unwrap();
    let listen = || TcpListener::bind("127.0.0.1:0").unwrap();
    let (all, health) = ([listen(), listen()], listen());
    let (lanes, others) = pairs().unwrap();
    let sent = Orders {
        allowed_hosts: vec!["gpu1".to_owned()],
        files: Some(loaded.files.clone()),
        listeners: all.len(),
        seccomp: Seccomp::Optional,
    };
    let (pulse, mut beats) = UnixStream::pair().unwrap();
    send_orders(&mut ours, &sent, &lanes, &pulse, &[&all[0], &all[1], &health]).unwrap();
    send_files(&mut ours, &loaded.files).unwrap();
    drop(ours);
    let (received, passed) = receive_orders(&mut theirs).unwrap();
    assert_eq!(received, sent);
    assert_eq!(receive_files(&mut theirs).unwrap(), loaded.files);
    assert_eq!(receive_files(&mut theirs).unwrap_err().kind(), ErrorKind::UnexpectedEof);
    let Descriptors { lanes: mut passed_lanes, pulse: mut passed_pulse, listeners, health: passed_health } =
        passed;
    let addresses = |listeners: &[TcpListener]| -> Vec<_> {
        listeners.iter().map(|listener| listener.local_addr().unwrap()).collect()
    };
    assert_eq!(addresses(&listeners), addresses(&all));
    assert_eq!(addresses(&passed_health), addresses(&[health]));
    TcpStream::connect(addresses(&listeners)[1]).unwrap();
    listeners[1].accept().unwrap();
    passed_lanes[2].write_all(b"x").unwrap();
    passed_pulse.write_all(b"y").unwrap();
    beats.read_exact(&mut [0]).unwrap();
    drop((passed_lanes, lanes));
    let mut text = String::new();
    (&others[2]).read_to_string(&mut text).unwrap();
    assert_eq!(text, "x", "both ends of this side are closed");
}

#[test]
fn more_sockets_than_can_be_passed_are_refused() {
    let (mut ours, _theirs) = UnixStream::pair().unwrap();
    let (lanes, _others) = pairs().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let orders = Orders { allowed_hosts: vec![], files: None, listeners: 250, seccomp: Seccomp::Required };
    let (pulse, _beats) = UnixStream::pair().unwrap();
    let line = send_orders(&mut ours, &orders, &lanes, &pulse, &[&listener; 250]).unwrap_err().to_string();
    assert!(line.contains("more than 248 sockets"), "{line}");
    assert!(send_orders(&mut ours, &orders, &lanes, &pulse, &[&listener; 248]).is_ok());
}
