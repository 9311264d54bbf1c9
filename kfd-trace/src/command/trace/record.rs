//! Keeps what the stream sees in a recording.

use crate::output::summary::Summary;
use crate::recording::{Item, Recorder};
use crate::runtime::clock;
use crate::tracer::engine::Tracer;
use crate::tracer::taping::Taping;
use std::fs::File;
use std::io;

/// A recording of a tracer.
#[derive(Debug)]
pub(super) struct Recording {
    recorder: Recorder,
    taping: Taping,
}

impl Recording {
    /// To be called before the tracer is attached.
    ///
    /// # Errors
    /// Those of the file.
    pub(super) fn begin(file: File, tracer: &mut Tracer, selected: bool) -> io::Result<Self> {
        let mut recorder = Recorder::new(file)?;
        tracer.state.start_tape();
        recorder.put(&Taping::begin(tracer, clock::mono_ns(), selected))?;
        Ok(Recording { recorder, taping: Taping::default() })
    }

    /// The tracer was attached, and what it found is about to be reported.
    ///
    /// # Errors
    /// Those of the file, as of all below.
    pub(super) fn attached(&mut self, tracer: &mut Tracer) -> io::Result<()> {
        self.recorder.put(&Taping::driver(tracer))?;
        self.save(tracer)?;
        self.look(tracer)?;
        self.recorder.put(&Item::Existing)
    }

    /// Writes what has changed since the last call. To be called before the clock or the GPUs of the tracer change
    /// again.
    pub(super) fn save(&mut self, tracer: &mut Tracer) -> io::Result<()> {
        let Recording { recorder, taping } = self;
        taping.changes(tracer, &mut |item| recorder.put(&item))
    }

    /// The driver was loaded or unloaded.
    pub(super) fn loads(&mut self, tracer: &mut Tracer, loaded: bool, at_ns: u64) -> io::Result<()> {
        let Recording { recorder, taping } = self;
        taping.loads(tracer, loaded, at_ns, &mut |item| recorder.put(&item))?;
        self.look(tracer)
    }

    fn look(&mut self, tracer: &Tracer) -> io::Result<()> {
        let Recording { recorder, taping } = self;
        taping.look(tracer, &mut |item| recorder.put(&item))
    }

    /// Must be called at least once a second.
    pub(super) fn flush_old(&mut self, tracer: &Tracer) -> io::Result<()> {
        let Recording { recorder, taping } = self;
        taping.look_again(tracer, &mut |item| recorder.put(&item))?;
        self.recorder.flush_old()
    }

    /// Without a summary: to its readers it was cut.
    pub(super) fn cut(mut self, tracer: &mut Tracer) -> io::Result<()> {
        self.save(tracer)?;
        self.look(tracer)?;
        self.recorder.finish()
    }

    pub(super) fn end(mut self, tracer: &mut Tracer, summary: &Summary) -> io::Result<()> {
        self.save(tracer)?;
        self.look(tracer)?;
        let (mut text, mut json) = (Vec::new(), Vec::new());
        summary.text(&mut text)?;
        summary.json(&mut json)?;
        let [text, json] = [text, json].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        self.recorder.put(&Item::End { at_ns: clock::mono_ns(), text, json })?;
        self.recorder.finish()
    }
}
