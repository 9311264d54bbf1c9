//! The page of all that lives.

use super::super::cells::CHARACTERS;
use super::super::{node, queues};
use super::*;
use crate::output::page::view::Seen;

const SEEN: Seen =
    Seen { queues: true, evictions: true, faults: true, resets: true, hangs: true, opens: true };

#[test]
fn without_queues_the_page_shows_that() {
    let html = World::new(1).html();
    for part in [
        "<strong>1 GPU, 0 processes, 0 queues</strong>",
        "<time class=\"now\" datetime=\"2026-09-21T17:13:20.000000000Z\">2026-09-21 17:13:20</time>",
        "No process uses KFD now.",
        "There is no queue now.",
        "No process is evicted now.",
        "Nothing has happened since",
        "Everything that was requested can be seen.",
        "<a href=\"metrics\">",
        "0 of 24 compute",
    ] {
        assert!(html.contains(part), "{part}: {html}");
    }
    assert!(!html.contains("Not all can be seen") && !html.contains("Records were lost"), "{html}");
}

#[test]
fn one_queue_with_all_that_happened() {
    let html = World::with_queues(1, 1, 1).with_trouble().html();
    let attached = format!("{} of {} probes are on", ProbeId::ALL.len() - 2, ProbeId::ALL.len());
    assert!(html.contains(&attached), "{html}");
    for part in [
        "1 GPU, 1 process, 1 queue; 1 process evicted",
        "gpu 0 (0000:05:00.0, gfx942)</bdi>: 1 queue of 1 process",
        "<th scope=\"row\" class=\"n\"><a href=\"process?pid=4000\">4000</a></th><td><bdi>train</bdi></td>",
        "1 queue: 1 compute_aql",
        "<span class=\"mark warn\">evicted</span>",
        "<span class=\"mark bad\">resetting</span>",
        "0x7fad66c00000",
        "trigger userptr",
        "after 7.00ms",
        "gpu_reset_begin",
        "loading 2",
        "<li>not seen: what queue_add feeds</li>",
        "<td>missing_fields</td><td class=\"path\"><span>QUEUE_ID</span></td>",
        "records lost, queue_create, queue_add</th><td class=\"n\">7</td>",
        "Not all can be seen, and records were lost: <a href=\"#unseen\">",
    ] {
        assert!(html.contains(part), "{part}: {html}");
    }
}

#[test]
fn queue_activity_is_shown_in_its_row() {
    let shown = |readings: &[(u64, Reading)]| {
        let mut world = World::with_queues(1, 1, 1);
        let queue_id = *world.state.live().next().expect("a process").queues.keys().next().expect("a queue");
        for (at_ns, reading) in readings {
            sampled(&mut world.state, queue_id, *reading, *at_ns);
        }
        world.html()
    };
    let counts = |submitted, retired| Ok(Counts { submitted, retired });
    let second = 1_000_000_000;
    let html = shown(&[(HOUR, counts(100, 90)), (HOUR + second, counts(1_310, 1_300))]);
    assert!(html.contains("<td class=\"n\">1.21k/s</td><td class=\"n\">10</td>"), "{html}");
    let html = shown(&[(HOUR, counts(100, 90)), (HOUR + 11 * second, counts(100, 90))]);
    assert!(html.contains("<td class=\"n\"><span class=\"mark bad\">10 stalled</span></td>"), "{html}");
    let html = shown(&[(HOUR, Err(Unmeasured::Denied))]);
    assert!(html.contains("<td class=\"n\">–</td><td class=\"n\">? (denied)</td>"), "{html}");
}

#[test]
fn many_queues_are_counted_and_a_page_stays_small() {
    let html = World::with_queues(8, 200, 8).html();
    assert!(html.contains("8 GPUs, 25 processes, 200 queues"), "{html}");
    assert_eq!(count(&html, "<td class=\"code\">"), 200, "each has its row");
    let many = World::with_queues(8, 5_000, 10).html();
    assert!(many.contains("8 GPUs, 500 processes, 5000 queues"));
    assert!(many.contains("400 more processes: filter them, or read <a href=\"api/v1/processes\">"));
    assert!(count(&many, "<td class=\"code\">") <= 300 && count(&many, "class=\"group\"") <= 300);
    let one = World::with_queues(1, 5_000, 5_000).html();
    assert!(one.contains("and 4988 more: <a href=\"process?pid=4000\">all of the process</a>, <a href=\"api/v1/queues\">all queues as JSON</a>"));
    // For any number of them.
    assert!(many.len().max(one.len()) < 256 << 10, "{} {}", many.len(), one.len());
    let lines: Vec<_> = many.lines().filter(|line| line.contains("more queues of")).collect();
    assert_eq!(lines.len(), 8, "each GPU shows how many it leaves out");
}

#[test]
fn the_counts_of_what_is_shown_and_what_is_left_out_are_the_whole() {
    for (queues, each) in [(5_000, 10), (5_000, 40), (700, 1)] {
        let world = World::with_queues(3, queues, each);
        let (snapshot, clock) = (world.state.snapshot(), clock());
        let view = ApiView { snapshot: &snapshot, topology: &world.topology, clock: &clock, now_ns: HOUR };
        let gpus = queues::by_gpu(snapshot.live(), node::ROOM, (SEEN, &view));
        let of = |gpu: &queues::QueuesOnGpu| -> usize {
            let groups: usize = gpu.groups.iter().map(|group| group.rows.len() + group.more).sum();
            groups + gpu.more_queues
        };
        assert_eq!(gpus.iter().map(of).sum::<usize>(), usize::try_from(queues).unwrap());
    }
}

#[test]
fn hostile_names_are_text() {
    let mut world = World::new(1);
    let long = "x".repeat(10 << 10);
    for (process, name) in (1..).zip(HOSTILE.into_iter().chain([long.as_str()])) {
        let tgid = u32::try_from(process).unwrap();
        world.come(process, tgid, name);
        world.take(&event(HOUR, process, tgid, Body::QueueCreate(facts(1))));
        let gpu_id = Some(GPU);
        let eviction = Eviction { gpu_id, trigger: Some(Trigger::Ttm), errno: 0, latency_ns: 1 };
        world.take(&event(HOUR, process, tgid, Body::Evict(eviction)));
    }
    let html = world.html();
    assert_eq!((count(&html, "<script"), count(&html, "<img")), (1, 0), "its own script only");
    assert!(
        html.contains("&#60;script&#62;alert(1)") && html.contains("a\\u{1b}[2J\\u{7}b\\u{a}c"),
        "{html}"
    );
    assert!(html.contains("\\u{202e}gnp.exe\\u{2066}") && html.contains("<bdi>שלום עולם</bdi>"));
    assert!(html.contains("a{{ 7 * 7 }}&#38;lt;"));
    assert!(html.contains(&format!("{}… (10240 bytes)", "x".repeat(CHARACTERS))));
    assert!(!html.contains(&"x".repeat(CHARACTERS + 1)));
    let steers = |c: char| c.is_control() && c != '\n' || "\u{202e}\u{2066}".contains(c);
    assert!(!html.contains(steers));
}

#[test]
fn while_nothing_is_traced_the_page_shows_why_and_the_past() {
    let mut world = World::with_queues(1, 1, 1);
    // A sentence of the tracer itself, with what to do at its end.
    let whole = format!(
        "the amdgpu driver is not loaded: {}; load it (modprobe amdgpu)",
        "there is no <driver> ".repeat(9)
    );
    world.why_not = Some(whole);
    world.probes = vec![];
    let html = world.html();
    assert!(html.contains("Nothing is traced now: the amdgpu driver is not loaded"), "{html}");
    assert!(html.contains("no &#60;driver&#62;") && html.contains("; load it (modprobe amdgpu)"), "{html}");
    assert!(!html.contains("No process") && html.contains("\"metrics\"") && html.contains("queue_create"));
    assert!(html.contains("No probe is attached."));
    let sections: Vec<_> =
        html.split("<h2 id=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    assert_eq!(sections, ["events", "unseen"]);
}

#[test]
fn every_table_has_a_caption_and_every_heading_cell_a_scope() {
    let html = World::with_queues(2, 9, 3).with_trouble().html();
    assert_eq!(count(&html, "<table>"), count(&html, "<caption"));
    assert_eq!(count(&html, "<th "), count(&html, "<th scope="));
    assert_eq!(count(&html, "<th>"), 0);
    for no in ["style=", "onclick", "http://", "https://"] {
        assert!(!html.contains(no), "{no}");
    }
    let ids: Vec<_> = html.split(" id=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    let unique: std::collections::BTreeSet<_> = ids.iter().collect();
    assert_eq!(ids.len(), unique.len(), "{ids:?}");
    let named = |mark: &str| -> Vec<String> {
        html.split(mark).skip(1).filter_map(|rest| rest.split('"').next()).map(str::to_owned).collect()
    };
    for name in named("aria-labelledby=\"").into_iter().chain(named("href=\"#")) {
        assert!(ids.contains(&name.as_str()), "{name}");
    }
}

#[test]
fn what_is_not_seen_is_not_zero() {
    let mut world = World::with_queues(1, 1, 1);
    let cells = |html: &str| {
        let (_, table) = html.split_once("processes-caption").expect("a table of processes");
        table.split_once("</tbody>").expect("its end").0.to_owned()
    };
    let zeros = |world: &World| count(&cells(&world.html()), "<td class=\"n\">0</td>");
    assert_eq!(zeros(&world), 2, "evictions and faults");
    world.probes =
        vec![probe(ProbeId::QueueAdd, Verdict::Attached), probe(ProbeId::QueueDel, Verdict::Attached)];
    assert_eq!(zeros(&world), 0, "{}", cells(&world.html()));
    let page = world.shows(Place::Process, &[("pid", "4000")]).expect("a page");
    for part in ["<dt>VM faults</dt><dd><bdi>–</bdi>", "<dt>/dev/kfd since it is traced</dt><dd><bdi>–</bdi>"]
    {
        assert!(page.contains(part) && !page.contains("none"), "{part}: {page}");
    }
    assert!(world.html().contains("Evictions cannot be seen."));
    assert_eq!(
        count(
            &world.html(),
            "<td class=\"n\">–</td><td class=\"n\">–</td><td class=\"n\">–</td><td class=\"n\">–</td></tr>"
        ),
        1,
        "of a GPU"
    );
    world.probes = vec![probe(ProbeId::Ioctl, Verdict::Attached)];
    let html = world.html();
    assert!(
        html.contains("1 queue; not all queues are known</strong>") && html.contains("? of 24 compute"),
        "{html}"
    );
}
