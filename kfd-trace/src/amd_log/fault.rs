//! Faults that GPUs reported, and queues that an error stopped, in the words of clr and of ROCr.
//!
//! clr's have its prefix. ROCr's are written to standard error, in the midst of the log and behind other text
//! (runtime.cpp: `VMFaultHandler`, `HwExceptionHandler`; queue.cpp: `DefaultErrorHandler`).

use super::scan::LineScan;
use memchr::memmem::Finder;
use std::sync::LazyLock;

/// What each report of ROCr that names a GPU has, and what the others have.
static NODE: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(" node-"));
static QUEUE: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("Queue "));

/// Which line reported it; both runtimes may report the same fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// clr, from 2026 on: with the kernel.
    MemoryFault,
    /// ROCr: an address that the GPU could not access.
    MemoryAccess,
    /// ROCr: a hang, or an error of memory.
    HwException,
    /// ROCr: memory was unmapped while the GPU used it.
    MemoryCritical,
    /// clr or ROCr: what stopped a queue.
    QueueError,
    /// ROCr: a queue without a handler of errors was stopped.
    QueueInactivated,
}

impl FaultKind {
    /// Name in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            FaultKind::MemoryFault => "memory_fault",
            FaultKind::MemoryAccess => "memory_access_fault",
            FaultKind::HwException => "hw_exception",
            FaultKind::MemoryCritical => "memory_critical_error",
            FaultKind::QueueError => "queue_error",
            FaultKind::QueueInactivated => "queue_inactivated",
        }
    }

    /// The runtime that writes it; `None`: both do.
    #[must_use]
    pub fn reported_by(self) -> Option<&'static str> {
        match self {
            FaultKind::MemoryFault => Some("clr"),
            FaultKind::QueueError => None,
            _ => Some("rocr"),
        }
    }
}

/// One report of a fault, with texts as `T`; `None` where its line does not have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault<T> {
    pub kind: FaultKind,
    /// Index of HIP.
    pub gpu_index: Option<u64>,
    /// Node of KFD's topology.
    pub node: Option<u64>,
    pub address: Option<u64>,
    /// ROCr says that the address may not be the exact one.
    pub inexact: bool,
    /// SWq.
    pub queue: Option<u64>,
    pub kernel: Option<T>,
    pub reason: Option<T>,
}

impl<T> Fault<T> {
    fn of(kind: FaultKind) -> Self {
        Fault {
            kind,
            gpu_index: None,
            node: None,
            address: None,
            inexact: false,
            queue: None,
            kernel: None,
            reason: None,
        }
    }

    pub(super) fn map<U>(self, text: impl Fn(T) -> U) -> Fault<U> {
        let Fault { kind, gpu_index, node, address, inexact, queue, kernel, reason } = self;
        let (kernel, reason) = (kernel.map(&text), reason.map(&text));
        Fault { kind, gpu_index, node, address, inexact, queue, kernel, reason }
    }
}

/// Parses `Memory Fault Error [host: %s, GPU index: %d, faulting addr: 0x%lx, kernel: %s]`; `host` may be missing.
pub(super) fn of_clr(message: &[u8]) -> Option<Fault<&[u8]>> {
    let mut scan = LineScan(message);
    scan.tag("Memory Fault Error [")?;
    let mut fault = Fault { gpu_index: scan.field("GPU index: "), ..Fault::of(FaultKind::MemoryFault) };
    if scan.until("faulting addr: ").is_some() {
        fault.address = scan.hex();
    }
    if scan.until("kernel: ").is_some() {
        let end = memchr::memrchr(b']', scan.0).unwrap_or(scan.0.len());
        fault.kernel = text(&scan.0[..end]);
    }
    Some(fault)
}

/// Parses a line without a prefix; the words may be behind others.
pub(super) fn without_prefix(line: &[u8]) -> Option<Fault<&[u8]>> {
    of_node(line).or_else(|| of_queue(line))
}

fn of_node(line: &[u8]) -> Option<Fault<&[u8]>> {
    const BEGINS: [(&str, FaultKind); 3] = [
        ("Memory access fault by GPU", FaultKind::MemoryAccess),
        ("HW Exception by GPU", FaultKind::HwException),
        ("Memory critical error by agent", FaultKind::MemoryCritical),
    ];
    let at = NODE.find(line)?;
    let (before, mut scan) = (&line[..at], LineScan(&line[at + " node-".len()..]));
    let (_, kind) = BEGINS.into_iter().find(|(begin, _)| before.ends_with(begin.as_bytes()))?;
    let mut fault = Fault { node: Some(scan.number()?), ..Fault::of(kind) };
    let mut address = scan;
    if address.until("on address ").is_some() {
        fault.address = address.hex();
        fault.inexact = address.0.starts_with(b"(may not be exact");
    }
    if scan.until("eason: ").or_else(|| scan.until("eason :")).is_some() {
        let reason = scan.0.trim_ascii_end();
        fault.reason = text(reason.strip_suffix(b".").unwrap_or(reason));
    }
    Some(fault)
}

fn of_queue(line: &[u8]) -> Option<Fault<&[u8]>> {
    let at = QUEUE.find(line)?;
    let mut scan = LineScan(&line[at + "Queue ".len()..]);
    if scan.tag("error - ").is_some() {
        let length = scan.0.iter().take_while(|byte| !byte.is_ascii_whitespace()).count();
        let reason = text(&scan.0[..length])?;
        return reason
            .starts_with(b"HSA_STATUS_")
            .then_some(Fault { reason: Some(reason), ..Fault::of(FaultKind::QueueError) });
    }
    scan.tag("at ")?;
    let queue = scan.hex()?;
    scan.tag(" inactivated due to async error")?;
    Some(Fault { queue: Some(queue), ..Fault::of(FaultKind::QueueInactivated) })
}

fn text(bytes: &[u8]) -> Option<&[u8]> {
    let bytes = bytes.trim_ascii();
    (!bytes.is_empty()).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_of_clr_have_a_kernel() {
        let of = |text: &'static str| {
            of_clr(text.as_bytes()).map(|fault| (fault.gpu_index, fault.address, fault.kernel))
        };
        assert_eq!(
            of(
                "Memory Fault Error [host: a, GPU index: 2, faulting addr: 0x7f00, kernel: f<int[2]>(int, int)]"
            ),
            Some((Some(2), Some(0x7f00), Some(b"f<int[2]>(int, int)".as_slice())))
        );
        assert_eq!(
            of("Memory Fault Error [GPU index: 2, faulting addr: 0x7f00, kernel: ]"),
            Some((Some(2), Some(0x7f00), None))
        );
        assert_eq!(of("Memory Fault Error ["), Some((None, None, None)), "cut: there was a fault");
        assert_eq!(of("Memory Fault"), None);
    }

    #[test]
    fn faults_of_rocr_may_be_behind_other_text() {
        let of = |text: &'static str| without_prefix(text.as_bytes());
        let access: Fault<&[u8]> = Fault {
            node: Some(3),
            address: Some(0x7f00),
            reason: Some(b"Page not present or supervisor privilege"),
            ..Fault::of(FaultKind::MemoryAccess)
        };
        assert_eq!(
            of(
                "4%|x| 2/48Memory access fault by GPU node-3 (Agent handle: 0x5) on address 0x7f00. Reason: Page not present or supervisor privilege."
            ),
            Some(access)
        );
        assert_eq!(
            of(
                "Memory access fault by GPU node-3 on address 0x7f00(may not be exact address). Reason: Unknown."
            ),
            Some(Fault { inexact: true, reason: Some(b"Unknown".as_slice()), ..access })
        );
        let hang: Fault<&[u8]> =
            Fault { node: Some(4), reason: Some(b"GPU Hang"), ..Fault::of(FaultKind::HwException) };
        assert_eq!(of("HW Exception by GPU node-4 (Agent handle: 0x5) reason :GPU Hang"), Some(hang));
        let critical: Fault<&[u8]> = Fault {
            node: Some(0),
            address: Some(0x10),
            reason: Some(b"Memory in use"),
            ..Fault::of(FaultKind::MemoryCritical)
        };
        assert_eq!(
            of(
                "Memory critical error by agent node-0 (Agent handle: 0x5) on address 0x10. Reason: Memory in use. "
            ),
            Some(critical)
        );
        let error: Fault<&[u8]> =
            Fault { reason: Some(b"HSA_STATUS_ERROR_MEMORY_FAULT"), ..Fault::of(FaultKind::QueueError) };
        assert_eq!(of("Warning: Queue error - HSA_STATUS_ERROR_MEMORY_FAULT"), Some(error));
        let inactivated: Fault<&[u8]> = Fault { queue: Some(0x10), ..Fault::of(FaultKind::QueueInactivated) };
        assert_eq!(of("Queue at 0x10 inactivated due to async error:"), Some(inactivated));
        for other in [
            "",
            "on node-7: ready",
            "Memory access fault by GPU node-",
            "Queue error - none",
            "Queue at noon",
        ] {
            assert_eq!(of(other), None, "{other}");
        }
    }
}
