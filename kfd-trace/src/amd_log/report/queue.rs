//! A queue in the report.

use crate::amd_log::join::JoinResult;
use crate::amd_log::packet::Shape;
use crate::amd_log::queues::Backlog;
use crate::amd_log::queues::Span;
use crate::amd_log::recorded::{KfdQueue, Recorded};
use crate::amd_log::rows::QueueRow;
use serde::Serialize;

/// One queue, or what could not be assigned to one.
#[derive(Clone, Debug, Serialize)]
pub struct QueueReport {
    /// Label of its rank or container, if lines have one.
    pub source: Option<String>,
    pub pid: Option<u32>,
    pub id: Option<u64>,
    pub hwq: Option<String>,
    pub swq: Option<String>,
    /// SWq or HWq of a queue that is known only from lines that do not show which of the two it is.
    pub address: Option<String>,
    pub host_queues: Vec<String>,
    /// `hsa_amd_queue_priority_t`: 0 low, 1 normal, 2 high.
    pub priority: Option<i64>,
    pub size_packets: Option<u64>,
    pub cooperative: Option<bool>,
    pub created: u64,
    pub acquired: u64,
    pub selected: u64,
    pub released: u64,
    /// Most streams that held it at once.
    pub streams: u64,
    pub deleted: u64,
    pub cu_masks: u64,
    pub aborted: u64,
    pub first_mono_us: Option<u64>,
    pub last_mono_us: Option<u64>,
    pub dispatches: u64,
    pub barriers_and: u64,
    pub barriers_or: u64,
    pub barrier_values: u64,
    pub other_packets: u64,
    pub shapes: Vec<ShapeReport>,
    /// The kernel of the last dispatch, and the time of that line; `null`: no line names it.
    pub last_kernel: Option<String>,
    pub last_kernel_mono_us: Option<u64>,
    pub backlog: Option<BacklogReport>,
    /// `null`: no join was requested.
    pub join: Option<JoinResult>,
    pub kfd: Option<KfdQueue>,
}

/// Dispatches of the same shape.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct ShapeReport {
    pub header: PacketHeader,
    pub grid: Option<[u64; 3]>,
    pub workgroup: [u64; 3],
    pub clusters: Option<[u64; 3]>,
    pub cluster_size: Option<[u64; 3]>,
    pub count: u64,
}

/// An AQL packet's header (HSA platform system architecture specification, 2.9.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PacketHeader {
    pub raw: u16,
    #[serde(rename = "type")]
    pub kind: &'static str,
    pub barrier: bool,
    pub acquire: &'static str,
    pub release: &'static str,
}

impl PacketHeader {
    /// Bits 0 to 7 are the type, 8 the barrier bit, 9 and 10 the acquire scope, 11 and 12 the release scope.
    #[must_use]
    pub fn decode(raw: u16) -> PacketHeader {
        let scope = |shift: u16| match raw >> shift & 3 {
            0 => "none",
            1 => "agent",
            2 => "system",
            _ => "reserved",
        };
        let kind = match raw & 0xff {
            0 => "vendor_specific",
            1 => "invalid",
            2 => "kernel_dispatch",
            3 => "barrier_and",
            4 => "agent_dispatch",
            5 => "barrier_or",
            _ => "unknown",
        };
        PacketHeader { raw, kind, barrier: raw & 0x100 != 0, acquire: scope(9), release: scope(11) }
    }
}

/// Packets not retired at the time of writing one, for packets whose lines show it.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct BacklogReport {
    pub packets: u64,
    pub most: u64,
    pub most_at_mono_us: Option<u64>,
    pub mean: f64,
    /// Index of the first packet in the log: the number of packets before it.
    pub first_write_index: u64,
    pub last_write_index: u64,
    pub last_read_index: u64,
    /// Packets not retired when the last packet's line was written, itself included.
    pub last: u64,
}

/// What the report's tables name.
pub(super) struct Names {
    pub(super) source: Option<String>,
    pub(super) last_kernel: Option<(String, Option<u64>)>,
}

impl QueueReport {
    pub(super) fn new(
        row: &QueueRow,
        names: Names,
        join: Option<JoinResult>,
        recorded: Option<&Recorded>,
    ) -> QueueReport {
        let (last_kernel, last_kernel_mono_us) = match names.last_kernel {
            Some((name, at_us)) => (Some(name), at_us),
            None => (None, None),
        };
        let (first_mono_us, last_mono_us) = ends(row.span);
        let packets = &row.packets;
        QueueReport {
            source: names.source,
            pid: row.process.pid,
            id: row.id,
            hwq: row.hwq.map(hex),
            swq: row.swq.map(hex),
            address: row.address.map(hex),
            host_queues: packets.host_queues.iter().copied().map(hex).collect(),
            priority: row.birth.map(|birth| birth.priority),
            size_packets: row.birth.map(|birth| birth.size),
            cooperative: row.birth.map(|birth| birth.cooperative),
            created: row.created,
            acquired: row.steps.acquired,
            selected: row.steps.selected,
            released: row.steps.released,
            streams: row.steps.most_held,
            deleted: row.steps.deleted,
            cu_masks: row.steps.cu_masks,
            aborted: row.steps.aborted,
            first_mono_us,
            last_mono_us,
            dispatches: packets.dispatches,
            barriers_and: packets.barriers_and,
            barriers_or: packets.barriers_or,
            barrier_values: packets.barrier_values,
            other_packets: packets.others,
            shapes: row.shapes.iter().map(|(shape, count)| ShapeReport::new(*shape, *count)).collect(),
            last_kernel,
            last_kernel_mono_us,
            backlog: packets.backlog.map(BacklogReport::from),
            join,
            kfd: recorded.map(|recorded| recorded.kfd.clone()),
        }
    }
}

impl ShapeReport {
    fn new(shape: Shape, count: u64) -> ShapeReport {
        ShapeReport {
            header: PacketHeader::decode(shape.header),
            grid: shape.grid,
            workgroup: shape.workgroup,
            clusters: shape.clusters,
            cluster_size: shape.cluster_size,
            count,
        }
    }
}

impl From<Backlog> for BacklogReport {
    fn from(of: Backlog) -> Self {
        #[expect(clippy::cast_precision_loss, reason = "a mean")]
        let mean = of.sum as f64 / of.packets.max(1) as f64;
        BacklogReport {
            packets: of.packets,
            most: of.most,
            most_at_mono_us: of.most_at_us,
            mean,
            first_write_index: of.first_write,
            last_write_index: of.last.write,
            last_read_index: of.last.read,
            last: of.last.backlog(),
        }
    }
}

pub(super) fn hex(value: u64) -> String {
    format!("{value:#x}")
}

pub(super) fn ends(span: Span) -> (Option<u64>, Option<u64>) {
    (span.0.map(|(first, _)| first), span.0.map(|(_, last)| last))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_decoded_by_their_bits() {
        let expected = PacketHeader {
            raw: 0xb02,
            kind: "kernel_dispatch",
            barrier: true,
            acquire: "agent",
            release: "agent",
        };
        assert_eq!(
            PacketHeader::decode(0xb02),
            expected,
            "as the log decodes it itself: type=2, barrier=1, acquire=1, release=1"
        );
        let expected = PacketHeader {
            raw: 0x1403,
            kind: "barrier_and",
            barrier: false,
            acquire: "system",
            release: "system",
        };
        assert_eq!(PacketHeader::decode(0x1403), expected);
        assert_eq!(PacketHeader::decode(0x600).acquire, "reserved");
    }
}
