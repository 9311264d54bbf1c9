//! Parses the message after the prefix.

use super::fault::{self, Fault};
use super::life::{self, Birth, LogStep, QueuePool};
use super::packet::{self, Packet};
use super::scan::LineScan;
use memchr::memmem;

/// One message. `Other`: not needed by the report. `Damaged`: needed by the report, but incomplete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    Packet(Packet),
    /// A command was queued.
    Command {
        kind: &'a [u8],
        /// Address of clr's object; used again once the command has ended.
        address: u64,
        host_queue: Option<u64>,
    },
    /// A command has ended. With profiling: microseconds of wall clock, CPU and GPU.
    Complete {
        address: u64,
        took_us: Option<[i64; 3]>,
    },
    /// The GPU's times of what had this completion signal, nanoseconds of the clock that ROCr translates them to.
    Ran {
        signal: u64,
        begin_ns: i64,
        end_ns: i64,
    },
    /// A kernel's name, and whether a graph launches it.
    Kernel {
        name: &'a [u8],
        in_graph: bool,
    },
    QueuePool(QueuePool),
    Birth(Birth),
    LogStep {
        address: u64,
        step: LogStep,
        /// Streams that then hold the queue, as the line has it.
        references: Option<u64>,
    },
    /// A queue was aborted by an error.
    Abort(Abort<'a>),
    /// A GPU reported a fault.
    Fault(Fault<&'a [u8]>),
    /// The ring had no room.
    QueueFull,
    /// Bytes, absent for rectangles. The engine is a bit mask, absent for copies that choose none.
    Copy {
        engine: Option<u64>,
        bytes: Option<u64>,
        signal: Option<u64>,
    },
    /// GPUs found by the runtime.
    Agents(u64),
    Gfx([u64; 3]),
    /// An API call returned this error (`hipSuccess` is not an error).
    Returned(&'a [u8]),
    Other,
    Damaged(Damaged),
}

/// What aborted a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abort<'a> {
    /// An SWq or HWq; up to 5.2 the line has none.
    pub address: Option<u64>,
    /// `HSA_STATUS_ERROR_...`.
    pub error: &'a [u8],
    /// `hsa_status_t`.
    pub code: Option<u64>,
}

/// Kind of the incomplete message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Damaged {
    Packet,
    Command,
    Queue,
    Copy,
}

impl Damaged {
    pub const ALL: [Damaged; 4] = [Damaged::Packet, Damaged::Command, Damaged::Queue, Damaged::Copy];

    /// Name in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Damaged::Packet => "packet",
            Damaged::Command => "command",
            Damaged::Queue => "queue",
            Damaged::Copy => "copy",
        }
    }
}

impl<'a> Message<'a> {
    /// Parses a message; accepts any bytes.
    #[must_use]
    pub fn parse(text: &'a [u8]) -> Message<'a> {
        let scan = LineScan(text);
        let read = match text.first() {
            Some(b'S' | b'H') if text.starts_with(b"SWq=") || text.starts_with(b"HWq=") => {
                return Packet::parse(text).map_or(Message::Damaged(Damaged::Packet), Message::Packet);
            }
            Some(b'C') => command(scan).or_else(|| born(scan, "Created ")).or_else(|| abort(scan)),
            Some(b'S') => kernel(scan)
                .or_else(|| selected(scan, "Selected"))
                .or_else(|| cu_mask(scan, "Setting"))
                .or_else(|| ran(scan)),
            Some(b's') => selected(scan, "selected").or_else(|| cu_mask(scan, "setting")),
            Some(b'M') => fault::of_clr(text).map(Message::Fault),
            Some(b'H') => copy(scan),
            Some(b'h') => returned(scan),
            Some(b'N') => pool(scan, "Number"),
            Some(b'n') => pool(scan, "number"),
            Some(b'c') => born(scan, "created "),
            Some(b'a') => step(scan, "acquireQueue ", "refCount:", LogStep::Acquired),
            Some(b'r') => step(scan, "releaseQueue ", "refCount:", LogStep::Released),
            Some(b'd') => deleted(scan, "deleting "),
            Some(b'D') => deleted(scan, "Deleting ").or_else(|| abort(scan)),
            Some(b'R') => full(scan),
            Some(b'G') => graph(scan).or_else(|| gfx(scan)),
            Some(b'I' | b'E') => agents(scan),
            Some(b'!') => kernel_of_pal(scan),
            _ => None,
        };
        read.unwrap_or(Message::Other)
    }
}

/// The message, or `Damaged` if it is incomplete.
fn or_damaged<'a>(read: Option<Message<'a>>, what: Damaged) -> Option<Message<'a>> {
    Some(read.unwrap_or(Message::Damaged(what)))
}

/// Parses `Command (%s) enqueued: %p[ to queue: %p]`, `Command %p complete[ (Wall: %ld, CPU: %ld, GPU: %ld
/// us)]`.
fn command(mut scan: LineScan<'_>) -> Option<Message<'_>> {
    scan.tag("Command ")?;
    if scan.tag("(").is_some() {
        return enqueued(scan);
    }
    let address = scan.hex()?;
    scan.tag(" complete")?;
    Some(Message::Complete { address, took_us: took(scan) })
}

/// A line that is cut before its verb may be one of these, too. Where commands are not dispatched directly (OpenCL, Windows,
/// AMD_DIRECT_DISPATCH=0) further lines follow a command from thread to thread (clr, commandqueue.cpp).
fn enqueued(mut scan: LineScan<'_>) -> Option<Message<'_>> {
    let Some(kind) = scan.until(") ") else { return Some(Message::Damaged(Damaged::Command)) };
    let verbs = ["enqueued: ", "processing: ", "submitted: ", "0x"];
    let Some(verb) = verbs.into_iter().find(|verb| scan.0.starts_with(verb.as_bytes())) else {
        let is_cut = verbs.iter().any(|verb| verb.as_bytes().starts_with(scan.0));
        return is_cut.then_some(Message::Damaged(Damaged::Command));
    };
    if verb != "enqueued: " {
        return None;
    }
    scan.tag(verb)?;
    or_damaged(queued(kind, scan), Damaged::Command)
}

fn queued<'a>(kind: &'a [u8], mut scan: LineScan<'_>) -> Option<Message<'a>> {
    let address = scan.hex()?;
    let host_queue = if scan.tag(" to queue: ").is_some() { Some(scan.hex()?) } else { None };
    scan.ends().then_some(Message::Command { kind, address, host_queue })
}

fn took(mut scan: LineScan<'_>) -> Option<[i64; 3]> {
    let mut of = [0; 3];
    for (value, name) in of.iter_mut().zip([" (Wall: ", ", CPU: ", ", GPU: "]) {
        scan.tag(name)?;
        let negative = scan.tag("-").is_some();
        let number = i64::try_from(scan.number()?).ok()?;
        *value = if negative { -number } else { number };
    }
    Some(of)
}

/// Parses `ShaderName : %s`.
fn kernel(mut scan: LineScan<'_>) -> Option<Message<'_>> {
    scan.tag("ShaderName : ")?;
    named(scan.0, false)
}

/// Parses `!\tkernel : %s`, which clr writes where it uses PAL (Windows).
fn kernel_of_pal(mut scan: LineScan<'_>) -> Option<Message<'_>> {
    scan.tag("!")?;
    scan.0 = scan.0.trim_ascii_start();
    scan.tag("kernel : ")?;
    named(scan.0, false)
}

fn named(name: &[u8], in_graph: bool) -> Option<Message<'_>> {
    let name = name.trim_ascii();
    (!name.is_empty()).then_some(Message::Kernel { name, in_graph })
}

/// Parses `Graph shader name : %s` (6.2 to 2025, later with the device) and `Graph ShaderName : %s, device id : %u` (2026).
/// That in brackets is no kernel but the label of a barrier between kernels, whose packet has a line of its own.
fn graph(mut scan: LineScan<'_>) -> Option<Message<'_>> {
    scan.tag("Graph ")?;
    scan.tag("ShaderName :").or_else(|| scan.tag("shader name :"))?;
    let end = memmem::rfind(scan.0, b", device id :").unwrap_or(scan.0.len());
    let name = scan.0[..end].trim_ascii();
    if name.starts_with(b"[Graph ") && name.ends_with(b" barrier]") {
        return None;
    }
    named(name, true)
}

fn gfx(mut scan: LineScan<'_>) -> Option<Message<'_>> {
    scan.tag("Gfx Major/Minor/Stepping: ")?;
    let major = scan.number()?;
    scan.tag("/")?;
    let minor = scan.number()?;
    scan.tag("/")?;
    Some(Message::Gfx([major, minor, scan.number()?]))
}

/// Parses `Enumerated GPU agents = %lu`, and from 6.3 on `Initalizing runtime stack, Enumerated GPU agents = %lu` (clr's
/// spelling).
fn agents(mut scan: LineScan<'_>) -> Option<Message<'_>> {
    const COUNT: &str = "Enumerated GPU agents = ";
    if !scan.0.starts_with(b"Init") && !scan.0.starts_with(COUNT.as_bytes()) {
        return None;
    }
    scan.until(COUNT)?;
    Some(Message::Agents(scan.number()?))
}

fn born<'a>(mut scan: LineScan<'a>, word: &str) -> Option<Message<'a>> {
    scan.tag(word)?;
    if !scan.0.starts_with(b"SWq=") && !scan.0.starts_with(b"hardware queue ") {
        return None;
    }
    or_damaged(life::birth(scan).map(Message::Birth), Damaged::Queue)
}

fn pool<'a>(mut scan: LineScan<'a>, word: &str) -> Option<Message<'a>> {
    scan.tag(word)?;
    scan.tag(" of allocated hardware queues")?;
    or_damaged(life::pool(scan).map(Message::QueuePool), Damaged::Queue)
}

fn selected<'a>(mut scan: LineScan<'a>, word: &str) -> Option<Message<'a>> {
    scan.tag(word)?;
    scan.tag(" queue")?;
    let message = |(address, references)| Message::LogStep { address, step: LogStep::Selected, references };
    or_damaged(life::selected(scan).map(message), Damaged::Queue)
}

fn step<'a>(mut scan: LineScan<'a>, begin: &str, before: &str, step: LogStep) -> Option<Message<'a>> {
    scan.tag(begin)?;
    let message = |(address, references)| Message::LogStep { address, step, references };
    or_damaged(life::held(scan, before).map(message), Damaged::Queue)
}

/// Parses `Deleting[ CG enabled] hardware queue %p ...`; the buffer of a queue's host calls is deleted with other words.
fn deleted<'a>(mut scan: LineScan<'a>, begin: &str) -> Option<Message<'a>> {
    scan.tag(begin)?;
    scan.tag("CG enabled ");
    let message = |address| Message::LogStep { address, step: LogStep::Deleted, references: None };
    const QUEUE: &str = "hardware queue ";
    if !scan.0.starts_with(QUEUE.as_bytes()) {
        return None;
    }
    or_damaged(life::at(scan, QUEUE).map(message), Damaged::Queue)
}

/// Parses `Setting CU mask 0x%s for hardware queue %p`; 5.6 writes it small.
fn cu_mask<'a>(mut scan: LineScan<'a>, word: &str) -> Option<Message<'a>> {
    scan.tag(word)?;
    scan.tag(" CU mask ")?;
    let read = life::at(scan, " for hardware queue ");
    let message = |address| Message::LogStep { address, step: LogStep::CuMask, references: None };
    or_damaged(read.map(message), Damaged::Queue)
}

/// Parses the lines of clr's `callbackQueue`: `Callback: Queue %p Aborting with error : %s Code: 0x%x ...` for want of
/// memory, `Callback: Queue %p aborting with error : %s code: 0x%x` for all other errors, and up to 5.2
/// `Device::callbackQueue aborting with error : %s code: 0x%x`.
fn abort(mut scan: LineScan<'_>) -> Option<Message<'_>> {
    let address = if scan.tag("Callback: Queue ").is_some() {
        Some(scan.hex()?)
    } else {
        scan.tag("Device::callbackQueue")?;
        None
    };
    scan.spaces();
    scan.tag("Aborting with error").or_else(|| scan.tag("aborting with error"))?;
    scan.spaces();
    scan.tag(":");
    scan.spaces();
    let length = scan.0.iter().take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'_').count();
    let error = &scan.0[..length];
    let code = ["code: 0x", "Code: 0x"].iter().find_map(|name| {
        let at = memmem::rfind(scan.0, name.as_bytes())?;
        LineScan(&scan.0[at + name.len()..]).hex()
    });
    Some(Message::Abort(Abort { address, error, code }))
}

/// clr corrected the spelling in 6.3.
fn full(mut scan: LineScan<'_>) -> Option<Message<'_>> {
    scan.tag("Runtime ")?;
    scan.tag("reached").or_else(|| scan.tag("reachead"))?;
    scan.tag(" the AQL queue limit")?;
    Some(Message::QueueFull)
}

/// Parses `HSA Copy ...`, `HSA Async Copy ...` and `HSA Async Blit Copy ...`. Those of rectangles have no size. What has no
/// signal to wait for either announces a copy, which has a line of its own.
fn copy(mut scan: LineScan<'_>) -> Option<Message<'_>> {
    scan.tag("HSA ")?;
    scan.tag("Async ");
    scan.tag("Blit ");
    scan.tag("Copy ")?;
    let engine = || {
        let mut scan = scan;
        scan.until("copy_engine=")?;
        scan.hex()
    };
    let has = |text: &str| memmem::find(scan.0, text.as_bytes()).is_some();
    let bytes = scan.field(" size=");
    if bytes.is_some() || has("wait_event=0x") && !has(" size=") {
        return Some(Message::Copy { engine: engine(), bytes, signal: packet::signal(scan) });
    }
    let is_cut = ["copy_engine", "dst=", "on copy_engine", "Rect", "wait_event"].iter().any(|begin| {
        let length = begin.len().min(scan.0.len());
        scan.0[..length] == begin.as_bytes()[..length]
    });
    is_cut.then_some(Message::Damaged(Damaged::Copy))
}

/// Parses `Signal = (0x%lx), Translated start/end = %ld / %ld, ...`, and as 5.6 to 6.2 write it
/// `Signal = (0x%lx), start = %ld, end = %ld time taken= %ld ns`.
fn ran(mut scan: LineScan<'_>) -> Option<Message<'_>> {
    scan.tag("Signal = (")?;
    let signal = scan.hex()?;
    let between = if scan.tag("), Translated start/end = ").is_some() {
        " / "
    } else {
        scan.tag("), start = ")?;
        ", end = "
    };
    let begin_ns = i64::try_from(scan.number()?).ok()?;
    scan.tag(between)?;
    let end_ns = i64::try_from(scan.number()?).ok().filter(|_| scan.ends())?;
    Some(Message::Ran { signal, begin_ns, end_ns })
}

/// Parses `%s: Returned %s : ...` of an API call. Most lines with this beginning are the start of a call: `%s
/// ( ... )`.
fn returned(mut scan: LineScan<'_>) -> Option<Message<'_>> {
    let name = scan.0.iter().take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'_').count();
    scan.0 = &scan.0[name..];
    scan.tag(": Returned ")?;
    let error = scan.0.iter().take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'_').count();
    (error > 0).then(|| Message::Returned(&scan.0[..error]))
}

#[cfg(test)]
mod tests;
