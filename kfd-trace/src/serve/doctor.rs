//! The diagnosis of the daemon's node: `/api/v1/doctor`.
//!
//! In: all views of the node, the driver's by the tracer that runs. Out: the document of `doctor --json`.

use super::shared::{Phase, SharedPage, locked};
use crate::kernel::Roots;
use crate::kernel::findings::of_who_waits;
use crate::output::api::Refusal;
use crate::tracer::doctor::{DriverRead, DriverViews, Node, process_of};
use std::sync::{Arc, Mutex};

/// The driver, as the tracer's own programs read it.
struct Traced {
    phase: Arc<Mutex<Phase>>,
    roots: Roots,
}

impl DriverViews for Traced {
    fn read(&mut self) -> DriverRead {
        let read = match &*locked(&self.phase) {
            Phase::Serving(serving) => serving.tracer.driver_views(),
            Phase::Waiting { why, .. } => DriverRead::none(format!("the daemon traces nothing now: {why}")),
        };
        // Without the lock, for which the ring buffer waits.
        read.detailed(&self.roots)
    }
}

impl SharedPage {
    /// The document of `doctor --json`.
    pub(super) fn diagnosis(&self, pid: Option<u32>) -> Result<String, Refusal> {
        let (roots, phase) = (self.roots.clone(), Arc::clone(&self.phase));
        let of_whom = self.roots.clone();
        self.diagnoses.ask(
            move |reads| {
                let node = Node::read(&roots);
                let node = node.map_err(|finding| Refusal::NotTraced(of_who_waits(&finding.to_string())))?;
                Ok(node.examine(&mut Traced { phase, roots }, None, reads))
            },
            move |examination, reads| {
                let bad = |why: String| Refusal::Bad(format!("pid {}: {why}", pid.unwrap_or(0)));
                let process = pid.map(|pid| process_of(&of_whom, pid)).transpose().map_err(bad)?;
                examination.document(process, reads).map_err(bad)
            },
        )
    }
}
