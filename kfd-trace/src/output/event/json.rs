//! Events as JSON, one object per line. The format is stable: a change that breaks a reader raises
//! [`SCHEMA`].
//!
//! Every field of an event kind is always present; `null` is "not known" or "not measured", never 0.
//! Addresses, commands and [`EventLine::kfd_process`] are strings, because readers hold numbers as doubles.

use super::context::Context;
pub(crate) use super::driver::line as driver_line;
pub use super::driver::{Driver, SCHEMA, driver};
pub use super::gap::gap;
pub(crate) use super::gap::line as gap_line;
use super::{EventFields, fields};
use crate::model::event::Event;
use crate::output::names::Decimal;
use crate::text::escape;
use serde::Serialize;
use std::io::{self, Write};

/// One line.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct EventLine<'a> {
    schema: u32,
    /// Wall clock, RFC 3339 in UTC.
    ts: Option<String>,
    /// CLOCK_MONOTONIC, nanoseconds.
    mono_ns: u64,
    event: &'static str,
    /// tgid of the owner in the initial PID namespace.
    pid: Option<u32>,
    /// The thread that ran; a kworker's at teardown.
    tid: u32,
    /// tgid of the thread that ran.
    task_pid: u32,
    comm: Option<&'a str>,
    /// The tracer's number of the `kfd_process`, decimal: a PID can have several, and PIDs are reused.
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    kfd_process: Option<Decimal>,
    #[serde(flatten)]
    #[cfg_attr(test, schemars(skip))]
    body: EventFields<'a>,
}

/// Writes one event as one line.
///
/// # Errors
/// Those of `out`.
pub fn event(out: &mut impl Write, event: &Event, context: &Context<'_>) -> io::Result<()> {
    escape::json(&mut *out, &line(event, context))?;
    writeln!(out)
}

/// The fields of the event's kind alone.
pub(crate) fn own<'a>(event: &'a Event, context: &Context<'a>) -> impl Serialize + use<'a> {
    fields(event, context)
}

/// The object of one line.
pub(crate) fn line<'a>(event: &'a Event, context: &'a Context<'a>) -> impl Serialize {
    EventLine {
        schema: SCHEMA,
        ts: context.clock.rfc3339(event.mono_ns),
        mono_ns: event.mono_ns,
        event: event.body.kind().name(),
        pid: event.tgid,
        tid: event.tid,
        task_pid: event.task_tgid,
        comm: context.comm(event),
        kfd_process: event
            .process
            .or_else(|| context.process.and_then(crate::state::Process::id))
            .map(|id| Decimal(id.0)),
        body: fields(event, context),
    }
}
