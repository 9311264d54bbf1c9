//! What a tracer adds to a recording: its tape, and beside it the driver, the GPUs and the clocks, whenever these are not
//! as before.
//!
//! In: a tracer whose state has a tape. Out: items, in their order.

use super::engine::Tracer;
use crate::attribute::Topology;
use crate::kernel::boot_id;
use crate::model::verdict::Sight;
use crate::output::status;
use crate::recording::{Begin, Item, Machine, STEP_NS};
use crate::runtime::clock;
use crate::state::Process;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// What was written last.
#[derive(Debug, Default)]
pub struct Taping {
    gpus: Option<Topology>,
    clock: Option<(i64, i64)>,
    sight: Option<Sight>,
    /// The inner `None`: it could not be read.
    lost: Option<Option<BTreeMap<String, u64>>>,
    /// When losses were read last, and written.
    looked: Option<Instant>,
    wrote: Option<Instant>,
}

/// Interval at which losses are read from the kernel, with all that the programs' maps have.
const LOSSES: Duration = Duration::from_secs(5);

/// Then they are written, also where they are as before: until when a tracer that was killed saw what happened is known by
/// the last time that its recording has.
const ALIVE: Duration = Duration::from_secs(10);

impl Taping {
    /// The begin of a recording. `at_ns`: from when on it has what happens, CLOCK_MONOTONIC nanoseconds. `selected`: single processes are
    /// traced.
    #[must_use]
    pub fn begin(tracer: &Tracer, at_ns: u64, selected: bool) -> Item {
        let ago_ns = clock::mono_ns().saturating_sub(at_ns);
        Item::Begin(Begin {
            at_ns,
            unix_ns: clock::unix_ns().saturating_sub_unsigned(ago_ns),
            selected,
            sample_ns: tracer.samples.interval_ns,
            boot_id: boot_id(&tracer.roots.procfs),
            ..Begin::new(machine(), tracer.state.limits())
        })
    }

    /// The driver that is traced now.
    #[must_use]
    pub fn driver(tracer: &Tracer) -> Item {
        Item::Driver { named: tracer.named(), sizes: tracer.ioctl_sizes().clone() }
    }

    /// A load or an unload of the driver.
    ///
    /// # Errors
    /// Those of `put`, as of all below.
    pub fn loads<E>(
        &mut self,
        tracer: &mut Tracer,
        loaded: bool,
        at_ns: u64,
        put: &mut impl FnMut(Item) -> Result<(), E>,
    ) -> Result<(), E> {
        self.changes(tracer, put)?;
        self.clock(tracer, put)?;
        put(Item::Loads { loaded, at_ns, loads: tracer.driver_loads })
    }

    /// What has changed since the last call. To be called before the clock or the GPUs of the tracer change again.
    pub fn changes<E>(
        &mut self,
        tracer: &mut Tracer,
        put: &mut impl FnMut(Item) -> Result<(), E>,
    ) -> Result<(), E> {
        if self.gpus.as_ref() != Some(&tracer.topology) {
            put(Item::Gpus(tracer.topology.clone()))?;
            self.gpus = Some(tracer.topology.clone());
        }
        let inputs = tracer.state.take_tape();
        if !inputs.is_empty() || self.clock.is_none() {
            self.clock(tracer, put)?;
        }
        inputs.into_iter().try_for_each(|input| put(Item::Input(input)))
    }

    /// The whole begin of a recording that began earlier, with the state as it is now: all changes were taken. `at_ns`: as in
    /// [`Taping::begin`].
    pub fn going_on<E>(
        &mut self,
        tracer: &mut Tracer,
        at_ns: u64,
        put: &mut impl FnMut(Item) -> Result<(), E>,
    ) -> Result<(), E> {
        put(Self::begin(tracer, at_ns, false))?;
        put(Self::driver(tracer))?;
        let (image, rows): (_, Vec<Process>) = tracer.state.image();
        *self = Self::default();
        self.changes(tracer, put)?;
        put(Item::State(Box::new(image)))?;
        rows.into_iter().try_for_each(|row| put(Item::Row(Box::new(row))))?;
        self.look(tracer, put)?;
        put(Item::Existing)
    }

    /// What is seen and what was lost until now, where that is not as before.
    pub fn look<E>(&mut self, tracer: &Tracer, put: &mut impl FnMut(Item) -> Result<(), E>) -> Result<(), E> {
        let sight = status::sight(tracer.probes(), tracer.queues_by_ioctl());
        if self.sight.as_ref() != Some(&sight) {
            put(Item::Sight { at_ns: clock::mono_ns(), sight: sight.clone() })?;
            self.sight = Some(sight);
        }
        let lost = tracer.tables().ok().map(|tables| tables.missing(&tracer.undecoded));
        self.looked = Some(Instant::now());
        let is_due = self.wrote.is_none_or(|wrote| wrote.elapsed() >= ALIVE);
        if is_due || self.lost.as_ref() != Some(&lost) {
            self.wrote = Some(Instant::now());
            put(Item::Lost { at_ns: clock::mono_ns(), lost: lost.clone() })?;
            self.lost = Some(lost);
        }
        Ok(())
    }

    /// The same, where the last time is some seconds ago; nothing before the first time.
    pub fn look_again<E>(
        &mut self,
        tracer: &Tracer,
        put: &mut impl FnMut(Item) -> Result<(), E>,
    ) -> Result<(), E> {
        match self.looked {
            Some(looked) if looked.elapsed() >= LOSSES => self.look(tracer, put),
            _ => Ok(()),
        }
    }

    fn clock<E>(&mut self, tracer: &Tracer, put: &mut impl FnMut(Item) -> Result<(), E>) -> Result<(), E> {
        let wall_ns = i64::try_from(tracer.clock.mono_to_wall_ns).unwrap_or(0);
        let boot_ns = clock::boot_minus_mono_ns();
        let known = self.clock.map(|(_, known)| known);
        let boot_ns = known.filter(|known| known.abs_diff(boot_ns) < STEP_NS).unwrap_or(boot_ns);
        if self.clock != Some((wall_ns, boot_ns)) {
            self.clock = Some((wall_ns, boot_ns));
            put(Item::Clock { wall_ns, boot_ns })?;
        }
        Ok(())
    }
}

/// Of this process.
#[must_use]
pub fn machine() -> Machine {
    let name = rustix::system::uname();
    let text = |part: &std::ffi::CStr| part.to_string_lossy().into_owned();
    Machine { host: text(name.nodename()), kernel: text(name.release()), machine: text(name.machine()) }
}
