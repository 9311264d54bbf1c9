//! The HTML pages: what is traced now, grouped and counted, of bounded size; one process, one queue, and a time in the
//! past.
//!
//! In: the same as for the API's documents, and what was asked for ([`PageQuery`]). Out: the text of the templates in
//! page/, which escape every inserted value. Text from outside the tracer (names, paths) is first made safe and short
//! ([`cells::text`]). A page is a row of sections, of which a client gets those that it does not have.

use crate::text::clock;
use askama::Template;

mod cells;
mod events;
mod gpus;
mod held;
mod node;
mod one;
mod processes;
mod query;
mod queues;
mod sections;
mod top;
mod trends;
mod unseen;
mod view;

use cells::seconds;
use sections::Section;
use top::Top;
use unseen::Unseen;

pub use query::{PageQuery, Past, Place, Subject};
pub use sections::etag;
pub use trends::Rates;
pub use view::PageView;

/// Static files beside the page: path, `Content-Type`, content.
pub const STATIC: [(&str, &str, &str); 3] = [
    ("/static/page.css", "text/css; charset=utf-8", include_str!("page/page.css")),
    ("/static/page.js", "text/javascript; charset=utf-8", include_str!("page/page.js")),
    ("/static/icon.svg", "image/svg+xml", include_str!("page/icon.svg")),
];

/// Allows only the daemon's own files: no inline script or style, no other host, no framing.
pub const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
     base-uri 'none'; form-action 'self'; frame-ancestors 'none'";

#[derive(Template)]
#[template(path = "page/page.html")]
struct Page {
    version: &'static str,
    title: String,
    /// RFC 3339, and a readable form.
    began: String,
    began_at: String,
    form: Option<Form>,
    sections: Vec<Section>,
}

/// The fields above the node's sections.
struct Form {
    filter: String,
    /// `None`: as usual.
    sort: Option<&'static str>,
    /// The time that is shown; empty for now.
    at: String,
    /// Seconds of the Unix epoch: no earlier time is known.
    began: i64,
    /// What a time looks like.
    sample: String,
}

/// Renders a page. Empty: the client has all of its sections.
///
/// # Errors
/// None known; askama reports errors only at run time.
pub fn html(view: &PageView<'_>, query: &PageQuery) -> Result<String, String> {
    let unseen = Unseen::new(view.tracing);
    let (top, mut sections) = match &query.subject {
        Subject::Node { filter, sort } => node::sections(view, (filter, *sort))?,
        Subject::At(at_ns) => held::sections(view, *at_ns)?,
        Subject::Process(pid) => one::process(view, *pid)?,
        Subject::Queue { pid, queue_id } => one::queue(view, *pid, *queue_id)?,
    };
    let is_node = matches!(query.subject, Subject::Node { .. });
    let top = Top {
        unseen: !unseen.meaning.is_empty(),
        lost: !unseen.lost.is_empty(),
        unseen_href: if is_node { "#unseen" } else { "./#unseen" },
        ..top
    };
    let title = match (&top.reason, &query.subject) {
        (_, Subject::Process(pid)) => format!("PID {pid}"),
        (_, Subject::Queue { pid, queue_id }) => format!("queue {queue_id} of PID {pid}"),
        (_, Subject::At(_)) => top.at.clone(),
        (Some(_), Subject::Node { .. }) => "nothing traced".to_owned(),
        (None, Subject::Node { .. }) => top.headline.clone(),
    };
    if is_node {
        sections.push(Section::new("unseen", &unseen)?);
    }
    sections.insert(0, Section::new("top", &top)?);
    let have = query.have.as_ref();
    let sections: Vec<Section> = sections.into_iter().map(|section| section.unless_known(have)).collect();
    let known = have.is_some_and(|have| have.len() == sections.len());
    if known && sections.iter().all(|section| section.html.is_empty()) {
        return Ok(String::new());
    }
    let began = clock::rfc3339(view.tracing.began_ns).unwrap_or_default();
    let page = Page {
        version: env!("CARGO_PKG_VERSION"),
        title,
        began_at: seconds(&began),
        began,
        form: form(view, &query.subject),
        sections,
    };
    page.render().map_err(|error| error.to_string())
}

fn form(view: &PageView<'_>, subject: &Subject) -> Option<Form> {
    let (filter, sort, at) = match subject {
        Subject::Node { filter, sort } => (filter.clone(), sort.parameter(), String::new()),
        Subject::At(at_ns) => {
            let at = clock::rfc3339(*at_ns).unwrap_or_default();
            (String::new(), None, at.replace(".000000000", ""))
        }
        Subject::Process(_) | Subject::Queue { .. } => return None,
    };
    let sample = view.tracing.ts.as_deref().and_then(|ts| Some(format!("{}Z", ts.get(..19)?)));
    let began = view.tracing.known_since_ns.div_euclid(1_000_000_000);
    Some(Form { filter, sort, at, began, sample: sample.unwrap_or_default() })
}

#[cfg(test)]
mod tests;
