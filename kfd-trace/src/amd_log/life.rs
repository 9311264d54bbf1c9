//! Lines of a queue's life (clr, rocdevice.cpp).

use super::scan::LineScan;

/// Queues of the process, by priority, when it requests one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct QueuePool {
    pub low: u64,
    pub normal: u64,
    pub high: u64,
    /// Per priority.
    pub maximum: u64,
}

/// A created queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Birth {
    pub swq: u64,
    /// From 6.2 on.
    pub hwq: Option<u64>,
    /// Packets.
    pub size: u64,
    /// `hsa_amd_queue_priority_t`: 0 low, 1 normal, 2 high.
    pub priority: i64,
    pub cooperative: bool,
}

/// Event of the queue at an address: an SWq up to 6.1, an HWq from 6.2 on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogStep {
    /// By a stream, with the number of streams that then hold it. With `Selected` the queue existed already.
    Acquired,
    Selected,
    Released,
    Deleted,
    CuMask,
}

pub(super) fn pool(mut scan: LineScan<'_>) -> Option<QueuePool> {
    scan.tag(" with low priority: ")?;
    let low = scan.number()?;
    scan.tag(", with normal priority: ")?;
    let normal = scan.number()?;
    scan.tag(", with high priority: ")?;
    let high = scan.number()?;
    scan.tag(", maximum per priority is: ")?;
    let maximum = scan.number()?;
    Some(QueuePool { low, normal, high, maximum })
}

/// Parses, after its first word, `Created SWq=%p to map on HWq=%p with size ...` or `created hardware queue
/// %p with size ...`.
pub(super) fn birth(mut scan: LineScan<'_>) -> Option<Birth> {
    let (swq, hwq) = if scan.tag("SWq=").is_some() {
        let swq = scan.hex()?;
        scan.tag(" to map on HWq=")?;
        (swq, Some(scan.hex()?))
    } else {
        scan.tag("hardware queue ")?;
        (scan.hex()?, None)
    };
    scan.tag(" with size ")?;
    let size = scan.number()?;
    scan.tag(" with priority ")?;
    let negative = scan.tag("-").is_some();
    let priority = i64::try_from(scan.number()?).ok()?;
    let priority = if negative { -priority } else { priority };
    scan.tag(", cooperative: ")?;
    Some(Birth { swq, hwq, size, priority, cooperative: scan.number()? != 0 })
}

/// The address after this text, which must end as in [`LineScan::ends`].
pub(super) fn at(mut scan: LineScan<'_>, text: &str) -> Option<u64> {
    scan.until(text)?;
    scan.spaces();
    scan.hex().filter(|_| scan.ends())
}

/// The address after this text, and the number in brackets behind it: of the streams that then hold the queue.
pub(super) fn held(mut scan: LineScan<'_>, text: &str) -> Option<(u64, Option<u64>)> {
    let address = at(scan, text)?;
    scan.until(text)?;
    scan.spaces();
    scan.hex()?;
    let references = scan.tag(" (").and_then(|()| scan.number()).filter(|_| scan.tag(")").is_some());
    Some((address, references))
}

/// Parses `Selected queue refCount: %p (%d)` or, newer, `Selected queue (mode=%u): %p refCount: %d, ...`.
pub(super) fn selected(scan: LineScan<'_>) -> Option<(u64, Option<u64>)> {
    if scan.0.starts_with(b" (mode=") {
        return Some((at(scan, "):")?, scan.field("refCount: ")));
    }
    held(scan, "refCount:")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_are_born_in_both_wordings() {
        let born = |text: &str| birth(LineScan(text.as_bytes()));
        let tail = " with size 16384 with priority 1, cooperative: 0";
        let both = Birth { swq: 0x10, hwq: Some(0x20), size: 16384, priority: 1, cooperative: false };
        assert_eq!(born(&format!("SWq=0x10 to map on HWq=0x20{tail}")), Some(both));
        assert_eq!(born(&format!("hardware queue 0x10{tail}")), Some(Birth { hwq: None, ..both }));
        assert_eq!(born("SWq=0x10 to map on HWq=0x20 with size 16384 with priority 1"), None);
    }

    #[test]
    fn addresses_of_a_life() {
        let text = |text: &'static str| LineScan(text.as_bytes());
        assert_eq!(at(text(" refCount: 0x7fad66c00000 (1)"), "refCount:"), Some(0x7fad_66c0_0000));
        assert_eq!(at(text(" refCount:0x10 (0)"), "refCount:"), Some(0x10));
        assert_eq!(at(text(" refCount:"), "refCount:"), None);
        assert_eq!(held(text(" refCount:0x10 (3) (dedicated)"), "refCount:"), Some((0x10, Some(3))));
        assert_eq!(held(text(" refCount:0x10"), "refCount:"), Some((0x10, None)));
        assert_eq!(selected(text(" refCount: 0x10 (2)")), Some((0x10, Some(2))));
        assert_eq!(
            selected(text(" (mode=1): 0x10 refCount: 2, depth: 0, metric: 0, pipe: 0")),
            Some((0x10, Some(2))),
        );
    }
}
