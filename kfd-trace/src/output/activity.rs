//! Activity of a queue and of a process, in JSON and in text.

use crate::attribute::Topology;
use crate::model::event::QueueFacts;
use crate::model::pointers::{Counts, Pointers, Unit, Unmeasured};
use crate::state::{Activity, Measured, Process, Work};
use crate::text::count::counted;
use bytesize::ByteSize;
use serde::Serialize;

/// Activity of a queue. Every field is always present; `null` is "not measured".
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct ActivityFields {
    /// What is counted: `packets` or `ring_bytes`.
    unit: Option<&'static str>,
    /// Since the queue's creation. The last value that was read, even if nothing is measured now.
    submitted: Option<u64>,
    retired: Option<u64>,
    backlog: Option<u64>,
    submitted_per_second: Option<f64>,
    retired_per_second: Option<f64>,
    /// It has a backlog and retired nothing for ten seconds.
    stalled: Option<bool>,
    /// Time since it was last seen with something to do.
    idle_ns: Option<u64>,
    /// For a queue that ended: nothing was added after the last reading.
    complete: bool,
    /// Why the last reading failed.
    not_measured: Option<&'static str>,
}

impl ActivityFields {
    /// `None` if nothing was read yet.
    pub(super) fn of(queue: &QueueFacts, activity: &Activity) -> Option<Self> {
        let (last, now) = (activity.last(), activity.now());
        if last.is_none() && activity.problem().is_none() {
            return None;
        }
        let rate = now.and_then(|now| now.rate);
        Some(ActivityFields {
            unit: unit(queue).map(Unit::name),
            submitted: last.map(|last| last.counts.submitted),
            retired: last.map(|last| last.counts.retired),
            backlog: now.map(|now| now.counts.backlog()),
            submitted_per_second: rate.map(|rate| rate.submitted),
            retired_per_second: rate.map(|rate| rate.retired),
            stalled: now.map(Measured::stalled),
            idle_ns: now.map(Measured::idle_ns),
            complete: activity.complete(),
            not_measured: activity.problem().map(Unmeasured::name),
        })
    }
}

/// Unit of its pointers; `None` if not known.
pub(super) fn unit(queue: &QueueFacts) -> Option<Unit> {
    Pointers::of(queue).ok().map(|pointers| pointers.unit)
}

/// Activity of a process on one GPU, including its ended queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct WorkFields {
    pub(super) gpu_id: Option<u32>,
    packets_submitted: u64,
    packets_retired: u64,
    sdma_ring_bytes_submitted: u64,
    sdma_ring_bytes_retired: u64,
    /// Queues that ended without a final reading.
    queues_incomplete: u64,
}

impl WorkFields {
    /// No activity was seen, and none was missed.
    pub(super) fn is_nothing(&self) -> bool {
        *self == WorkFields { gpu_id: self.gpu_id, ..WorkFields::default() }
    }

    /// For example `12 packets submitted, 12 retired; 4.0 kB of SDMA commands submitted, 4.0 kB retired; ...`
    pub(super) fn words(&self) -> String {
        let mut parts = Vec::new();
        if self.packets_submitted > 0 {
            parts.push(format!(
                "{} submitted, {} retired",
                counted(self.packets_submitted, "packet", "packets"),
                self.packets_retired
            ));
        }
        if self.sdma_ring_bytes_submitted > 0 {
            let [submitted, retired] = [self.sdma_ring_bytes_submitted, self.sdma_ring_bytes_retired]
                .map(|bytes| ByteSize(bytes).display().si().to_string());
            parts.push(format!("{submitted} of SDMA commands submitted, {retired} retired"));
        }
        if self.queues_incomplete > 0 {
            parts.push(format!(
                "{} ended without a last reading",
                counted(self.queues_incomplete, "queue", "queues")
            ));
        }
        parts.join("; ")
    }
}

/// One entry per GPU.
pub(super) fn works(process: &Process, topology: &Topology) -> Vec<WorkFields> {
    let of = |(gpu_id, work): (&Option<u32>, &Work)| WorkFields {
        gpu_id: *gpu_id,
        packets_submitted: work.packets.submitted,
        packets_retired: work.packets.retired,
        sdma_ring_bytes_submitted: work.ring_bytes.submitted,
        sdma_ring_bytes_retired: work.ring_bytes.retired,
        queues_incomplete: work.incomplete,
    };
    topology.in_order(&process.works).into_iter().map(of).collect()
}

/// Rate of retirement: `709/s`, `12.3k/s`; for an SDMA queue `1.2 MB/s`. `None` if not known.
pub(super) fn rate(queue: &QueueFacts, activity: &Activity) -> Option<String> {
    let rate = activity.now()?.rate?.retired;
    Some(per_second(unit(queue)?, rate))
}

/// A rate in its unit: `12.3k/s`, `1.2 MB/s`.
pub(super) fn per_second(unit: Unit, rate: f64) -> String {
    match unit {
        Unit::Packets => format!("{}/s", short(rate)),
        Unit::RingBytes => format!("{}/s", bytes(rate)),
    }
}

/// Work in its unit: `127644`, `10.0k`.
pub(super) fn amount(unit: Unit, count: u64) -> String {
    match unit {
        Unit::Packets => count.to_string(),
        Unit::RingBytes => ByteSize(count).display().si_short().to_string(),
    }
}

/// Pending and running work, marked if it is stalled; if not known, the reason.
pub(super) fn backlog(queue: &QueueFacts, activity: &Activity) -> Option<String> {
    let Some(now) = activity.now() else {
        return activity.problem().map(|why| format!("? ({})", why.name()));
    };
    let text = amount(unit(queue)?, now.counts.backlog());
    Some(if now.stalled() { format!("{text} stalled") } else { text })
}

/// Total work of a queue: `packets=127644 retired=127644`; with `at_least` if its end was not read.
pub(super) fn whole(queue: &QueueFacts, activity: &Activity) -> Option<String> {
    let Counts { submitted, retired } = activity.last()?.counts;
    let unit = unit(queue)?.name();
    let least = if activity.complete() { "" } else { " at_least" };
    Some(format!("{unit}={submitted} retired={retired}{least}"))
}

/// Three digits of a non-negative number: `0.5`, `12.3k`, `4.56M`.
fn short(value: f64) -> String {
    let (scaled, suffix) = match value {
        ..1e3 => (value, ""),
        ..1e6 => (value / 1e3, "k"),
        ..1e9 => (value / 1e6, "M"),
        _ => (value / 1e9, "G"),
    };
    match scaled {
        ..10.0 if scaled.fract() != 0.0 => format!("{scaled:.2}{suffix}"),
        ..100.0 if scaled.fract() != 0.0 => format!("{scaled:.1}{suffix}"),
        _ => format!("{scaled:.0}{suffix}"),
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "it is not negative, and cut where it is too large"
)]
fn bytes(value: f64) -> String {
    ByteSize(value as u64).display().si().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::event::Body;
    use crate::model::pointers::samples::sdma;
    use crate::output::samples::{PID, sampled, traced};
    use crate::state::samples::event;
    use crate::state::{Reading, State};
    use serde_json::json;

    const S: u64 = 1_000_000_000;

    fn of(state: &State, queue_id: u32) -> (QueueFacts, Activity) {
        let queue = &state.process_of_tgid(PID).expect("the process").queues[&queue_id];
        (queue.facts.clone(), queue.activity.clone())
    }

    fn after(readings: &[(u64, Reading)]) -> State {
        let mut state = traced();
        for (at_ns, reading) in readings {
            sampled(&mut state, 3, *reading, *at_ns);
        }
        state
    }

    fn counts(submitted: u64, retired: u64) -> Reading {
        Ok(Counts { submitted, retired })
    }

    fn shown(state: &State, queue_id: u32) -> serde_json::Value {
        let (facts, activity) = of(state, queue_id);
        serde_json::to_value(ActivityFields::of(&facts, &activity)).expect("JSON")
    }

    #[test]
    fn every_field_is_there_and_null_is_not_measured() {
        assert_eq!(shown(&traced(), 3), json!(null), "nothing was read yet");
        let state = after(&[(S, counts(100, 90)), (3 * S, counts(300, 290))]);
        assert_eq!(
            shown(&state, 3),
            json!({"unit": "packets", "submitted": 300, "retired": 290, "backlog": 10, "submitted_per_second": 100.0,
                   "retired_per_second": 100.0, "stalled": false, "idle_ns": 0, "complete": false,
                   "not_measured": null})
        );
        let state = after(&[(S, counts(100, 90)), (3 * S, Err(Unmeasured::Foreign))]);
        assert_eq!(
            shown(&state, 3),
            json!({"unit": "packets", "submitted": 100, "retired": 90, "backlog": null, "submitted_per_second": null,
                   "retired_per_second": null, "stalled": null, "idle_ns": null, "complete": false,
                   "not_measured": "foreign"})
        );
    }

    #[test]
    fn texts_show_rate_and_backlog_or_why_not() {
        let words = |state: &State| {
            let (facts, activity) = of(state, 3);
            (rate(&facts, &activity), backlog(&facts, &activity), whole(&facts, &activity))
        };
        let expected = |rate: Option<&str>, backlog: &str, whole: Option<&str>| {
            (rate.map(str::to_owned), Some(backlog.to_owned()), whole.map(str::to_owned))
        };
        assert_eq!(words(&traced()), (None, None, None));
        let state = after(&[(S, counts(10, 9)), (2 * S, counts(1428, 1427))]);
        assert_eq!(words(&state), expected(Some("1.42k/s"), "1", Some("packets=1428 retired=1427 at_least")));
        let state = after(&[(S, counts(10, 9)), (20 * S, counts(10, 9))]);
        assert_eq!(words(&state), expected(Some("0/s"), "1 stalled", Some("packets=10 retired=9 at_least")));
        assert_eq!(shown(&state, 3)["stalled"], json!(true));
        let state = after(&[(S, Err(Unmeasured::Denied))]);
        assert_eq!(words(&state), expected(None, "? (denied)", None));
    }

    #[test]
    fn a_queue_that_was_read_at_its_end_is_shown_whole() {
        let mut state = after(&[(S, counts(10, 9))]);
        let last = Some(crate::model::pointers::samples::memory(12, 12));
        let body = Body::QueueDestroy { queue_id: 3, gpu_id: Some(58270), last };
        let ended = state.apply(&event(2 * S, 1, PID, body)).ended;
        let [queue] = ended.as_slice() else { panic!("{ended:?}") };
        let fields = serde_json::to_value(ActivityFields::of(&queue.facts, &queue.activity)).expect("JSON");
        assert_eq!((&fields["submitted"], &fields["complete"]), (&json!(12), &json!(true)));
        assert_eq!(whole(&queue.facts, &queue.activity).as_deref(), Some("packets=12 retired=12"));
    }

    #[test]
    fn sdma_is_shown_in_bytes_of_its_ring() {
        let mut state = traced();
        state.apply(&event(30_000, 1, PID, Body::QueueCreate(sdma(4))));
        sampled(&mut state, 4, counts(0, 0), S);
        sampled(&mut state, 4, counts(3_000_000, 2_990_000), 2 * S);
        let (facts, activity) = of(&state, 4);
        assert_eq!(rate(&facts, &activity).as_deref(), Some("3.0 MB/s"));
        assert_eq!(backlog(&facts, &activity).as_deref(), Some("10.0k"));
        assert_eq!(shown(&state, 4)["unit"], "ring_bytes");
        let works = works(state.process_of_tgid(PID).expect("the process"), &Topology::default());
        assert_eq!(works[0].sdma_ring_bytes_submitted, 3_000_000);
        assert_eq!(works[0].packets_submitted, 0);
    }

    #[test]
    fn three_digits_are_enough() {
        for (value, text) in [
            (0.0, "0"),
            (0.5, "0.50"),
            (709.13, "709"),
            (12_345.0, "12.3k"),
            (4_560_000.0, "4.56M"),
            (2e9, "2G"),
        ] {
            assert_eq!(short(value), text);
        }
    }
}
