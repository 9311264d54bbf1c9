//! What went wrong according to a log: errors of calls, aborted queues, faults of GPUs, and what was in flight then.
//!
//! In: parsed lines. Out: counts, and the first of each kind (limits.rs).

use super::capped::Names;
use super::fault::Fault;
use super::hang::Analysis;
use super::limits;
use super::message::Abort;
use super::source::LogProcess;

/// An aborted queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AbortSeen {
    pub process: LogProcess,
    /// CLOCK_MONOTONIC, microseconds.
    pub at_us: Option<u64>,
    /// SWq or HWq.
    pub address: Option<u64>,
    /// `HSA_STATUS_ERROR_...`; empty if the line is cut.
    pub error: String,
    /// `hsa_status_t`.
    pub code: Option<u64>,
}

/// A report of a fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaultSeen {
    pub process: LogProcess,
    /// CLOCK_MONOTONIC, microseconds; ROCr's lines have no time.
    pub at_us: Option<u64>,
    pub fault: Fault<String>,
}

/// All trouble of a log.
#[derive(Clone, Debug)]
pub struct Trouble {
    pub returned: Names,
    pub returned_success: u64,
    pub aborts: u64,
    pub first_aborts: Vec<AbortSeen>,
    pub faults: u64,
    pub first_faults: Vec<FaultSeen>,
    pub analysis: Analysis,
    /// The first lines of levels 0 and 1, and of faults, without prefix. Level 0 is what clr writes before it ends the process.
    pub lines: Vec<Vec<u8>>,
}

impl Default for Trouble {
    fn default() -> Self {
        Trouble {
            returned: Names::new(
                limits::ERROR_NAMES,
                limits::ERROR_NAMES * limits::LONGEST_NAME,
                limits::LONGEST_NAME,
            ),
            returned_success: 0,
            aborts: 0,
            first_aborts: Vec::new(),
            faults: 0,
            first_faults: Vec::new(),
            analysis: Analysis::default(),
            lines: Vec::new(),
        }
    }
}

impl Trouble {
    pub(super) fn line(&mut self, text: &[u8]) {
        if self.lines.len() < limits::ERROR_LINES {
            self.lines.push(text[..text.len().min(limits::ERROR_LINE)].to_vec());
        }
    }

    pub(super) fn returned(&mut self, error: &[u8]) {
        if error == b"hipSuccess" {
            self.returned_success += 1;
        } else {
            self.returned.count(error);
        }
    }

    pub(super) fn abort(&mut self, process: LogProcess, at_us: Option<u64>, abort: &Abort<'_>) {
        self.aborts += 1;
        if self.first_aborts.len() < limits::FAULTS {
            let Abort { address, error, code } = *abort;
            self.first_aborts.push(AbortSeen { process, at_us, address, error: text(error), code });
        }
    }

    pub(super) fn fault(&mut self, process: LogProcess, at_us: Option<u64>, fault: Fault<&[u8]>) {
        self.faults += 1;
        if self.first_faults.len() < limits::FAULTS {
            self.first_faults.push(FaultSeen { process, at_us, fault: fault.map(text) });
        }
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(limits::ERROR_LINE)]).into_owned()
}
