//! What the web server asks of the tracer: a document, whether it is ready, whether it is healthy.
//!
//! In: a question, and who can answer it. Out: text, or why there is none. Each sort of document has a lane of its own, so
//! that none waits for another: the web server asks one question at a time on each ([`super::documents`]), and the tracer answers
//! likewise ([`super::web_process`]).

use crate::output::api::{Refusal, Resource};
use crate::output::metrics::Format;
use crate::output::page::Place;
use serde::{Deserialize, Serialize};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The contents of the pages. Called on a thread that may block.
pub trait PageSource: Send + Sync + 'static {
    /// The exposition.
    ///
    /// # Errors
    /// One line for the scraper, which gets it with status 500.
    fn metrics(&self, format: Format) -> Result<String, String>;

    /// A page for people, as HTML; also while nothing is traced. Empty: nothing of it is new to the client. `pairs`: names
    /// and values of the request's query, decoded.
    ///
    /// # Errors
    /// Why there is none.
    fn page(&self, place: Place, pairs: &[(String, String)]) -> Result<String, Refusal>;

    /// A document, as JSON. `pairs`: names and values of the request's query, decoded.
    ///
    /// # Errors
    /// Why there is none.
    fn api(&self, resource: Resource, pairs: &[(String, String)]) -> Result<String, Refusal>;

    /// `Err`: why not yet, in one line.
    ///
    /// # Errors
    /// Before the probes are attached.
    fn ready(&self) -> Result<(), String>;

    /// `Err`: what hangs, in one line.
    ///
    /// # Errors
    /// If the tracer's loop does not turn.
    fn healthy(&self) -> Result<(), String>;
}

/// Number of lanes.
pub(super) const LANES: usize = 4;

/// What is asked of the tracer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) enum Question {
    Metrics(Format),
    Page(Place, Vec<(String, String)>),
    Api(Resource, Vec<(String, String)>),
    Ready,
    Healthy,
}

impl Question {
    pub(super) const fn lane(&self) -> usize {
        match self {
            Question::Metrics(_) => 0,
            Question::Page(..) | Question::Api(..) if !self.is_diagnosis() => 1,
            Question::Ready | Question::Healthy => 2,
            // Diagnoses take seconds.
            Question::Page(..) | Question::Api(..) => 3,
        }
    }

    const fn is_diagnosis(&self) -> bool {
        matches!(self, Question::Api(Resource::Doctor, _))
    }

    /// The text. If its making panics, this document has failed: the lane and the tracer go on.
    pub(super) fn answer(&self, source: &dyn PageSource) -> Result<String, Refusal> {
        let answer = catch_unwind(AssertUnwindSafe(|| self.made(source)));
        answer.unwrap_or_else(|_| Err(Refusal::Failed("the document's making panicked".to_owned())))
    }

    fn made(&self, source: &dyn PageSource) -> Result<String, Refusal> {
        match self {
            Question::Metrics(format) => source.metrics(*format).map_err(Refusal::Failed),
            Question::Page(place, pairs) => source.page(*place, pairs),
            Question::Api(resource, pairs) => source.api(*resource, pairs),
            Question::Ready => source.ready().map(|()| String::new()).map_err(Refusal::NotTraced),
            Question::Healthy => source.healthy().map(|()| String::new()).map_err(Refusal::NotTraced),
        }
    }
}
