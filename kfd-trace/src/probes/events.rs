//! Returns of functions in which many callers sleep at once, as events of tracefs: a kretprobe made there has room for as many
//! calls as asked for, one of perf_event_open(2) for twice as many as there are CPUs
//! (kernel/kprobes.c:register_kretprobe).
//!
//! In: sysfs, and the functions of the table. Out: events, each armed when its program is attached ([`super::attach`]): at one
//! that is armed before, calls would be seen to return that were not seen to enter.

use super::plan::Attach;
use super::rows::PROBES;
use super::table::Site;
use crate::kernel::perf;
use crate::kernel::return_events::{self, EventGroup, Removed};
use crate::kernel::{DriverForm, Kernel, Roots};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

/// Events that exist, and those of them that are armed. Dropping it disarms these, and removes what this process has defined.
#[derive(Default)]
pub struct ReturnEvents {
    ids: BTreeMap<String, u64>,
    armed: BTreeMap<String, OwnedFd>,
    /// The folder of tracefs, and the group, if this process has defined events there.
    defined: Option<(PathBuf, EventGroup)>,
    why_not: Option<String>,
}

impl ReturnEvents {
    /// Defines the events of these functions, or where this process may not, finds those that the service manager has defined
    /// for it.
    #[must_use]
    pub fn of(roots: &Roots, kernel: &Kernel, functions: &BTreeSet<&'static str>) -> Self {
        Self::find(roots, &kernel.preflight.driver, functions, &|name| kernel.function(name))
    }

    fn find(
        roots: &Roots,
        driver: &DriverForm,
        functions: &BTreeSet<&'static str>,
        address: &dyn Fn(&str) -> Option<u64>,
    ) -> Self {
        let functions: Vec<&str> = functions.iter().copied().collect();
        let mut events = ReturnEvents::default();
        let tracefs = match return_events::tracefs(&roots.sysfs) {
            Ok(tracefs) => tracefs,
            Err(error) => {
                events.why_not = Some(error.to_string());
                return events;
            }
        };
        let own = return_events::free(&tracefs, EventGroup::own(&roots.procfs));
        let (group, why) = match return_events::define(&tracefs, own, driver, &functions, address) {
            Ok(refused) => {
                if !refused.is_empty() {
                    log::warn!("returns of these functions have less room: {refused}");
                }
                return_events::remove_abandoned(&tracefs, &roots.procfs);
                events.defined = Some((tracefs.clone(), own));
                (own, refused.to_string())
            }
            Err(error) => (EventGroup::Service, error.to_string()),
        };
        events.ids = return_events::ids(&tracefs, group, &functions);
        events.why_not =
            Some(why).filter(|_| !events.ids.keys().any(|function| Site::is_whole_call(function)));
        events
    }

    /// The functions that have an event.
    #[must_use]
    pub fn functions(&self) -> BTreeSet<String> {
        self.ids.keys().cloned().collect()
    }

    /// Why `kfd_ioctl` has none, in one line.
    #[must_use]
    pub fn why_not(&self) -> Option<&str> {
        self.why_not.as_deref()
    }

    /// Another tracer may have had these events armed before: the kernel's count of what it missed is not of this one alone.
    pub(super) fn are_of_others(&self) -> bool {
        self.defined.is_none()
    }

    /// Arms the event of a function.
    ///
    /// # Errors
    /// If it has none, or the kernel refuses it.
    pub(super) fn arm(&mut self, function: &str) -> io::Result<BorrowedFd<'_>> {
        let id = *self.ids.get(function).ok_or(io::ErrorKind::NotFound)?;
        let armed = perf::arm(id)?;
        self.armed.insert(function.to_owned(), armed);
        self.armed.get(function).map(AsFd::as_fd).ok_or(io::ErrorKind::NotFound.into())
    }

    /// Disarms all of them.
    pub(super) fn release(&mut self) {
        self.armed.clear();
        match self.defined.take().map(|(tracefs, group)| return_events::remove(&tracefs, group)) {
            Some(Ok(Removed { refused, .. })) if !refused.is_empty() => {
                log::warn!("events stay in tracefs: {refused}");
            }
            Some(Ok(Removed { busy: 1.., .. })) => {
                log::info!("events stay in tracefs: another tracer has them open");
            }
            Some(Err(error)) => log::warn!("events stay in tracefs: {error}"),
            _ => {}
        }
    }
}

impl Drop for ReturnEvents {
    fn drop(&mut self) {
        self.release();
    }
}

/// The functions whose returns are to be events. Links have room for a crowd, and a trial run needs none; but where a link
/// cannot hold `kfd_ioctl` and its return, its event does.
#[must_use]
pub fn wanted(attach: Attach) -> BTreeSet<&'static str> {
    match attach {
        Attach::Single | Attach::Mixed => functions(),
        Attach::Multi | Attach::Tried => Site::WHOLE_CALL.iter().copied().collect(),
    }
}

/// The functions of all drivers that can have such an event: those of the rows that are marked so.
#[must_use]
pub fn functions() -> BTreeSet<&'static str> {
    let crowded = PROBES.iter().filter(|row| row.crowded);
    let names = crowded.flat_map(|row| match row.site {
        Site::Function(names) => vec![names],
        Site::Each(lists) => lists.to_vec(),
        Site::CallReturns => vec![Site::WHOLE_CALL],
        Site::Family { .. } | Site::Handlers | Site::Tracepoint { .. } => Vec::new(),
    });
    names.flatten().copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_made_where_nothing_else_has_room() {
        let whole = BTreeSet::from(["kfd_ioctl"]);
        assert_eq!([wanted(Attach::Single), wanted(Attach::Mixed)], [functions(), functions()]);
        assert_eq!([wanted(Attach::Multi), wanted(Attach::Tried)], [whole.clone(), whole]);
    }

    /// A machine with a loaded driver, on which another process has defined these events.
    fn machine(of_service: &[&str]) -> (tempfile::TempDir, Roots) {
        let root = tempfile::tempdir().unwrap();
        let roots = Roots::under(root.path());
        let tracing = roots.sysfs.join("kernel/tracing");
        for function in of_service {
            let event = tracing.join("events/kfd_trace_service").join(function);
            std::fs::create_dir_all(&event).unwrap();
            std::fs::write(event.join("id"), "7\n").unwrap();
        }
        // No file can be appended to this one.
        std::fs::create_dir_all(tracing.join("kprobe_events")).unwrap();
        (root, roots)
    }

    #[test]
    fn who_may_not_define_them_has_those_of_the_service() {
        let driver = DriverForm::Module { version: None, srcversion: None };
        let found = |of_service: &[&str]| {
            let (_root, roots) = machine(of_service);
            let events = ReturnEvents::find(&roots, &driver, &functions(), &|_| None);
            (events.functions().len(), events.why_not().map(ToOwned::to_owned), events.are_of_others())
        };
        assert_eq!(found(&["kfd_ioctl", "kfd_open"]), (2, None, true));
        for of_service in [&[][..], &["kfd_open"]] {
            let (number, why, _) = found(of_service);
            assert_eq!(number, of_service.len());
            assert!(why.is_some_and(|why| why.starts_with("cannot open ") && why.contains("kprobe_events")));
        }
        let (_root, roots) = machine(&[]);
        std::fs::remove_dir(roots.sysfs.join("kernel/tracing/kprobe_events")).unwrap();
        let none = ReturnEvents::find(&roots, &driver, &functions(), &|_| None);
        assert!(none.why_not().is_some_and(|why| why.starts_with("no tracefs ")));
    }

    #[test]
    fn callers_crowd_in_these_functions() {
        let expected = [
            "create_process",
            "kfd_create_process",
            "kfd_ioctl",
            "kfd_open",
            "kfd_process_wq_release",
            "update_queue",
        ];
        assert_eq!(functions(), BTreeSet::from(expected));
    }
}
