//! Parses lines of packets written to a hardware queue (clr, rocvirtual.cpp).

use super::scan::LineScan;
use memchr::memmem;

/// CommandName of a packet, from the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketKind {
    Dispatch,
    BarrierAnd,
    BarrierOr,
    /// A vendor-specific packet that waits for a value.
    BarrierValue,
    Other,
}

/// Properties that distinguish dispatches of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Shape {
    pub header: u16,
    /// Work items; `None` where the line counts clusters.
    pub grid: Option<[u64; 3]>,
    pub workgroup: [u64; 3],
    pub clusters: Option<[u64; 3]>,
    pub cluster_size: Option<[u64; 3]>,
}

/// Pointers of a queue when the packet was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketPointers {
    /// Packets retired.
    pub read: u64,
    /// Index of this packet.
    pub write: u64,
}

impl PacketPointers {
    /// Packets not retired, this one included. Most versions print only the low 32 bits. Later packets of
    /// other threads may be retired already.
    #[must_use]
    pub fn backlog(self) -> u64 {
        let end = self.write.wrapping_add(1);
        if self.read.max(self.write) > u64::from(u32::MAX) {
            return end.saturating_sub(self.read);
        }
        let apart = end.wrapping_sub(self.read) & u64::from(u32::MAX);
        if apart > u64::from(u32::MAX / 2) { 0 } else { apart }
    }
}

/// One packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    pub kind: PacketKind,
    /// From 6.2 on.
    pub swq: Option<u64>,
    pub hwq: u64,
    /// Number within the process, from 6.2 on; not KFD's.
    pub id: Option<u64>,
    /// Only dispatches have one.
    pub shape: Option<Shape>,
    pub pointers: Option<PacketPointers>,
    /// Its completion signal; `None` if it has none.
    pub signal: Option<u64>,
}

impl Packet {
    /// Parses a message that begins with `SWq=` or `HWq=`. `None`: incomplete.
    #[must_use]
    pub fn parse(message: &[u8]) -> Option<Packet> {
        let mut scan = LineScan(message);
        let swq = address(&mut scan, "SWq=")?;
        let hwq = address(&mut scan, "HWq=")??;
        let id = if scan.tag("id=").is_some() {
            let id = scan.number()?;
            scan.tag(", ")?;
            Some(id)
        } else {
            None
        };
        // Newer versions insert further fields.
        let before = scan.until("Header = 0x").or_else(|| scan.until("Header=0x"))?;
        let kind = kind(before);
        let header = scan.hex().filter(|_| scan.ends()).and_then(|header| u16::try_from(header).ok())?;
        let shape = if kind == PacketKind::Dispatch { Some(shape(header, scan)?) } else { None };
        Some(Packet { kind, swq, hwq, id, shape, pointers: pointers(scan)?, signal: signal(scan) })
    }
}

/// Parses `NAME0x..., `; `Some(None)`: absent.
fn address(scan: &mut LineScan<'_>, name: &str) -> Option<Option<u64>> {
    if scan.tag(name).is_none() {
        return Some(None);
    }
    let address = scan.hex()?;
    scan.tag(", ")?;
    Some(Some(address))
}

fn kind(before: &[u8]) -> PacketKind {
    let before = before.trim_ascii_end();
    let ends = |word: &str| before.ends_with(word.as_bytes());
    if ends("Dispatch") {
        PacketKind::Dispatch
    } else if ends("BarrierAND") || ends("Barrier-AND") {
        PacketKind::BarrierAnd
    } else if ends("BarrierOR") || ends("Barrier-OR") {
        PacketKind::BarrierOr
    } else if ends("BarrierValue") {
        PacketKind::BarrierValue
    } else {
        PacketKind::Other
    }
}

fn shape(header: u16, scan: LineScan<'_>) -> Option<Shape> {
    let (grid, clusters) = (scan.triple("grid=["), scan.triple("cluster_count=["));
    if grid.is_none() && clusters.is_none() {
        return None;
    }
    let cluster_size = scan.triple("cluster_size=[");
    Some(Shape { header, grid, workgroup: scan.triple("workgroup=[")?, clusters, cluster_size })
}

/// Finds `completion_signal=0x%zx` in the rest.
pub(super) fn signal(mut scan: LineScan<'_>) -> Option<u64> {
    scan.until("completion_signal=")?;
    scan.hex().filter(|signal| *signal != 0 && scan.ends())
}

/// Parses `rptr=N, wptr=N` at the end; `Some(None)`: this version does not print it.
fn pointers(scan: LineScan<'_>) -> Option<Option<PacketPointers>> {
    let Some(at) = memmem::rfind(scan.0, b"rptr=") else { return Some(None) };
    let mut scan = LineScan(&scan.0[at..]);
    scan.tag("rptr=")?;
    let read = scan.number()?;
    scan.tag(", wptr=")?;
    let write = scan.number()?;
    scan.ends().then_some(Some(PacketPointers { read, write }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORTED: &str = "SWq=0x7faf945b8000, HWq=0x7fad66c00000, id=1, Dispatch Header = 0xb02 (type=2, barrier=1, \
                            acquire=1, release=1), grid=[20480, 1, 1], workgroup=[256, 1, 1]";

    fn parse(text: &str) -> Option<Packet> {
        Packet::parse(text.as_bytes())
    }

    #[test]
    fn a_dispatch_of_7_2_and_one_of_5_6() {
        let shape = Shape {
            header: 0xb02,
            grid: Some([20480, 1, 1]),
            workgroup: [256, 1, 1],
            clusters: None,
            cluster_size: None,
        };
        let packet = Packet {
            kind: PacketKind::Dispatch,
            swq: Some(0x7faf_945b_8000),
            hwq: 0x7fad_66c0_0000,
            id: Some(1),
            shape: Some(shape),
            pointers: None,
            signal: None,
        };
        assert_eq!(parse(REPORTED), Some(packet));
        let with = format!(
            "{REPORTED}, private_seg_size=0, completion_signal=0x0, correlation_id=7, rptr=9, wptr=11"
        );
        let pointers = Some(PacketPointers { read: 9, write: 11 });
        assert_eq!(parse(&with), Some(Packet { pointers, ..packet }));
        let signals = with.replace("signal=0x0", "signal=0x7f8ad13ff900");
        let signal = Some(0x7f8a_d13f_f900);
        assert_eq!(parse(&signals), Some(Packet { pointers, signal, ..packet }));
        let old = REPORTED.strip_prefix("SWq=0x7faf945b8000, ").unwrap().replace("id=1, ", "");
        assert_eq!(parse(&old), Some(Packet { swq: None, id: None, ..packet }));
        let newest = REPORTED
            .replace("id=1, ", "id=1, virtual_pipe_id=3, ")
            .replace("grid=[", "cluster_size=[2, 1, 1], cluster_count=[");
        let packet = parse(&newest).unwrap();
        let shape = packet.shape.unwrap();
        assert_eq!(
            (shape.grid, shape.clusters, shape.cluster_size),
            (None, Some([20480, 1, 1]), Some([2, 1, 1]))
        );
    }

    #[test]
    fn barriers_by_their_names() {
        let head = "SWq=0x1, HWq=0x2, id=3, ";
        let tail = "Header = 0x1503 (type=3, barrier=1, acquire=2, release=2), dep_signal=[0x0, 0x0, 0x0, 0x0, 0x0], \
                    completion_signal=0x5, rptr=4294967295, wptr=2";
        for (name, kind) in [
            ("BarrierAND", PacketKind::BarrierAnd),
            ("Barrier-AND", PacketKind::BarrierAnd),
            ("Barrier-OR", PacketKind::BarrierOr),
            ("BarrierOR", PacketKind::BarrierOr),
            ("BarrierValue", PacketKind::BarrierValue),
            ("Something", PacketKind::Other),
        ] {
            let packet = parse(&format!("{head}{name} {tail}")).unwrap();
            assert_eq!((packet.kind, packet.shape), (kind, None), "{name}");
            assert_eq!(packet.pointers.map(PacketPointers::backlog), Some(4), "of 32 bits");
        }
    }

    #[test]
    fn a_line_that_was_cut_anywhere_is_not_taken_for_another_one() {
        let whole = format!("{REPORTED}, correlation_id=7, rptr=9, wptr=11");
        for end in 0..whole.len() {
            let Some(packet) = parse(&whole[..end]) else { continue };
            let full = parse(&whole).unwrap();
            assert_eq!(
                Packet { pointers: None, ..packet },
                Packet { pointers: None, ..full },
                "{}",
                &whole[..end]
            );
        }
        // Lines where the output of two writers is mixed.
        for (from, to) in
            [("c00000", ":4:file"), ("0xb02 (", "0xb02:4:file ("), ("[20480, ", "[204:4:file, ")]
        {
            assert_eq!(parse(&REPORTED.replace(from, to)), None, "{to}");
        }
    }

    #[test]
    fn a_backlog_is_what_is_not_retired() {
        let backlog = |read, write| PacketPointers { read, write }.backlog();
        assert_eq!((backlog(0, 0), backlog(5, 4), backlog(7, 4)), (1, 0, 0));
        assert_eq!((backlog(1 << 40, (1 << 40) + 2), backlog(1 << 40, 1)), (3, 0));
        assert_eq!(backlog(0, u64::MAX), 0, "no queue gets there");
    }
}
