//! What a tracer stands on: the kernel as far as it tells, and whether it can be traced at all.

use crate::kernel::{Finding, Kernel, Preflight, Roots, Severity, findings};
pub use crate::probes::error::chain;
use crate::probes::facts::Facts;
use crate::runtime::exit::{NOTHING_TO_TRACE, Stop};

/// The first finding that makes tracing impossible, as an exit code and a line.
///
/// # Errors
/// When there is one.
pub fn check(preflight: &Preflight) -> Result<Vec<Finding>, Stop> {
    let found = findings(preflight);
    let blocking = found.iter().find(|f| matches!(f.severity, Severity::NothingToTrace | Severity::Blocks));
    match blocking {
        Some(finding) if finding.severity == Severity::NothingToTrace => {
            Err(Stop { code: NOTHING_TO_TRACE, line: finding.to_string() })
        }
        Some(finding) => Err(Stop::failed(finding)),
        None => Ok(found),
    }
}

/// The kernel with what planning, loading and decoding need of it.
///
/// # Errors
/// When nothing can be traced here.
pub fn read(roots: &Roots) -> Result<(Kernel, Facts), Stop> {
    check(&Preflight::read(roots))?;
    let kernel = Kernel::read(roots).map_err(|error| Stop::failed(chain(&error)))?;
    let facts = Facts::gather(&kernel);
    Ok((kernel, facts))
}
