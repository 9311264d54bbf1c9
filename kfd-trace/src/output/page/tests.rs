use super::*;
use crate::attribute::{Gpu, Topology};
use crate::model::event::{Body, Event, ProcessSeen, QueueFacts, QueueType};
use crate::model::incident::{Eviction, Trigger, VmFault};
use crate::model::pointers::{Counts, Unmeasured};
use crate::model::verdict::{ProbeStatus, Verdict};
use crate::output::api::{ApiView, Refusal, Tracing};
use crate::output::samples::{clock, probe, sampled, topology};
use crate::state::samples::{event, facts, seen};
use crate::state::{History, Reading, State, StateLimits};
use kfd_trace_common::counter::ProbeId;
use std::collections::BTreeMap;
use std::sync::Arc;

const GPU: u32 = 58270;
const HOUR: u64 = 3_600_000_000_000;
const BOOT: i64 = 1_790_000_000_000_000_000;

mod node;
mod places;
mod served;

/// Names that a process may choose, and longer ones.
const HOSTILE: [&str; 6] = [
    "<script>alert(1)</script>",
    "\"><img src=x onerror=alert(1)>",
    "a\u{1b}[2J\u{7}b\nc",
    "\u{202e}gnp.exe\u{2066}",
    "שלום עולם",
    "a{{ 7 * 7 }}&lt;",
];

fn process_seen(comm: &str) -> ProcessSeen {
    let Body::ProcessSeen(sample) = seen(false) else { panic!("it was made so") };
    ProcessSeen { comm: Some(comm.to_owned()), ..sample }
}

/// Input of a page.
struct World {
    state: State,
    history: History,
    topology: Topology,
    probes: Vec<ProbeStatus>,
    lost: BTreeMap<String, u64>,
    why_not: Option<String>,
    rates: Rates,
    now_ns: u64,
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
            probes: ProbeId::ALL.iter().map(|id| probe(*id, Verdict::Attached)).collect(),
            lost: BTreeMap::new(),
            why_not: None,
            rates: Rates::default(),
            now_ns: HOUR * 3,
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
        self.take(&event(HOUR, process, tgid, Body::ProcessSeen(process_seen(comm))));
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
        for (id, verdict) in [
            (ProbeId::QueueAdd, Verdict::MissingFields(vec!["QUEUE_ID".into()])),
            (ProbeId::Open, Verdict::Refused("EPERM".into())),
        ] {
            self.probes.iter_mut().filter(|probe| probe.id == id).for_each(|it| it.verdict = verdict.clone());
        }
        self.lost.insert("records lost, queue_create, queue_add".into(), 7);
        self
    }

    fn html(&self) -> String {
        self.shows(Place::Node, &[]).expect("a page")
    }

    fn shows(&self, place: Place, pairs: &[(&str, &str)]) -> Result<String, Refusal> {
        let pairs: Vec<_> =
            pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let query = PageQuery::new(place, &pairs).map_err(Refusal::Bad)?;
        let (snapshot, clock) = (self.state.snapshot(), clock());
        let now_ns = self.now_ns;
        let view = ApiView { snapshot: &snapshot, topology: &self.topology, clock: &clock, now_ns };
        let (missed, losses) = (BTreeMap::new(), BTreeMap::new());
        let tracing = Tracing {
            ts: &clock.rfc3339(now_ns),
            began_ns: BOOT,
            known_since_ns: BOOT,
            why_not: self.why_not.as_deref(),
            probes: &self.probes,
            missed: &missed,
            losses: &losses,
            lost: &self.lost,
            queues_by_ioctl: false,
            sample_interval_ns: 1_000_000_000,
            driver_loads: 1,
            types: &crate::kernel::types::TypesReport::default(),
            topology: &self.topology,
            kept: &[],
        };
        let past = Past::of(&query.subject, &self.history);
        let now = self.why_not.is_none().then_some(&view);
        let view = PageView { now, tracing: &tracing, past: &past, rates: &self.rates };
        html(&view, &query).map_err(Refusal::Failed)
    }
}

fn count(html: &str, part: &str) -> usize {
    html.matches(part).count()
}
