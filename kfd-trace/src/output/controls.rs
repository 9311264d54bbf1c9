//! Priority and CU mask of a queue: what holds, since when, and whose doing it is. For `ps`, the API and events.

use super::names;
use crate::attribute::Topology;
use crate::model::event::{QueueFacts, QueueType};
use crate::model::incident::CuMask;
use crate::state::Queue;
use crate::text::clock::age;
use serde::Serialize;
use std::fmt::Write as _;

/// What was seen of the settings of a queue; the priority that holds is in its facts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Controls {
    /// `None`: its creation was not seen.
    pub priority_created: Option<u32>,
    /// tgid of the last call that changed the priority; `None`: none was seen.
    pub priority_changed_by: Option<u32>,
    /// Nanoseconds since that call.
    pub priority_changed_ns: Option<u64>,
    /// The last mask that was seen to be set.
    pub cu_mask: Option<CuMask>,
}

/// Flattened into the objects of a queue in the API and in `ps`.
#[derive(Debug, Serialize)]
pub(super) struct ControlFields {
    priority_created: Option<u32>,
    priority_changed_by: Option<u32>,
    priority_changed_ns: Option<u64>,
    cu_mask: Option<Vec<String>>,
    cus_per_engine: Option<Vec<Vec<u32>>>,
}

impl Controls {
    pub(super) fn of(queue: &Queue, now_ns: u64) -> Self {
        let changed = queue.priority_change().and_then(|change| change.by);
        Controls {
            priority_created: queue.created_priority(),
            priority_changed_by: changed.map(|(_, pid)| pid),
            priority_changed_ns: changed.map(|(at_ns, _)| now_ns.saturating_sub(at_ns)),
            cu_mask: queue.cu_mask.clone(),
        }
    }

    pub(super) fn fields(&self, queue: Option<&QueueFacts>, topology: &Topology) -> ControlFields {
        let mask = self.cu_mask.as_ref();
        ControlFields {
            priority_created: self.priority_created,
            priority_changed_by: self.priority_changed_by,
            priority_changed_ns: self.priority_changed_ns,
            cu_mask: mask.map(names::mask),
            cus_per_engine: mask.zip(queue).and_then(|(mask, queue)| cus_per_engine(mask, queue, topology)),
        }
    }

    /// `11 (high), created 7 (normal), set by 4321 5s ago`; after the priority what differs from its creation and what
    /// was seen.
    pub(super) fn priority(&self, queue: &QueueFacts) -> Option<String> {
        let priority = queue.priority?;
        let mut text = names::priority(priority);
        let is_changed = |created: &u32| *created != priority || self.priority_changed_by.is_some();
        if let Some(created) = self.priority_created.filter(is_changed) {
            let _ = write!(text, ", created {}", names::priority(created));
        }
        if let Some((pid, ns)) = self.priority_changed_by.zip(self.priority_changed_ns) {
            let _ = write!(text, ", set by {pid} {} ago", age(ns));
        }
        Some(text)
    }
}

/// Enabled CUs by XCC and shader engine. `None`: the mask of an SDMA queue, which the driver ignores, or the GPU's units
/// are not known.
pub(super) fn cus_per_engine(
    mask: &CuMask,
    queue: &QueueFacts,
    topology: &Topology,
) -> Option<Vec<Vec<u32>>> {
    queue.queue_type.filter(|kind| matches!(kind, QueueType::Compute | QueueType::ComputeAql))?;
    let units = topology.gpu(queue.gpu_id?)?.compute_units.as_ref()?;
    Some(units.enabled(mask))
}

/// `9 of 64 CUs (per SE 3+2+2+2)`; `9 of 64 bits`, those of the mask, where the engines are not known.
pub(super) fn mask(mask: &CuMask, queue: &QueueFacts, topology: &Topology) -> String {
    let units = queue.gpu_id.and_then(|id| topology.gpu(id)?.compute_units.as_ref());
    let Some((counts, units)) = cus_per_engine(mask, queue, topology).zip(units) else {
        return format!("{} of {} bits", mask.enabled(), mask.bits());
    };
    let enabled: u32 = counts.iter().flatten().sum();
    format!("{enabled} of {} CUs (per SE {})", units.total(), engines(&counts))
}

/// `3+2+2+2`; with several XCCs `of XCC 0-2 1+1+0+0, of XCC 3 1+0+0+0`.
fn engines(counts: &[Vec<u32>]) -> String {
    let xcc = |engines: &[u32]| engines.iter().map(u32::to_string).collect::<Vec<_>>().join("+");
    if let [only] = counts {
        return xcc(only);
    }
    let mut first = 0;
    let alike = counts.chunk_by(PartialEq::eq).map(|alike| {
        let last = first + alike.len() - 1;
        let until = if last > first { format!("-{last}") } else { String::new() };
        let text =
            format!("of XCC {first}{until} {}", alike.first().map_or_else(String::new, |one| xcc(one)));
        first = last + 1;
        text
    });
    alike.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::samples::topology;
    use crate::state::samples::facts;

    fn text(words: &[u32]) -> String {
        mask(&CuMask { words: words.to_vec() }, &facts(3), &topology())
    }

    /// Six XCCs of 10, 10, 9 and 9 CUs: the first 24 bits are CU 0 of each engine.
    #[test]
    fn a_mask_is_shown_by_engines() {
        assert_eq!(text(&[0x00ff_ffff]), "24 of 228 CUs (per SE of XCC 0-5 1+1+1+1)");
        assert_eq!(text(&[0b100_0001]), "2 of 228 CUs (per SE of XCC 0 1+1+0+0, of XCC 1-5 0+0+0+0)");
        assert_eq!(text(&[u32::MAX; 10]), "228 of 228 CUs (per SE of XCC 0-5 10+10+9+9)");
        assert_eq!(engines(&[vec![3, 2]]), "3+2");
    }

    #[test]
    fn without_engines_it_is_a_count_of_bits() {
        let words = CuMask { words: vec![0xff, 1] };
        let unknown = "9 of 64 bits";
        assert_eq!(mask(&words, &facts(3), &Topology::default()), unknown);
        let sdma = QueueFacts { queue_type: Some(QueueType::Sdma), ..facts(3) };
        assert_eq!(mask(&words, &sdma, &topology()), unknown);
        let mut other = topology();
        other.gpus[0].compute_units = None;
        assert_eq!(mask(&words, &facts(3), &other), unknown);
        assert_eq!(cus_per_engine(&words, &facts(3), &other), None);
    }

    #[test]
    fn a_priority_shows_what_was_before_and_who_changed_it() {
        let second = Some(1_000_000_000);
        let shown = |created, by: Option<u32>| {
            let changed_ns = second.filter(|_| by.is_some());
            let controls = Controls {
                priority_created: created,
                priority_changed_by: by,
                priority_changed_ns: changed_ns,
                cu_mask: None,
            };
            controls.priority(&facts(3)).expect("it has one")
        };
        assert_eq!(shown(None, None), "7 (normal)");
        assert_eq!(shown(Some(7), None), "7 (normal)");
        assert_eq!(shown(Some(11), None), "7 (normal), created 11 (high)", "no call was seen");
        assert_eq!(shown(Some(7), Some(77)), "7 (normal), created 7 (normal), set by 77 1s ago");
        assert_eq!(shown(None, Some(77)), "7 (normal), set by 77 1s ago");
        let unknown = QueueFacts { priority: None, ..facts(3) };
        assert_eq!(Controls { priority_created: Some(7), ..Controls::default() }.priority(&unknown), None);
    }
}
