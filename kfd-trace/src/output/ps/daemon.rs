//! What a running daemon adds to the rows: it saw the queues' creation and changes. In: `/api/v1/queues` of it.

use super::PsRow;
use crate::output::controls::Controls;
use crate::output::reported::{QueueRow, Queues};

/// The daemon's list may be this much later than the rows (the timeout for its response, and clock ticks).
const LATER_NS: u64 = 3_000_000_000;

/// Adds age, number of the KFD process, and what became of priority and CU mask to the queues that the daemon knows: same
/// PID, context, queue id and GPU, and the same ring, as far as both know it. A queue older than its process is not
/// believed.
pub fn add_history(rows: &mut [PsRow], known: &Queues) {
    for row in rows.iter_mut().filter(|row| row.queue_id().is_some()) {
        let mut matching = known.queues.iter().filter(|queue| is_of(queue, row));
        // Two queues of one name: the daemon's list is from another moment.
        let (Some(queue), None) = (matching.next(), matching.next()) else { continue };
        let possible = |age: &u64| row.process_age_ns.is_none_or(|process| *age <= process + LATER_NS);
        row.age_ns = row.age_ns.or(queue.age_ns.filter(possible));
        row.process = row.process.or(queue.process());
        row.controls = controls(queue, row.known(|queue| queue.priority));
    }
}

/// `priority`: the one that holds, if that is known. Where the daemon has another one, it was changed between the two lists.
fn controls(known: &QueueRow, priority: Option<u32>) -> Controls {
    let (priority_created, cu_mask) = (known.priority_created, known.cu_mask());
    if priority.is_some_and(|priority| known.priority != Some(priority)) {
        return Controls { priority_created, cu_mask, ..Controls::default() };
    }
    Controls {
        priority_created,
        priority_changed_by: known.priority_changed_by,
        priority_changed_ns: known.priority_changed_ns,
        cu_mask,
    }
}

fn is_of(known: &QueueRow, row: &PsRow) -> bool {
    let ring = row.known(|queue| queue.ring_address);
    known.pid.is_some()
        && (known.pid, known.context_id, known.queue_id) == (row.pid, row.context_id, row.queue_id())
        && known.gpu_id == row.gpu_id()
        && (ring.is_none() || known.ring_address.is_none() || known.ring_address == ring)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::event::{Origin, ProcessId, QueueFacts};
    use crate::model::incident::CuMask;
    use crate::output::reported;

    fn row(queue_id: u32) -> PsRow {
        let queue = QueueFacts {
            queue_id: Some(queue_id),
            gpu_id: Some(7),
            ring_address: Some(0x1000),
            ..QueueFacts::unknown(Origin::Standing)
        };
        PsRow { pid: Some(5), queue: Some(queue), process_age_ns: Some(500), ..PsRow::default() }
    }

    fn daemon(text: &str) -> Queues {
        let text = format!(r#"{{"schema": 1, "ts": "2026-09-21T14:13:20Z", "queues": [{text}]}}"#);
        reported::read(text.as_bytes()).expect("a document")
    }

    fn queue(ring: &str, age_ns: &str) -> String {
        format!(
            r#"{{"pid": 5, "context_id": null, "kfd_process": "12", "gpu_id": 7, "queue_id": 1,
                "ring_address": {ring}, "age_ns": {age_ns}, "comm": "train"}}"#
        )
    }

    fn added(queues: &str) -> (Option<u64>, Option<ProcessId>) {
        let mut rows = [row(1), row(2)];
        add_history(&mut rows, &daemon(queues));
        assert_eq!((rows[1].age_ns, rows[1].process), (None, None), "another queue");
        (rows[0].age_ns, rows[0].process)
    }

    #[test]
    fn the_same_queue_gets_its_age_and_process() {
        assert_eq!(added(&queue(r#""0x1000""#, "300")), (Some(300), Some(ProcessId(12))));
        assert_eq!(added(&queue("null", "300")), (Some(300), Some(ProcessId(12))));
        assert_eq!(added(&queue(r#""0x1000""#, "null")), (None, Some(ProcessId(12))), "found, not created");
    }

    #[test]
    fn changes_of_priority_and_mask_come_from_the_daemon() {
        let known = daemon(
            r#"{"pid": 5, "context_id": null, "gpu_id": 7, "queue_id": 1, "priority": 11, "priority_created": 7,
                "priority_changed_by": 77, "priority_changed_ns": 900, "cu_mask": ["0x000000ff", "0x80000000"]}"#,
        );
        let controls = |priority| {
            let mut rows = [row(1)];
            rows[0].queue.as_mut().expect("a queue").priority = priority;
            add_history(&mut rows, &known);
            rows[0].controls.clone()
        };
        let all = Controls {
            priority_created: Some(7),
            priority_changed_by: Some(77),
            priority_changed_ns: Some(900),
            cu_mask: Some(CuMask { words: vec![0xff, 0x8000_0000] }),
        };
        assert_eq!(controls(Some(11)), all);
        assert_eq!(controls(None), all);
        let later = Controls { priority_changed_by: None, priority_changed_ns: None, ..all };
        assert_eq!(controls(Some(3)), later, "changed by another call since");
        let known = daemon(r#"{"cu_mask": ["0xff", "many"]}"#);
        assert_eq!(known.queues[0].cu_mask(), None, "a word is none");
    }

    #[test]
    fn what_contradicts_is_not_taken() {
        assert_eq!(added(&queue(r#""0x2000""#, "300")), (None, None), "an earlier queue of this id");
        assert_eq!(added(&queue(r#""0x1000""#, "3000000501")).0, None, "older than its process");
        let twice = [queue("null", "1"), queue("null", "2")].join(",");
        assert_eq!(added(&twice), (None, None));
    }
}
