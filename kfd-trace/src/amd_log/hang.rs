//! clr's analysis of its queues, which it writes to standard error after a fault or a hang, without a prefix
//! (rocvirtual.cpp, `VirtualGPU::AnalyzeAqlQueue`).
//!
//! In: lines without a prefix. Out: what was at the head of each queue. A packet takes seven lines, which others may part.

use super::limits::ANALYZED;
use super::scan::LineScan;
use super::source::Source;
use memchr::memmem::{self, Finder};
use std::collections::HashMap;
use std::sync::LazyLock;

static QUEUE: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("VGPU"));

/// What is at the head of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Head {
    #[default]
    Unknown,
    Idle,
    Dispatch,
    Barrier,
    Vendor,
}

impl Head {
    /// Name in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Head::Unknown => "unknown",
            Head::Idle => "idle",
            Head::Dispatch => "dispatch",
            Head::Barrier => "barrier",
            Head::Vendor => "vendor",
        }
    }
}

/// One queue; `None` where its lines do not have it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Analyzed {
    pub source: Source,
    pub swq: Option<u64>,
    pub hwq: Option<u64>,
    pub id: Option<u64>,
    pub head: Head,
    /// `rptr`: packets retired, and `wptr`: index of the next packet.
    pub pointers: Option<[u64; 2]>,
    /// Work items.
    pub grid: Option<[u64; 3]>,
    pub workgroup: Option<[u64; 3]>,
    pub kernel_object: Option<u64>,
}

/// Queues in the order of the log.
#[derive(Clone, Debug, Default)]
pub struct Analysis {
    pub queues: Vec<Analyzed>,
    pub left_out: u64,
    /// The queue whose packet is being described.
    open: HashMap<Source, usize>,
}

impl Analysis {
    /// Takes a line; returns whether it is of an analysis.
    pub(super) fn line(&mut self, source: Source, line: &[u8]) -> bool {
        match QUEUE.find(line) {
            Some(at) => self.queue(source, LineScan(&line[at + "VGPU".len()..])),
            None => !self.open.is_empty() && self.packet(source, line),
        }
    }

    /// `=%p SWq=%p, HWq=%p, id=%lu`, `(%p) hang analysis:`, `(%p) Queue(%p)` with what is known.
    fn queue(&mut self, source: Source, mut scan: LineScan<'_>) -> bool {
        if scan.tag("=").is_some() {
            let begun = |scan: &mut LineScan<'_>| {
                scan.hex()?;
                scan.tag(" SWq=")?;
                let swq = scan.hex()?;
                scan.tag(", HWq=")?;
                Some((swq, scan.hex()?))
            };
            let Some((swq, hwq)) = begun(&mut scan) else { return false };
            let id = scan.tag(", id=").and_then(|()| scan.number());
            self.open.remove(&source);
            let queue = Analyzed { source, swq: Some(swq), hwq: Some(hwq), id, ..Analyzed::default() };
            if let Some(at) = self.add(queue) {
                self.open.insert(source, at);
            }
            return true;
        }
        let of_queue = |mut scan: LineScan<'_>| {
            scan.tag("(")?;
            scan.hex()?;
            scan.tag(")")?;
            if scan.tag(" hang analysis").is_some() {
                return Some(None);
            }
            scan.tag(" Queue(")?;
            let swq = Some(scan.hex()?);
            scan.tag(")")?;
            let mut queue = Analyzed { source, swq, ..Analyzed::default() };
            if scan.tag(" is idle").is_some() {
                queue.head = Head::Idle;
                return Some(Some(queue));
            }
            if scan.tag(". Couldn't find kernel").is_some() {
                return Some(None);
            }
            if scan.tag(". Couldn't find the hang").is_some() {
                return Some(Some(queue));
            }
            queue.pointers = Some(pointers(scan)?);
            let has = |text: &str| memmem::find(scan.0, text.as_bytes()).is_some();
            queue.head = match () {
                () if has("A barrier packet") => Head::Barrier,
                () if has("Vendor packet") => Head::Vendor,
                () => Head::Unknown,
            };
            Some(Some(queue))
        };
        let Some(found) = of_queue(scan) else { return false };
        if let Some(queue) = found {
            self.add(queue);
        }
        true
    }

    fn add(&mut self, queue: Analyzed) -> Option<usize> {
        if self.queues.len() >= ANALYZED {
            self.left_out += 1;
            return None;
        }
        self.queues.push(queue);
        Some(self.queues.len() - 1)
    }

    /// The lines of a packet, each with some of its fields.
    fn packet(&mut self, source: Source, line: &[u8]) -> bool {
        let Some(queue) = self.open.get(&source).and_then(|at| self.queues.get_mut(*at)) else {
            return false;
        };
        let scan = LineScan(line);
        let has = |text: &str| memmem::find(line, text.as_bytes()).is_some();
        if let Some(pointers) = pointers(scan) {
            queue.pointers = Some(pointers);
            self.open.remove(&source);
            return true;
        }
        if has("Dispatch Header =") {
            queue.head = Head::Dispatch;
            return true;
        }
        if let Some(workgroup) = scan.triple("workgroup=[") {
            queue.workgroup = Some(workgroup);
            queue.grid = scan.triple("grid=[");
            return true;
        }
        if has("kernel_obj=") {
            let mut scan = scan;
            queue.kernel_object = scan.until("kernel_obj=").and_then(|_| scan.hex());
            return true;
        }
        has("private_seg_size=") || has("completion_signal=")
    }
}

/// Finds `rptr=%lu, wptr=%lu`.
fn pointers(mut scan: LineScan<'_>) -> Option<[u64; 2]> {
    scan.until("rptr=")?;
    let read = scan.number()?;
    scan.tag(", wptr=")?;
    Some([read, scan.number()?])
}

impl Analyzed {
    /// Packets not retired. The write pointer is the next index here, unlike in lines of packets.
    #[must_use]
    pub fn not_retired(&self) -> Option<u64> {
        match self.pointers {
            Some([read, write]) => Some(write.saturating_sub(read)),
            None => (self.head == Head::Idle).then_some(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKET: [&str; 7] = [
        "VGPU=0x55 SWq=0x10, HWq=0x20, id=1",
        "\tDispatch Header =0xd02 (type=2, barrier=1, acquire=2, release=1), setup=3",
        "grid=[2560, 1, 1], workgroup=[128, 1, 1]",
        "\tprivate_seg_size=0, group_seg_size=1638",
        "trainer-1  | \tkernel_obj=0x7f00, kernarg_address=0x0x7f10",
        "\tcompletion_signal=0x0, correlation_id=0",
        "\trptr=62022, wptr=62024",
    ];

    fn read(lines: &[&str]) -> (Analysis, Vec<bool>) {
        let mut analysis = Analysis::default();
        let used = lines.iter().map(|line| analysis.line(Source::default(), line.as_bytes())).collect();
        (analysis, used)
    }

    #[test]
    fn a_packet_is_put_together_from_its_lines() {
        let (analysis, used) = read(&PACKET);
        assert!(used.iter().all(|used| *used), "{used:?}");
        let expected = Analyzed {
            swq: Some(0x10),
            hwq: Some(0x20),
            id: Some(1),
            head: Head::Dispatch,
            pointers: Some([62022, 62024]),
            grid: Some([2560, 1, 1]),
            workgroup: Some([128, 1, 1]),
            kernel_object: Some(0x7f00),
            ..Analyzed::default()
        };
        assert_eq!(analysis.queues, [expected]);
        assert_eq!(expected.not_retired(), Some(2));
        let (_, used) = read(&PACKET[1..]);
        assert!(used.iter().all(|used| !used), "text of a program that has a word of it");
        let (analysis, used) = read(&[PACKET[0], "loss 0.1", PACKET[6], PACKET[2]]);
        assert_eq!(used, [true, false, true, false]);
        assert_eq!((analysis.queues[0].head, analysis.queues[0].grid), (Head::Unknown, None));
    }

    #[test]
    fn queues_of_one_line() {
        let head = "VGPU(0x55) Queue(0x10)";
        let line = |tail: &str| format!("{head}{tail}");
        let lines = [
            "VGPU(0x55) hang analysis:".to_owned(),
            line(" rptr=17, wptr=18. A barrier packet in the queue!"),
            line(" rptr=17, wptr=19. Vendor packet (amd_format=1)"),
            line(" is idle"),
            line(". Couldn't find the hang AQL packet!"),
            line(". Couldn't find kernel"),
            "VGPU(0x55) Queue(0x".to_owned(),
            "VGPUs: 3".to_owned(),
        ];
        let (analysis, used) = read(&lines.each_ref().map(String::as_str));
        assert_eq!(used, [true, true, true, true, true, true, false, false]);
        let heads: Vec<_> = analysis.queues.iter().map(|queue| (queue.head, queue.not_retired())).collect();
        assert_eq!(
            heads,
            [(Head::Barrier, Some(1)), (Head::Vendor, Some(2)), (Head::Idle, Some(0)), (Head::Unknown, None)]
        );
    }

    #[test]
    fn what_there_is_no_room_for_is_counted() {
        let line = "VGPU(0x55) Queue(0x10) is idle";
        let (analysis, _) = read(&vec![line; ANALYZED + 3]);
        assert_eq!((analysis.queues.len(), analysis.left_out), (ANALYZED, 3));
    }
}
