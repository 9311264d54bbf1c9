//! What a page shows, parsed from its path and parameters.

use crate::output::api::QueryPairs;
use crate::state::{Entry, Filter, History, Kept, What};
use crate::text::escape;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Recent events, and recent evictions, of the whole node.
const RECENT: usize = 25;

/// Events of one process or queue, and until a time.
const HISTORY: usize = 100;

/// Characters of a filter.
const LONGEST_FILTER: usize = 100;

/// A page, by its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Place {
    Node,
    Process,
    Queue,
}

impl Place {
    pub const ALL: [(&'static str, Place); 3] =
        [("/", Place::Node), ("/process", Place::Process), ("/queue", Place::Queue)];

    const fn parameters(self) -> &'static [&'static str] {
        match self {
            Place::Node => &["at", "sort", "q", "have"],
            Place::Process => &["pid", "have"],
            Place::Queue => &["pid", "queue", "have"],
        }
    }
}

/// By which processes are sorted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sort {
    /// The evicted first, then those with the most queues.
    #[default]
    State,
    Pid,
    Name,
    Owner,
    Queues,
    Rate,
    Backlog,
    Vram,
    Evictions,
    Faults,
    /// The youngest first.
    Age,
}

impl Sort {
    pub(super) const ALL: [(&'static str, Sort); 11] = [
        ("pid", Sort::Pid),
        ("name", Sort::Name),
        ("owner", Sort::Owner),
        ("state", Sort::State),
        ("queues", Sort::Queues),
        ("rate", Sort::Rate),
        ("backlog", Sort::Backlog),
        ("vram", Sort::Vram),
        ("evictions", Sort::Evictions),
        ("faults", Sort::Faults),
        ("age", Sort::Age),
    ];

    /// `None`: the usual order.
    pub(super) fn parameter(self) -> Option<&'static str> {
        let found = Sort::ALL.into_iter().find(|(_, sort)| *sort == self && *sort != Sort::default());
        found.map(|(name, _)| name)
    }

    pub(super) const fn is_ascending(self) -> bool {
        matches!(self, Sort::Pid | Sort::Name | Sort::Owner | Sort::State | Sort::Age)
    }
}

/// What is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// All that lives; `filter` is in lower case and escaped as what it is compared with, empty for all.
    Node {
        filter: String,
        sort: Sort,
    },
    /// Who held which queue at this time, nanoseconds of the Unix epoch.
    At(i64),
    /// tgid.
    Process(u32),
    Queue {
        pid: u32,
        queue_id: u32,
    },
}

/// A request for a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageQuery {
    pub subject: Subject,
    /// Tags of the sections that the client has; `None`: it has none, and gets the whole page.
    pub have: Option<BTreeSet<String>>,
}

impl PageQuery {
    /// `pairs`: names and values of the query, decoded.
    ///
    /// # Errors
    /// What is wrong with the query, in one line.
    pub fn new(place: Place, pairs: &[(String, String)]) -> Result<PageQuery, String> {
        let mut given = QueryPairs::new(place.parameters(), pairs)?;
        let have = given.text("have").map(|tags| tags.split('.').map(str::to_owned).collect());
        let mut number = |name: &str| {
            let number = given.number(name)?;
            number.ok_or_else(|| format!("{name} is missing: give a decimal number"))
        };
        let subject = match place {
            Place::Process => Subject::Process(number("pid")?),
            Place::Queue => Subject::Queue { pid: number("pid")?, queue_id: number("queue")? },
            Place::Node => node(given)?,
        };
        Ok(PageQuery { subject, have })
    }
}

fn node(mut given: QueryPairs<'_>) -> Result<Subject, String> {
    // A form sends its empty field, too.
    if given.has("at")
        && let Some(at_ns) = given.time("at")?
    {
        return Ok(Subject::At(at_ns));
    }
    let filter = given.text("q").unwrap_or_default().trim();
    let filter = escape::terminal(filter).to_lowercase();
    if filter.chars().count() > LONGEST_FILTER {
        return Err(format!("q is too long: give at most {LONGEST_FILTER} characters"));
    }
    let sort = given.text("sort").map_or(Ok(Sort::default()), |name| {
        let known = Sort::ALL.into_iter().find(|(known, _)| *known == name);
        let names = || Sort::ALL.map(|(name, _)| name).join(", ");
        known.map(|(_, sort)| sort).ok_or_else(|| format!("sort is {name:?}; there are {}", names()))
    });
    Ok(Subject::Node { filter, sort: sort? })
}

/// The part of the history that a page shows; events are oldest first.
#[derive(Clone, Debug, Default)]
pub struct Past {
    /// Of the node: everything but evictions and restores, which are frequent; else what belongs to the subject.
    pub recent: Vec<Arc<Entry>>,
    /// Evictions and restores of the node.
    pub evictions: Vec<Arc<Entry>>,
    /// Ends of queues that existed at the time that is shown.
    pub ended: Vec<Arc<Entry>>,
    /// Probes were attached at that time.
    pub traced: bool,
    /// Of the class of queues.
    pub kept: Kept,
}

impl Past {
    #[must_use]
    pub fn of(subject: &Subject, history: &History) -> Self {
        let newest = |filter| history.find(&filter).entries;
        match subject {
            Subject::Node { .. } => {
                let moves = BTreeSet::from(["evict", "restore"]);
                let others = Entry::names().into_iter().filter(|name| !moves.contains(name)).collect();
                let recent = |events| newest(Filter { events, ..Filter::newest(RECENT) });
                Past { recent: recent(others), evictions: recent(moves), ..Past::default() }
            }
            Subject::At(at_ns) => Past {
                recent: newest(Filter { until_ns: Some(*at_ns), ..Filter::newest(RECENT) }),
                ended: history.ended_after(*at_ns),
                traced: history.was_traced(*at_ns),
                kept: history.kept(kfd_trace_common::kind::Class::Queues),
                ..Past::default()
            },
            Subject::Process(pid) => Past {
                recent: known(newest(Filter { pid: Some(*pid), ..Filter::newest(HISTORY) })),
                ..Past::default()
            },
            Subject::Queue { pid, queue_id } => {
                let mut recent = newest(Filter { pid: Some(*pid), ..Filter::newest(usize::MAX) });
                recent.retain(|entry| entry.what.concerns(*queue_id));
                Past { recent: known(recent), ..Past::default() }
            }
        }
    }
}

/// Gaps alone show nothing of it.
fn known(entries: Vec<Arc<Entry>>) -> Vec<Arc<Entry>> {
    let is_gap = |entry: &Arc<Entry>| matches!(entry.what, What::Gap(_));
    if entries.iter().all(is_gap) { Vec::new() } else { entries }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(place: Place, pairs: &[(&str, &str)]) -> Result<PageQuery, String> {
        let pairs: Vec<_> =
            pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        PageQuery::new(place, &pairs)
    }

    type Pairs = &'static [(&'static str, &'static str)];

    #[test]
    fn each_page_has_its_parameters() {
        let node = |filter: &str, sort| Subject::Node { filter: filter.to_owned(), sort };
        let cases: [(Place, Pairs, Subject); 7] = [
            (Place::Node, &[], node("", Sort::State)),
            (Place::Node, &[("q", " TRAIN "), ("sort", "rate")], node("train", Sort::Rate)),
            (Place::Node, &[("at", ""), ("q", "")], node("", Sort::State)),
            (Place::Node, &[("at", "1790000000")], Subject::At(1_790_000_000_000_000_000)),
            (
                Place::Node,
                &[("at", "2026-09-21T14:13:20Z"), ("q", "x")],
                Subject::At(1_790_000_000_000_000_000),
            ),
            (Place::Process, &[("pid", "7")], Subject::Process(7)),
            (Place::Queue, &[("pid", "7"), ("queue", "0")], Subject::Queue { pid: 7, queue_id: 0 }),
        ];
        for (place, pairs, subject) in cases {
            assert_eq!(parse(place, pairs), Ok(PageQuery { subject, have: None }), "{pairs:?}");
        }
        let have = parse(Place::Node, &[("have", "a.b")]).expect("a query").have.expect("tags");
        assert_eq!(have, BTreeSet::from(["a".to_owned(), "b".to_owned()]));
    }

    #[test]
    fn a_bad_parameter_is_one_line_that_names_it() {
        let cases: [(Place, Pairs, &str); 8] = [
            (Place::Node, &[("at", "03:00")], "at is \"03:00\": give RFC 3339"),
            (Place::Node, &[("sort", "size")], "sort is \"size\"; there are pid, name"),
            (Place::Node, &[("pid", "1")], "there is no parameter \"pid\"; there are at, sort, q"),
            (Place::Node, &[("q", "a"), ("q", "b")], "q is given twice"),
            (Place::Process, &[], "pid is missing"),
            (Place::Process, &[("pid", "-1")], "pid is \"-1\": give a decimal number"),
            (Place::Queue, &[("pid", "1")], "queue is missing"),
            (Place::Queue, &[("pid", "1"), ("queue", "x\n")], "queue is \"x\\n\""),
        ];
        for (place, pairs, line) in cases {
            let error = parse(place, pairs).expect_err(line);
            assert!(error.starts_with(line) && !error.contains('\n'), "{error}");
        }
        let long = "é".repeat(LONGEST_FILTER + 1);
        assert!(parse(Place::Node, &[("q", &long)]).expect_err("too long").starts_with("q is too long"));
    }
}
