//! From a plan to the loaded object: its maps and its read-only globals. [`super::attach`] attaches its
//! programs.

use super::error::{LoadError, chain};
use super::facts::Facts;
use super::loader;
use super::maps::mapped;
use super::plan::{Plan, PlanRequest};
use crate::model::event::QueueType;
use crate::model::ioctl::result_words;
use crate::model::selected::Selected;
use aya::Ebpf;
use kfd_trace_common::counter::ProbeId;
use kfd_trace_common::limits::RING_BYTES;
use kfd_trace_common::offset::{ABSENT, FIELDS};
use kfd_trace_common::rules::records;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::path::PathBuf;

/// The BPF object, aligned as an ELF file must be to be parsed in place.
pub(crate) static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/kfd-trace-ebpf"));

/// Smallest ring buffer that the kernel supports.
const PAGE_BYTES: u32 = 4096;

/// What the caller requests.
#[derive(Clone, Debug)]
pub struct Options {
    pub request: PlanRequest,
    /// tgids of the initial PID namespace; empty for every process.
    pub selected: Selected,
    /// Size of the ring buffer, a power of two and a multiple of the page size.
    pub ring_bytes: u32,
    /// Record the values at the pointers of a queue that is destroyed.
    pub read_pointers: bool,
    /// Possible CPUs of the kernel: their number determines how many calls a kretprobe can hold.
    pub possible_cpus: usize,
    /// One past the highest possible CPU number.
    pub cpu_ids: Option<u32>,
    /// Path of /proc: the links that hold the probes are found there.
    pub procfs: PathBuf,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            request: PlanRequest::default(),
            selected: Selected::All,
            ring_bytes: RING_BYTES,
            read_pointers: false,
            possible_cpus: 1,
            cpu_ids: None,
            procfs: "/proc".into(),
        }
    }
}

/// How large the maps are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    /// For tracing.
    Full,
    /// For `peek` alone: no other program will run.
    Least,
}

/// Counters, one part per CPU (kfd-trace-ebpf/src/counters.rs).
pub(crate) const COUNTERS: &str = "COUNTERS";

/// One array for all CPUs (kfd-trace-ebpf/src/losses.rs).
pub(crate) const LOSSES: &str = "LOSSES";

/// Filled by the probes of preemptions alone.
const SCHEDULES: &str = "SCHEDULES";

/// As well, on GPUs with MES.
const MES_CALLS: &str = "MES_CALLS";

/// Maps whose size depends on what is traced.
const SIZED: [&str; 20] = [
    "ARGS",
    "CLAIMS",
    "EVICTIONS",
    "FILTER",
    "HUNG_QUEUES",
    "IN_FLIGHT",
    "IOCTL_ERRORS",
    "IOCTL_REST",
    "IOCTL_STATS",
    MES_CALLS,
    "MQDS",
    "PASIDS",
    "PROCESSES",
    "RELEASING",
    SCHEDULES,
    "CALLER_SLOTS",
    "SLOTS_TAKEN",
    "SUSPENSIONS",
    "UPDATES",
    "USER_QUEUES",
];

/// Creates the maps and fills the read-only globals; loads no program yet.
pub(crate) fn object(plan: &Plan, facts: &Facts, options: &Options, room: Room) -> Result<Ebpf, LoadError> {
    allow_locked_memory();
    let offsets: Vec<(&str, u32)> = FIELDS.iter().map(|f| (f.global, offset(facts, f.global))).collect();
    let others = [
        ("UPID_BYTES", facts.upid_bytes),
        ("PROPERTIES_BYTES", facts.properties_bytes),
        ("EVICT_PARAMETERS", facts.evict_parameters.and_then(|count| count.try_into().ok()).unwrap_or(0)),
        ("TYPE_HIQ", facts.layout.raw_type(QueueType::Hiq).unwrap_or(ABSENT)),
        ("TYPE_DIQ", facts.layout.raw_type(QueueType::Diq).unwrap_or(ABSENT)),
        ("IOCTL_END", plan.ioctl_end),
        ("IOCTL_ROCM_END", plan.ioctl_rocm_end),
        ("RECORD_IOCTLS", records_of(options.request.ioctl_records, plan.queues_by_ioctl)),
        ("RECORD_MEMORY", u32::from(records_memory(&options.request))),
        ("WHOLE_CALLS", u32::from(plan.whole_calls)),
        ("READ_POINTERS", u32::from(options.read_pointers)),
        ("FILTER_ON", u32::from(options.selected != Selected::All)),
        ("FILTER_ROOT", options.selected.ancestor().unwrap_or(0)),
    ];
    // The programs have no relocations against kernel types: their offsets are the globals below.
    let mut loader = loader::without_types();
    for (name, value) in offsets.iter().chain(&others) {
        loader.override_global(name, value, true);
    }
    let results = result_words();
    loader.override_global("RESULT_WORDS", &results[..], true);
    match room {
        Room::Full => {
            let cpu_ids = options.cpu_ids.ok_or_else(|| LoadError::Map {
                map: COUNTERS,
                why: "the kernel does not report which CPUs there can be".to_owned(),
            })?;
            loader.map_max_entries(COUNTERS, mapped::counters_len(cpu_ids));
            loader.map_max_entries("EVENTS", options.ring_bytes);
            if !options.request.choice.runlists {
                loader.map_max_entries(SCHEDULES, 1);
                loader.map_max_entries(MES_CALLS, 1);
            }
        }
        Room::Least => {
            loader.map_max_entries("EVENTS", PAGE_BYTES);
            for map in SIZED {
                loader.map_max_entries(map, 1);
            }
        }
    }
    loader.load(OBJECT).map_err(|error| LoadError::Object(chain(&error) + remedy()))
}

/// A kernel before 5.11 refuses maps beyond the limit (`bpf_charge_memlock`) with EPERM.
fn remedy() -> &'static str {
    if getrlimit(Resource::Memlock).current.is_none() {
        return "";
    }
    "; locked memory is limited: run with CAP_SYS_RESOURCE, or raise RLIMIT_MEMLOCK (LimitMEMLOCK=infinity)"
}

/// Calls that change memory get a record each, which they have anyway where all calls have one.
fn records_memory(request: &PlanRequest) -> bool {
    !request.ioctl_records && !request.choice.without.contains(&ProbeId::MemoryCall)
}

fn records_of(all: bool, queues: bool) -> u32 {
    match (all, queues) {
        (true, _) => records::ALL,
        (false, true) => records::QUEUES,
        (false, false) => records::NONE,
    }
}

fn offset(facts: &Facts, global: &str) -> u32 {
    match facts.fields.get(global) {
        Some(Ok(offset)) => *offset,
        Some(Err(_)) | None => ABSENT,
    }
}

/// Kernels before 5.11 charge BPF maps against RLIMIT_MEMLOCK. If it may not be raised, the error shows when
/// the maps are refused.
pub fn allow_locked_memory() {
    let _ = setrlimit(Resource::Memlock, Rlimit { current: None, maximum: None });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probes::rows::PROBES;
    use object::{Object as _, ObjectSection as _, ObjectSymbol as _};
    use std::collections::BTreeMap;

    #[test]
    fn the_object_has_the_program_of_each_row_and_the_global_of_each_field() {
        let object = object::File::parse(OBJECT).unwrap();
        let named = object.symbols().filter_map(|symbol| {
            let section = object.section_by_index(symbol.section_index()?).ok()?;
            Some((symbol.name().ok()?, section.name().ok()?))
        });
        let named: BTreeMap<&str, &str> = named.collect();
        for row in PROBES {
            assert_eq!(named.get(row.program()), Some(&row.kind.name()), "{}", row.program());
        }
        for field in FIELDS {
            assert_eq!(named.get(field.global), Some(&".rodata"), "{}", field.global);
        }
    }
}
