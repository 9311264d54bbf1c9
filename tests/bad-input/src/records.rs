//! The decoder of records, the state that they change, and every output of both.

use crate::allocation::{Bound, within};
use crate::{parts, shown};
use kfd_trace::attribute::{Gpu, PodNames, SlurmJob, Topology, belongs};
use kfd_trace::events::decode::{DecodeError, Maker, decode};
use kfd_trace::events::derived;
use kfd_trace::events::tables::IoctlRow;
use kfd_trace::events::undecoded::Undecoded;
use kfd_trace::model::compute_units::ComputeUnits;
use kfd_trace::model::event::{Body, Event, QueueType};
use kfd_trace::model::layout::{PropertyField, QueueLayout};
use kfd_trace::state::{History, ProcessDetails, State, StateLimits};
use kfd_trace_common::stat::IoctlStat;

/// Texts and masks of a record, each of which is contained in it: a byte that is not UTF-8 becomes three.
const DECODE: Bound = Bound { a_byte: 4, always: 512 };
/// A row of a process is larger than the record that makes it, and an output shows all of them.
const ALL: Bound = Bound { a_byte: 200, always: 512 << 10 };

const LIMITS: StateLimits =
    StateLimits { processes: 24, ended_processes: 4, linger_ns: 1 << 40, ended_queues: 4 };

/// Processes the parts of an input, each as a record, in the layout that the first part names. Returns how
/// many were decoded and how many refused.
///
/// # Panics
/// When a guarantee was violated.
#[must_use]
pub fn read(input: &[u8]) -> (usize, usize) {
    let mut records = parts::split(input);
    let maker = Maker::from(layout(records.next().unwrap_or_default()));
    within("records, state and outputs", input.len(), ALL, || {
        let mut world = World {
            state: State::new(LIMITS),
            history: History::default(),
            topology: topology(),
            ioctls: Vec::new(),
        };
        let (mut decoded, mut refused, mut undecoded) = (0, 0, Undecoded::default());
        for record in records {
            match within("record", record.len(), DECODE, || decode(record, &maker)) {
                Ok(event) => {
                    world.take(&event);
                    decoded += 1;
                }
                Err(error) => {
                    shown::line(&error.to_string());
                    assert!(DecodeError::REASONS.contains(&error.error.reason()));
                    undecoded.count(&error);
                    refused += 1;
                }
            }
        }
        let _ = world.state.expire(u64::MAX);
        shown::world(&world.state, &world.history, &world.topology, &world.ioctls, &undecoded);
        (decoded, refused)
    })
}

struct World {
    state: State,
    history: History,
    topology: Topology,
    ioctls: Vec<IoctlRow>,
}

impl World {
    fn take(&mut self, event: &Event) {
        for event in std::iter::once(event).chain(derived::derived(event).as_ref()) {
            let change = self.state.apply(event);
            if let (Body::ProcessSeen(seen), Some(key)) = (&event.body, change.process) {
                // procfs also reports the name of the process.
                let text = seen.comm.iter().chain(&seen.cgroup_leaf).cloned().collect::<Vec<_>>().join("/");
                let belongs = belongs([text.as_str()]);
                let names =
                    PodNames { namespace: text.clone(), pod: text.clone(), container: Some(text.clone()) };
                let container_name = Some(text.clone());
                let (cmdline, cgroup, pod) = (Some(text.clone()), Some(text), Some(names));
                let job = Some(SlurmJob { account: container_name.clone(), partition: None });
                self.state.enrich(key, ProcessDetails { cmdline, cgroup, belongs, pod, container_name, job });
            }
            self.history.record(event, &change, &self.state, shown::BOOT_NS);
            shown::event(event, &change, &self.state, &self.topology);
        }
        if let (Body::Ioctl(call), Some(process)) = (&event.body, event.process) {
            let stat = IoctlStat { entered: 1, ..IoctlStat::ZERO };
            self.ioctls.push(IoctlRow { process, cmd: call.cmd, stat });
        }
    }
}

/// Chosen by its first byte: that of a kernel without BTF, that of 6.12, or members at arbitrary offsets.
#[must_use]
pub fn layout(choice: &[u8]) -> QueueLayout {
    let word = |index: usize| {
        let word = choice.get(1 + index * 4..).and_then(|rest| rest.first_chunk());
        word.map_or(u32::MAX, |word| u32::from_le_bytes(*word))
    };
    let mut next = 0;
    let mut anywhere = || {
        next += 2;
        PropertyField { offset: word(next - 2), size: word(next - 1) }
    };
    match choice.first().copied().unwrap_or(0) % 3 {
        0 => QueueLayout::default(),
        1 => of_6_12(),
        _ => QueueLayout {
            kind: Some(anywhere()),
            queue_id: Some(anywhere()),
            ring_size: Some(anywhere()),
            types: vec![(word(6), QueueType::Sdma)],
            ..of_6_12()
        },
    }
}

/// Offsets in `struct queue_properties` of Debian's 6.12, in bytes.
fn of_6_12() -> QueueLayout {
    let at = |offset, size| Some(PropertyField { offset, size });
    QueueLayout {
        kind: at(0, 4),
        format: at(4, 4),
        queue_id: at(8, 4),
        ring_address: at(16, 8),
        ring_size: at(24, 8),
        priority: at(32, 4),
        percent: at(36, 4),
        read_pointer: at(40, 8),
        write_pointer: at(48, 8),
        doorbell: at(64, 4),
        sdma_engine_id: at(88, 4),
        is_active: at(72, 1),
        is_evicted: at(69, 1),
        is_suspended: at(70, 1),
        types: vec![(0, QueueType::Compute), (1, QueueType::Sdma), (5, QueueType::SdmaByEngId)],
        format_aql: Some(1),
    }
}

fn topology() -> Topology {
    let gpu = Gpu {
        index: 0,
        node: 1,
        gpu_id: GPU,
        name: Some("aqua_vanjaram".to_owned()),
        product_name: None,
        serial_number: None,
        gfx_target_version: Some(90402),
        vendor_id: Some(0x1002),
        device_id: Some(0x74a1),
        pci: Some("0000:c1:00.0".to_owned()),
        partition: None,
        render_minor: Some(128),
        unique_id: None,
        num_cp_queues: Some(24),
        num_sdma_engines: Some(2),
        num_sdma_xgmi_engines: Some(6),
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

/// The only GPU.
pub const GPU: u32 = 58270;
