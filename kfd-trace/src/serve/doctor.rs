//! The diagnosis of the daemon's node: `/api/v1/doctor`.
//!
//! In: all views of the node, the driver's by the tracer that runs. Out: the document of `doctor --json`.

use super::shared::{Phase, SharedPage, locked};
use crate::doctor::progress::{Progress, Step};
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
    fn read(&mut self, progress: &Progress) -> DriverRead {
        progress.begin(Step::Tracer);
        let read = match &*locked(&self.phase) {
            Phase::Serving(serving) => {
                progress.begin(Step::Driver);
                serving.tracer.driver_views()
            }
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
            move |progress| {
                let node = Node::read(&roots);
                let node = node.map_err(|finding| Refusal::NotTraced(of_who_waits(&finding.to_string())))?;
                Ok(node.examine(&mut Traced { phase, roots }, None, progress))
            },
            move |examination| {
                // Whether there is another process of this PID is not for clients.
                let process = pid.map(|pid| process_of(&of_whom, pid).unwrap_or(pid));
                let bad = |why: String| Refusal::Bad(format!("pid {}: {why}", pid.unwrap_or(0)));
                examination.document_of_users(process).map_err(bad)
            },
        )
    }
}
