//! The first section of every page.

use super::cells::{seconds, sentence};
use super::sections::Section;
use super::view::PageView;
use crate::output::api::ApiView;
use crate::output::headline::headline;
use askama::Template;

/// The first section: what there is, and what is missing.
#[derive(Template)]
#[template(path = "page/top.html")]
pub(super) struct Top {
    pub(super) headline: String,
    /// Why nothing is traced now, if so.
    pub(super) reason: Option<String>,
    /// RFC 3339, and a readable form; of a time in the past if that is shown.
    pub(super) ts: String,
    pub(super) at: String,
    /// That time passes.
    pub(super) passes: bool,
    pub(super) unseen: bool,
    pub(super) lost: bool,
    pub(super) unseen_href: &'static str,
    /// Version and begin of the daemon: another one has another page.
    pub(super) daemon: String,
    pub(super) links: Vec<(&'static str, &'static str)>,
}

/// That section, and those below it.
pub(super) type Sections = (Top, Vec<Section>);

fn live(now: &ApiView<'_>, all: bool) -> String {
    let known = headline(now.snapshot, now.topology);
    if all { known } else { format!("{known}; not all queues are known") }
}

/// The first section of any page of this moment.
pub(super) fn top(view: &PageView<'_>, links: Vec<(&'static str, &'static str)>) -> Top {
    let ts = view.tracing.ts.clone().unwrap_or_default();
    Top {
        headline: view.now.map(|now| live(now, view.seen().queues)).unwrap_or_default(),
        reason: view.tracing.why_not.map(sentence),
        at: seconds(&ts),
        ts,
        passes: true,
        unseen: false,
        lost: false,
        unseen_href: "",
        daemon: format!("{} {}", env!("CARGO_PKG_VERSION"), view.tracing.began_ns),
        links,
    }
}
