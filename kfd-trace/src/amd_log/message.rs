//! Parses the message after the prefix.

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
        /// Of clr's object; used again once the command has ended.
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
    /// A kernel's name.
    Kernel(&'a [u8]),
    QueuePool(QueuePool),
    Birth(Birth),
    LogStep {
        address: u64,
        step: LogStep,
        /// Streams that then hold the queue, as the line has it.
        references: Option<u64>,
    },
    /// A queue was aborted by an error; the address is an SWq or HWq.
    Abort {
        address: u64,
    },
    /// The ring had no room.
    QueueFull,
    /// Bytes. The engine is a bit mask, absent for copies that choose none.
    Copy {
        engine: Option<u64>,
        bytes: u64,
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

/// CommandName of the incomplete message.
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
                .or_else(|| cu_mask(scan))
                .or_else(|| ran(scan)),
            Some(b's') => selected(scan, "selected"),
            Some(b'H') => copy(scan),
            Some(b'h') => returned(scan),
            Some(b'N') => pool(scan, "Number"),
            Some(b'n') => pool(scan, "number"),
            Some(b'c') => born(scan, "created "),
            Some(b'a') => step(scan, "acquireQueue ", "refCount:", LogStep::Acquired),
            Some(b'r') => step(scan, "releaseQueue ", "refCount:", LogStep::Released),
            Some(b'd') => step(scan, "deleting ", "hardware queue ", LogStep::Deleted),
            Some(b'D') => step(scan, "Deleting ", "hardware queue ", LogStep::Deleted),
            Some(b'R') => full(scan),
            Some(b'G') => gfx(scan),
            Some(b'I') => agents(scan),
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
        return or_damaged(enqueued(scan), Damaged::Command);
    }
    let address = scan.hex()?;
    scan.tag(" complete")?;
    Some(Message::Complete { address, took_us: took(scan) })
}

fn enqueued(mut scan: LineScan<'_>) -> Option<Message<'_>> {
    let kind = scan.until(") enqueued: ")?;
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

/// Parses `ShaderName : %s` and, for graphs, `Graph ShaderName : %s, device id : %u`.
fn kernel(mut scan: LineScan<'_>) -> Option<Message<'_>> {
    scan.tag("ShaderName : ")?;
    named(scan.0)
}

fn named(name: &[u8]) -> Option<Message<'_>> {
    let name = name.trim_ascii();
    (!name.is_empty()).then_some(Message::Kernel(name))
}

fn gfx(mut scan: LineScan<'_>) -> Option<Message<'_>> {
    if scan.tag("Graph ShaderName : ").is_some() {
        let end = memmem::rfind(scan.0, b", device id :").unwrap_or(scan.0.len());
        return named(&scan.0[..end]);
    }
    scan.tag("Gfx Major/Minor/Stepping: ")?;
    let major = scan.number()?;
    scan.tag("/")?;
    let minor = scan.number()?;
    scan.tag("/")?;
    Some(Message::Gfx([major, minor, scan.number()?]))
}

/// Parses `Initalizing runtime stack, Enumerated GPU agents = %lu` (clr's spelling).
fn agents(mut scan: LineScan<'_>) -> Option<Message<'_>> {
    scan.tag("Init")?;
    scan.until("Enumerated GPU agents = ")?;
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

/// Parses `Setting CU mask 0x%s for hardware queue %p`.
fn cu_mask(mut scan: LineScan<'_>) -> Option<Message<'_>> {
    scan.tag("Setting CU mask ")?;
    let read = life::at(scan, " for hardware queue ");
    let message = |address| Message::LogStep { address, step: LogStep::CuMask, references: None };
    or_damaged(read.map(message), Damaged::Queue)
}

/// Parses `Callback: Queue %p Aborting with error : %s Code: 0x%x ...`
fn abort(mut scan: LineScan<'_>) -> Option<Message<'_>> {
    scan.tag("Callback: Queue ")?;
    let address = scan.hex()?;
    scan.spaces();
    scan.tag("Aborting with error")?;
    Some(Message::Abort { address })
}

/// clr corrected the spelling in 6.3.
fn full(mut scan: LineScan<'_>) -> Option<Message<'_>> {
    scan.tag("Runtime ")?;
    scan.tag("reached").or_else(|| scan.tag("reachead"))?;
    scan.tag(" the AQL queue limit")?;
    Some(Message::QueueFull)
}

/// Parses `HSA Async Copy ...`, `HSA Copy ...`.
fn copy(mut scan: LineScan<'_>) -> Option<Message<'_>> {
    scan.tag("HSA ")?;
    scan.tag("Async ");
    scan.tag("Copy ")?;
    let engine = || {
        let mut scan = scan;
        scan.until("copy_engine=")?;
        scan.hex()
    };
    let signal = packet::signal(scan);
    let read = scan.field("size=").map(|bytes| Message::Copy { engine: engine(), bytes, signal });
    or_damaged(read, Damaged::Copy)
}

/// Parses `Signal = (0x%lx), Translated start/end = %ld / %ld, ...`.
fn ran(mut scan: LineScan<'_>) -> Option<Message<'_>> {
    scan.tag("Signal = (")?;
    let signal = scan.hex()?;
    scan.tag("), Translated start/end = ")?;
    let begin_ns = i64::try_from(scan.number()?).ok()?;
    scan.tag(" / ")?;
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
