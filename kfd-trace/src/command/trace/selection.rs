//! Which events the stream shows. In: what was requested; an event, with its change and the state after it. Pure.

use super::whose::Whose;
use crate::model::event::Event;
use crate::state::{Change, State};
use kfd_trace_common::kind::{Kind, Subject};
use std::collections::BTreeSet;

/// What was requested.
#[derive(Clone, Copy, Debug)]
pub(in crate::command) struct Selection<'a> {
    /// Empty for all kinds that need not be requested.
    pub(in crate::command) kinds: &'a BTreeSet<Kind>,
    /// These, too, without being among `kinds`.
    pub(in crate::command) on_request: bool,
    /// Single processes are selected: of these alone there are rows.
    pub(in crate::command) processes: bool,
    pub(in crate::command) whose: &'a Whose,
}

impl Selection<'_> {
    pub(super) fn has(&self, kind: Kind) -> bool {
        let by_default = self.kinds.is_empty() && (!kind.on_request() || self.on_request);
        by_default || self.kinds.contains(&kind)
    }

    pub(in crate::command) fn shows(&self, event: &Event, change: &Change, state: &State) -> bool {
        let kind = event.body.kind();
        let concerns_none = change.process.is_none() && change.hit.is_empty();
        if !self.has(kind) || (kind.on_request() && self.processes && concerns_none) {
            return false;
        }
        if self.whose.is_all() {
            return true;
        }
        let process = change.process.and_then(|key| state.process(key));
        let own = process.map(|process| self.whose.has(process));
        match kind.subject() {
            Subject::Gpu if kind.on_request() => {
                let mut hit = change.hit.iter().filter_map(|pid| state.process_of_tgid(*pid));
                own == Some(true) || hit.any(|row| self.whose.has(row))
            }
            // What else happens to a whole GPU concerns every process.
            Subject::Gpu => true,
            // A failed open leaves no process behind.
            Subject::Caller => own.unwrap_or_else(|| self.whose.has_caller(event)),
            Subject::Process | Subject::Queue => own == Some(true),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::event::Body;
    use crate::model::runlist::samples::preemption;
    use crate::output::samples::traced;
    use crate::state::samples::event;

    /// Whether a preemption on behalf of `tgid` is shown; PID 4321, `train`, has an active queue on the GPU.
    fn shows(selection: &Selection<'_>, tgid: u32, gpu_id: u32) -> bool {
        let mut state = traced();
        let body = Body::Preempt(crate::model::runlist::Preemption { gpu_id: Some(gpu_id), ..preemption() });
        let event = Event { process: None, ..event(90_000, 1, tgid, body) };
        let change = state.apply(&event);
        selection.shows(&event, &change, &state)
    }

    const GPU: u32 = 58270;

    #[test]
    fn what_is_shown_on_request_is_requested_by_its_kind_or_with_all_others() {
        let (none, preempt) = (BTreeSet::new(), BTreeSet::from([Kind::Preempt]));
        let everyone = Whose::default();
        let of = |kinds, on_request| Selection { kinds, on_request, processes: false, whose: &everyone };
        assert_eq!([of(&none, false), of(&none, true)].map(|all| all.has(Kind::Preempt)), [false, true]);
        let named = of(&preempt, false);
        assert_eq!(
            [Kind::Preempt, Kind::Runlist, Kind::Ioctl].map(|kind| named.has(kind)),
            [true, false, false]
        );
        assert!(of(&none, false).has(Kind::Ioctl));
    }

    #[test]
    fn a_preemption_is_shown_to_those_that_it_concerns() {
        let kinds = BTreeSet::from([Kind::Preempt]);
        let everyone = Whose::default();
        let all = Selection { kinds: &kinds, on_request: false, processes: false, whose: &everyone };
        assert!(shows(&all, 99, GPU) && shows(&all, 99, 7));
        let selected = Selection { processes: true, ..all };
        assert_eq!((shows(&selected, 99, GPU), shows(&selected, 99, 7)), (true, false));
        for (comm, waits) in [("train", true), ("serve", false)] {
            let whose = Whose { comm: Some(comm.to_owned()), ..Whose::default() };
            let named = Selection { whose: &whose, ..all };
            assert_eq!((shows(&named, 99, GPU), shows(&named, 99, 7)), (waits, false), "{comm}");
        }
    }
}
