//! Plays a recording. In: items, in their order. Out: the state at any time, and the lines that the stream had then.

use super::item::{Begin, Item, Part};
use crate::attribute::Topology;
use crate::model::event::Event;
use crate::model::ioctl::{self, Mismatch, Named};
use crate::model::verdict::Sight;
use crate::state::{Change, Gap, Input, State};
use crate::text::clock::Clock;
use crate::text::escape;
use std::collections::BTreeMap;

/// Bytes of the largest state that is played: with all rows that a tracer keeps, their ended queues, 100,000 live ones and
/// a million allocations it has some 400 MB.
const HEAVIEST: usize = 512 << 20;

/// A state is weighed, which takes a millisecond, when it may have become larger by this part of the largest one.
const UNWEIGHED_PART: usize = 32;

/// A line of the stream.
#[derive(Clone, Copy, Debug)]
pub enum Line<'a> {
    Event(&'a Event, &'a Change),
    /// The driver was loaded, or unloaded.
    Loads {
        loaded: bool,
        at_ns: u64,
        loads: u64,
    },
    /// What came before is not known to be all.
    Gap {
        at_ns: u64,
        gap: Gap,
    },
}

/// What is known at one time of a recording.
#[derive(Debug)]
pub struct Replay {
    pub state: State,
    pub topology: Topology,
    pub clock: Clock,
    /// CLOCK_BOOTTIME minus CLOCK_MONOTONIC, nanoseconds.
    pub mono_to_boot_ns: i64,
    pub named: Named,
    sizes: BTreeMap<u8, u32>,
    pub sight: Sight,
    /// Since the begin, by name, none of them 0; `None` where that was not recorded.
    pub lost: Option<BTreeMap<String, u64>>,
    /// The latest time of an item, CLOCK_MONOTONIC nanoseconds.
    pub now_ns: u64,
    /// Since when the state is known, CLOCK_MONOTONIC nanoseconds: the probes were attached and all that existed was found.
    known_since_ns: Option<u64>,
    /// Which part the played file is.
    part: Option<Part>,
    boot_id: Option<String>,
    /// [`HEAVIEST`]
    pub(super) heaviest: usize,
    /// Bytes by which the state may have become larger since it was weighed.
    unweighed: usize,
    /// It was dropped: a tracer's is never as large.
    too_large: bool,
    /// Reported when it is known what procfs had of their processes: that comes right after them.
    held: Vec<(Event, Change)>,
}

impl Replay {
    #[must_use]
    pub fn new(begin: &Begin, clock: Clock) -> Self {
        // The reader's own offset is that of another boot.
        let mono_to_wall_ns = i128::from(begin.unix_ns) - i128::from(begin.at_ns);
        Replay {
            state: State::new(begin.limits.clamped()),
            topology: Topology::default(),
            clock: Clock { mono_to_wall_ns, ..clock },
            mono_to_boot_ns: 0,
            named: Named::default(),
            sizes: BTreeMap::new(),
            sight: Sight {
                traces: true,
                unseen: vec!["what was seen was not recorded".to_owned()],
                ..Sight::default()
            },
            lost: None,
            now_ns: begin.at_ns,
            known_since_ns: None,
            part: begin.part,
            boot_id: begin.boot_id.clone(),
            heaviest: HEAVIEST,
            unweighed: 0,
            too_large: false,
            held: Vec::new(),
        }
    }

    /// Since when the state is what existed, CLOCK_MONOTONIC nanoseconds. `None`: before the probes were attached, and while
    /// the driver was not loaded, it is empty because nothing was traced.
    #[must_use]
    pub fn known_since(&self) -> Option<u64> {
        self.known_since_ns.filter(|_| self.sight.traces)
    }

    /// User space and the kernel of the recording disagree on the size of an ioctl's arguments.
    #[must_use]
    pub fn mismatch(&self, event: &Event) -> Option<Mismatch> {
        ioctl::mismatch_of(event, &self.sizes)
    }

    /// Takes the next item. `show` gets each line with the state after it.
    ///
    /// # Errors
    /// Those of `show`.
    pub fn take<E>(
        &mut self,
        item: Item,
        show: &mut impl FnMut(&Replay, Line<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        if self.too_large {
            return Ok(());
        }
        if self.overfills(&item) {
            self.refuse();
            return Ok(());
        }
        if !matches!(item, Item::Input(Input::Details { .. })) {
            self.settle(show)?;
        }
        self.now_ns = self.now_ns.max(time_of(&item).unwrap_or(0));
        match item {
            Item::Driver { named, sizes } => (self.named, self.sizes) = (named, sizes),
            Item::Gpus(topology) => self.topology = safe(topology),
            Item::Clock { wall_ns, boot_ns } => {
                self.clock.mono_to_wall_ns = i128::from(wall_ns);
                self.mono_to_boot_ns = boot_ns;
            }
            Item::Sight { sight, .. } => self.sight = sight,
            Item::Lost { lost, .. } => self.lost = lost,
            Item::Input(input) => {
                if matches!(input, Input::Anew | Input::Unloaded { .. }) {
                    self.known_since_ns = None;
                }
                self.state.play(input, &mut self.held);
            }
            Item::Existing => {
                self.known_since_ns.get_or_insert(self.now_ns);
                for (event, change) in self.state.existing() {
                    show(self, Line::Event(&event, &change))?;
                }
            }
            Item::Loads { loaded, at_ns, loads } => show(self, Line::Loads { loaded, at_ns, loads })?,
            Item::State(image) => {
                let state = State::of_image(*image, self.state.limits());
                if state.weight() > self.heaviest {
                    self.refuse();
                } else {
                    (self.state, self.unweighed) = (state, 0);
                    self.known_since_ns = Some(self.now_ns);
                }
            }
            Item::Row(row) => self.state.put_row(*row),
            Item::Begin(begin) => self.begins_anew(&begin, show)?,
            // A recording has one end.
            Item::End { .. } | Item::Close { .. } => {}
        }
        Ok(())
    }

    /// Whether the state would fill the memory with this item: anybody can write a recording.
    fn overfills(&mut self, item: &Item) -> bool {
        let more = match item {
            Item::Input(input) => input.weight(),
            Item::Row(row) => row.weight(),
            _ => 0,
        };
        self.unweighed = self.unweighed.saturating_add(more);
        if self.unweighed < self.heaviest / UNWEIGHED_PART {
            return false;
        }
        self.unweighed = more;
        self.state.weight().saturating_add(more) > self.heaviest
    }

    fn refuse(&mut self) {
        self.too_large = true;
        self.known_since_ns = None;
        self.state = State::new(self.state.limits());
    }

    /// Why nothing more is played.
    #[must_use]
    pub fn refused(&self) -> Option<&'static str> {
        self.too_large.then_some("it has more processes and queues than any tracer keeps")
    }

    /// The first file of those that are played, or one that does not go on where the one before it ended.
    fn begins_anew<E>(
        &mut self,
        begin: &Begin,
        show: &mut impl FnMut(&Replay, Line<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let anew = Replay::new(begin, self.clock.clone());
        let before = std::mem::replace(self, Replay { named: self.named, ..anew });
        // The line has the times of this file.
        self.clock.mono_to_wall_ns = i128::from(begin.unix_ns) - i128::from(begin.at_ns);
        let of_run = |part: &Part| before.part.is_some_and(|before| before.run_unix_ns == part.run_unix_ns);
        let lost_changes = begin.part.filter(of_run).map(|part| part.lost).filter(|lost| *lost > 0);
        let is_of_boot = begin.boot_id.is_some() && begin.boot_id == before.boot_id;
        let lasted_ns = begin.at_ns.checked_sub(before.now_ns).filter(|_| is_of_boot);
        show(self, Line::Gap { at_ns: begin.at_ns, gap: Gap { lasted_ns, lost_changes } })
    }

    /// Shows what is known to be missing before the first item.
    ///
    /// # Errors
    /// Those of `show`.
    pub fn begin<E>(
        &mut self,
        begin: &Begin,
        show: &mut impl FnMut(&Replay, Line<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let Some(lost) = begin.part.map(|part| part.lost).filter(|lost| *lost > 0) else { return Ok(()) };
        self.clock.mono_to_wall_ns = i128::from(begin.unix_ns) - i128::from(begin.at_ns);
        let gap = Gap { lasted_ns: None, lost_changes: Some(lost) };
        show(self, Line::Gap { at_ns: begin.at_ns, gap })
    }

    /// Shows the last lines. To be called after the last item.
    ///
    /// # Errors
    /// Those of `show`.
    pub fn settle<E>(&mut self, show: &mut impl FnMut(&Replay, Line<'_>) -> Result<(), E>) -> Result<(), E> {
        let mut held = std::mem::take(&mut self.held);
        for (event, change) in &held {
            show(self, Line::Event(event, change))?;
        }
        held.clear();
        self.held = held;
        Ok(())
    }
}

/// A tracer reads these names from the kernel; anybody can write a recording, and they are shown on terminals.
fn safe(mut topology: Topology) -> Topology {
    for gpu in &mut topology.gpus {
        for text in [&mut gpu.name, &mut gpu.product_name, &mut gpu.serial_number, &mut gpu.pci] {
            *text = text.as_deref().map(escape::terminal);
        }
    }
    topology
}

/// When an item happened; `None` where it has no time of its own.
#[must_use]
pub fn time_of(item: &Item) -> Option<u64> {
    match item {
        Item::Begin(Begin { at_ns, .. })
        | Item::Loads { at_ns, .. }
        | Item::Sight { at_ns, .. }
        | Item::Lost { at_ns, .. }
        | Item::End { at_ns, .. } => Some(*at_ns),
        Item::Input(input) => match input {
            Input::Event(event) => Some(event.mono_ns),
            Input::Process { read, .. } | Input::Queue { read, .. } => Some(read.until_ns),
            Input::Corrected { at_ns, .. }
            | Input::Gone { at_ns, .. }
            | Input::Unloaded { at_ns }
            | Input::Vram { at_ns, .. }
            | Input::Missed { at_ns }
            | Input::Expired { at_ns } => Some(*at_ns),
            Input::Sampled(samples) => samples.last().map(|sample| sample.at_ns),
            Input::Details { .. }
            | Input::Compared(_)
            | Input::Unlisted(_)
            | Input::Sought
            | Input::Late
            | Input::Anew => None,
        },
        Item::Close { at_ns, .. } => Some(*at_ns),
        Item::Driver { .. }
        | Item::Gpus(_)
        | Item::Clock { .. }
        | Item::Existing
        | Item::State(_)
        | Item::Row(_) => None,
    }
}
