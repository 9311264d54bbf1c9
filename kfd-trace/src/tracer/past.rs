//! The counts of the previous sessions: counts continue from where an unloaded driver left them.

use crate::events::tables::Tables;
use crate::model::counters::Counters;
use crate::model::missed::Missed;
use kfd_trace_common::counter::ProbeId;
use std::collections::BTreeMap;

/// The counts of sessions that have ended, except those that were added to [`Tracer::retired`].
#[derive(Debug, Default)]
pub(crate) struct Past {
    counters: Counters,
    missed: BTreeMap<ProbeId, Missed>,
}

impl Past {
    /// Adds the counts of a session.
    pub(crate) fn take(&mut self, tables: &Tables) {
        self.counters.add(&tables.counters);
        add(&mut self.missed, &tables.missed);
    }

    /// Makes the counts of a session start where those of the previous sessions ended.
    pub(crate) fn count_on(&self, tables: &mut Tables) {
        tables.counters.add(&self.counters);
        add(&mut tables.missed, &self.missed);
    }
}

fn add(to: &mut BTreeMap<ProbeId, Missed>, from: &BTreeMap<ProbeId, Missed>) {
    for (probe, missed) in from {
        to.entry(*probe).or_default().add(*missed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_go_on_where_those_of_the_last_session_ended() {
        let tables = |hits: &[u64], skipped| Tables {
            counters: Counters { counted: hits.to_vec(), losses: hits.to_vec() },
            missed: [(ProbeId::Open, Missed { program_skipped: skipped, probe_missed: None })].into(),
            ..Tables::default()
        };
        let mut past = Past::default();
        past.take(&tables(&[1, 2], Some(3)));
        past.take(&tables(&[10, 20], Some(30)));
        let mut now = tables(&[100, 200], Some(300));
        past.count_on(&mut now);
        assert_eq!(now, tables(&[111, 222], Some(333)));
        let mut waiting = Tables::default();
        past.count_on(&mut waiting);
        assert_eq!(waiting, tables(&[11, 22], Some(33)));
    }
}
