//! The stream: one line per event.
//!
//! Columns: time, PID of the owner, comm, event, detail. Colours only if the caller detected a terminal.

use super::context::Context;
use crate::model::event::{Body, Event, Origin, Outcome, ProcessSeen, QueueCreate};
use crate::model::ioctl;
use crate::output::activity;
use crate::output::belongs::BelongsFields;
use crate::state::{Process, Queue};
use crate::text::clock::{latency, span};
use crate::text::{errno, escape};
use anstyle::{AnsiColor, Style};
use bytesize::ByteSize;
use std::fmt::Write as _;
use std::io::{self, Write};

/// Widths of the columns before the detail.
const TIME: usize = 15;
const PID: usize = 7;
const COMM: usize = 15;
const EVENT: usize = 14;

/// Writes lines; its only state is the colour setting.
#[derive(Clone, Copy, Debug)]
pub struct Stream {
    pub colour: bool,
}

impl Stream {
    /// Writes the column names.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn heading(self, out: &mut impl Write) -> io::Result<()> {
        let line = format!("{:TIME$} {:>PID$} {:COMM$} {:EVENT$} DETAIL", "TIME", "PID", "COMM", "EVENT");
        self.styled(out, Style::new().bold(), &line)?;
        writeln!(out)
    }

    /// Writes one event.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn event(self, out: &mut impl Write, event: &Event, context: &Context<'_>) -> io::Result<()> {
        let pid = event.tgid.map_or_else(|| "?".to_owned(), |pid| pid.to_string());
        let comm = context.comm(event).map_or_else(|| "?".to_owned(), escape::terminal);
        write!(out, "{:TIME$} {pid:>PID$} {comm:COMM$} ", context.clock.time_of_day(event.mono_ns))?;
        self.styled(out, style(&event.body), &format!("{:EVENT$}", label(&event.body)))?;
        writeln!(out, " {}", detail(event, context))
    }

    fn styled(self, out: &mut impl Write, style: Style, text: &str) -> io::Result<()> {
        if self.colour { write!(out, "{style}{text}{style:#}") } else { write!(out, "{text}") }
    }
}

fn label(body: &Body) -> &'static str {
    match body {
        Body::ProcessSeen(_) => "PROCESS",
        Body::Open { .. } => "OPEN",
        Body::Close => "CLOSE",
        Body::MmRelease => "PROCESS_EXIT",
        Body::ProcessRelease => "PROCESS_GONE",
        Body::QueueCreate(_) => "CREATE_QUEUE",
        Body::QueueDestroy { .. } => "DESTROY_QUEUE",
        Body::QueueDestroyFailed { .. } => "DESTROY_FAILED",
        Body::Ioctl(_) => "IOC",
        Body::QueueUpdate(_) => "UPDATE_QUEUE",
        Body::MqdWrite { .. } => "MQD",
        Body::Evict(_) => "EVICT",
        Body::Restore(_) => "RESTORE",
        Body::VmFault(_) => "VM_FAULT",
        Body::GpuResetBegin { .. } | Body::GpuResetEnd { .. } => "GPU_RESET",
        Body::HwsHang { .. } => "HWS_HANG",
        Body::UserQueue(_) => "USER_QUEUE",
    }
}

fn style(body: &Body) -> Style {
    let failed = match body {
        Body::Open { errno, .. } => *errno != 0,
        Body::Ioctl(call) => call.outcome.errno().is_some_and(|errno| errno != 0),
        Body::QueueDestroyFailed { .. }
        | Body::VmFault(_)
        | Body::GpuResetBegin { .. }
        | Body::HwsHang { .. } => true,
        Body::QueueUpdate(update) => update.errno != 0,
        Body::UserQueue(call) => call.errno != 0,
        _ => false,
    };
    let colour = match body {
        _ if failed => AnsiColor::Red,
        Body::QueueCreate(_) => AnsiColor::Green,
        Body::QueueDestroy { .. } | Body::Evict(_) => AnsiColor::Yellow,
        Body::Ioctl(_) | Body::MqdWrite { .. } => return Style::new().dimmed(),
        _ => AnsiColor::Cyan,
    };
    colour.on_default()
}

fn detail(event: &Event, context: &Context<'_>) -> String {
    match &event.body {
        Body::ProcessSeen(seen) => process_seen(seen, context.process),
        Body::Open { errno: 0, .. } => "/dev/kfd = 0".to_owned(),
        Body::Open { errno, .. } => format!("/dev/kfd = -{}", errno::name(*errno)),
        Body::Close => "/dev/kfd, last reference".to_owned(),
        Body::MmRelease => "address space released".to_owned(),
        Body::ProcessRelease => released(context),
        Body::QueueCreate(queue) => queue_create(queue, context),
        Body::QueueDestroy { queue_id, gpu_id, .. } => {
            let known = context.ended(*queue_id);
            format!("{}{}", ended(*queue_id, *gpu_id, known, context), by(event))
        }
        Body::QueueDestroyFailed { queue_id, gpu_id, errno } => {
            format!("{} = -{}, the queue lives on", queue(*queue_id, *gpu_id, context), errno::name(*errno))
        }
        Body::Ioctl(_) => ioctl_call(event, context),
        other => {
            let mut text = life::detail(other, context).unwrap_or_default();
            // Evictions run in kworkers, or in the task that frees memory.
            if event.tgid.is_some() {
                text += &by(event);
            }
            text
        }
    }
}

fn process_seen(seen: &ProcessSeen, process: Option<&Process>) -> String {
    let mut text = String::from(if seen.standing { "standing since before the trace" } else { "new" });
    if let Some(context_id) = seen.context_id {
        let _ = write!(text, " context={context_id}");
    }
    if let Some(uid) = seen.uid {
        let _ = write!(text, " uid={uid}");
    }
    if let Some(inner) = seen.ns_tgid {
        let _ = write!(text, " pid_inside={inner}");
    }
    if let Some(cgroup) = process.and_then(|row| row.details.cgroup.as_ref()).or(seen.cgroup_leaf.as_ref()) {
        let _ = write!(text, " cgroup={}", escape::terminal(cgroup));
    }
    let owner = process.and_then(|row| BelongsFields::from(&row.details).owner());
    if let Some(owner) = owner {
        let _ = write!(text, " owner={owner}");
    }
    if let Some(cmdline) = process.and_then(|row| row.details.cmdline.as_ref()) {
        let _ = write!(text, " cmdline={}", escape::terminal(cmdline));
    }
    text
}

fn released(context: &Context<'_>) -> String {
    let mut text = "released by the driver".to_owned();
    for queue in context.ended {
        let _ = write!(text, "; queue {} was left", queue.queue_id);
    }
    text
}

/// GPU name; a GPU that is not in the topology is shown by KFD's own number.
fn gpu(gpu_id: Option<u32>, context: &Context<'_>) -> String {
    let Some(id) = gpu_id else { return "gpu ?".to_owned() };
    context.topology.label(id).unwrap_or_else(|| format!("gpu_id={id}"))
}

fn queue(queue_id: u32, gpu_id: Option<u32>, context: &Context<'_>) -> String {
    format!("{} id={queue_id}", gpu(gpu_id, context))
}

fn queue_create(queue: &QueueCreate, context: &Context<'_>) -> String {
    let or_unknown = |value: Option<String>| value.unwrap_or_else(|| "?".to_owned());
    let mut text = gpu(queue.gpu_id, context);
    let _ = write!(text, " id={}", or_unknown(queue.queue_id.map(|id| id.to_string())));
    let _ = write!(text, " type={}", queue.queue_type.map_or("?", |kind| kind.name()));
    let _ = write!(text, " ring={}", or_unknown(queue.ring_address.map(|at| format!("{at:#x}"))));
    if let Some(size) = queue.ring_size {
        let _ = write!(text, " {}", ByteSize(size).display().iec());
    }
    for (name, value) in [("wptr", queue.write_pointer_address), ("rptr", queue.read_pointer_address)] {
        if let Some(value) = value {
            let _ = write!(text, " {name}={value:#x}");
        }
    }
    for (name, value) in
        [("prio", queue.priority), ("percent", queue.percent), ("engine", queue.sdma_engine_id)]
    {
        if let Some(value) = value {
            let _ = write!(text, " {name}={value}");
        }
    }
    if queue.evicted == Some(true) {
        text.push_str(" evicted");
    }
    match queue.origin {
        Origin::Ioctl => {}
        Origin::Criu => text.push_str(" by CRIU"),
        Origin::Standing => text.push_str(" standing"),
        Origin::Other => text.push_str(" outside of an ioctl"),
    }
    text
}

fn ended(queue_id: u32, gpu_id: Option<u32>, known: Option<&Queue>, context: &Context<'_>) -> String {
    let Some(known) = known else { return format!("{} not known before", queue(queue_id, gpu_id, context)) };
    let mut text = queue(queue_id, known.facts.gpu_id.or(gpu_id), context);
    let _ = write!(text, " type={}", known.facts.queue_type.map_or("?", |kind| kind.name()));
    if let Some(end) = known.end {
        let _ = write!(text, " cause={}", end.cause.name());
        if let Some(age) = known.age_ns(end.at_ns) {
            let _ = write!(text, " lived={}", span(age));
        }
        if let Some(done) = activity::whole(&known.facts, &known.activity) {
            let _ = write!(text, " {done}");
        }
    }
    text
}

/// The thread that ran, if it is not the owner's.
fn by(event: &Event) -> String {
    if event.tgid == Some(event.task_tgid) { String::new() } else { format!(" by=tid {}", event.tid) }
}

/// Formats a call as strace does.
fn ioctl_call(event: &Event, context: &Context<'_>) -> String {
    let Body::Ioctl(call) = &event.body else { return String::new() };
    let args: Vec<_> = ioctl::decode_args(call.cmd, &call.args)
        .iter()
        .map(|arg| match arg.hex {
            true => format!("{}={:#x}", arg.name, arg.value),
            false => format!("{}={}", arg.name, arg.value),
        })
        .collect();
    let args = if call.args.is_empty() { "...".to_owned() } else { args.join(", ") };
    let mut text = format!("{}({args}) = ", ioctl::name(call.cmd));
    match call.outcome {
        Outcome::Returned { result, latency_ns } => {
            let errno = call.outcome.errno().unwrap_or(0);
            let result = if errno == 0 { result.to_string() } else { format!("-{}", errno::name(errno)) };
            let _ = write!(text, "{result} <{}>", latency(latency_ns));
        }
        Outcome::Refused { errno } => {
            let _ = write!(text, "-{} (refused before its handler)", errno::name(errno));
        }
        Outcome::NotMeasured => text.push_str("? (not measured)"),
        Outcome::NoReturnSeen => text.push_str("? (no return seen)"),
    }
    if let Some(mismatch) = context.mismatch {
        let _ = write!(text, " [{} bytes, kernel has {}]", mismatch.user_size, mismatch.kernel_size);
    }
    text.push_str(&by(event));
    text
}

mod life;
#[cfg(test)]
mod tests;
