//! The stream: one line per event.
//!
//! Columns: time, PID of the owner, comm, event, detail. Colours only if the caller detected a terminal.

use super::context::Context;
use super::{detail, gap};
use crate::model::event::{Body, Event};
use crate::state::Gap;
use crate::text::clock::Clock;
use crate::text::escape;
use anstyle::{AnsiColor, Style};
use kfd_trace_common::kind::Severity;
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
        self.styled(out, style(&event.body), &format!("{:EVENT$}", event.body.kind().label()))?;
        writeln!(out, " {}", detail(event, context))
    }

    /// Writes that something is missing before this.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn gap(self, out: &mut impl Write, mono_ns: u64, clock: &Clock, gap: Gap) -> io::Result<()> {
        write!(out, "{:TIME$} ", clock.time_of_day(mono_ns))?;
        self.styled(out, AnsiColor::Red.on_default(), &gap::text(gap))?;
        writeln!(out)
    }

    fn styled(self, out: &mut impl Write, style: Style, text: &str) -> io::Result<()> {
        if self.colour { write!(out, "{style}{text}{style:#}") } else { write!(out, "{text}") }
    }
}

/// A failure is red, whatever its kind.
fn style(body: &Body) -> Style {
    let colour = match body.kind().severity() {
        _ if body.errno().is_some() => AnsiColor::Red,
        Severity::Failure => AnsiColor::Red,
        Severity::Created => AnsiColor::Green,
        Severity::Ended | Severity::Stopped => AnsiColor::Yellow,
        Severity::Info => AnsiColor::Cyan,
        Severity::Requested | Severity::Detail => return Style::new().dimmed(),
    };
    colour.on_default()
}
