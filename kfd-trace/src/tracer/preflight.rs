//! The prerequisites of a tracer: the kernel, as far as it reports about itself, and whether it can be traced
//! at all.

use super::types::{self, Known};
use crate::kernel::{Finding, FindingSeverity, Preflight, Roots, findings};
pub use crate::probes::error::chain;
use crate::runtime::exit::{NOTHING_TO_TRACE, Stop};

/// Returns the first finding that makes tracing impossible as an exit code and a line, else all findings.
///
/// # Errors
/// If there is such a finding.
pub fn check(preflight: &Preflight) -> Result<Vec<Finding>, Stop> {
    let found = findings(preflight);
    let blocking = found
        .iter()
        .find(|f| matches!(f.severity, FindingSeverity::NothingToTrace | FindingSeverity::Blocks));
    match blocking {
        Some(finding) if finding.severity == FindingSeverity::NothingToTrace => {
            Err(Stop { code: NOTHING_TO_TRACE, line: finding.to_string() })
        }
        Some(finding) => Err(Stop::failed(finding)),
        None => Ok(found),
    }
}

/// Reads the kernel, and what planning, loading and decoding need from it.
///
/// # Errors
/// If nothing can be traced here.
pub fn read(roots: &Roots) -> Result<Known, Stop> {
    check(&Preflight::read(roots))?;
    types::known(roots).map_err(|error| Stop::failed(chain(&error)))
}
