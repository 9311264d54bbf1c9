//! Live processes: `/api/v1/processes`.

use super::Document;
use super::list::{at_most, decimal, name, path};
use crate::attribute::{Belongs, Container, PodNames, Runtime, SlurmStep};
use crate::model::event::ProcessId;
use crate::state::{Evictions, Memory, Process, ProcessDetails, ProcessKey, Sources};
use serde::Deserialize;

/// Rows that are read at most: more than the daemon has ([`crate::state::StateLimits`]).
const PROCESSES: usize = 20_000;
/// Rows of one process.
const GPUS: usize = 256;

/// The document.
#[derive(Debug, Deserialize)]
pub struct Processes {
    schema: u64,
    #[serde(deserialize_with = "at_most::<_, _, PROCESSES>")]
    pub(super) processes: Vec<ProcessRow>,
}

impl Document for Processes {
    fn schema(&self) -> u64 {
        self.schema
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ProcessRow {
    pid: Option<u32>,
    ns_pid: Option<u32>,
    uid: Option<u32>,
    #[serde(deserialize_with = "name")]
    comm: Option<String>,
    #[serde(deserialize_with = "path")]
    cgroup: Option<String>,
    #[serde(deserialize_with = "name")]
    container_id: Option<String>,
    #[serde(deserialize_with = "name")]
    runtime: Option<String>,
    #[serde(deserialize_with = "name")]
    pod_uid: Option<String>,
    #[serde(deserialize_with = "name")]
    namespace: Option<String>,
    #[serde(deserialize_with = "name")]
    pod: Option<String>,
    #[serde(deserialize_with = "name")]
    container: Option<String>,
    slurm_job: Option<u32>,
    #[serde(deserialize_with = "name")]
    slurm_step: Option<String>,
    slurm_uid: Option<u32>,
    #[serde(deserialize_with = "name")]
    unit: Option<String>,
    #[serde(deserialize_with = "decimal")]
    kfd_process: Option<u64>,
    context_id: Option<u32>,
    pub(super) alive: bool,
    evicted: bool,
    evictions_total: u64,
    #[serde(deserialize_with = "at_most::<_, _, GPUS>")]
    evictions: Vec<EvictionRow>,
    memory: MemoryRow,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct EvictionRow {
    gpu_id: u32,
    evicted: bool,
    evictions: u64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct MemoryRow {
    #[serde(deserialize_with = "at_most::<_, _, GPUS>")]
    gpus: Vec<OnGpu>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct OnGpu {
    gpu_id: u32,
    vram_bytes: Option<u64>,
}

/// Which row a process has, in each answer the same. Several that no probe has seen may have the same one.
pub(super) fn key(id: Option<ProcessId>, pid: Option<u32>, context_id: Option<u32>) -> ProcessKey {
    let place = u64::from(pid.unwrap_or(0)) << 32 | u64::from(context_id.unwrap_or(0));
    id.map_or(ProcessKey::Adopted(place), ProcessKey::Traced)
}

impl ProcessRow {
    pub(super) fn process(self, at_ns: u64) -> Process {
        let id = self.kfd_process.map(ProcessId);
        let vram = self.memory.gpus.iter().filter_map(|gpu| Some((gpu.gpu_id, gpu.vram_bytes?)));
        let evictions = |evicted, count| Evictions { evicted, count, ..Evictions::default() };
        let by_gpu =
            self.evictions.iter().map(|row| (row.gpu_id, evictions(row.evicted, row.evictions))).collect();
        let key = key(id, self.pid, self.context_id);
        // Its sources are not in the API.
        let mut process = Process::reported(key, self.pid, Sources::default(), at_ns);
        process.memory = Memory::reported(&vram.collect());
        process.evictions = by_gpu;
        process.evicted = evictions(self.evicted, self.evictions_total);
        process.ns_tgid = self.ns_pid;
        process.uid = self.uid;
        process.context_id = self.context_id;
        let pod = self.namespace.zip(self.pod);
        let (in_pod, outside) = if pod.is_some() { (self.container, None) } else { (None, self.container) };
        let container = self
            .container_id
            .map(|id| Container { id, runtime: self.runtime.as_deref().and_then(Runtime::named) });
        let (step, uid) = (self.slurm_step, self.slurm_uid);
        process.details = ProcessDetails {
            cmdline: None,
            cgroup: self.cgroup,
            belongs: Belongs {
                container,
                pod_uid: self.pod_uid,
                slurm: self.slurm_job.map(|job| SlurmStep { job, step, uid }),
                unit: self.unit,
            },
            pod: pod.map(|(namespace, pod)| PodNames { namespace, pod, container: in_pod }),
            container_name: outside,
            job: None,
        };
        process.comm = self.comm;
        process
    }
}
