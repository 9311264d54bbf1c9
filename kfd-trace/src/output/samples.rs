//! Shared by the tests of the outputs.

use super::event::context::Context;
use crate::attribute::{Gpu, Topology};
use crate::model::compute_units::ComputeUnits;
use crate::model::event::{Event, Outcome, ProcessId};
use crate::model::verdict::{ProbeStatus, Verdict};
use crate::state::samples::{create, event, seen};
use crate::state::{ProcessDetails, Reading, Sample, State, StateLimits};
use crate::text::clock::Clock;
use jiff::tz::TimeZone;
use kfd_trace_common::counter::ProbeId;

pub(crate) const PID: u32 = 4321;
pub(crate) const CREATE: u32 = 0xc060_4b02;
pub(crate) const DESTROY: u32 = 0xc008_4b03;
pub(crate) const WAIT: u32 = 0xc018_4b0c;

pub(crate) fn clock() -> Clock {
    Clock { mono_to_wall_ns: 1_790_000_000_000_000_000, zone: TimeZone::UTC }
}

pub(crate) fn topology() -> Topology {
    let gpu = Gpu {
        index: 0,
        node: 1,
        gpu_id: 58270,
        name: Some("aqua_vanjaram".into()),
        product_name: Some("AMD Instinct MI300A".into()),
        serial_number: Some("692231000131".into()),
        gfx_target_version: Some(90402),
        vendor_id: Some(0x1002),
        device_id: Some(0x74a2),
        pci: Some("0000:c1:00.0".into()),
        partition: None,
        render_minor: Some(128),
        unique_id: Some(0x18f6_8e60_2b8a_790f),
        num_cp_queues: Some(24),
        num_sdma_engines: Some(2),
        num_sdma_xgmi_engines: Some(0),
        num_sdma_queues_per_engine: Some(8),
        num_xcc: Some(6),
        simd_count: Some(912),
        compute_units: Some(ComputeUnits {
            active: vec![vec![[10, 0], [10, 0], [9, 0], [9, 0]]; 6],
            in_pairs: false,
        }),
    };
    Topology { gpus: vec![gpu], errors: Vec::new() }
}

/// A state with one process and its queue 3, created at 20 us.
pub(crate) fn traced() -> State {
    let mut state = State::new(StateLimits::default());
    state.apply(&event(10_000, 1, PID, seen(false)));
    state.apply(&event(20_000, 1, PID, create(3)));
    let details = ProcessDetails {
        cmdline: Some("python train.py".into()),
        cgroup: Some("/slurm/job.scope".into()),
        ..ProcessDetails::default()
    };
    state.enrich(ProcessId(1).into(), details);
    state
}

/// Takes a sample of one of its queues.
pub(crate) fn sampled(state: &mut State, queue_id: u32, reading: Reading, at_ns: u64) {
    let targets = state.sought();
    let sought = targets.iter().flat_map(|target| target.queues.iter().map(|queue| (target.key, queue)));
    let (key, queue) =
        sought.into_iter().find(|(_, queue)| queue.queue_id == queue_id).expect("it is sampled");
    let sample = Sample { key, queue_id, since_ns: queue.since_ns, reading, at_ns };
    state.sampled(&sample).expect("it lives").ok();
}

/// Applies the event to [`traced`] and formats it with the resulting changes.
pub(crate) fn shown<T>(event: &Event, show: impl Fn(&Event, &Context<'_>) -> T) -> T {
    let mut state = traced();
    let change = state.apply(event);
    let (clock, topology) = (clock(), topology());
    let named = crate::model::ioctl::Named::default();
    let context = Context::new(&change, &state, &clock, &topology, named, None);
    show(event, &context)
}

pub(crate) fn ioctl_event(cmd: u32, outcome: Outcome, args: &[u8]) -> Event {
    use crate::model::event::{Body, IoctlCall};
    let call = IoctlCall { cmd, entered_ns: 29_000, outcome, args: args.to_vec() };
    event(30_000, 1, PID, Body::Ioctl(call))
}

pub(crate) fn probe(id: ProbeId, verdict: Verdict) -> ProbeStatus {
    let symbols = vec!["kfd_one".to_owned(), "kfd_two".to_owned()];
    let feeds = match id {
        ProbeId::QueueAdd => "what queue_add feeds",
        ProbeId::Open => "what open feeds",
        _ => "something",
    };
    ProbeStatus { id, kind: "kprobe", symbols, places: 2, required: false, may_lack: false, feeds, verdict }
}
