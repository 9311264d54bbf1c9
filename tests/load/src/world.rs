//! The machine described by the records: GPUs, processes, and queues spread evenly over both.

use crate::records::{self, Tape};
use anyhow::{Context as _, Result};
use kfd_trace::attribute::{Gpu, Topology};
use kfd_trace::events::decode::{Maker, Undecodable, decode};
use kfd_trace::events::tables::{Crowded, ErrorRow, InFlightRow, IoctlRow, Tables};
use kfd_trace::events::undecoded::Undecoded;
use kfd_trace::kernel::Roots;
use kfd_trace::model::compute_units::ComputeUnits;
use kfd_trace::model::counters::Counters;
use kfd_trace::model::event::{Event, ProcessId};
use kfd_trace::model::inventory::Listed;
use kfd_trace::model::missed::Missed;
use kfd_trace::model::pointers::Counts;
use kfd_trace::model::verdict::{ProbeStatus, Verdict};
use kfd_trace::probes::PROBES;
use kfd_trace::probes::table::{ProbeRow, When};
use kfd_trace::state::{Change, History, Inventory, Sample, SampleTotals, Source, State, StateLimits};
use kfd_trace::tracer::intake::Intake;
use kfd_trace_common::counter::{COUNTERS, ProbeId};
use kfd_trace_common::loss::LOSSES;
use kfd_trace_common::stat::IoctlStat;
use std::fs;
use std::path::Path;

/// How much there is of what grows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    /// Processes that use KFD.
    pub(crate) processes: usize,
    /// Live queues.
    pub(crate) queues: usize,
    pub(crate) gpus: usize,
}

/// A node with 8 GPUs.
pub(crate) const NODE: Size = Size { processes: 500, queues: 10_000, gpus: 8 };

/// Records that the daemon reads from the ring buffer at once (`events::ring`, `BATCH`).
pub(crate) const BATCH: usize = 4096;

/// Start of every process, and the time of the first record.
pub(crate) const START_BOOTTIME_NS: u64 = 3_600_000_000_000;

/// Ioctls that a process has called: GET_VERSION, CREATE_QUEUE, DESTROY_QUEUE, GET_CLOCK_COUNTERS,
/// CREATE_EVENT, WAIT_EVENTS, ACQUIRE_VM, ALLOC_MEMORY_OF_GPU, FREE_MEMORY_OF_GPU, MAP_MEMORY_TO_GPU,
/// UNMAP_MEMORY_FROM_GPU, GET_PROCESS_APERTURES_NEW.
const CALLED: [u32; 12] = [
    0x8008_4b01,
    0xc060_4b02,
    0xc008_4b03,
    0xc028_4b05,
    0xc020_4b08,
    0xc018_4b0c,
    0x4008_4b15,
    0xc028_4b16,
    0x4008_4b17,
    0xc018_4b18,
    0xc018_4b19,
    0xc010_4b14,
];

/// The kernel's counts of a kprobe, for each of them.
const MISSED: Missed = Missed { program_skipped: Some(1), probe_missed: Some(0) };

/// A queue: its process, and its GPU.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueueAt {
    pub(crate) process: u64,
    pub(crate) queue_id: u32,
    pub(crate) gpu_id: u32,
}

/// The queue with this number: the processes in turn, each one's next queue on its next GPU.
pub(crate) fn queue(size: Size, number: usize) -> QueueAt {
    let (process, nth) = (number % size.processes, number / size.processes);
    let gpu_id = gpu_id((process + nth) % size.gpus);
    QueueAt { process: process as u64 + 1, queue_id: small(nth), gpu_id }
}

fn gpu_id(index: usize) -> u32 {
    58_000 + small(index) * 17
}

fn small(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// tgid of a process, by its number from 1.
pub(crate) fn tgid(process: u64) -> u32 {
    10_000 + u32::try_from(process).unwrap_or(u32::MAX / 2)
}

/// Processes of a pod: one per GPU of a node.
const POD: u32 = 8;

fn pod_uid(tgid: u32) -> String {
    format!("6d1f4a3c-0b7e-4d8a-9c11-{:012x}", tgid / POD)
}

fn container_id(tgid: u32) -> String {
    format!("{:064x}", tgid / POD)
}

/// A root with a /proc of all processes, and the kubelet's log folders of their pods.
pub(crate) fn host(size: Size) -> Result<tempfile::TempDir> {
    let host = tempfile::tempdir().context("cannot make a folder")?;
    let roots = Roots::under(host.path());
    let make =
        |path: &Path| fs::create_dir_all(path).with_context(|| format!("cannot make {}", path.display()));
    make(&roots.procfs)?;
    for tgid in (1..=size.processes as u64).map(tgid) {
        write_process(&roots.procfs, tgid)?;
        make(&roots.logs.join(format!("pods/training_job-{}_{}", tgid / POD, pod_uid(tgid))))?;
        make(&roots.logs.join("containers").join(format!(
            "job-{}_training_worker-{}.log",
            tgid / POD,
            container_id(tgid)
        )))?;
    }
    Ok(host)
}

fn write_process(procfs: &Path, tgid: u32) -> Result<()> {
    let folder = procfs.join(tgid.to_string());
    // Clock ticks (10 ms).
    let start = START_BOOTTIME_NS / 10_000_000;
    let stat = format!(
        "{tgid} (python3) S 1 {tgid} {tgid} 0 -1 4194560 91823 0 12 0 4321 987 0 0 20 0 64 0 {start} 98765432100 \
         234567 18446744073709551615 1 1 0 0 0 0 0 16781312 134235650 0 0 0 17 3 0 0 0 0 0 0 0 0 0 0 0 0 0\n"
    );
    let status = format!(
        "Name:\tpython3\nUmask:\t0022\nState:\tS (sleeping)\nTgid:\t{tgid}\nNgid:\t0\nPid:\t{tgid}\nPPid:\t1\n\
         TracerPid:\t0\nUid:\t1000\t1000\t1000\t1000\nGid:\t1000\t1000\t1000\t1000\nFDSize:\t256\nGroups:\t44 109 1000 \n\
         NStgid:\t{tgid}\t7\nNSpid:\t{tgid}\t7\nNSpgid:\t{tgid}\t7\nNSsid:\t{tgid}\t7\nVmPeak:\t98765432 kB\n\
         VmSize:\t96449640 kB\nVmLck:\t0 kB\nVmPin:\t0 kB\nVmHWM:\t938268 kB\nVmRSS:\t938268 kB\nRssAnon:\t700000 kB\n\
         RssFile:\t200000 kB\nRssShmem:\t38268 kB\nVmData:\t1234567 kB\nVmStk:\t132 kB\nVmExe:\t2048 kB\n\
         VmLib:\t345678 kB\nVmPTE:\t4567 kB\nVmSwap:\t0 kB\nHugetlbPages:\t0 kB\nCoreDumping:\t0\nTHP_enabled:\t1\n\
         Threads:\t64\nSigQ:\t0/96000\nSigPnd:\t0000000000000000\nShdPnd:\t0000000000000000\n\
         SigBlk:\t0000000000000000\nSigIgn:\t0000000001001000\nSigCgt:\t0000000180000002\n\
         CapInh:\t0000000000000000\nCapPrm:\t0000000000000000\nCapEff:\t0000000000000000\n\
         CapBnd:\t00000000a80425fb\nCapAmb:\t0000000000000000\nNoNewPrivs:\t0\nSeccomp:\t2\nSeccomp_filters:\t1\n\
         Cpus_allowed:\tffffffff,ffffffff\nCpus_allowed_list:\t0-63\nMems_allowed:\t00000000,00000003\n\
         Mems_allowed_list:\t0-1\nvoluntary_ctxt_switches:\t12345\nnonvoluntary_ctxt_switches:\t678\n"
    );
    let (pod, container) = (pod_uid(tgid).replace('-', "_"), container_id(tgid));
    let cgroup = format!(
        "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{pod}.slice/cri-containerd-{container}.scope\n"
    );
    fs::create_dir(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    for (file, text) in [("stat", &stat), ("status", &status), ("cgroup", &cgroup)] {
        let path = folder.join(file);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// The daemon's memory, and the code that fills it.
pub(crate) struct Daemon {
    pub(crate) state: State,
    pub(crate) undecoded: Undecoded,
    pub(crate) samples: SampleTotals,
    roots: Roots,
    maker: Maker,
    batch: Vec<Result<Event, Undecodable>>,
}

impl Daemon {
    pub(crate) fn new(roots: &Roots) -> Self {
        Daemon {
            state: State::new(StateLimits::default()),
            undecoded: Undecoded::default(),
            samples: SampleTotals { interval_ns: 1_000_000_000, ..SampleTotals::default() },
            roots: roots.clone(),
            maker: records::layout().into(),
            batch: Vec::with_capacity(BATCH),
        }
    }

    /// An empty one, with the batch of this one.
    pub(crate) fn renewed(&mut self) -> Self {
        Daemon { batch: std::mem::take(&mut self.batch), ..Self::new(&self.roots) }
    }

    /// As in `events::ring` and `command::daemon`: a batch is decoded, then processed.
    pub(crate) fn follow(&mut self, tape: &Tape) {
        let mut records = tape.records().peekable();
        while records.peek().is_some() {
            self.batch.extend(records.by_ref().take(BATCH).map(|bytes| decode(bytes, &self.maker)));
            let Self { state, undecoded, roots, batch, .. } = self;
            let mut intake = Intake { state, undecoded, roots, queues_by_ioctl: false };
            for record in batch.iter() {
                intake.take_in(record);
            }
            batch.clear();
        }
    }

    /// The same, with what the history keeps of it.
    pub(crate) fn follow_with_history(&mut self, tape: &Tape, history: &mut History) {
        self.follow_with(tape, |event, change, state| history.record(event, change, state, 0));
    }

    /// The same; `show` gets each event with the state after it.
    pub(crate) fn follow_with(&mut self, tape: &Tape, mut show: impl FnMut(&Event, &Change, &State)) {
        let records: Vec<_> = tape.records().map(|bytes| decode(bytes, &self.maker)).collect();
        for record in &records {
            let Self { state, undecoded, roots, .. } = self;
            let mut intake = Intake { state, undecoded, roots, queues_by_ioctl: false };
            if let Some(taken) = intake.take_in(record) {
                show(taken.event, &taken.change, &self.state);
            }
        }
    }

    /// A sample of all queues, except for reading their memory; returns how many there were.
    pub(crate) fn sample(&mut self, at_ns: u64) -> usize {
        let mut samples = Vec::new();
        for target in self.state.sought() {
            samples.extend(target.queues.iter().map(|queue| Sample {
                key: target.key,
                queue_id: queue.queue_id,
                since_ns: queue.since_ns,
                reading: Ok(Counts { submitted: at_ns / 1_000, retired: at_ns / 1_000 - 3 }),
                at_ns,
            }));
        }
        self.samples.take(&mut self.state, &samples, 1_000_000, at_ns);
        samples.len()
    }

    /// What the driver would list of this state.
    pub(crate) fn listed(&self, source: Source) -> Inventory {
        let processes = self.state.live().map(|row| Listed {
            id: row.id().filter(|_| source == Source::Kernel),
            tgid: row.tgid.unwrap_or(0),
            context_id: row.context_id,
            start_boottime_ns: row.start_boottime_ns,
            queues: row.queues.values().map(|queue| queue.facts.clone()).collect(),
            ..Listed::default()
        });
        let processes = processes.collect();
        Inventory { processes, ..Inventory::empty(source, (START_BOOTTIME_NS * 3).into()) }
    }

    /// Records that were not understood, or that were inconsistent.
    pub(crate) fn faults(&self) -> u64 {
        let undecoded: u64 = self.undecoded.iter().map(|(_, _, count)| count).sum();
        undecoded + self.state.totals().anomalies.values().sum::<u64>()
    }
}

pub(crate) fn topology(size: Size) -> Topology {
    let gpus = (0..size.gpus).map(|index| Gpu {
        index: small(index),
        node: small(index) + 2,
        gpu_id: gpu_id(index),
        name: Some("aqua_vanjaram".into()),
        product_name: Some("AMD Instinct MI300X OAM".into()),
        serial_number: Some(format!("6922310001{index:02}")),
        gfx_target_version: Some(90402),
        vendor_id: Some(0x1002),
        device_id: Some(0x74a1),
        pci: Some(format!("{:04x}:{:02x}:00.0", index / 8, 0x05 + 0x10 * (index % 8))),
        partition: None,
        render_minor: Some(128 + small(index)),
        unique_id: Some(0x18f6_8e60_2b8a_7900 + index as u64),
        num_cp_queues: Some(24),
        num_sdma_engines: Some(2),
        num_sdma_xgmi_engines: Some(14),
        num_sdma_queues_per_engine: Some(8),
        num_xcc: Some(8),
        simd_count: Some(1216),
        compute_units: Some(ComputeUnits {
            active: vec![vec![[10, 0], [10, 0], [9, 0], [9, 0]]; 8],
            in_pairs: false,
        }),
    });
    Topology { gpus: gpus.collect(), errors: Vec::new() }
}

/// Every probe except those that are attached only on request, attached.
pub(crate) fn probes() -> Vec<ProbeStatus> {
    let requested = |row: &&ProbeRow| matches!(row.when, When::Tracepoints | When::Runlists);
    let on_request: Vec<ProbeId> = PROBES.iter().filter(requested).map(|row| row.id).collect();
    let all = ProbeId::ALL.iter().filter(|id| !on_request.contains(id));
    let status = |id: &ProbeId| ProbeStatus {
        id: *id,
        kind: "kprobe",
        symbols: vec!["kfd_procfs_add_queue".to_owned()],
        places: 1,
        required: false,
        may_lack: false,
        feeds: "queues",
        verdict: Verdict::Attached,
    };
    all.map(status).collect()
}

/// Contents of the BPF maps: every process has made the calls of [`CALLED`] and sleeps in WAIT_EVENTS, and every
/// tenth has had an error.
pub(crate) fn tables(size: Size) -> Tables {
    let processes = 1..=size.processes as u64;
    let stat = |calls: u64| {
        let mut stat =
            IoctlStat { entered: calls, returned: calls, latency_ns: calls * 3_000, ..IoctlStat::ZERO };
        stat.buckets[2] = calls;
        stat
    };
    let called =
        |process| CALLED.map(|cmd| IoctlRow { process: ProcessId(process), cmd, stat: stat(100 + process) });
    let error = |process| ErrorRow { process: ProcessId(process), cmd: CALLED[7], errno: 12, count: process };
    let waits = |process| InFlightRow {
        process: ProcessId(process),
        tgid: tgid(process),
        caller_tgid: tgid(process),
        tid: tgid(process),
        cmd: CALLED[5],
        entered_ns: START_BOOTTIME_NS,
    };
    Tables {
        whole_calls: true,
        ioctls: processes.clone().flat_map(called).collect(),
        errors: processes.clone().step_by(10).map(error).collect(),
        in_flight: Vec::new(),
        waits: processes.map(waits).collect(),
        crowded: Crowded::default(),
        counters: Counters { counted: vec![1_000; COUNTERS as usize], losses: vec![0; LOSSES as usize] },
        missed: probes().iter().map(|probe| (probe.id, MISSED)).collect(),
    }
}
