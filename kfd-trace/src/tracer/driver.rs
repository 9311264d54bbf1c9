//! Follows the loading and unloading of the driver. Its probes are removed with it
//! (`kprobes_module_callback`, kernel/kprobes.c), without a notification.
//!
//! In: a scan of the driver's folder in sysfs, requested at intervals. Out: probes on the loaded driver, and
//! what ended with an unloaded one. What was seen and counted is kept.

use super::engine::Tracer;
use super::preflight;
use super::reconcile::Pending;
use crate::events::ring::Ring;
use crate::events::tables::Tables;
use crate::kernel::{Loading, Preflight, Roots};
use crate::model::event::Event;
use crate::probes::session::Session;
use crate::runtime::clock;
use crate::runtime::exit::{NOTHING_TO_TRACE, Stop};
use crate::state::Change;
use std::fmt::Display;
use std::fs;
use std::path::Path;

/// The reason shown on a page while the driver is unloaded.
pub(crate) const UNLOADED: &str = "the amdgpu driver was unloaded: its processes and queues ended";

/// What an unloaded driver leaves behind.
pub struct Unloaded {
    /// What ended with it, as events of the owners.
    pub reported: Vec<(Event, Change)>,
    /// Must be dropped where nothing waits for it: detaching its probes takes the kernel seconds.
    pub session: Option<Session>,
}

/// Why nothing can be traced at the moment; `None` if it can.
pub(crate) fn absence(roots: &Roots) -> Option<String> {
    preflight::check(&Preflight::read(roots)).err().map(|stop| stop.line)
}

/// The driver's own count of changes of its topology.
fn topology_generation(sysfs: &Path) -> Option<u32> {
    fs::read_to_string(sysfs.join("class/kfd/kfd/topology/generation_id")).ok()?.trim().parse().ok()
}

impl Tracer {
    /// Attaches the probes; the ring is returned separately, so that it can be awaited while the rest is
    /// used. Existing processes and queues are added to the state. This takes the kernel seconds.
    ///
    /// # Errors
    /// If nothing could be seen: there is no driver, or it was unloaded meanwhile (`NOTHING_TO_TRACE`), or it
    /// cannot be traced.
    pub fn attach(&mut self) -> Result<Ring, Stop> {
        let sysfs = self.roots.sysfs.clone();
        let loading = Loading::read(&sysfs).ok().flatten();
        let probed = self.probe();
        // What was read of one loading is not valid for another, and a driver that is being unloaded refuses
        // probes.
        match (probed, loading.filter(|loading| loading.stays(&sysfs))) {
            (Ok(probed), Some(loading)) => Ok(self.take_over(probed, loading)),
            (Err(stop), Some(loading)) if stop.code == NOTHING_TO_TRACE && loading.comes(&sysfs) => {
                Err(Stop { line: "the amdgpu driver is being loaded".to_owned(), ..stop })
            }
            (Err(stop), Some(_)) => Err(stop),
            (Err(stop), None) if stop.code == NOTHING_TO_TRACE => Err(stop),
            (Ok(_) | Err(_), None) => Err(Stop {
                code: NOTHING_TO_TRACE,
                line: "the amdgpu driver was loaded or unloaded while probes were being attached".to_owned(),
            }),
        }
    }

    /// The driver that the probes were attached to is no longer loaded, whether or not it was loaded again:
    /// nothing is seen. Must be called at least once a second.
    #[must_use]
    pub fn driver_has_gone(&self) -> bool {
        self.loading.is_some_and(|loading| loading.is_over(&self.roots.sysfs))
    }

    /// Attaches to the functions of GPUs that were added since. Must be called once a second, while the
    /// driver is loaded.
    pub fn follow_gpus(&mut self) {
        let Some(session) = &mut self.session else { return };
        let added = session.follow_gpus(topology_generation(&self.roots.sysfs));
        if added > 0 {
            log::info!("a GPU was added: {added} more functions are probed");
        }
    }

    /// Releases an unloaded driver. Must be called after all records in the ring buffer were processed.
    pub fn driver_unloaded(&mut self) -> Unloaded {
        let session = self.end_session();
        let reported = self.state.driver_unloaded(clock::mono_ns());
        Unloaded { reported, session }
    }

    /// Takes the session out; its counts are kept.
    pub(super) fn end_session(&mut self) -> Option<Session> {
        self.loading = None;
        self.pending = Pending::default();
        // It may have been longer for the cost of samples of what has ended.
        self.samples.interval_ns = u64::try_from(self.sample_interval().as_nanos()).unwrap_or(u64::MAX);
        let session = self.session.take();
        if let Some(session) = &session {
            let tables = last_counts(session.tables(), || session.mapped_tables());
            self.count_last(Tables { missed: session.missed(), ..tables });
        }
        session
    }

    /// Adds the counts of a session that has ended.
    pub(crate) fn count_last(&mut self, mut tables: Tables) {
        // An open file of /dev/kfd would have kept the driver loaded.
        tables.close(|_| true);
        self.retired.retire(&tables);
        self.past.take(&tables);
    }
}

/// The counts, or the part of them that is `at_hand` without the kernel, so that counts never decrease.
fn last_counts<E: Display>(read: Result<Tables, E>, at_hand: impl FnOnce() -> Tables) -> Tables {
    read.unwrap_or_else(|error| {
        log::warn!("the last counts of threads without a slot cannot be read: {error}");
        at_hand()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::counters::Counters;

    #[test]
    fn what_needs_no_kernel_is_counted_where_the_rest_cannot_be_read() {
        let tables = |count| Tables {
            counters: Counters { counted: vec![count], ..Counters::default() },
            ..Tables::default()
        };
        assert_eq!(last_counts(Ok::<_, &str>(tables(7)), || tables(5)), tables(7));
        assert_eq!(last_counts(Err("ENOMEM"), || tables(5)), tables(5));
    }
}
