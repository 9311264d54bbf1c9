//! Records as the BPF side sends them, one after the other.

use crate::world::{QueueAt, START_BOOTTIME_NS, tgid};
use kfd_trace::model::layout::{PropertyField, QueueLayout};
use kfd_trace_common::aql::HEAD_LEN;
use kfd_trace_common::counter::ProbeId;
use kfd_trace_common::kind::Kind;
use kfd_trace_common::limits::{ARGS_LEN, CGROUP_LEN, COMM_LEN, CU_MASK_LEN, PROPERTIES_LEN};
use kfd_trace_common::record::{self, Header, Record, mqd_op, outcome, trigger};
use kfd_trace_common::rules::PRIMARY_CONTEXT;

pub(crate) const CREATE_QUEUE: u32 = 0xc060_4b02;
pub(crate) const DESTROY_QUEUE: u32 = 0xc008_4b03;
pub(crate) const UPDATE_QUEUE: u32 = 0x4018_4b07;
const GET_CLOCK_COUNTERS: u32 = 0xc028_4b05;
const ALLOC_MEMORY_OF_GPU: u32 = 0xc028_4b16;

/// Bytes of `struct queue_properties` of Linux 6.12.
const PROPERTIES: u32 = 200;

/// `struct queue_properties` of Linux 6.12 (BTF): member, offset, size.
const MEMBERS: [(&str, u32, u32); 13] = [
    ("type", 0, 4),
    ("format", 4, 4),
    ("queue_id", 8, 4),
    ("queue_address", 16, 8),
    ("queue_size", 24, 8),
    ("priority", 32, 4),
    ("queue_percent", 36, 4),
    ("read_ptr", 40, 8),
    ("write_ptr", 48, 8),
    ("doorbell_off", 64, 4),
    ("is_evicted", 69, 1),
    ("is_active", 72, 1),
    ("sdma_engine_id", 88, 4),
];

fn member(name: &str) -> Option<PropertyField> {
    let (_, offset, size) = *MEMBERS.iter().find(|(member, ..)| *member == name)?;
    Some(PropertyField { offset, size })
}

/// The layout that [`Tape`] writes.
pub(crate) fn layout() -> QueueLayout {
    let own =
        |names: &[(&str, i64)]| names.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
    let types: Vec<_> =
        own(&[("KFD_QUEUE_TYPE_COMPUTE", 0), ("KFD_QUEUE_TYPE_SDMA", 1), ("KFD_QUEUE_TYPE_HIQ", 2)]);
    let formats: Vec<_> = own(&[("KFD_QUEUE_FORMAT_PM4", 0), ("KFD_QUEUE_FORMAT_AQL", 1)]);
    QueueLayout::from_members(member).with_enums(&types, &formats)
}

/// Records in the order in which they were written.
#[derive(Debug, Default)]
pub(crate) struct Tape {
    bytes: Vec<u8>,
    ends: Vec<usize>,
    /// Records of the tape that this one continues.
    before: usize,
}

impl Tape {
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// When the next record comes, CLOCK_MONOTONIC nanoseconds.
    pub(crate) fn now_ns(&self) -> u64 {
        // A microsecond from record to record.
        START_BOOTTIME_NS + 1_000 * (self.before + self.ends.len()) as u64
    }

    /// An empty tape whose records come after those of this one.
    pub(crate) fn continued(self) -> Self {
        Tape { before: self.before + self.ends.len(), ..Tape::default() }
    }

    pub(crate) fn records(&self) -> impl Iterator<Item = &[u8]> {
        let begins = std::iter::once(0).chain(self.ends.iter().copied());
        begins.zip(&self.ends).map(|(begin, end)| &self.bytes[begin..*end])
    }

    fn header<T>(&self, kind: Kind, process: u64, ioctl: u32) -> Header {
        let tgid = tgid(process);
        Header {
            size: u32::try_from(size_of::<T>()).unwrap_or(u32::MAX),
            kind: kind as u16,
            version: record::VERSION,
            mono_ns: self.now_ns(),
            process,
            tgid,
            tid: tgid,
            task_tgid: tgid,
            cpu: tgid % 64,
            ioctl,
            // Only used where a record cannot be decoded.
            probe: ProbeId::Ioctl as u32,
        }
    }

    fn put<T: Record>(&mut self, record: &T) {
        let start = (&raw const *record).cast::<u8>();
        // SAFETY: a `Record` has no padding, so that all its bytes are initialised.
        self.bytes.extend_from_slice(unsafe { std::slice::from_raw_parts(start, size_of::<T>()) });
        self.ends.push(self.bytes.len());
    }

    pub(crate) fn process_seen(&mut self, process: u64) {
        let header = self.header::<record::ProcessSeen>(Kind::ProcessSeen, process, 0);
        self.put(&record::ProcessSeen {
            header,
            start_boottime_ns: START_BOOTTIME_NS,
            ns_tgid: 7,
            uid: 1000,
            standing: 0,
            pasid: 0x8000,
            context_id: PRIMARY_CONTEXT,
            pad: 0,
            comm: text::<COMM_LEN>("python3"),
            cgroup: text::<CGROUP_LEN>("cri-containerd-0123456789abcdef0123456789abcdef.scope"),
        });
    }

    pub(crate) fn open(&mut self, process: u64) {
        // `kfd_open` does not report the process.
        let header = Header { process: 0, ..self.header::<record::Open>(Kind::Open, process, 0) };
        self.put(&record::Open { header, result: 0, pad: 0, comm: text::<COMM_LEN>("python3") });
    }

    /// `Close`, `MmRelease`, `ProcessRelease`.
    pub(crate) fn bare(&mut self, kind: Kind, process: u64) {
        let header = self.header::<record::Bare>(kind, process, 0);
        self.put(&record::Bare { header });
    }

    pub(crate) fn mqd_write(&mut self, queue: QueueAt, op: u32) {
        let ioctl = if op == mqd_op::INIT { CREATE_QUEUE } else { UPDATE_QUEUE };
        let header = self.header::<record::MqdWrite>(Kind::MqdWrite, queue.process, ioctl);
        self.put(&record::MqdWrite { header, queue_id: queue.queue_id, gpu_id: queue.gpu_id, op, pad: 0 });
    }

    pub(crate) fn queue_create(&mut self, queue: QueueAt) {
        let header = self.header::<record::QueueCreate>(Kind::QueueCreate, queue.process, CREATE_QUEUE);
        let properties = properties(queue);
        let gpu_id = queue.gpu_id;
        self.put(&record::QueueCreate { header, gpu_id, properties_len: PROPERTIES, properties });
    }

    pub(crate) fn queue_update(&mut self, queue: QueueAt) {
        let header = self.header::<record::QueueUpdate>(Kind::QueueUpdate, queue.process, UPDATE_QUEUE);
        self.put(&record::QueueUpdate {
            header,
            gpu_id: queue.gpu_id,
            result: 0,
            cu_mask_bits: 0,
            properties_len: PROPERTIES,
            cu_mask: [0; CU_MASK_LEN],
            properties: properties(queue),
        });
    }

    pub(crate) fn queue_destroy(&mut self, queue: QueueAt) {
        let header = self.header::<record::QueueDestroy>(Kind::QueueDestroy, queue.process, DESTROY_QUEUE);
        let QueueAt { queue_id, gpu_id, .. } = queue;
        let (pointers, memory) = (record::pointers::NOT_READ, [0; HEAD_LEN]);
        self.put(&record::QueueDestroy { header, queue_id, gpu_id, result: 0, pointers, memory });
    }

    pub(crate) fn evict(&mut self, queue: QueueAt) {
        self.eviction(Kind::Evict, queue, 1);
    }

    pub(crate) fn restore(&mut self, queue: QueueAt) {
        self.eviction(Kind::Restore, queue, trigger::NONE);
    }

    fn eviction(&mut self, kind: Kind, queue: QueueAt, trigger: u32) {
        let header = self.header::<record::Eviction>(kind, queue.process, 0);
        let gpu_id = queue.gpu_id;
        self.put(&record::Eviction { header, latency_ns: 40_000, gpu_id, trigger, result: 0, pad: 0 });
    }

    /// A GET_CLOCK_COUNTERS that returned.
    pub(crate) fn ioctl(&mut self, process: u64) {
        self.returned(process, GET_CLOCK_COUNTERS, [1; ARGS_LEN]);
    }

    /// An ALLOC_MEMORY_OF_GPU that returned: 1 GiB on the queue's GPU.
    pub(crate) fn allocate(&mut self, queue: QueueAt, handle: u64, flags: u32) {
        // struct kfd_ioctl_alloc_memory_of_gpu_args
        let words = [0x7e00_0000_0000 + (handle << 30), 1 << 30, handle, 0];
        let ends = [queue.gpu_id, flags];
        let bytes = words.iter().flat_map(|word| word.to_le_bytes());
        let mut args = [0; ARGS_LEN];
        for (to, byte) in args.iter_mut().zip(bytes.chain(ends.iter().flat_map(|word| word.to_le_bytes()))) {
            *to = byte;
        }
        self.returned(queue.process, ALLOC_MEMORY_OF_GPU, args);
    }

    fn returned(&mut self, process: u64, cmd: u32, args: [u8; ARGS_LEN]) {
        let header = self.header::<record::Ioctl>(Kind::Ioctl, process, cmd);
        self.put(&record::Ioctl {
            header,
            entered_ns: header.mono_ns - 900,
            latency_ns: 900,
            cmd,
            result: 0,
            outcome: outcome::RETURNED,
            args_len: 40,
            args,
        });
    }
}

/// The properties of an active queue: AQL, or for every fourth of a process SDMA.
fn properties(queue: QueueAt) -> [u8; PROPERTIES_LEN] {
    let mut bytes = [0; PROPERTIES_LEN];
    let (queue_type, format) = if queue.queue_id % 4 == 3 { (1, 0) } else { (0, 1) };
    let ring = 0x7f00_0000_0000 + (u64::from(queue.queue_id) << 24);
    for (name, value) in [
        ("type", queue_type),
        ("format", format),
        ("queue_id", u64::from(queue.queue_id)),
        ("queue_address", ring),
        ("queue_size", 1 << 20),
        ("priority", 7),
        ("queue_percent", 100),
        ("read_ptr", ring + 128),
        ("write_ptr", ring + 56),
        ("doorbell_off", 16),
        ("is_active", 1),
    ] {
        if let Some(PropertyField { offset, size }) = member(name) {
            let (offset, size) = (offset as usize, size as usize);
            bytes[offset..offset + size].copy_from_slice(&u64::to_le_bytes(value)[..size]);
        }
    }
    bytes
}

/// NUL-padded.
fn text<const LEN: usize>(text: &str) -> [u8; LEN] {
    let mut bytes = [0; LEN];
    bytes[..text.len()].copy_from_slice(text.as_bytes());
    bytes
}
