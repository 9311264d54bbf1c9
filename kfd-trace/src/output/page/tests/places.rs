//! What is sent of a page, and the pages of one process, of one queue, and of a time in the past.

use super::super::etag;
use super::super::view::ROWS;
use super::*;
use crate::model::memory::samples::{VRAM, allocated, mapped};

/// The ids of the sections of a page, each with whether it is sent.
fn sections(html: &str) -> Vec<(&str, bool)> {
    let sections = html.split("<section id=\"section-").skip(1);
    let of = |section: &'_ str| -> Option<(usize, bool)> {
        Some((section.find('"')?, !section.split_once('>')?.1.starts_with("</section>")))
    };
    sections.filter_map(|section| of(section).map(|(end, sent)| (&section[..end], sent))).collect()
}

fn tags(html: &str) -> String {
    etag(html).trim_start_matches("W/").replace('"', "")
}

#[test]
fn only_what_has_changed_is_sent() {
    let mut world = World::with_queues(2, 9, 3).with_trouble();
    let whole = world.html();
    let ids: Vec<&str> = sections(&whole).into_iter().map(|(id, _)| id).collect();
    assert_eq!(ids, ["top", "gpus", "processes", "queues", "evictions", "events", "unseen"]);
    assert!(sections(&whole).iter().all(|(_, sent)| *sent));
    let have = tags(&whole);
    let ask = |world: &World, have: &str| world.shows(Place::Node, &[("have", have)]).expect("a page");
    // The one process that is evicted has been so for longer.
    let evicted = |world: &World| {
        let page = ask(world, &have);
        let new = sections(&page).into_iter().filter(|(_, sent)| *sent).map(|(id, _)| id.to_owned());
        new.collect::<Vec<_>>()
    };
    assert_eq!(ask(&world, &have), "", "nothing has");
    world.now_ns += 7_000_000_000;
    assert_eq!(evicted(&world), ["processes", "queues"], "how long evictions lasted");
    let restored = Eviction { gpu_id: Some(GPU), trigger: None, errno: 0, latency_ns: 9_000 };
    world.take(&event(HOUR * 2 + 20_000_000, 1, 4_000, Body::Restore(restored)));
    let have = tags(&world.html());
    world.now_ns += 7_000_000_000;
    assert_eq!(ask(&world, &have), "", "ages alone are no change");
    world.lost.insert("records lost, another".into(), 1);
    let page = ask(&world, &have);
    let new: Vec<&str> = sections(&page).into_iter().filter(|(_, sent)| *sent).map(|(id, _)| id).collect();
    assert_eq!((new, sections(&page).len()), (vec!["unseen"], 7), "the others keep their places");
    assert!(!ask(&world, "0123456789abcdef").is_empty(), "a client with another page gets this one");
    world.why_not = Some("no driver".to_owned());
    let ids: Vec<_> = sections(&ask(&world, &have)).into_iter().map(|(id, _)| id.to_owned()).collect();
    assert_eq!(ids, ["top", "evictions", "events", "unseen"], "what is no longer there");
}

#[test]
fn processes_are_filtered_and_sorted_where_they_are_all_known() {
    let mut world = World::with_queues(2, 600, 5);
    world.come(1_000, 77, "Needle");
    world.take(&event(HOUR, 1_000, 77, Body::QueueCreate(facts(1))));
    let pids = |pairs: &[(&str, &str)]| -> Vec<u32> {
        let html = world.shows(Place::Node, pairs).expect("a page");
        let (_, table) = html.split_once("processes-caption").expect("a table of processes");
        let (table, _) = table.split_once("</section>").expect("its end");
        let links = table.split("<a href=\"process?pid=").skip(1);
        links.filter_map(|rest| rest.split('"').next()?.parse().ok()).collect()
    };
    assert!(!pids(&[]).contains(&77) && pids(&[]).len() == ROWS, "it has the fewest queues");
    assert_eq!(pids(&[("q", "needle")]), [77]);
    assert_eq!(pids(&[("sort", "pid")])[..2], [77, 4_000]);
    assert_eq!(pids(&[("sort", "name")])[0], 77, "N before t");
    let all = world.shows(Place::Node, &[("q", "4001"), ("sort", "pid")]).expect("a page");
    assert!(all.contains("1 of 121 live processes pass the filter"), "{all}");
    assert!(all.contains("value=\"4001\"") && all.contains("name=\"sort\" value=\"pid\""), "{all}");
    assert!(all.contains("href=\"./?q=4001&#38;sort=rate\""), "links keep the filter");
    let none = world.shows(Place::Node, &[("q", "<b>")]).expect("a page");
    assert!(
        none.contains("No process passes the filter.") && none.contains("value=\"&#60;b&#62;\""),
        "{none}"
    );
    assert!(world.shows(Place::Node, &[("q", "gpu 1")]).expect("a page").contains("pass the filter"));
}

#[test]
fn an_eviction_that_no_restore_ends_ends_with_its_process() {
    let mut world = World::with_queues(2, 9, 3).with_trouble();
    world.take(&event(world.now_ns, 1, 4_000, Body::ProcessRelease));
    let evictions = |world: &World| {
        let html = world.shows(Place::Process, &[("pid", "4000")]).expect("a page");
        assert!(!html.contains("mark warn\">evicted"), "{html}");
        let (_, after) = html.split_once("<dt>Evictions</dt>").expect("the fact");
        after.split("</dd>").next().unwrap_or_default().to_owned()
    };
    let at_its_end = evictions(&world);
    assert!(at_its_end.contains("last trigger userptr"), "{at_its_end}");
    world.now_ns += HOUR;
    assert_eq!(evictions(&world), at_its_end);
}

#[test]
fn a_process_and_a_queue_have_pages_with_their_past() {
    let mut world = World::with_queues(2, 9, 3).with_trouble();
    let pid = [("pid", "4000")];
    let html = world.shows(Place::Process, &pid).expect("a page");
    for part in [
        "<title>PID 4000 – kfd-trace</title>",
        "<h2 id=\"process\">PID 4000</h2>",
        "<dt>Name</dt><dd><bdi>train</bdi></dd>",
        "<span class=\"mark warn\">evicted</span></strong> for <time class=\"age\"",
        "<dt>VM faults</dt><dd><bdi>gpu 0: 1</bdi></dd>",
        "last trigger userptr",
        "3 queues: 3 compute_aql",
        "<a href=\"queue?pid=4000&amp;queue=1\">1</a>",
        "No call that allocates memory was seen.",
        "<td>queue_create</td>",
        "<td>vm_fault</td>",
        "href=\"./#unseen\"",
    ] {
        assert!(html.contains(part), "{part}: {html}");
    }
    assert!(!html.contains("4001") && !html.contains("id=\"filter\""), "of this one alone: {html}");
    let queue = |id: &str| world.shows(Place::Queue, &[("pid", "4000"), ("queue", id)]).expect("a page");
    let html = queue("1");
    for part in
        ["Queue 1 of <a href=\"process?pid=4000\">", "<dt>Ring</dt><dd><bdi>0x7fad66c00000", "<td>evict</td>"]
    {
        assert!(html.contains(part), "{part}: {html}");
    }
    assert_eq!(count(&html, "<td>queue_create</td>"), 1, "not those of the others");
    assert!(queue("17").contains("PID 4000 is not known to have a queue 17 now."));
    assert!(world.shows(Place::Process, &[("pid", "1")]).expect("a page").contains("none is remembered"));
    let gone = Body::QueueDestroy { queue_id: 1, gpu_id: Some(GPU), last: None };
    world.take(&event(HOUR * 2 + 30_000_000, 1, 4_000, gone));
    world.take(&event(HOUR * 2 + 40_000_000, 1, 4_000, Body::ProcessRelease));
    let html = world.shows(Place::Process, &pid).expect("a page");
    assert!(html.contains("<strong>ended</strong>") && html.contains("No queue of it is known."), "{html}");
    world.why_not = Some("no driver".to_owned());
    let html = world.shows(Place::Process, &pid).expect("a page");
    assert!(html.contains("Nothing is traced now") && html.contains("<td>process_release</td>"), "{html}");
}

#[test]
fn a_time_in_the_past_shows_who_held_what() {
    let mut world = World::with_queues(1, 2, 1);
    world.history.begin(0, BOOT);
    let gone = Body::QueueDestroy { queue_id: 0, gpu_id: Some(GPU), last: None };
    world.take(&event(HOUR + 60_000_000_000, 1, 4_000, gone));
    let at = |seconds: i64| {
        let at = (BOOT / 1_000_000_000 + seconds).to_string();
        world.shows(Place::Node, &[("at", &at)]).expect("a page")
    };
    let html = at(3_600 + 30);
    for part in [
        "<strong>2 queues of 2 processes</strong> at <time datetime=\"2026-09-21T15:13:50",
        "<a href=\"process?pid=4000\">4000</a>",
        "<td>2026-09-21 15:13:20</td><td>2026-09-21 15:14:20</td>",
        "<td>lives</td>",
        "value=\"2026-09-21T15:13:50Z\"",
        "<a href=\"./\">now</a>",
        "<td>queue_create</td>",
    ] {
        assert!(html.contains(part), "{part}: {html}");
    }
    assert!(!html.contains("queue_destroy") && !html.contains("class=\"notice\""), "{html}");
    assert!(at(3_600 + 90).contains("<strong>1 queue of 1 process</strong>"));
    assert!(at(60).contains("No queue is known to have existed then."));
    assert!(
        at(-60).contains("<strong>Nothing was traced</strong>")
            && at(-60).contains("Nothing was traced at this time")
    );
    world.why_not = Some("no driver".to_owned());
    let ended =
        world.shows(Place::Node, &[("at", &(BOOT / 1_000_000_000 + 3_630).to_string())]).expect("a page");
    assert!(ended.contains("<strong>1 queue of 1 process</strong>"), "what ended is remembered: {ended}");
}

#[test]
fn sparklines_show_the_last_minutes() {
    let mut world = World::with_queues(1, 1, 1);
    world.now_ns = HOUR + 14 * 1_000_000_000;
    for (second, done) in [(0, 0), (5, 5_000), (10, 5_500)] {
        let at_ns = HOUR + second * 1_000_000_000;
        sampled(&mut world.state, 0, Ok(Counts { submitted: done, retired: done }), at_ns);
        world.rates.add(&world.state, at_ns);
    }
    let html = world.html();
    let line = "in the last five minutes, as far as measured; the highest: 1k/s\"><polyline points=\"58,1 59,14\"/></svg>";
    assert_eq!(count(&html, line), 2, "of the GPU and of the process: {html}");
    assert!(count(&world.shows(Place::Process, &[("pid", "4000")]).expect("a page"), line) == 1);
}

#[test]
fn hostile_names_are_text_on_every_page() {
    let mut world = World::new(1);
    for (process, name) in (1..).zip(HOSTILE) {
        let tgid = u32::try_from(process).unwrap();
        world.come(process, tgid, name);
        world.take(&event(HOUR, process, tgid, Body::QueueCreate(facts(1))));
        let pid = tgid.to_string();
        let at = (BOOT / 1_000_000_000 + 3_700).to_string();
        for (place, pairs) in [
            (Place::Node, vec![("at", at.as_str())]),
            (Place::Node, vec![("q", name)]),
            (Place::Process, vec![("pid", pid.as_str())]),
            (Place::Queue, vec![("pid", &pid), ("queue", "1")]),
        ] {
            let html = world.shows(place, &pairs).expect("a page");
            assert_eq!((count(&html, "<script"), count(&html, "<img")), (1, 0), "{place:?}: {html}");
            let steers = |c: char| c.is_control() && c != '\n' || "\u{202e}\u{2066}".contains(c);
            assert!(!html.contains(steers), "{place:?}: {html}");
        }
        let found = world.shows(Place::Node, &[("q", name)]).expect("a page");
        assert!(found.contains(&format!("1 of {process} live processes pass")), "{name:?}: {found}");
    }
}

#[test]
fn each_context_of_a_process_has_its_own_queue() {
    let mut world = World::with_queues(2, 1, 1);
    let seen = ProcessSeen { context_id: Some(2), ..process_seen("second") };
    world.take(&event(HOUR, 2, 4_000, Body::ProcessSeen(seen)));
    let other = QueueFacts { gpu_id: Some(GPU + 1), ring_address: Some(0x1234_5000), ..facts(0) };
    world.take(&event(HOUR + 9, 2, 4_000, Body::QueueCreate(other)));
    let pairs = [("pid", "4000"), ("queue", "0")];
    let html = world.shows(Place::Queue, &pairs).expect("a page");
    assert_eq!(count(&html, "<dl class"), 2, "{html}");
    assert!(html.contains("<bdi>0x7fad66c00000") && html.contains("<bdi>0x12345000"), "{html}");
    assert_eq!(count(&html, "<td>queue_create</td>"), 2, "the history of both");
}

#[test]
fn memory_of_a_process_that_has_ended_is_not_unseen() {
    let mut world = World::with_queues(1, 1, 1);
    let page = |world: &World| world.shows(Place::Process, &[("pid", "4000")]).expect("a page");
    assert!(page(&world).contains("No call that allocates memory was seen."));
    world.take(&event(HOUR * 2, 1, 4_000, Body::ProcessRelease));
    assert!(page(&world).contains("It holds no memory: there is no such process now."), "{}", page(&world));
}

#[test]
fn an_allocation_has_the_gpus_that_can_access_it() {
    let mut world = World::with_queues(1, 1, 1);
    let mut takes = |at_ns, body| world.take(&event(at_ns, 1, 4_000, body));
    for handle in 1..=3 {
        takes(HOUR + handle, allocated(handle, GPU, 4096, VRAM));
    }
    takes(HOUR + 9, mapped(2, &[GPU], 1));
    takes(HOUR + 9, mapped(3, &[GPU, GPU + 1], 2));
    let html = world.shows(Place::Process, &[("pid", "4000")]).expect("a page");
    // The first is the ring of its queue.
    let cells = html.split("<td class=\"code\">").skip(2).filter_map(|rest| rest.split("</td>").nth(1));
    let cells: Vec<&str> = cells.map(|cell| cell.trim_start_matches("<td>")).collect();
    assert_eq!(cells, ["none", "gpu 0", "gpu 0, gpu_id=58271"], "{html}");
}
