//! The page of all that lives.

use super::cells::seconds;
use super::events::{self, EventsPart};
use super::gpus::{self, GpuRow};
use super::processes::{self, EvictedRow, ProcessCells};
use super::query::Sort;
use super::queues::{self, QueuesPart, Room};
use super::sections::Section;
use super::top::{Sections, top};
use super::view::{PageView, Part, ROWS};
use crate::attribute::Topology;
use crate::text::clock;
use askama::Template;

/// Rows of queues.
pub(super) const ROOM: Room = Room { queues: 300, of_process: 12, groups: 300, shared: true };

#[derive(Template)]
#[template(path = "page/gpus.html")]
struct GpusPart {
    gpus: Part<GpuRow>,
}

#[derive(Template)]
#[template(path = "page/processes.html")]
struct ProcessesPart {
    columns: Vec<Column>,
    rows: Part<ProcessCells>,
    filtered: bool,
    /// Live processes that pass the filter, of how many.
    count: usize,
    all: usize,
}

struct Column {
    title: &'static str,
    numeric: bool,
    /// To sort by it; `None`: it cannot be.
    href: Option<String>,
    /// Of `aria-sort`, if it is sorted by this column.
    order: Option<&'static str>,
}

#[derive(Template)]
#[template(path = "page/evictions.html")]
struct EvictionsPart {
    /// `None`: nothing is traced now.
    now: Option<Part<EvictedRow>>,
    seen: bool,
    moved: Vec<events::EventRow>,
}

/// Titles of the columns of processes; `true`: numbers.
const COLUMNS: [(&str, Option<Sort>, bool); 12] = [
    ("PID", Some(Sort::Pid), true),
    ("Name", Some(Sort::Name), false),
    ("Owner", Some(Sort::Owner), false),
    ("State", Some(Sort::State), false),
    ("Queues", Some(Sort::Queues), true),
    ("Retires", Some(Sort::Rate), true),
    ("Five minutes", None, false),
    ("Backlog", Some(Sort::Backlog), true),
    ("VRAM", Some(Sort::Vram), true),
    ("Evictions", Some(Sort::Evictions), true),
    ("VM faults", Some(Sort::Faults), true),
    ("Age", Some(Sort::Age), true),
];

/// The address of the page with this filter and order.
fn href(filter: &str, sort: Sort) -> String {
    let pairs = [("q", Some(filter).filter(|filter| !filter.is_empty())), ("sort", sort.parameter())];
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.extend_pairs(pairs.into_iter().filter_map(|(name, value)| Some((name, value?))));
    match query.finish() {
        query if query.is_empty() => "./".to_owned(),
        query => format!("./?{query}"),
    }
}

fn columns(filter: &str, chosen: Sort) -> Vec<Column> {
    let column = |(title, sort, numeric): (&'static str, Option<Sort>, bool)| {
        let is_chosen = sort == Some(chosen);
        let order = if chosen.is_ascending() { "ascending" } else { "descending" };
        Column {
            title,
            numeric,
            href: sort.map(|sort| href(filter, sort)),
            order: is_chosen.then_some(order),
        }
    };
    COLUMNS.into_iter().map(column).collect()
}

pub(super) fn sections(view: &PageView<'_>, (filter, sort): (&str, Sort)) -> Result<Sections, String> {
    let nothing = Topology::default();
    let topology = view.now.map_or(&nothing, |now| now.topology);
    let moved = events::rows(&view.past.evictions, topology);
    let seen = view.seen();
    let (mut links, mut sections) = (Vec::new(), Vec::new());
    let mut evicted = None;
    if let Some(now) = view.now {
        let passing = processes::sorted(now.snapshot.live(), (filter, sort), seen.queues, now);
        let rows: Vec<ProcessCells> =
            passing.iter().take(ROWS).map(|working| processes::row(working, view.rates, seen, now)).collect();
        let more = passing.len() - rows.len();
        let part = ProcessesPart {
            columns: columns(filter, sort),
            rows: Part { rows, more },
            filtered: !filter.is_empty(),
            count: passing.len(),
            all: now.snapshot.live().count(),
        };
        let gpus = GpusPart { gpus: Part::new(gpus::rows(view.rates, seen, now), ROWS) };
        let on_gpus = queues::by_gpu(passing.iter().map(|working| working.process), ROOM, (seen, now));
        let none = match (filter.is_empty(), seen.queues) {
            (false, _) => "No process that passes the filter has one.",
            (true, true) => "There is no queue now.",
            (true, false) => "No queue is known. Not all can be seen.",
        };
        evicted = Some(Part::new(processes::evicted(&passing, now), ROWS));
        links.extend([("gpus", "GPUs"), ("processes", "Processes"), ("queues", "Queues")]);
        sections.extend([
            Section::new("gpus", &gpus)?,
            Section::new("processes", &part)?,
            Section::new("queues", &QueuesPart { on_gpus, nothing: none, of_process: false })?,
        ]);
    }
    if evicted.is_some() || !moved.is_empty() {
        links.push(("evictions", "Evictions"));
        sections
            .push(Section::new("evictions", &EvictionsPart { now: evicted, seen: seen.evictions, moved })?);
    }
    let began = clock::rfc3339(view.tracing.known_since_ns).as_deref().map(seconds).unwrap_or_default();
    let caption = "Processes that began and ended, and errors, the newest first (UTC)";
    let events = EventsPart::new(&view.past.recent, topology, "Events", caption);
    let events = events.or(format!("Nothing has happened since {began} UTC."));
    sections.push(Section::new("events", &events)?);
    links.extend([("events", "Events"), ("unseen", "What cannot be seen")]);
    Ok((top(view, links), sections))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_to_sort_keep_the_filter() {
        assert_eq!(href("", Sort::State), "./");
        assert_eq!(href("a b&c", Sort::Rate), "./?q=a+b%26c&sort=rate");
        let columns = columns("é", Sort::Rate);
        let chosen: Vec<_> = columns.iter().filter(|column| column.order.is_some()).collect();
        let [rate] = chosen.as_slice() else { panic!("one is chosen") };
        assert_eq!((rate.title, rate.order), ("Retires", Some("descending")));
        assert_eq!(columns[3].href.as_deref(), Some("./?q=%C3%A9"), "the usual order needs no parameter");
        assert_eq!(columns[6].href, None, "a picture is not sorted by");
    }
}
