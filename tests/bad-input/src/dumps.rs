//! The reader of the driver's dumps of hardware queues.

use crate::allocation::{Bound, within};
use kfd_trace::hw::{Generation, HqdFile, MqdFile, Names, json, report, text};

/// A queue's header of 30 bytes makes a row with lists of its slots; a row of 20 bytes is a dump of its own at most.
const READ: Bound = Bound { a_byte: 64, always: 64 << 10 };
const SHOW: Bound = Bound { a_byte: 256, always: 256 << 10 };

struct None;

impl Names for None {
    fn gpu(&self, gpu_id: u32) -> String {
        gpu_id.to_string()
    }

    fn gpu_in_full(&self, gpu_id: u32) -> String {
        gpu_id.to_string()
    }

    fn process(&self, _: u32) -> Option<String> {
        Option::None
    }
}

/// Reads the text as both dumps, joins them, and shows them. Returns the numbers of queues and of lines that are left
/// out.
///
/// # Panics
/// When a guarantee was violated.
#[must_use]
pub fn read(input: &[u8]) -> (usize, usize) {
    let input = String::from_utf8_lossy(input);
    let (mqds, hqds) =
        within("dumps", input.len(), READ, || (MqdFile::parse(&input), HqdFile::parse(&input)));
    let joined = within("joined dumps", input.len(), SHOW, || {
        report(Some(&mqds), Some(&hqds), |gpu_id| (gpu_id % 2 == 0).then_some(Generation::V9))
    });
    assert!(joined.queues.len() >= mqds.queues.len(), "each queue has a row");
    within("shown dumps", input.len(), SHOW, || {
        let (mut table, mut document) = (Vec::new(), Vec::new());
        text::text(&mut table, &joined, &None).expect("a table");
        json::json(&mut document, &joined, &None).expect("a document");
        let table = String::from_utf8(table).expect("text");
        assert!(table.chars().all(|c| c == '\n' || !c.is_control()), "{table}");
        let _: serde_json::Value = serde_json::from_slice(&document).expect("JSON");
    });
    (mqds.queues.len(), mqds.strange.lines)
}
