use super::*;
use crate::output::api::Resource;
use crate::output::metrics::Format;
use crate::output::page::Place;
use axum::body::to_bytes;
use hyper::body::Body as _;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;
use tokio::time::timeout;

const METRICS: Question = Question::Metrics(Format::Text);
const DOCTOR: Question = Question::Api(Resource::Doctor, Vec::new());
const QUEUES: Question = Question::Api(Resource::Queues, Vec::new());

/// Each document is the number of those before it. None is finished while they are held.
#[derive(Default)]
struct Slow {
    held: AtomicBool,
    made: AtomicUsize,
    now: AtomicUsize,
    most: AtomicUsize,
}

impl Slow {
    fn make(&self) -> String {
        self.most.fetch_max(self.now.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
        while self.held.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(1));
        }
        self.now.fetch_sub(1, Ordering::Relaxed);
        self.made.fetch_add(1, Ordering::Relaxed).to_string()
    }
}

impl PageSource for Slow {
    fn metrics(&self, _: Format) -> Result<String, String> {
        Ok(self.make())
    }

    fn page(&self, place: Place, _: &[(String, String)]) -> Result<String, Refusal> {
        match place {
            Place::Process => panic!("on purpose"),
            _ => Err(Refusal::Bad("no".to_owned())),
        }
    }

    fn api(&self, resource: Resource, pairs: &[(String, String)]) -> Result<String, Refusal> {
        match (resource, pairs) {
            (Resource::Doctor, _) => Ok(self.make()),
            // Of this length, with the end of its line.
            (_, [(name, length)]) if name == "length" => {
                Ok("x".repeat(length.parse::<usize>().expect("a number") - 1))
            }
            _ => Ok("quick".to_owned()),
        }
    }

    fn ready(&self) -> Result<(), String> {
        Ok(())
    }

    fn healthy(&self) -> Result<(), String> {
        Ok(())
    }
}

struct Asked {
    documents: Arc<Documents>,
    slow: Arc<Slow>,
    source: Arc<dyn PageSource>,
    /// How many wait, or have an answer.
    askers: Arc<AtomicUsize>,
}

fn asked() -> Asked {
    let slow = Arc::<Slow>::default();
    Asked { documents: Arc::default(), source: Arc::clone(&slow) as _, slow, askers: Arc::default() }
}

async fn until(is_so: impl Fn() -> bool) {
    let it_is = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(Duration::from_secs(60), it_is).await.expect("it happens");
}

impl Drop for Asked {
    fn drop(&mut self) {
        // The runtime's end waits for what is being made.
        self.hold(false);
    }
}

impl Asked {
    fn ask(&self, question: &Question, encoding: Encoding) -> impl Future<Output = Made> + use<> {
        let (documents, source) = (Arc::clone(&self.documents), Arc::clone(&self.source));
        let (askers, question) = (Arc::clone(&self.askers), question.clone());
        async move {
            askers.fetch_add(1, Ordering::Relaxed);
            documents.get(&source, question, encoding).await
        }
    }

    fn hold(&self, held: bool) {
        self.slow.held.store(held, Ordering::Relaxed);
    }

    /// Until a document is being made, and this many have asked.
    async fn begun(&self, askers: usize) {
        let [now, asked] = [&self.slow.now, &self.askers];
        until(|| now.load(Ordering::Relaxed) > 0 && asked.load(Ordering::Relaxed) == askers).await;
    }

    async fn plain(&self, question: &Question) -> Body {
        self.ask(question, Encoding::Identity).await.unwrap().body()
    }

    fn wanted(&self) -> usize {
        self.documents.lanes.iter().map(|lane| lane.wanted().len()).sum()
    }
}

async fn bytes(made: Made) -> Vec<u8> {
    to_bytes(made.unwrap().body(), usize::MAX).await.expect("whole").to_vec()
}

async fn text(body: Body) -> Result<String, axum::Error> {
    Ok(String::from_utf8(to_bytes(body, usize::MAX).await?.into()).expect("UTF-8"))
}

#[tokio::test]
async fn those_who_wait_share_one_that_was_begun_after_they_asked() {
    let asked = asked();
    let ask = || tokio::spawn(asked.ask(&METRICS, Encoding::Identity));
    asked.hold(true);
    let first = ask();
    asked.begun(1).await;
    let rest: Vec<_> = (0..40).map(|_| ask()).collect();
    asked.begun(41).await;
    asked.hold(false);
    assert_eq!(bytes(first.await.unwrap()).await, b"0");
    for other in rest {
        assert_eq!(bytes(other.await.unwrap()).await, b"1", "not what was begun before it asked");
    }
    assert_eq!(asked.wanted(), 0, "nobody waits for it any more");
    assert_eq!(bytes(ask().await.unwrap()).await, b"2");
}

#[tokio::test]
async fn diagnoses_are_made_in_turn_and_no_other_document_waits_for_them() {
    let asked = asked();
    let of = |pid: &str| Question::Api(Resource::Doctor, vec![("pid".to_owned(), pid.to_owned())]);
    asked.hold(true);
    let diagnoses = ["1", "2"].map(|pid| tokio::spawn(asked.ask(&of(pid), Encoding::Identity)));
    asked.begun(2).await;
    let other = text(asked.plain(&QUEUES).await).await.unwrap();
    assert_eq!((other.as_str(), asked.slow.made.load(Ordering::Relaxed)), ("quick\n", 0));
    asked.hold(false);
    for diagnosis in diagnoses {
        drop(diagnosis.await.unwrap().unwrap());
    }
    let [made, most] = [&asked.slow.made, &asked.slow.most].map(|count| count.load(Ordering::Relaxed));
    assert_eq!((made, most), (2, 1));
}

/// A rendering is shared by those who accept the same, and by no others.
#[tokio::test]
async fn those_who_accept_something_else_get_their_own() {
    let asked = asked();
    let kinds = [
        (METRICS, Encoding::Identity),
        (Question::Metrics(Format::OpenMetrics), Encoding::Identity),
        (METRICS, Encoding::Gzip),
    ];
    let ask = |kind: &(Question, Encoding)| tokio::spawn(asked.ask(&kind.0, kind.1));
    asked.hold(true);
    let first = ask(&kinds[0]);
    asked.begun(1).await;
    let rest: Vec<_> = kinds.iter().chain(&kinds).map(ask).collect();
    asked.begun(7).await;
    asked.hold(false);
    let mut bodies = vec![bytes(first.await.unwrap()).await];
    for other in rest {
        bodies.push(bytes(other.await.unwrap()).await);
    }
    assert_eq!(bodies[1..4], bodies[4..], "each is shared");
    assert_eq!((&bodies[1][..], &bodies[2][..]), (&b"1"[..], &b"2"[..]));
    assert_eq!(bodies[3][..2], [0x1f, 0x8b], "gzip");
    assert_eq!(asked.slow.made.load(Ordering::Relaxed), 4);
}

#[tokio::test]
async fn a_failure_is_passed_on() {
    let asked = asked();
    let page = |place| asked.ask(&Question::Page(place, Vec::new()), Encoding::Identity);
    assert_eq!(page(Place::Node).await.unwrap_err(), Refusal::Bad("no".to_owned()));
    let panicked = Refusal::Failed("the document's making panicked".to_owned());
    assert_eq!(page(Place::Process).await.unwrap_err(), panicked);
}

/// Clients that ask and go: what was begun for them is not joined by another.
#[tokio::test]
async fn who_gives_up_does_not_let_two_be_made_at_once() {
    for question in [METRICS, DOCTOR] {
        let asked = asked();
        let ask = || asked.ask(&question, Encoding::Identity);
        asked.hold(true);
        for _ in 0..10 {
            assert!(timeout(Duration::from_millis(5), ask()).await.is_err());
        }
        asked.begun(10).await;
        asked.hold(false);
        assert!(ask().await.is_ok());
        let [made, most] = [&asked.slow.made, &asked.slow.most].map(|count| count.load(Ordering::Relaxed));
        assert_eq!((most, made), (1, 2), "nobody waited for the others");
        assert_eq!(asked.wanted(), 0);
    }
}

fn of_length(length: usize) -> Question {
    Question::Api(Resource::Queues, vec![("length".to_owned(), length.to_string())])
}

#[tokio::test]
async fn a_document_is_sent_whole_whatever_its_length() {
    let asked = asked();
    for length in [1, 2, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK] {
        let body = asked.plain(&of_length(length)).await;
        assert_eq!(body.size_hint().exact(), Some(length as u64));
        assert_eq!(text(body).await.unwrap().len(), length);
    }
}

#[tokio::test]
async fn what_nobody_reads_is_dropped_and_what_is_read_is_not() {
    let asked = asked();
    let third = UNSENT / 3;
    let mut bodies = Vec::new();
    for _ in 0..3 {
        bodies.push(asked.plain(&of_length(third)).await);
    }
    let part = poll_fn(|context| Pin::new(&mut bodies[0]).poll_frame(context)).await;
    let length = part.unwrap().unwrap().into_data().unwrap().len();
    bodies.push(asked.plain(&of_length(third)).await);
    let mut read = Vec::new();
    for body in bodies {
        read.push(text(body).await.map(|text| text.len()).ok());
    }
    assert_eq!(read, [Some(third - length), None, Some(third), Some(third)]);
    // What was read takes no place; and one that is too large is sent alone.
    let (first, large) = (asked.plain(&of_length(third)).await, asked.plain(&of_length(2 * UNSENT)).await);
    assert!(text(first).await.is_err());
    assert_eq!(text(large).await.unwrap().len(), 2 * UNSENT);
}
