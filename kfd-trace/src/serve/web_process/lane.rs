//! A lane: a socket on which the web server asks and the tracer answers, one question at a time.
//!
//! The tracer does not trust the web server's process: a question is as long as a request may be, is one of five, has one
//! answer, and waits for the pause after the last one ([`Budget`]).

use crate::output::api::{Refusal, Resource};
use crate::output::metrics::Format;
use crate::output::page::Place;
use crate::runtime::frames::{read_frame, write_frame};
use crate::serve::budget::{Budget, cpu_time};
use crate::serve::question::{LANES, PageSource, Question};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, PoisonError};

/// A request's head has 16 KiB at most; a query of the shortest pairs is some five times as long as JSON.
const LONGEST_QUESTION: u32 = 256 << 10;

/// Hundreds of thousands of queues are some 50 MB.
const LONGEST_ANSWER: u32 = 1 << 30;

/// Names of the threads that answer.
pub(super) const NAMES: [&str; LANES] = ["web-metrics", "web-pages", "web-ready", "web-doctor"];

/// Both ends of all lanes.
///
/// # Errors
/// If there is no descriptor.
pub(super) fn pairs() -> io::Result<([UnixStream; LANES], [UnixStream; LANES])> {
    let pair = UnixStream::pair;
    let [(a, w), (b, x), (c, y), (d, z)] = [pair()?, pair()?, pair()?, pair()?];
    Ok(([a, b, c, d], [w, x, y, z]))
}

fn send(stream: &mut UnixStream, answer: Result<String, Refusal>) -> io::Result<()> {
    let (kind, text) = match answer {
        Ok(text) => (0, text),
        Err(Refusal::Bad(line)) => (1, line),
        Err(Refusal::NotTraced(line)) => (2, line),
        Err(Refusal::Failed(line)) => (3, line),
    };
    stream.write_all(&[kind])?;
    write_frame(stream, text.as_bytes())
}

fn receive(stream: &mut UnixStream) -> io::Result<Result<String, Refusal>> {
    let mut kind = [0];
    io::Read::read_exact(stream, &mut kind)?;
    let text = String::from_utf8(read_frame(stream, LONGEST_ANSWER)?).map_err(io::Error::other)?;
    Ok(match kind[0] {
        0 => Ok(text),
        1 => Err(Refusal::Bad(text)),
        2 => Err(Refusal::NotTraced(text)),
        _ => Err(Refusal::Failed(text)),
    })
}

/// Answers until the web server has ended, or asks what it may not.
pub(super) fn answer(mut stream: UnixStream, source: &dyn PageSource, budget: &Budget) {
    let mut spent = cpu_time();
    let why = loop {
        let asked = read_frame(&mut stream, LONGEST_QUESTION);
        budget.wait();
        let question = asked.and_then(|text| Ok(serde_json::from_slice::<Question>(&text)?));
        let sent = question.and_then(|question| send(&mut stream, question.answer(source)));
        // With what it takes to read a question and to send its answer.
        let now = cpu_time();
        budget.spend(now.saturating_sub(std::mem::replace(&mut spent, now)));
        if let Err(error) = sent {
            break error;
        }
    };
    // The process has ended.
    let ended = [ErrorKind::UnexpectedEof, ErrorKind::BrokenPipe, ErrorKind::ConnectionReset];
    if !(ended.contains(&why.kind()) && why.get_ref().is_none()) {
        log::error!("the web server's process is not answered any more: {why}");
    }
}

/// The web server's end of all lanes: documents that the tracer makes.
pub(super) struct Lanes {
    streams: [Mutex<UnixStream>; LANES],
    /// Is called when a lane is broken: what comes after that belongs to no question.
    broken: fn(),
}

impl Lanes {
    pub(super) fn new(streams: [UnixStream; LANES], broken: fn()) -> Self {
        Lanes { streams: streams.map(Mutex::new), broken }
    }

    fn ask(&self, question: &Question) -> Result<String, Refusal> {
        let mut stream = self.streams[question.lane()].lock().unwrap_or_else(PoisonError::into_inner);
        let asked = serde_json::to_vec(question).map_err(io::Error::from);
        let answer = asked.and_then(|asked| {
            write_frame(&mut *stream, &asked)?;
            receive(&mut stream)
        });
        answer.unwrap_or_else(|error| {
            log::error!("the tracer does not answer: {error}");
            (self.broken)();
            Err(Refusal::Failed(format!("the tracer does not answer: {error}")))
        })
    }
}

/// The line of a refusal, whatever it is.
fn line(refusal: Refusal) -> String {
    match refusal {
        Refusal::Bad(line) | Refusal::NotTraced(line) | Refusal::Failed(line) => line,
    }
}

impl PageSource for Lanes {
    fn metrics(&self, format: Format) -> Result<String, String> {
        self.ask(&Question::Metrics(format)).map_err(line)
    }

    fn page(&self, place: Place, pairs: &[(String, String)]) -> Result<String, Refusal> {
        self.ask(&Question::Page(place, pairs.to_vec()))
    }

    fn api(&self, resource: Resource, pairs: &[(String, String)]) -> Result<String, Refusal> {
        self.ask(&Question::Api(resource, pairs.to_vec()))
    }

    fn ready(&self) -> Result<(), String> {
        self.ask(&Question::Ready).map(drop).map_err(line)
    }

    fn healthy(&self) -> Result<(), String> {
        self.ask(&Question::Healthy).map(drop).map_err(line)
    }
}
