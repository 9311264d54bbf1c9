//! Keeps what the stream sees in a recording.

use crate::attribute::Topology;
use crate::model::verdict::Sight;
use crate::output::status;
use crate::output::summary::Summary;
use crate::recording::{Begin, Item, Machine, Recorder, STEP_NS};
use crate::runtime::clock;
use crate::tracer::engine::Tracer;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::time::{Duration, Instant};

/// Interval at which losses are read from the kernel, which takes some thousand system calls.
const LOSSES: Duration = Duration::from_secs(5);

/// A recording of a tracer.
#[derive(Debug)]
pub(super) struct Recording {
    recorder: Recorder,
    /// As they were written last.
    gpus: Option<Topology>,
    clock: Option<(i64, i64)>,
    sight: Option<Sight>,
    /// The inner `None`: it could not be read.
    lost: Option<Option<BTreeMap<String, u64>>>,
    /// When losses were read last.
    looked: Option<Instant>,
}

impl Recording {
    /// To be called before the tracer is attached.
    ///
    /// # Errors
    /// Those of the file.
    pub(super) fn begin(file: File, tracer: &mut Tracer, selected: bool) -> io::Result<Self> {
        let mut recorder = Recorder::new(file)?;
        tracer.state.start_tape();
        recorder.put(&Item::Begin(Begin {
            at_ns: clock::mono_ns(),
            unix_ns: clock::unix_ns(),
            selected,
            sample_ns: tracer.samples.interval_ns,
            ..Begin::new(machine(), tracer.state.limits())
        }))?;
        Ok(Recording { recorder, gpus: None, clock: None, sight: None, lost: None, looked: None })
    }

    /// The tracer was attached, and what it found is about to be reported.
    ///
    /// # Errors
    /// Those of the file, as of all below.
    pub(super) fn attached(&mut self, tracer: &mut Tracer) -> io::Result<()> {
        let (named, sizes) = (tracer.named(), tracer.ioctl_sizes().clone());
        self.recorder.put(&Item::Driver { named, sizes })?;
        self.save(tracer)?;
        self.look(tracer)?;
        self.recorder.put(&Item::Existing)
    }

    /// Writes what has changed since the last call. To be called before the clock or the GPUs of the tracer change
    /// again.
    pub(super) fn save(&mut self, tracer: &mut Tracer) -> io::Result<()> {
        if self.gpus.as_ref() != Some(&tracer.topology) {
            self.recorder.put(&Item::Gpus(tracer.topology.clone()))?;
            self.gpus = Some(tracer.topology.clone());
        }
        let inputs = tracer.state.take_tape();
        if !inputs.is_empty() || self.clock.is_none() {
            self.write_clock(tracer)?;
        }
        inputs.into_iter().try_for_each(|input| self.recorder.put(&Item::Input(input)))
    }

    fn write_clock(&mut self, tracer: &Tracer) -> io::Result<()> {
        let wall_ns = i64::try_from(tracer.clock.mono_to_wall_ns).unwrap_or(0);
        let boot_ns = clock::boot_minus_mono_ns();
        let known = self.clock.map(|(_, known)| known);
        let boot_ns = known.filter(|known| known.abs_diff(boot_ns) < STEP_NS).unwrap_or(boot_ns);
        if self.clock != Some((wall_ns, boot_ns)) {
            self.clock = Some((wall_ns, boot_ns));
            self.recorder.put(&Item::Clock { wall_ns, boot_ns })?;
        }
        Ok(())
    }

    /// The driver was loaded or unloaded.
    pub(super) fn loads(&mut self, tracer: &mut Tracer, loaded: bool, at_ns: u64) -> io::Result<()> {
        self.save(tracer)?;
        self.write_clock(tracer)?;
        self.recorder.put(&Item::Loads { loaded, at_ns, loads: tracer.driver_loads })?;
        self.look(tracer)
    }

    /// Writes what is seen and lost now, where it is not as before.
    fn look(&mut self, tracer: &Tracer) -> io::Result<()> {
        let sight = status::sight(tracer.probes(), tracer.queues_by_ioctl());
        if self.sight.as_ref() != Some(&sight) {
            self.recorder.put(&Item::Sight { at_ns: clock::mono_ns(), sight: sight.clone() })?;
            self.sight = Some(sight);
        }
        let lost = tracer.tables().ok().map(|tables| tables.missing(&tracer.undecoded));
        self.looked = Some(Instant::now());
        if self.lost.as_ref() != Some(&lost) {
            self.recorder.put(&Item::Lost { at_ns: clock::mono_ns(), lost: lost.clone() })?;
            self.lost = Some(lost);
        }
        Ok(())
    }

    /// Must be called at least once a second.
    pub(super) fn flush_old(&mut self, tracer: &Tracer) -> io::Result<()> {
        if self.looked.is_some_and(|looked| looked.elapsed() >= LOSSES) {
            self.look(tracer)?;
        }
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

fn machine() -> Machine {
    let name = rustix::system::uname();
    let text = |part: &std::ffi::CStr| part.to_string_lossy().into_owned();
    Machine { host: text(name.nodename()), kernel: text(name.release()), machine: text(name.machine()) }
}
