//! A lane: a socket on which the web server asks and the tracer answers, one question at a time. Each sort of
//! document has its own, so that none waits for another.
//!
//! The tracer trusts no question: it is as long as a request may be, is one of four, and has one answer.

use super::{read_frame, write_frame};
use crate::output::api::{Refusal, Resource};
use crate::output::metrics::Format;
use crate::serve::router::PageSource;
use serde::{Deserialize, Serialize};
use std::io::{self, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, PoisonError};

/// A request's head has 16 KiB at most; a decoded query as JSON is at most twice as long.
const LONGEST_QUESTION: u32 = 64 << 10;

/// Hundreds of thousands of queues are some 50 MB.
const LONGEST_ANSWER: u32 = 1 << 30;

/// Number of lanes.
pub(super) const LANES: usize = 3;

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Question {
    Metrics(Format),
    Page,
    Api(Resource, Vec<(String, String)>),
    Ready,
}

impl Question {
    const fn lane(&self) -> usize {
        match self {
            Question::Metrics(_) => 0,
            Question::Page | Question::Api(..) => 1,
            Question::Ready => 2,
        }
    }

    fn answer(&self, source: &dyn PageSource) -> Result<String, Refusal> {
        match self {
            Question::Metrics(format) => source.metrics(*format).map_err(Refusal::Failed),
            Question::Page => source.page().map_err(Refusal::Failed),
            Question::Api(resource, pairs) => source.api(*resource, pairs),
            Question::Ready => source.ready().map(|()| String::new()).map_err(Refusal::NotTraced),
        }
    }
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
pub(super) fn answer(mut stream: UnixStream, source: &dyn PageSource) {
    while let Ok(question) = read_frame(&mut stream, LONGEST_QUESTION) {
        let Ok(question) = serde_json::from_slice::<Question>(&question) else {
            log::error!(
                "the web server's process asked something that is no question: it is not answered any more"
            );
            return;
        };
        if send(&mut stream, question.answer(source)).is_err() {
            return;
        }
    }
}

/// The web server's end of all lanes: documents that the tracer makes.
pub(super) struct Lanes([Mutex<UnixStream>; LANES]);

impl Lanes {
    pub(super) fn new(streams: [UnixStream; LANES]) -> Self {
        Lanes(streams.map(Mutex::new))
    }

    fn ask(&self, question: &Question) -> Result<String, Refusal> {
        let mut stream = self.0[question.lane()].lock().unwrap_or_else(PoisonError::into_inner);
        let asked = serde_json::to_vec(question).map_err(io::Error::from);
        let answer = asked.and_then(|asked| {
            write_frame(&mut *stream, &asked)?;
            receive(&mut stream)
        });
        answer.unwrap_or_else(|error| Err(Refusal::Failed(format!("the tracer does not answer: {error}"))))
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

    fn page(&self) -> Result<String, String> {
        self.ask(&Question::Page).map_err(line)
    }

    fn api(&self, resource: Resource, pairs: &[(String, String)]) -> Result<String, Refusal> {
        self.ask(&Question::Api(resource, pairs.to_vec()))
    }

    fn ready(&self) -> Result<(), String> {
        self.ask(&Question::Ready).map(drop).map_err(line)
    }
}
