//! Aborts, faults and what was in flight, in the report.

use super::NameReport;
use super::queue::hex;
use crate::amd_log::hang::Analyzed;
use crate::amd_log::limits::UNFINISHED;
use crate::amd_log::source::LogProcess;
use crate::amd_log::tally::{Tally, UnderWay};
use crate::amd_log::trouble::{AbortSeen, FaultSeen};
use serde::Serialize;

#[derive(Clone, Debug, Serialize)]
pub struct ErrorsReport {
    /// Returned by API calls, except `hipSuccess`. `hipErrorNotReady` is not a fault.
    pub returned: Vec<NameReport>,
    pub returned_success: u64,
    pub queue_aborts: u64,
    /// The first ones.
    pub aborts: Vec<AbortReport>,
    /// Reports of faults; clr and ROCr may both report the same one.
    pub fault_reports: u64,
    /// The first ones.
    pub faults: Vec<FaultReport>,
    /// clr's own analysis of its queues after a fault or a hang.
    pub hang_analysis: Vec<AnalyzedReport>,
    /// The first lines of levels 0 and 1, and of faults.
    pub lines: Vec<String>,
}

#[derive(Clone, Debug, Serialize)]
pub struct AbortReport {
    pub source: Option<String>,
    pub pid: Option<u32>,
    pub mono_us: Option<u64>,
    /// SWq or HWq.
    pub address: Option<String>,
    /// `HSA_STATUS_ERROR_...`; `null` if the line is cut.
    pub error: Option<String>,
    /// `hsa_status_t`.
    pub code: Option<String>,
}

#[derive(Clone, Debug, Serialize)]
pub struct FaultReport {
    pub source: Option<String>,
    pub pid: Option<u32>,
    pub mono_us: Option<u64>,
    pub kind: &'static str,
    /// `clr`, `rocr`; `null`: either.
    pub reported_by: Option<&'static str>,
    /// Index of HIP.
    pub gpu_index: Option<u64>,
    /// Node of KFD's topology.
    pub node: Option<u64>,
    pub address: Option<String>,
    pub inexact: bool,
    /// SWq.
    pub queue: Option<String>,
    pub kernel: Option<String>,
    pub reason: Option<String>,
}

#[derive(Clone, Debug, Serialize)]
pub struct AnalyzedReport {
    pub source: Option<String>,
    pub swq: Option<String>,
    pub hwq: Option<String>,
    pub id: Option<u64>,
    /// `idle`, or the packet at its head: `dispatch`, `barrier`, `vendor`, `unknown`.
    pub head: &'static str,
    /// Packets; `null`: its line does not have it.
    pub not_retired: Option<u64>,
    pub read_index: Option<u64>,
    /// Index of the next packet.
    pub next_index: Option<u64>,
    pub grid: Option<[u64; 3]>,
    pub workgroup: Option<[u64; 3]>,
    pub kernel_object: Option<String>,
}

/// Commands whose end the log does not have.
#[derive(Clone, Debug, Serialize)]
pub struct UnfinishedReport {
    pub count: usize,
    pub oldest: Vec<UnfinishedCommand>,
}

#[derive(Clone, Debug, Serialize)]
pub struct UnfinishedCommand {
    pub source: Option<String>,
    pub pid: Option<u32>,
    pub kind: String,
    pub since_mono_us: Option<u64>,
    pub host_queue: Option<String>,
}

impl AbortReport {
    fn new(tally: &Tally, seen: &AbortSeen) -> AbortReport {
        AbortReport {
            source: source(tally, seen.process),
            pid: seen.process.pid,
            mono_us: seen.at_us,
            address: seen.address.map(hex),
            error: Some(seen.error.clone()).filter(|error| !error.is_empty()),
            code: seen.code.map(hex),
        }
    }
}

impl FaultReport {
    fn new(tally: &Tally, seen: &FaultSeen) -> FaultReport {
        let fault = &seen.fault;
        FaultReport {
            source: source(tally, seen.process),
            pid: seen.process.pid,
            mono_us: seen.at_us,
            kind: fault.kind.name(),
            reported_by: fault.kind.reported_by(),
            gpu_index: fault.gpu_index,
            node: fault.node,
            address: fault.address.map(hex),
            inexact: fault.inexact,
            queue: fault.queue.map(hex),
            kernel: fault.kernel.clone(),
            reason: fault.reason.clone(),
        }
    }
}

impl AnalyzedReport {
    fn new(tally: &Tally, queue: &Analyzed) -> AnalyzedReport {
        AnalyzedReport {
            source: tally.entries.sources.name(queue.source),
            swq: queue.swq.map(hex),
            hwq: queue.hwq.map(hex),
            id: queue.id,
            head: queue.head.name(),
            not_retired: queue.not_retired(),
            read_index: queue.pointers.map(|[read, _]| read),
            next_index: queue.pointers.map(|[_, next]| next),
            grid: queue.grid,
            workgroup: queue.workgroup,
            kernel_object: queue.kernel_object.map(hex),
        }
    }
}

pub(super) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub(super) fn names(all: Vec<(&[u8], u64)>) -> Vec<NameReport> {
    all.into_iter().map(|(name, count)| NameReport { name: text(name), count }).collect()
}

pub(super) fn source(tally: &Tally, process: LogProcess) -> Option<String> {
    tally.entries.sources.name(process.source)
}

pub(super) fn errors(tally: &Tally) -> ErrorsReport {
    let trouble = &tally.counts.trouble;
    ErrorsReport {
        returned: names(trouble.returned.sorted()),
        returned_success: trouble.returned_success,
        queue_aborts: trouble.aborts,
        aborts: trouble.first_aborts.iter().map(|seen| AbortReport::new(tally, seen)).collect(),
        fault_reports: trouble.faults,
        faults: trouble.first_faults.iter().map(|seen| FaultReport::new(tally, seen)).collect(),
        hang_analysis: trouble
            .analysis
            .queues
            .iter()
            .map(|queue| AnalyzedReport::new(tally, queue))
            .collect(),
        lines: trouble.lines.iter().map(|line| text(line)).collect(),
    }
}

/// `None`: the log has no ends of commands.
pub(super) fn unfinished(tally: &Tally) -> Option<UnfinishedReport> {
    if tally.counts.completed.count == 0 {
        return None;
    }
    let all = tally.counts.under_way.sorted();
    let mut oldest: Vec<(LogProcess, UnderWay)> =
        all.iter().filter_map(|((process, _), under_way)| Some((*process, (**under_way)?))).collect();
    oldest.sort_by_key(|(_, under_way)| under_way.since_us);
    oldest.truncate(UNFINISHED);
    let oldest = oldest.into_iter().map(|(process, under_way)| UnfinishedCommand {
        source: source(tally, process),
        pid: process.pid,
        kind: under_way.kind.name(),
        since_mono_us: under_way.since_us,
        host_queue: under_way.host_queue.map(hex),
    });
    Some(UnfinishedReport { count: all.len(), oldest: oldest.collect() })
}
