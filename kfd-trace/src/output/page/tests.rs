use super::cells::CHARACTERS;
use super::*;
use crate::attribute::Gpu;
use crate::model::event::{Body, Event, ProcessSeen, QueueFacts, QueueType};
use crate::model::incident::{Eviction, Trigger, VmFault};
use crate::model::pointers::{Counts, Unmeasured};
use crate::model::verdict::{ProbeStatus, Verdict};
use crate::output::api::{Refusal, Resource};
use crate::output::samples::{clock, probe, sampled, topology};
use crate::serve::router::{self, PageSource};
use crate::serve::web::names::Names;
use crate::serve::web::settings::Settings;
use crate::serve::web::{self, Site, listen};
use crate::state::samples::{event, facts, seen};
use crate::state::{History, Reading, State, StateLimits};
use kfd_trace_common::counter::ProbeId;
use std::collections::BTreeMap;
use std::net::SocketAddr;

const GPU: u32 = 58270;
const HOUR: u64 = 3_600_000_000_000;
const BOOT: i64 = 1_790_000_000_000_000_000;

/// Names that a process may choose, and longer ones.
const HOSTILE: [&str; 6] = [
    "<script>alert(1)</script>",
    "\"><img src=x onerror=alert(1)>",
    "a\u{1b}[2J\u{7}b\nc",
    "\u{202e}gnp.exe\u{2066}",
    "שלום עולם",
    "a{{ 7 * 7 }}&lt;",
];

/// Input of a page.
struct World {
    state: State,
    history: History,
    topology: Topology,
    probes: Vec<ProbeStatus>,
    lost: BTreeMap<String, u64>,
    why_not: Option<String>,
}

impl World {
    fn new(gpus: u32) -> Self {
        let sample = topology().gpus.remove(0);
        let gpu = |index| Gpu {
            index,
            gpu_id: GPU + index,
            node: index + 1,
            pci: Some(format!("0000:{:02x}:00.0", 0x05 + 0x10 * index)),
            ..sample.clone()
        };
        World {
            state: State::new(StateLimits::default()),
            history: History::default(),
            topology: Topology { gpus: (0..gpus).map(gpu).collect(), errors: vec![] },
            probes: vec![probe(ProbeId::Ioctl, Verdict::Attached)],
            lost: BTreeMap::new(),
            why_not: None,
        }
    }

    /// Queues, this many per process, distributed over the GPUs.
    fn with_queues(gpus: u32, queues: u32, each: u32) -> Self {
        let mut world = World::new(gpus);
        for number in 0..queues {
            let (process, nth) = (u64::from(number / each) + 1, number % each);
            let tgid = 4_000 + number / each;
            if nth == 0 {
                world.come(process, tgid, "train");
            }
            let queue_type = if nth % 4 == 3 { QueueType::Sdma } else { QueueType::ComputeAql };
            let gpu_id = Some(GPU + (number / each + nth / 8) % gpus);
            let queue = QueueFacts { gpu_id, queue_type: Some(queue_type), ..facts(nth) };
            world.take(&event(HOUR + u64::from(number), process, tgid, Body::QueueCreate(queue)));
        }
        world
    }

    fn come(&mut self, process: u64, tgid: u32, comm: &str) {
        let Body::ProcessSeen(sample) = seen(false) else { panic!("it was made so") };
        let seen = ProcessSeen { comm: Some(comm.to_owned()), ..sample };
        self.take(&event(HOUR, process, tgid, Body::ProcessSeen(seen)));
    }

    fn take(&mut self, event: &Event) {
        let change = self.state.apply(event);
        self.history.record(event, &change, &self.state, BOOT);
    }

    /// Adds one of everything that can go wrong.
    fn with_trouble(mut self) -> Self {
        let gpu_id = Some(GPU);
        let eviction = Eviction { gpu_id, trigger: Some(Trigger::Userptr), errno: 0, latency_ns: 9_000 };
        let of_gpu = |at, body| Event { process: None, tgid: None, ..event(at, 0, 0, body) };
        for (at, body) in [
            (HOUR * 2, Body::Evict(eviction)),
            (HOUR * 2 + 7_000_000, Body::Restore(Eviction { trigger: None, ..eviction })),
            (HOUR * 2 + 9_000_000, Body::Evict(eviction)),
            (HOUR * 2 + 10_000_000, Body::VmFault(VmFault { gpu_id, access: None })),
        ] {
            self.take(&event(at, 1, 4_000, body));
        }
        self.take(&of_gpu(HOUR * 2 + 11_000_000, Body::HwsHang { gpu_id }));
        self.take(&of_gpu(HOUR * 2 + 12_000_000, Body::GpuResetBegin { gpu_id }));
        self.history.driver(true, 2, HOUR * 2 + 13_000_000, BOOT);
        self.probes.extend([
            probe(ProbeId::QueueAdd, Verdict::MissingFields(vec!["QUEUE_ID".into()])),
            probe(ProbeId::Open, Verdict::Refused("EPERM".into())),
        ]);
        self.lost.insert("records lost, queue_create, queue_add".into(), 7);
        self
    }

    fn html(&self) -> String {
        let (snapshot, clock) = (self.state.snapshot(), clock());
        let now_ns = HOUR * 3;
        let view = ApiView { snapshot: &snapshot, topology: &self.topology, clock: &clock, now_ns };
        let (missed, losses) = (BTreeMap::new(), BTreeMap::new());
        let tracing = Tracing {
            ts: &clock.rfc3339(now_ns),
            began_ns: BOOT,
            why_not: self.why_not.as_deref(),
            probes: &self.probes,
            missed: &missed,
            losses: &losses,
            lost: &self.lost,
            queues_by_ioctl: false,
            driver_loads: 1,
            types: &crate::kernel::types::TypesReport::default(),
            topology: &self.topology,
            kept: &[],
        };
        let (recent, evictions) = recent(&self.history);
        let view = PageView {
            now: self.why_not.is_none().then_some(&view),
            tracing: &tracing,
            recent: &recent,
            evictions: &evictions,
        };
        html(&view).expect("a page")
    }
}

fn count(html: &str, part: &str) -> usize {
    html.matches(part).count()
}

#[test]
fn without_queues_the_page_shows_that() {
    let html = World::new(1).html();
    for part in [
        "<strong>1 GPU, 0 processes, 0 queues</strong>",
        "<time datetime=\"2026-09-21T17:13:20.000000000Z\">2026-09-21 17:13:20</time>",
        "No process uses KFD now.",
        "There is no queue now.",
        "No process is evicted now.",
        "Nothing has happened since",
        "Everything that was requested can be seen.",
        "<a href=\"/metrics\">",
        "0 of 24 compute",
    ] {
        assert!(html.contains(part), "{part}: {html}");
    }
    assert!(!html.contains("Not all can be seen") && !html.contains("Records were lost"), "{html}");
}

#[test]
fn one_queue_with_all_that_happened() {
    let html = World::with_queues(1, 1, 1).with_trouble().html();
    for part in [
        "1 GPU, 1 process, 1 queue; 1 process evicted",
        "gpu 0 (0000:05:00.0, gfx942)</bdi>: 1 queue of 1 process",
        "<th scope=\"row\" class=\"n\">4000</th><td><bdi>train</bdi></td>",
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
        "1 of 3 probes are on all of their functions",
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
    assert!(html.contains("<td class=\"n\"><span class=\"mark warn\">10 stalled</span></td>"), "{html}");
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
    assert!(many.contains("400 more processes: <a href=\"/api/v1/processes\">"));
    assert!(count(&many, "<td class=\"code\">") <= 300 && count(&many, "class=\"group\"") <= 300);
    let one = World::with_queues(1, 5_000, 5_000).html();
    assert!(one.contains("and 4988 more: <a href=\"/api/v1/queues\">all queues as JSON</a>"));
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
        let gpus = queues::by_gpu(&view);
        let of = |gpu: &QueuesOnGpu| -> usize {
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
    world.why_not = Some("no <driver>".into());
    world.probes = vec![];
    let html = world.html();
    assert!(html.contains("Nothing is traced now: no &#60;driver&#62;"), "{html}");
    assert!(!html.contains("No process") && html.contains("/metrics") && html.contains("queue_create"));
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

impl PageSource for World {
    fn metrics(&self, _: crate::output::metrics::Format) -> Result<String, String> {
        Ok(String::new())
    }

    fn page(&self) -> Result<String, String> {
        Ok(self.html())
    }

    fn api(&self, _: Resource, _: &[(String, String)]) -> Result<String, Refusal> {
        Err(Refusal::NotTraced("synthetic".to_owned()))
    }

    fn ready(&self) -> Result<(), String> {
        Ok(())
    }
}

/// Serves sample pages for visual inspection: `SHOW_PAGES=1 cargo test -p kfd-trace --lib -- --ignored
/// sample_pages`. On 127.0.0.1, from port 20300 on: 0, 1, 200 and 5,000 queues, hostile names, and no
/// driver.
#[tokio::test]
#[ignore = "serves until it is stopped"]
async fn sample_pages() {
    // A run of all tests, including ignored ones, must not wait forever.
    if std::env::var_os("SHOW_PAGES").is_none() {
        return;
    }
    let mut hostile = World::with_queues(2, 20, 5).with_trouble();
    for (process, name) in (100..).zip(HOSTILE.into_iter().chain(["x".repeat(10 << 10).as_str()])) {
        let tgid = u32::try_from(process).unwrap();
        hostile.come(process, tgid, name);
        hostile.take(&event(HOUR, process, tgid, Body::QueueCreate(facts(1))));
    }
    let mut away = World::with_queues(1, 1, 1);
    away.why_not = Some("the amdgpu driver is not loaded".to_owned());
    away.probes = vec![];
    let worlds = [
        World::new(8),
        World::with_queues(1, 1, 1),
        World::with_queues(8, 200, 8).with_trouble(),
        World::with_queues(8, 5_000, 10).with_trouble(),
        hostile,
        away,
    ];
    let mut servers = tokio::task::JoinSet::new();
    for (port, world) in (20_300..).zip(worlds) {
        let listeners = listen::bind(&[SocketAddr::from(([127, 0, 0, 1], port))], "").expect("a free port");
        let pages = router::router(Arc::new(world));
        let site = Site { pages, names: Names::new("localhost", &[]) };
        let (_, settings) = tokio::sync::watch::channel(Arc::new(Settings::default()));
        servers.spawn(web::serve(listeners, site, settings, std::future::pending()));
    }
    servers.join_all().await;
}
