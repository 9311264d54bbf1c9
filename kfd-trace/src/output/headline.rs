//! One line on what exists now. For the page and `top`.

use crate::attribute::Topology;
use crate::state::Snapshot;
use crate::text::count::counted;

/// For example `2 GPUs, 1 process, 3 queues; 1 process evicted`.
pub(super) fn headline(snapshot: &Snapshot, topology: &Topology) -> String {
    let evicted = snapshot.live().filter(|process| process.evicted.evicted).count();
    let mut line = format!(
        "{}, {}, {}",
        counted(topology.gpus.len(), "GPU", "GPUs"),
        counted(snapshot.live().count(), "process", "processes"),
        counted(snapshot.queues().count(), "queue", "queues"),
    );
    if evicted > 0 {
        line += &format!("; {} evicted", counted(evicted, "process", "processes"));
    }
    line
}
