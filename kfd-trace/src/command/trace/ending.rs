//! The end of the stream: its summary, and the end of its recording.

use super::Run;
use crate::output::summary::{Summary, SummaryInput};
use crate::runtime::clock;
use crate::runtime::stderr::say;
use std::io;

impl Run<'_> {
    /// Prints the summary, and keeps it in the recording.
    pub(super) fn end(&mut self) -> io::Result<()> {
        let whose = &self.options.whose;
        if !whose.is_all() {
            say(format_args!("{} chooses the lines; the summary is of all processes", whose.requested()));
        }
        let summary = match self.summary() {
            Ok(summary) => summary,
            Err(error) => {
                let cut = self.recording.take().map(|recording| recording.cut(&mut self.tracer));
                return cut.unwrap_or(Ok(())).and(Err(error));
            }
        };
        let json = self.options.json;
        let printed = self.out.always(|out| if json { summary.json(out) } else { summary.text(out) });
        let recorded = self.recording.take().map(|recording| recording.end(&mut self.tracer, &summary));
        recorded.unwrap_or(Ok(())).and(printed)
    }

    fn summary(&self) -> io::Result<Summary> {
        let tables = self.tracer.tables().map_err(io::Error::other)?;
        Ok(Summary::new(&SummaryInput {
            snapshot: &self.tracer.state.snapshot(),
            topology: &self.tracer.topology,
            tables: &tables,
            retired: &self.tracer.retired,
            undecoded: &self.tracer.undecoded,
            dropped: self.out.dropped(),
            named: self.tracer.named(),
            sampled: !self.options.sample.is_zero(),
            duration_ns: clock::mono_ns().saturating_sub(self.tracer.started_ns),
        }))
    }
}
